//! The state machine as pure functions. Stores swap, this module decides; time is an argument.
//!
//! ```text
//!             insert                       complete
//!  (absent) ─────────▶ in_progress ─────────────────────▶ completed
//!                       │  ▲    ▲                             │
//!                  fail │  │    │ takeover, relock            │ expired: as new
//!                       ▼  │    └──(in_progress, stale)       ▼
//!                      failed ── retry ──▶ in_progress    in_progress
//! ```
//!
//! * [`table`]: which event is legal in which state, as one total table.
//! * [`change`]: the closed list of compare-and-swaps and what each compares and sets.
//! * [`completion`]: a completion that a transaction of the caller's writes.
//! * [`decide`](mod@decide): what a claim that meets a row does.
//! * [`ownership`]: what an owner proposes, and what it concludes when a reply was lost.

pub mod change;
pub mod completion;
pub mod decide;
pub mod ownership;
pub mod table;

#[cfg(test)]
mod model_check;

pub use change::{Change, NextOwnership};
pub use completion::{Completion, NotCompleted};
pub use decide::{AbandonReason, Decision, Previous, decide, reconcile};
pub use ownership::{NoEffectRefused, Ownership, ProgressVerdict, SettlementVerdict};
pub use table::{Event, Transition, next_status};
