//! The rig keeps its promises: servers start, do as they are told, and leave nothing behind.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]
#![allow(clippy::doc_markdown, reason = "the names of products are not code")]

mod life;
mod pgbouncer;
mod postgres;
mod proxy;
mod redis;
