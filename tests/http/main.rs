//! `idem-tower` over real sockets: what hyper's client and curl see of it.

#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod client;
mod grpc;
mod limits;
mod outcomes;
mod problems;
mod refusals;
mod replays;
mod server;
mod stores;
mod tenants;
