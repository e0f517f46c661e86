//! The conformance suite, for authors of back ends.

mod fault_plan;
mod fault_store;
mod harness;
mod reference;

pub use fault_plan::{CallKind, FaultPlan, Injection};
pub use fault_store::FaultStore;
pub use harness::{Fresh, Harness};
pub use reference::ReferenceStore;
