//! What a back end implements: the [`Store`] trait and its values.
//!
//! A store swaps; it decides nothing. A back-end author implements [`Store`], writes one
//! [`Harness`](crate::conformance::Harness) and calls the conformance suite, which is the other half of this contract.

mod contract;
mod maintenance;

pub use contract::{Inserted, Loaded, Store, Swapped};
pub use maintenance::{
    Erase, Erased, PurgeOptions, Purged, Stats, Stuck, StuckCursor, StuckPage, StuckQuery, UnresolvedRows,
};
