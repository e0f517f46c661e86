//! Stores that break the contract in one way each: the suite's own test.

mod alter;
mod fault;
mod store;
mod swap;

pub use fault::Fault;
pub use store::BrokenStore;
