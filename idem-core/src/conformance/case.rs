//! One case of the suite: [`Case`], and how it is run.

use super::cases::{CASES, CaseFuture, Trial};
use super::harness::Harness;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// For the slowest case on the slowest server; a store that hangs fails instead of holding up the run.
const CASE_DEADLINE: Duration = Duration::from_secs(300);

/// One case of the conformance suite: what must hold, and a program that tries to break it.
///
/// [`conformance_suite!`](crate::conformance_suite) makes a test of each; run them by hand to do something else with
/// them.
#[derive(Clone, Copy)]
pub struct Case {
    /// The name of the case and of the test that it becomes.
    pub name: &'static str,
    /// What the case is about; also the file in which it stands.
    pub subject: &'static str,
    /// The invariant, in a sentence.
    pub invariant: &'static str,
    pub(super) program: fn(Trial) -> CaseFuture,
}

impl Case {
    /// The case of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        CASES.iter().find(|case| case.name == name)
    }

    /// Runs the case on a fresh store of `harness`. Needs a multi-threaded tokio runtime: the races want real threads.
    ///
    /// # Panics
    ///
    /// Panics if the invariant does not hold, and names it. That is how the case fails.
    pub async fn run<H: Harness>(&self, harness: &H) {
        let fresh = harness.fresh().await;
        let program = (self.program)(Trial::new(fresh.store.clone(), harness.race_rounds()));
        let failure = match tokio::time::timeout(CASE_DEADLINE, caught(program)).await {
            Ok(Ok(())) => return,
            Ok(Err(panic)) => text_of(&*panic).to_owned(),
            Err(_) => format!("the case did not end within {CASE_DEADLINE:?}"),
        };
        drop(fresh);
        panic!("{}: the store breaks the contract.\n  invariant: {}\n  {failure}", self.name, self.invariant);
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Case({}::{})", self.subject, self.name)
    }
}

/// Awaits `program` and turns a panic into a value, so that the failure can name the invariant.
async fn caught(program: CaseFuture) -> Result<(), Box<dyn Any + Send>> {
    let mut program = pin!(program);
    std::future::poll_fn(move |context| match catch_unwind(AssertUnwindSafe(|| program.as_mut().poll(context))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(())) => Poll::Ready(Ok(())),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text,
        (None, None) => "panicked without a text",
    }
}
