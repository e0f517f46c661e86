//! The Postgres back end, on real servers.

#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod conformance;
mod connections;
mod disk;
mod groups;
mod inbox;
mod load;
mod lost_replies;
mod model;
mod outbox;
mod servers;
mod startup;
mod steps;
mod support;
mod table;
mod tap;
mod transactions;
mod wire;
