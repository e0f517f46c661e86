//! Operations that nobody came back from: they are looked up under a lease, and closed as it is found.

use crate::support::*;
use idem_core::{
    Begun, ErrorKind, Failure, Finding, Outcome, ReconcileOptions, Response, Settlement, Status, Takeover,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::advance;

const AFTER: Duration = Duration::from_secs(120);

fn options() -> ReconcileOptions {
    ReconcileOptions::default().with_after(AFTER)
}

/// A key whose owner died, after it marked an effect or before.
async fn orphan(bench: &Bench, effect: bool) {
    let Begun::Acquired(lease) = bench.engine.begin(request_with(Takeover::Never)).await.unwrap() else {
        panic!("a new key")
    };
    if effect {
        lease.begin_effect("charge").await.unwrap();
    }
    lease.checkpoint("charging", "cus_1").await.unwrap();
    // It is never dropped, as if its process were gone.
    std::mem::forget(lease);
    let Begun::InProgress { .. } = bench.rival().begin(request_with(Takeover::Never)).await.unwrap() else {
        panic!("its lease is live")
    };
    advance(2 * LEASE).await;
}

#[tokio::test(start_paused = true)]
async fn what_happened_is_recorded_and_replayed() {
    let bench = Bench::new();
    orphan(&bench, true).await;
    // Not yet: a call may still be on its way.
    let early = bench.engine.reconcile(&options(), |_| async { panic!("too early") }).await.unwrap();
    assert_eq!(early.looked_at, 0);
    advance(AFTER).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let options = options();
    let reconciled = bench.engine.reconcile(&options, |unresolved| {
        let seen = Arc::clone(&seen);
        async move {
            assert!(unresolved.effect_may_have_begun().await);
            assert_eq!(unresolved.recovery_point().unwrap().name, "charging");
            seen.lock().unwrap().push((unresolved.identity().clone(), unresolved.derived_key("charge")));
            Finding::Completed(answer(7))
        }
    });
    let reconciled = reconciled.await.unwrap();
    assert_eq!((reconciled.looked_at, reconciled.completed, reconciled.too_late), (1, 1, 0));
    assert_eq!(*seen.lock().unwrap(), [(identity(), identity().derived_key("charge"))]);
    let Begun::Replayed(response) = bench.engine.begin(request_with(Takeover::Never)).await.unwrap() else {
        panic!("it is done")
    };
    assert_eq!(response, answer(7));
    // There is nothing left to look at.
    advance(AFTER).await;
    assert_eq!(bench.engine.reconcile(&options, |_| async { panic!("done") }).await.unwrap().looked_at, 0);
}

#[tokio::test(start_paused = true)]
async fn what_did_not_happen_may_run_again_unless_a_call_may_still_arrive() {
    for effect in [false, true] {
        let bench = Bench::new();
        orphan(&bench, effect).await;
        advance(AFTER).await;
        let reconciled = bench.engine.reconcile(&options(), |_| async { Finding::NothingHappened }).await.unwrap();
        assert_eq!((reconciled.looked_at, reconciled.nothing_happened), (1, 1));
        assert_eq!(bench.record().await.unwrap().status(), Status::Failed);
        let begun = bench.engine.begin(request_with(Takeover::Never)).await.unwrap();
        match begun {
            Begun::Acquired(lease) if !effect => {
                assert_eq!(lease.complete(answer(2)).await.unwrap(), Settlement::Recorded);
            }
            Begun::Abandoned { .. } if effect => {}
            other => panic!("effect {effect}: {other:?}"),
        }
    }
}

/// Bug that is not made: a reconciler that finds out nothing, again and again, would use up the attempts of a request
/// that may still be retried.
#[tokio::test(start_paused = true)]
async fn looking_again_and_again_uses_up_no_attempts() {
    let bench = Bench::new();
    orphan(&bench, true).await;
    for _ in 0..20 {
        advance(AFTER).await;
        let reconciled = bench.engine.reconcile(&options(), |_| async { Finding::StillUnknown }).await.unwrap();
        assert_eq!((reconciled.looked_at, reconciled.still_unknown), (1, 1));
        // It was looked at just now.
        let again = bench.engine.reconcile(&options(), |_| async { panic!("just now") }).await.unwrap();
        assert_eq!(again.looked_at, 0);
    }
    let Begun::Acquired(lease) = bench.engine.begin(request_with(Takeover::Resume)).await.unwrap() else {
        panic!("a retry may run")
    };
    assert_eq!(lease.complete(answer(3)).await.unwrap(), Settlement::Recorded);
}

/// Whoever looks is fenced like any owner, and a late owner is fenced by whoever looks.
#[tokio::test(start_paused = true)]
async fn a_late_owner_is_fenced_by_whoever_looks() {
    let bench = Bench::new();
    let Begun::Acquired(late) = bench.engine.begin(request()).await.unwrap() else { panic!("a new key") };
    advance(2 * LEASE + AFTER).await;
    let late = Arc::new(tokio::sync::Mutex::new(Some(late)));
    let options = options();
    let reconciled = bench.engine.reconcile(&options, |_| {
        let late = Arc::clone(&late);
        async move {
            let late = late.lock().await.take().unwrap();
            // It wakes up in the middle of the look.
            assert!(matches!(late.complete(answer(1)).await.unwrap(), Settlement::Fenced { .. }));
            Finding::Completed(answer(7))
        }
    });
    assert_eq!(reconciled.await.unwrap().completed, 1);
    let Begun::Replayed(response) = bench.engine.begin(request()).await.unwrap() else { panic!("done") };
    assert_eq!(response, answer(7));
}

#[tokio::test(start_paused = true)]
async fn a_look_that_panics_or_hangs_leaves_the_rest_to_the_next() {
    let bench = Bench::new();
    orphan(&bench, true).await;
    advance(AFTER).await;
    let panics = bench.engine.reconcile(&options(), |_| async { panic!("a bug in a look") }).await.unwrap();
    assert_eq!((panics.looked_at, panics.still_unknown), (1, 1));
    advance(AFTER).await;
    let hangs = bench.engine.reconcile(&options(), |_| std::future::pending()).await.unwrap();
    assert_eq!((hangs.looked_at, hangs.still_unknown), (1, 1), "for as long as a handler may run");
    advance(AFTER).await;
    let third = bench.engine.reconcile(&options(), |_| async { Finding::Completed(answer(1)) }).await.unwrap();
    assert_eq!(third.completed, 1);
}

#[tokio::test(start_paused = true)]
async fn in_the_background_it_looks_again_and_again() {
    let bench = Bench::new();
    orphan(&bench, true).await;
    let options = options().with_interval(Duration::from_secs(10));
    let reconciler = bench.engine.spawn_reconciler(options, |_| async { Finding::Completed(answer(7)) }).unwrap();
    let mut waited = Duration::ZERO;
    while bench.record().await.unwrap().status() != Status::Completed {
        advance(Duration::from_secs(1)).await;
        tokio::task::yield_now().await;
        waited += Duration::from_secs(1);
        assert!(waited < Duration::from_secs(300));
    }
    reconciler.stop().await;
}

#[tokio::test(start_paused = true)]
async fn looking_after_the_provider_forgot_is_refused() {
    let bench = Bench::new();
    let late = ReconcileOptions::default().with_after(Duration::from_secs(20 * 3600));
    let error = bench.engine.reconcile(&late, |_| async { Finding::StillUnknown }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.to_string().contains("look earlier"), "{error}");
    assert!(bench.engine.spawn_reconciler(late, |_| async { Finding::StillUnknown }).is_err());
}

#[tokio::test(start_paused = true)]
async fn an_operation_at_work_is_not_looked_at() {
    let bench = Bench::new();
    let run = bench.engine.execute(request(), |_| async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        Ok::<_, Failure<()>>(Response::new(200, "done"))
    });
    let nothing = ReconcileOptions::default().with_after(Duration::ZERO);
    let look = bench.engine.reconcile(&nothing, |_| async { panic!("somebody works on it") });
    let (outcome, reconciled) = tokio::join!(run, look);
    assert!(matches!(outcome.unwrap(), Outcome::Executed { .. }));
    assert_eq!(reconciled.unwrap().looked_at, 0);
}
