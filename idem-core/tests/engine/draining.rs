//! `drain`: nothing is claimed any more, and afterwards no row holds a live lease.

use crate::support::*;
use idem_core::{Begun, ErrorKind, Failure, Outcome, Response, StopReason, WriteOutcome};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn what_finishes_in_time_is_recorded() {
    let bench = Bench::new();
    let started = Arc::new(Notify::new());
    let run = tokio::spawn({
        let (engine, started) = (bench.engine.clone(), Arc::clone(&started));
        async move {
            let handler = move |_| async move {
                started.notify_one();
                sleep(Duration::from_secs(1)).await;
                Ok::<_, Failure<()>>(answer(1))
            };
            engine.execute(request(), handler).await
        }
    });
    started.notified().await;
    let drain = bench.engine.drain(Duration::from_secs(10));
    let refused = async {
        let error = bench.engine.begin(request()).await.unwrap_err();
        assert_eq!((error.kind(), error.write_outcome()), (ErrorKind::Draining, WriteOutcome::NotApplied));
    };
    let (drained, ()) = tokio::join!(drain, refused);
    assert_eq!((drained.given_up, drained.settled), (0, true));
    assert!(matches!(run.await.unwrap().unwrap(), Outcome::Executed { .. }));
}

#[tokio::test(start_paused = true)]
async fn what_does_not_is_given_up_and_free_at_once() {
    let bench = Bench::new();
    let started = Arc::new(Notify::new());
    let run = tokio::spawn({
        let (engine, started) = (bench.engine.clone(), Arc::clone(&started));
        async move {
            let handler = move |_| async move {
                started.notify_one();
                std::future::pending::<Result<Response, Failure<()>>>().await
            };
            engine.execute(request(), handler).await
        }
    });
    started.notified().await;
    let drained = bench.engine.drain(Duration::from_secs(1)).await;
    assert_eq!((drained.given_up, drained.settled), (1, true));
    assert!(matches!(run.await.unwrap().unwrap(), Outcome::Stopped { reason: StopReason::Drained }));
    assert!(!bench.is_live().await);
    let Begun::Acquired(lease) = bench.rival().begin(request()).await.unwrap() else { panic!("free") };
    let _ = lease.complete(answer(2)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn leases_in_callers_hands_are_given_up_too() {
    let bench = Bench::new();
    let Begun::Acquired(lease) = bench.engine.begin(request()).await.unwrap() else { panic!("granted") };
    let drained = bench.engine.drain(Duration::ZERO).await;
    assert_eq!(drained.given_up, 1);
    assert!(!bench.is_live().await);
    assert!(lease.remaining().is_zero());
    // Nobody took the key in between, so the holder's true answer is still worth storing.
    assert_eq!(lease.complete(answer(1)).await.unwrap(), idem_core::Settlement::Recorded);
}
