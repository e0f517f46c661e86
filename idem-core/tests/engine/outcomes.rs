//! What a caller gets, case by case.

use crate::support::*;
use idem_core::machine::{AbandonReason, Previous};
use idem_core::{
    Begun, Disposition, Failure, Interrupted, Key, Outcome, Recorded, Request, Response, Scope, Settlement, Status,
    StopReason, Takeover,
};
use std::sync::Arc;
use tokio::sync::Notify;

#[tokio::test(start_paused = true)]
async fn a_repeat_gets_the_first_answer_and_runs_nothing() {
    let bench = Bench::new();
    let Outcome::Executed { response, recorded } = bench.charge().await.unwrap() else { panic!("runs") };
    assert_eq!((response, recorded), (answer(1), Recorded::Yes));
    for _ in 0..3 {
        let Outcome::Replayed(replay) = bench.charge().await.unwrap() else { panic!("replays") };
        assert_eq!(replay, answer(1));
    }
    assert_eq!(bench.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_repeat_during_the_first_run_is_told_when_to_come_back() {
    let bench = Bench::new();
    let go = Arc::new(Notify::new());
    let started = Arc::new(Notify::new());
    let first = tokio::spawn({
        let (engine, go, started) = (bench.engine.clone(), Arc::clone(&go), Arc::clone(&started));
        async move {
            engine
                .execute(request(), move |_| async move {
                    started.notify_one();
                    go.notified().await;
                    Ok::<_, Failure<()>>(answer(1))
                })
                .await
        }
    });
    started.notified().await;
    let Outcome::InProgress { since: Some(_), retry_after } = bench.charge().await.unwrap() else { panic!("busy") };
    assert_eq!(retry_after.as_secs(), 1);
    go.notify_one();
    assert!(matches!(first.await.unwrap().unwrap(), Outcome::Executed { .. }));
    assert_eq!(bench.runs(), 0);
}

#[tokio::test(start_paused = true)]
async fn another_request_under_the_key_never_runs_and_names_the_part() {
    let bench = Bench::new();
    let _ = bench.charge().await.unwrap();
    let other = |fingerprint| {
        Request::new(Scope::new("acct_1").unwrap(), Key::new("key_1").unwrap(), fingerprint, Takeover::Resume)
    };
    let run = |request| bench.engine.execute(request, |_| async { Err(Failure::<&str>::NoEffect("ran")) });

    let Outcome::Mismatch { part } = run(other(fingerprint(b"{\"amount\":2}"))).await.unwrap() else {
        panic!("differs")
    };
    assert_eq!(part.unwrap().to_string(), "body");
    let route = idem_core::Fingerprint::builder("POST /refunds").json(b"{\"amount\":1}").finish().unwrap();
    let Outcome::Mismatch { part } = run(other(route)).await.unwrap() else { panic!("differs") };
    assert_eq!(part.unwrap().to_string(), "operation");
}

#[tokio::test(start_paused = true)]
async fn two_scopes_with_one_key_never_meet() {
    let bench = Bench::new();
    let _ = bench.charge().await.unwrap();
    let other = Request::new(
        Scope::new("acct_2").unwrap(),
        Key::new("key_1").unwrap(),
        fingerprint(b"{\"amount\":1}"),
        Takeover::Resume,
    );
    let outcome = bench.engine.execute(other, |_| async { Ok::<_, Failure<()>>(Response::new(200, "theirs")) }).await;
    let Outcome::Executed { response, .. } = outcome.unwrap() else { panic!("runs") };
    assert_eq!(response.body(), "theirs");
}

#[tokio::test(start_paused = true)]
async fn a_final_failure_is_an_answer() {
    let bench = Bench::new();
    let declined = || Response::new(500, "the receipt could not be printed");
    let run = || bench.engine.execute(request(), move |_| async move { Err(Failure::<()>::Final(declined())) });
    assert!(matches!(run().await.unwrap(), Outcome::Executed { response, .. } if response == declined()));
    assert!(matches!(run().await.unwrap(), Outcome::Replayed(response) if response == declined()));
}

#[tokio::test(start_paused = true)]
async fn an_answer_above_the_limit_reaches_its_caller_and_leaves_a_tombstone() {
    let bench = Bench::with(idem_core::conformance::FaultPlan::none(), |builder| builder.with_response_limit(10));
    let run = |length: usize| {
        bench
            .engine
            .execute(request(), move |_| async move { Ok::<_, Failure<()>>(Response::new(200, vec![b'x'; length])) })
    };
    let Outcome::Executed { response, recorded: Recorded::Yes } = run(11).await.unwrap() else { panic!("runs") };
    assert_eq!(response.body().len(), 11);
    let Outcome::Replayed(tombstone) = run(1).await.unwrap() else { panic!("never runs again") };
    assert_eq!((tombstone.code(), tombstone.tombstone_length()), (Some(200), Some(11)));
}

#[tokio::test(start_paused = true)]
async fn a_failure_without_effect_lets_a_retry_run_from_its_recovery_point() {
    let bench = Bench::new();
    let failed = bench.engine.execute(request(), |operation| async move {
        operation.checkpoint("validated", "17").await?;
        Err(Failure::NoEffect("provider is down"))
    });
    let Outcome::Failed { error, disposition } = failed.await.unwrap() else { panic!("fails") };
    assert_eq!((error, disposition), ("provider is down", Disposition::Retryable));

    let retried = bench.engine.execute(request(), |operation| async move {
        assert_eq!((operation.attempt(), operation.previous()), (2, Previous::NoEffect));
        let point = operation.recovery_point().unwrap();
        assert_eq!((point.name.as_str(), &point.data[..]), ("validated", &b"17"[..]));
        Ok::<_, Failure<()>>(answer(2))
    });
    assert!(matches!(retried.await.unwrap(), Outcome::Executed { .. }));
}

#[tokio::test(start_paused = true)]
async fn typed_values_come_back_as_values() {
    let bench = Bench::new();
    let run = || {
        bench.engine.execute_typed(request(), |_| async { Ok::<(u32, String), Failure<(), _>>((7, "seven".into())) })
    };
    assert!(matches!(run().await.unwrap(), Outcome::Executed { response: (7, _), .. }));
    let Outcome::Replayed((number, text)) = run().await.unwrap() else { panic!("replays") };
    assert_eq!((number, text.as_str()), (7, "seven"));

    // Read as another type, the stored answer is corrupt, and the error does not quote it.
    let wrong = bench.engine.execute_typed(request(), |_| async { Ok::<Vec<u8>, Failure<(), _>>(vec![]) }).await;
    let error = wrong.unwrap_err();
    assert_eq!(error.kind(), idem_core::ErrorKind::Corrupt);
    assert!(!format!("{error:?}").contains("seven"));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_borrows_runs_in_its_callers_task() {
    let bench = Bench::new();
    let words = ["borrowed"];
    let outcome = bench
        .engine
        .execute_inline(request(), |_| async { Ok::<_, Failure<()>>(Response::new(200, words[0].to_owned())) })
        .await;
    assert!(matches!(outcome.unwrap(), Outcome::Executed { .. }));
    assert_eq!(bench.record().await.unwrap().status(), Status::Completed);
}

#[tokio::test(start_paused = true)]
async fn the_same_steps_by_hand() {
    let bench = Bench::new();
    let Begun::Acquired(lease) = bench.engine.begin(request()).await.unwrap() else { panic!("granted") };
    assert_eq!((lease.attempt(), lease.previous()), (1, Previous::None));
    lease.begin_effect("charge").await.unwrap();
    lease.checkpoint("charged", "ch_1").await.unwrap();
    lease.renew().await.unwrap();
    // Each write proposes a lease that is larger than the last, by a millisecond if no time passed.
    assert!(lease.remaining() <= LEASE + 3 * std::time::Duration::from_millis(1), "{:?}", lease.remaining());
    assert_eq!(lease.complete(answer(1)).await.unwrap(), Settlement::Recorded);
    assert!(matches!(bench.engine.begin(request()).await.unwrap(), Begun::Replayed(response) if response == answer(1)));
}

#[tokio::test(start_paused = true)]
async fn takeover_is_the_requests_choice() {
    let cases = [
        (Takeover::Never, false, Some(AbandonReason::NeverTakeOver)),
        (Takeover::OnlyBeforeEffect, true, Some(AbandonReason::EffectBegun)),
        (Takeover::OnlyBeforeEffect, false, None),
        (Takeover::Resume, true, None),
    ];
    for (takeover, effect_begun, refused) in cases {
        let bench = Bench::new();
        let Begun::Acquired(lease) = bench.engine.begin(request()).await.unwrap() else { panic!("granted") };
        if effect_begun {
            lease.begin_effect("charge").await.unwrap();
        }
        let _ = lease.abandon().await.unwrap();
        match (bench.engine.begin(request_with(takeover)).await.unwrap(), refused) {
            (Begun::Abandoned { reason }, Some(expected)) => assert_eq!(reason, expected),
            (Begun::Acquired(lease), None) => {
                assert_eq!((lease.attempt(), lease.previous()), (2, Previous::Unknown { effect_begun }));
                let _ = lease.complete(answer(2)).await.unwrap();
            }
            (other, _) => panic!("{takeover:?}, {effect_begun}: {other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_kills_its_workers_is_left_alone_after_five_attempts() {
    let bench = Bench::new();
    for attempt in 1..=5 {
        let run = bench.engine.execute(request(), move |operation| async move {
            assert_eq!(operation.attempt(), attempt);
            Err(Failure::Unknown("lost"))
        });
        assert!(matches!(run.await.unwrap(), Outcome::Failed { disposition: Disposition::Unknown, .. }));
    }
    let outcome = bench.charge().await.unwrap();
    assert!(matches!(outcome, Outcome::Abandoned { reason: AbandonReason::TooManyAttempts }), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn failures_that_left_nothing_unknown_do_not_count_against_the_attempts() {
    let bench = Bench::new();
    for _ in 0..10 {
        let run = bench.engine.execute(request(), |_| async { Err(Failure::NoEffect("down")) });
        assert!(matches!(run.await.unwrap(), Outcome::Failed { disposition: Disposition::Retryable, .. }));
    }
    let crash = bench.engine.execute(request(), |_| async { Err(Failure::Unknown("lost")) });
    assert!(matches!(crash.await.unwrap(), Outcome::Failed { .. }));
    assert!(matches!(bench.charge().await.unwrap(), Outcome::Executed { .. }));
}

#[tokio::test(start_paused = true)]
async fn after_the_provider_window_nobody_runs_again() {
    let bench = Bench::new();
    let run = bench.engine.execute(request(), |_| async { Err(Failure::Unknown("lost")) });
    assert!(matches!(run.await.unwrap(), Outcome::Failed { .. }));
    tokio::time::advance(idem_core::Policy::default().provider_window()).await;
    tokio::time::advance(std::time::Duration::from_micros(1)).await;
    let outcome = bench.charge().await.unwrap();
    assert!(matches!(outcome, Outcome::Abandoned { reason: AbandonReason::ProviderWindowOver }), "{outcome:?}");
    // Nor when its retention is over: what is unresolved does not expire.
    tokio::time::advance(idem_core::Policy::default().retention()).await;
    assert!(matches!(bench.charge().await.unwrap(), Outcome::Abandoned { .. }));
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_outlives_its_handler_can_do_nothing() {
    let bench = Bench::new();
    let (send, receive) = tokio::sync::oneshot::channel();
    let run = bench.engine.execute(request(), move |operation| async move {
        let _ = send.send(operation);
        Ok::<_, Failure<()>>(answer(1))
    });
    assert!(matches!(run.await.unwrap(), Outcome::Executed { .. }));
    let operation = receive.await.unwrap();
    assert!(matches!(operation.begin_effect("late").await, Err(Interrupted::LeaseLost)));
    assert!(operation.remaining().is_zero());
    operation.lease_lost().await;
}

#[tokio::test(start_paused = true)]
async fn more_than_the_limit_at_once_is_refused_and_claims_nothing() {
    let bench = Bench::with(idem_core::conformance::FaultPlan::none(), |builder| builder.with_max_in_flight(1));
    let started = Arc::new(Notify::new());
    let running = tokio::spawn({
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
    let error = bench.charge().await.unwrap_err();
    assert_eq!(error.kind(), idem_core::ErrorKind::Overloaded);
    // At the end of the longest run the place is free again.
    assert!(matches!(running.await.unwrap().unwrap(), Outcome::Stopped { reason: StopReason::MaxRun }));
    assert!(matches!(bench.charge().await.unwrap(), Outcome::Executed { .. }));
}
