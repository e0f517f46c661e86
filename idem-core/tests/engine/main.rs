//! The engine over a store that fails on demand, mostly under a paused runtime: time passes only when everything waits.

mod at_most_once;
mod bad_input;
mod cancellation;
mod draining;
mod failures;
mod leases;
mod lost_replies;
mod outcomes;
mod privacy;
mod support;
mod sweeping;
mod waiting;
