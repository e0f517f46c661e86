//! The conformance suite, for authors of back ends.

mod case;
mod cases;
mod fault_plan;
mod fault_store;
mod harness;
mod reference;

pub use case::Case;
pub use cases::CASES;
pub use fault_plan::{CallKind, FaultPlan, Injection};
pub use fault_store::FaultStore;
pub use harness::{Fresh, Harness};
pub use reference::ReferenceStore;

/// Makes one named test of every case, for one back end.
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
        #[doc = $invariant]
        #[::tokio::test(flavor = "multi_thread")]
        async fn $name() {
            let case = $crate::conformance::Case::named(stringify!($name)).expect("every test is a case");
            case.run(&$harness).await;
        }
    )*)*};
}

#[cfg(test)]
mod tests;
