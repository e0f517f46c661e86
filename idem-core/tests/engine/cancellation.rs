//! Every public future, dropped at each of its await points: the key is settled or goes stale, never wedged.

use crate::support::*;
use idem_core::conformance::FaultPlan;
use idem_core::{Begun, Failure, Lease, Outcome, Response, Status};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::time::advance;

/// Polls `future` up to `times` times, letting everything else run in between, and then drops it. True if it finished.
async fn poll_then_drop(future: impl Future, times: usize) -> bool {
    let mut future = pin!(future);
    for _ in 0..times {
        if future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

/// After whatever happened, one lease later the key must answer: run, replay, or say that it is abandoned.
async fn assert_not_wedged(bench: &Bench, context: &str) {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    advance(LEASE + Duration::from_millis(1)).await;
    let outcome = bench.charge().await.unwrap();
    assert!(matches!(outcome, Outcome::Executed { .. } | Outcome::Replayed(_)), "{context}: {outcome:?}");
    assert_eq!(bench.record().await.unwrap().status(), Status::Completed, "{context}");
}

/// Drops what `start` makes after every possible number of polls, each time on a fresh bench, whose store waits.
async fn at_every_await<F: Future>(name: &str, start: impl AsyncFn(&Arc<Bench>) -> F) {
    for times in 0..200 {
        let bench = Arc::new(Bench::waiting());
        let finished = poll_then_drop(start(&bench).await, times).await;
        assert_not_wedged(&bench, &format!("{name} after {times} polls")).await;
        if finished {
            assert!(times > 1, "{name} never waits: nothing was tested");
            return;
        }
    }
    panic!("{name} did not finish within 200 polls");
}

async fn lease(bench: &Bench) -> Lease {
    let Begun::Acquired(lease) = bench.engine.begin(request()).await.unwrap() else { panic!("granted") };
    lease
}

async fn slow_handler(operation: idem_core::Operation) -> Result<Response, Failure<String>> {
    operation.begin_effect("charge").await?;
    tokio::task::yield_now().await;
    operation.checkpoint("charged", "1").await?;
    tokio::task::yield_now().await;
    Ok(answer(operation.attempt()))
}

#[tokio::test(start_paused = true)]
async fn execute() {
    at_every_await("execute", async |bench| {
        let bench = Arc::clone(bench);
        async move { bench.engine.execute(request(), slow_handler).await }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn execute_typed() {
    at_every_await("execute_typed", async |bench| {
        let bench = Arc::clone(bench);
        async move { bench.engine.execute_typed(request(), |_| async { Ok::<u8, Failure<(), _>>(1) }).await }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn execute_inline() {
    at_every_await("execute_inline", async |bench| {
        let bench = Arc::clone(bench);
        async move { bench.engine.execute_inline(request(), slow_handler).await }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn execute_at_most_once() {
    at_every_await("execute_at_most_once", async |bench| {
        let bench = Arc::clone(bench);
        async move { bench.engine.execute_at_most_once(request(), answer(1), tokio::task::yield_now).await }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn begin() {
    at_every_await("begin", async |bench| {
        let bench = Arc::clone(bench);
        async move { bench.engine.begin(request()).await }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_waiting_begin() {
    at_every_await("begin, waiting", async |bench| {
        let bench = Arc::clone(bench);
        let first = lease(&bench).await;
        async move {
            let waiting = bench.engine.begin(request().wait_up_to(Duration::from_secs(60)));
            let finish = async {
                tokio::task::yield_now().await;
                first.complete(answer(1)).await
            };
            let stop = async {
                for _ in 0..20 {
                    advance(Duration::from_millis(100)).await;
                    tokio::task::yield_now().await;
                }
            };
            tokio::join!(waiting, finish, stop)
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_leases_settlements() {
    at_every_await("complete", async |bench| lease(bench).await.complete(answer(1))).await;
    at_every_await("fail", async |bench| lease(bench).await.fail()).await;
    at_every_await("fail_verified", async |bench| lease(bench).await.fail_verified()).await;
    at_every_await("abandon", async |bench| lease(bench).await.abandon()).await;
}

/// Progress writes are dropped while a reply hangs.
#[tokio::test(start_paused = true)]
async fn a_leases_progress() {
    use idem_core::conformance::{CallKind, Injection};
    for injection in [Injection::Hang, Injection::HangAfter] {
        for step in 0..3 {
            let bench = Bench::new();
            let lease = lease(&bench).await;
            bench.store.set_plan(FaultPlan::none().on(CallKind::Swap, 1, injection));
            let finished = match step {
                0 => poll_then_drop(lease.begin_effect("charge"), 3).await,
                1 => poll_then_drop(lease.checkpoint("charged", "1"), 3).await,
                _ => poll_then_drop(lease.renew(), 3).await,
            };
            assert!(!finished, "the reply hangs");
            // The lease is still good for the next write, whether or not the dropped one landed.
            lease.checkpoint("after", "2").await.unwrap();
            assert!(matches!(lease.complete(answer(1)).await.unwrap(), idem_core::Settlement::Recorded));
            assert_not_wedged(&bench, "progress").await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn drain() {
    for times in 0..50 {
        let bench = Bench::new();
        let held = lease(&bench).await;
        let finished = poll_then_drop(bench.engine.drain(Duration::ZERO), times).await;
        // Whatever was reached, a second drain finishes the work.
        let drained = bench.engine.drain(Duration::ZERO).await;
        drop(held);
        assert!(times == 0 || drained.given_up >= 1, "{times}: {drained:?}");
        assert!(!bench.is_live().await, "after {times} polls");
        if finished {
            return;
        }
    }
    panic!("drain did not finish");
}

/// A caller that goes away in the middle does not stop the handler: a repeat gets its answer.
#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_leaves_a_settled_key() {
    let bench = Bench::new();
    let runs = Arc::clone(&bench.runs);
    let hung_up = bench.engine.execute(request(), move |operation| async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        counted(runs, operation).await
    });
    assert!(!poll_then_drop(hung_up, 3).await);
    advance(Duration::from_secs(1)).await;
    while bench.record().await.unwrap().status() != Status::Completed {
        tokio::task::yield_now().await;
    }
    assert!(matches!(bench.charge().await.unwrap(), Outcome::Replayed(response) if response == answer(1)));
    assert_eq!(bench.runs(), 1);
}
