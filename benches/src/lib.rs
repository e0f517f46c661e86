//! The benchmarks of idem.
//!
//! - `cargo run --release -p idem-benches --bin compare`: both sides of every comparison, in turn;
//! - `cargo run --release -p idem-benches --bin growth`: what a large table costs;
//! - `cargo run --release -p idem-benches --bin allocations`: what an operation allocates;
//! - `cargo run --release -p idem-benches --bin blocked`: what other keys suffer from one that is blocked;
//! - `cargo bench -p idem-benches`: the parts that need no server.

pub mod chart;
pub mod load;
pub mod machine;
pub mod median;
pub mod null;
pub mod sample;
pub mod servers;
pub mod workload;
