//! The negative cache in front of real stores, on real servers of Redis and Valkey, healthy and not.
//!
//! | file | shows |
//! |---|---|
//! | `conformance.rs` | the list that every back end passes, whether Redis is up, in pieces or nowhere |
//! | `promises.rs` | what an entry says to others, step by step |
//! | `history.rs`, `torments.rs` | the same history with the cache and without, while the worst is done to Redis |
//! | `stalled.rs` | what a Redis that hangs costs |
//! | `storm.rs` | what a storm of retries costs PostgreSQL, by its own count |
//! | `price.rs` | what the cache costs and saves, measured |
//! | `canary.rs` | nothing of a request is to be found in Redis |

#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed")]
#![allow(clippy::doc_markdown, reason = "the names of products are not code")]

mod canary;
mod conformance;
mod history;
mod price;
mod promises;
mod servers;
mod stalled;
mod storm;
mod support;
mod torments;
