//! The conformance suite: what a back end must do, as tests that try to break it.
//!
//! A back end for idem is one type that implements [`Store`](crate::Store): seven methods, none of which decides
//! anything. The trait's page says what each must do; this module tries whether it does. There is one list of cases for
//! all back ends. No case is optional, and none is softer for one of them than for another.
//!
//! # A back end in three steps
//!
//! 1. **Implement [`Store`](crate::Store).** Start from [`ReferenceStore`], which is the contract as a short program, and
//!    hold every method against the function that the reference calls: [`Claim::first_record`](crate::Claim::first_record)
//!    for an insert, [`Change::apply`](crate::machine::Change::apply) for a swap,
//!    [`PurgeOptions::deletes`](crate::store::PurgeOptions::deletes), [`StuckQuery::lists`](crate::store::StuckQuery::lists),
//!    [`Stats::count`](crate::store::Stats::count) and [`Erase::deletes`](crate::store::Erase::deletes) for the rest.
//! 2. **Write one [`Harness`]**, which makes a fresh store, or a fresh namespace of a real server, for every case.
//! 3. **Call [`conformance_suite!`](crate::conformance_suite)** with it, in a test file. Each case becomes a test of its
//!    own.
//!
//! The feature `conformance` belongs into `[dev-dependencies]`, beside tokio, which runs the tests:
//!
//! ```toml
//! [dev-dependencies]
//! idem-core = { version = "0.1", features = ["conformance"] }
//! async-trait = "0.1"
//! tokio = { version = "1", features = ["macros", "rt-multi-thread"] }
//! ```
//!
//! And `tests/conformance.rs`, all of it:
//!
//! ```
//! use async_trait::async_trait;
//! use idem_core::conformance::{Fresh, Harness, ReferenceStore};
//!
//! struct MyHarness;
//!
//! #[async_trait]
//! impl Harness for MyHarness {
//!     type Store = ReferenceStore; // yours
//!     type Guard = (); // what must outlive the store: a server's process, a schema that is dropped in the end
//!
//!     async fn fresh(&self) -> Fresh<ReferenceStore> {
//!         Fresh::new(ReferenceStore::default())
//!     }
//! }
//!
//! idem_core::conformance_suite!(MyHarness);
//! # fn main() {}
//! ```
//!
//! For two harnesses in one file, put each call into a module of its own.
//!
//! # What the suite asks of a store besides
//!
//! * Time moves by leases and retentions of zero, of a millisecond or of an hour, and by nothing else. The store's clock must
//!   run: cases wait for it, a few milliseconds at a time, by asking [`load`](crate::Store::load).
//! * Every value that the types allow and an `int`, a `bigint` or a `timestamptz` can hold comes back: counts to `2^31 - 1`,
//!   [`LeaseLength::MAX`](crate::LeaseLength::MAX), retention to [`Policy::MAX_RETENTION`](crate::Policy::MAX_RETENTION),
//!   instants of the year 9999.
//! * A cache in front may answer the first ask of a claim with [`Busy`](crate::store::Inserted::Busy) if the key is taken. A
//!   claim that [was asked before](crate::Claim::was_asked_before) must reach the store.
//! * A call may be dropped at any moment. Its write may still land later; it must not land by half.
//! * A failure names the invariant, which also stands in [`CASES`].
//!
//! # The suite is tested, too
//!
//! A test that cannot fail guards nothing. [`Fault`] lists what can be wrong with a store, and a [`BrokenStore`] for each
//! fails the case that [`Fault::caught_by`] names.
//!
//! # Faults on demand
//!
//! [`FaultStore`] wraps any store and makes chosen calls fail before or after they took effect, land late or hang: a
//! [`FaultPlan`] says which, by script or from a seed. It is for tests of what is built on a store.

mod broken;
mod case;
mod cases;
mod fault_plan;
mod fault_store;
mod harness;
mod reference;

pub use broken::{BrokenStore, Fault};
pub use case::Case;
pub use cases::CASES;
pub use fault_plan::{CallKind, FaultPlan, Injection};
pub use fault_store::FaultStore;
pub use harness::{Fresh, Harness};
pub use reference::ReferenceStore;

/// Makes one named test of every case, for one back end: `conformance_suite!(harness)`.
///
/// `harness` is an expression that gives a [`Harness`](crate::conformance::Harness); it is evaluated once per test. The crate
/// that calls it needs tokio with the features `macros` and `rt-multi-thread`. The
/// [module's page](crate::conformance) has an example.
#[macro_export]
macro_rules! conformance_suite {
    ($harness:expr $(,)?) => {
        $crate::__idem_conformance_cases!(($crate::__idem_conformance_tests) $harness);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __idem_conformance_tests {
    (($harness:expr) $($subject:ident { $($name:ident: $invariant:literal,)* })*) => {$($(
        #[::tokio::test(flavor = "multi_thread")]
        async fn $name() {
            let case = $crate::conformance::Case::named(stringify!($name)).expect("every test is a case");
            case.run(&$harness).await;
        }
    )*)*};
}

#[cfg(test)]
mod tests;
