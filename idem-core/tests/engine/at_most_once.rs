//! Recorded first, done second: lost rather than repeated.

use crate::support::*;
use idem_core::conformance::{CallKind, FaultPlan, Injection};
use idem_core::machine::Event;
use idem_core::{Outcome, Status, WriteOutcome};
use std::sync::Arc;
use std::sync::atomic::Ordering;

async fn send(bench: &Bench) -> Result<Outcome<idem_core::Response, std::convert::Infallible>, idem_core::Error> {
    let (runs, store) = (Arc::clone(&bench.runs), Arc::clone(&bench.store));
    let work = move || async move {
        let recorded = idem_core::Store::load(store.inner(), &identity()).await.unwrap().record.unwrap();
        assert_eq!(recorded.status(), Status::Completed, "recorded before the work starts");
        runs.fetch_add(1, Ordering::SeqCst);
    };
    bench.engine.execute_at_most_once(request(), answer(1), work).await
}

#[tokio::test(start_paused = true)]
async fn the_answer_is_stored_before_the_work_starts_and_the_work_runs_once() {
    let bench = Bench::new();
    assert!(matches!(send(&bench).await.unwrap(), Outcome::Executed { .. }));
    assert!(matches!(send(&bench).await.unwrap(), Outcome::Replayed(_)));
    assert_eq!(bench.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn without_a_known_record_the_work_does_not_start() {
    for injection in [Injection::Refuse, Injection::LoseRequest, Injection::Hang] {
        let plan = FaultPlan::none().onward(CallKind::SwapOf(Event::Complete), 1, injection);
        let bench = Bench::failing(plan);
        assert_eq!(send(&bench).await.unwrap_err().write_outcome(), WriteOutcome::Unknown, "{injection:?}");
        assert_eq!(bench.runs(), 0, "{injection:?}");
    }
    // A lost reply is looked up, and then the record is known.
    let bench = Bench::failing(FaultPlan::none().on(CallKind::SwapOf(Event::Complete), 1, Injection::LoseReply));
    assert!(matches!(send(&bench).await.unwrap(), Outcome::Executed { .. }));
    assert_eq!(bench.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn work_that_panics_is_lost_and_never_repeated() {
    let bench = Bench::new();
    let work = || async { panic!("boom") };
    let outcome = bench.engine.execute_at_most_once(request(), answer(1), work).await.unwrap();
    assert!(matches!(outcome, Outcome::Panicked(_)));
    assert!(matches!(send(&bench).await.unwrap(), Outcome::Replayed(_)));
    assert_eq!(bench.runs(), 0);
}
