//! The engine over a store that fails on demand, mostly under a paused runtime: time passes only when everything waits.

#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed")]
#![expect(
    clippy::async_yields_async,
    reason = "cancellation: futures are made in a fresh setting, and dropped unfinished"
)]

mod at_most_once;
mod bad_input;
mod cancellation;
mod draining;
mod failures;
mod leases;
mod lost_replies;
mod outcomes;
mod privacy;
mod reconciling;
mod steps;
mod support;
mod sweeping;
mod waiting;
