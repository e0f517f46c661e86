//! Requests and replies that get lost, in every place: the caller ends up knowing the truth, or knowing that it does
//! not.

use crate::support::*;
use idem_core::conformance::{CallKind, FaultPlan, FaultStore, Injection, ReferenceStore};
use idem_core::machine::Event;
use idem_core::{
    Begun, Engine, ErrorKind, Failure, ManualClock, Outcome, Recorded, Settlement, State, Status, Store, Timestamp,
    WriteOutcome,
};
use std::sync::Arc;
use std::time::Duration;

const SOFT: [Injection; 6] = [
    Injection::Refuse,
    Injection::LoseRequest,
    Injection::LoseReply,
    Injection::LandLate { after_calls: 1 },
    Injection::LandLate { after_calls: 2 },
    Injection::HangAfter,
];

/// One fault in one call, wherever it falls: exactly one run, and the answer is recorded.
#[tokio::test(start_paused = true)]
async fn one_fault_anywhere_changes_nothing() {
    for injection in SOFT.into_iter().chain([Injection::Hang]) {
        for nth in 1..=6 {
            let bench = Bench::failing(FaultPlan::none().on(CallKind::Any, nth, injection));
            let run = bench.engine.execute(request(), |operation| async move {
                operation.checkpoint("validated", "1").await?;
                operation.begin_effect("charge").await?;
                operation.checkpoint("charged", "2").await?;
                Ok::<_, Failure<()>>(answer(operation.attempt()))
            });
            let Outcome::Executed { response, recorded: Recorded::Yes } = run.await.unwrap() else {
                panic!("{injection:?} in call {nth}")
            };
            assert_eq!(response, answer(1), "{injection:?} in call {nth}");
            let record = bench.record().await.unwrap();
            assert_eq!(record.attempt, 1);
            assert!(record.effect_begun, "{injection:?} in call {nth}");
            assert_eq!(record.recovery_point.unwrap().name, "charged");
            bench.store.land_all().await;
            assert!(matches!(bench.charge().await.unwrap(), Outcome::Replayed(response) if response == answer(1)));
            assert_eq!(bench.runs(), 0);
        }
    }
}

/// Two faults in any two of the first calls, of any two kinds.
#[tokio::test(start_paused = true)]
async fn two_faults_anywhere_change_nothing() {
    for (one, first) in SOFT.into_iter().enumerate() {
        for second in SOFT.into_iter().skip(one) {
            for nth in 1..=5 {
                for later in nth + 1..=7 {
                    let plan = FaultPlan::none().on(CallKind::Any, nth, first).on(CallKind::Any, later, second);
                    let bench = Bench::failing(plan);
                    let run = bench.engine.execute(request(), |operation| async move {
                        operation.begin_effect("charge").await?;
                        operation.checkpoint("charged", "2").await?;
                        Ok::<_, Failure<()>>(answer(operation.attempt()))
                    });
                    let outcome = run.await.unwrap();
                    let context = format!("{first:?} in {nth}, {second:?} in {later}: {outcome:?}");
                    assert!(matches!(outcome, Outcome::Executed { recorded: Recorded::Yes, .. }), "{context}");
                    bench.store.land_all().await;
                    let record = bench.record().await.unwrap();
                    assert_eq!(record.state, State::Completed(answer(1)), "{context}");
                    assert!(record.effect_begun, "{context}");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_claimer_recognises_its_own_insert() {
    let bench = Bench::failing(FaultPlan::none().on(CallKind::Insert, 1, Injection::LoseReply));
    let Begun::Acquired(lease) = bench.engine.begin(request()).await.unwrap() else { panic!("its own row") };
    assert_eq!((lease.attempt(), bench.store.calls_of(CallKind::Insert)), (1, 2));
    assert_eq!(lease.complete(answer(1)).await.unwrap(), Settlement::Recorded);
}

/// The reply to a takeover is lost, or the takeover lands after the claimer looked: it is still one takeover.
#[tokio::test(start_paused = true)]
async fn a_claimer_recognises_its_own_takeover() {
    for injection in SOFT {
        let bench = Bench::new();
        let Begun::Acquired(lease) = bench.engine.begin(request()).await.unwrap() else { panic!("granted") };
        let _ = lease.abandon().await.unwrap();
        bench.store.set_plan(FaultPlan::none().on(CallKind::SwapOf(Event::Takeover), 1, injection));
        let Begun::Acquired(lease) = bench.engine.begin(request()).await.unwrap() else { panic!("{injection:?}") };
        assert_eq!(lease.attempt(), 2, "{injection:?}");
        bench.store.land_all().await;
        lease.begin_effect("charge").await.unwrap();
        assert_eq!(lease.complete(answer(2)).await.unwrap(), Settlement::Recorded, "{injection:?}");
        let record = bench.record().await.unwrap();
        assert_eq!((record.attempt, record.unresolved, record.status()), (2, 1, Status::Completed));
    }
}

/// The own row is found after its lease is over: it is locked again by the same owner, and nothing counts as unknown.
#[tokio::test(start_paused = true)]
async fn a_claimers_own_stale_row_is_relocked() {
    // The insert lands, and neither it nor the two asks after it are answered for longer than the lease.
    let mut plan = FaultPlan::none().on(CallKind::Any, 1, Injection::HangAfter);
    for nth in 2..=3 {
        plan = plan.on(CallKind::Any, nth, Injection::Hang);
    }
    let bench = Bench::failing(plan);
    let Begun::Acquired(lease) = bench.engine.begin(request()).await.unwrap() else { panic!("its own row") };
    let record = bench.record().await.unwrap();
    assert_eq!((record.attempt, record.unresolved), (1, 0));
    assert!(record.version.locked_at > record.created_at, "relocked");
    assert_eq!(lease.complete(answer(1)).await.unwrap(), Settlement::Recorded);
}

/// The owner's relock is on its way when a backward step of the clock makes the row look live again: the owner goes on
/// under the old version, and finds its own row under the new one. That is not a rival.
#[tokio::test(start_paused = true)]
async fn a_relock_that_lands_late_is_adopted() {
    let clock = ManualClock::new(Timestamp::from_micros(1_000_000));
    let plan = FaultPlan::none().on(CallKind::Insert, 1, Injection::LoseReply).on(
        CallKind::SwapOf(Event::Relock),
        1,
        Injection::LandLate { after_calls: 2 },
    );
    let store = Arc::new(FaultStore::new(ReferenceStore::with_clock(clock.clone()), plan));
    let engine = Engine::builder(Arc::clone(&store)).with_policy(policy()).without_sweeper().build().unwrap();
    let begin = tokio::spawn(async move { engine.begin(request()).await });
    while store.calls_of(CallKind::Insert) < 1 {
        tokio::task::yield_now().await;
    }
    clock.advance(LEASE);
    while store.calls_of(CallKind::SwapOf(Event::Relock)) < 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    clock.set(Timestamp::from_micros(1_000_000));
    let Begun::Acquired(lease) = begin.await.unwrap().unwrap() else { panic!("its own row") };
    let token = lease.fencing_token();
    lease.begin_effect("charge").await.unwrap();
    assert!(lease.fencing_token() > token, "goes on under the version that landed");
    assert_eq!(lease.complete(answer(1)).await.unwrap(), Settlement::Recorded);
    let record = store.inner().load(&identity()).await.unwrap().record.unwrap();
    assert_eq!((record.attempt, record.unresolved, record.effect_begun), (1, 0, true));
}

/// The completion lands, its reply is lost, and before the owner can look again its key expired and was claimed anew:
/// it must say that it does not know, and neither `Fenced` nor an error that invites a second run.
#[tokio::test(start_paused = true)]
async fn a_completion_that_may_have_landed_before_a_new_life_is_unknown() {
    let bench = Bench::new();
    let Begun::Acquired(lease) = bench.engine.begin(request()).await.unwrap() else { panic!("granted") };
    bench.store.set_plan(FaultPlan::none().on(CallKind::SwapOf(Event::Complete), 1, Injection::LoseReply).on(
        CallKind::Load,
        1,
        Injection::Refuse,
    ));
    let complete = tokio::spawn(lease.complete(answer(1)));
    while bench.store.calls_of(CallKind::Load) == 0 {
        tokio::task::yield_now().await;
    }
    let scope = identity().scope().clone();
    Store::erase(bench.store.inner(), &scope, idem_core::store::Erase::Everything).await.unwrap();
    let error = complete.await.unwrap().unwrap_err();
    assert_eq!(error.write_outcome(), WriteOutcome::Unknown);
}

/// The store fails for ever when the answer is to be stored: the caller gets the true answer, the key is not freed.
#[tokio::test(start_paused = true)]
async fn a_completion_that_cannot_be_stored_never_frees_the_key() {
    for injection in [Injection::Refuse, Injection::LoseRequest, Injection::Hang] {
        let plan = FaultPlan::none().onward(CallKind::SwapOf(Event::Complete), 1, injection);
        let bench = Bench::failing(plan);
        let Outcome::Executed { response, recorded: Recorded::Unknown } = bench.charge().await.unwrap() else {
            panic!("{injection:?}")
        };
        assert_eq!(response, answer(1));
        let record = bench.record().await.unwrap();
        assert_eq!((record.status(), record.attempt), (Status::InProgress, 1));
        let retried = bench.store.calls_of(CallKind::SwapOf(Event::Complete));
        assert!(retried >= 2, "{injection:?}: {retried}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_runs_nothing() {
    for (injection, outcome) in [
        (Injection::Refuse, WriteOutcome::NotApplied),
        (Injection::LoseRequest, WriteOutcome::Unknown),
        (Injection::LoseReply, WriteOutcome::Unknown),
        (Injection::Hang, WriteOutcome::Unknown),
    ] {
        let bench = Bench::failing(FaultPlan::none().onward(CallKind::Any, 1, injection));
        let error = bench.charge().await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout));
        assert_eq!(error.write_outcome(), outcome, "{injection:?}");
        assert_eq!(bench.runs(), 0);
    }
}

/// First an answer is lost, then the store refuses: what is left behind makes the whole unknown, whatever the last
/// error says.
#[tokio::test(start_paused = true)]
async fn not_applied_after_unknown_is_unknown() {
    let plan =
        FaultPlan::none().on(CallKind::Insert, 1, Injection::LoseReply).onward(CallKind::Insert, 2, Injection::Refuse);
    let bench = Bench::failing(plan);
    let error = bench.charge().await.unwrap_err();
    assert_eq!(error.write_outcome(), WriteOutcome::Unknown);
    assert!(bench.is_live().await, "the row without an owner");
    tokio::time::advance(LEASE).await;
    bench.store.set_plan(FaultPlan::none());
    assert!(matches!(bench.charge().await.unwrap(), Outcome::Executed { .. }));
}

/// Many operations under random faults, from a seed: every one ends with exactly one recorded answer, and no handler
/// runs twice without a takeover that allows it.
#[tokio::test(start_paused = true)]
async fn random_faults_from_a_seed() {
    for seed in 0..200 {
        let bench = Bench::failing(FaultPlan::seeded(seed, 0.3));
        let mut runs_allowed = 1;
        for _ in 0..40 {
            match bench.charge().await {
                Ok(Outcome::Executed { recorded: Recorded::Yes, .. } | Outcome::Replayed(_)) => break,
                // The run happened; whether a retry replays or takes over is not known.
                Ok(Outcome::Executed { recorded: Recorded::Unknown, .. }) => runs_allowed += 1,
                Ok(Outcome::InProgress { retry_after, .. }) => tokio::time::advance(retry_after).await,
                Ok(Outcome::Abandoned { .. }) => break,
                Ok(other) => panic!("seed {seed}: {other:?}"),
                Err(error) => assert!(error.is_transient(), "seed {seed}: {error}"),
            }
        }
        assert!(bench.runs() <= runs_allowed, "seed {seed}: {} runs, {runs_allowed} allowed", bench.runs());
        bench.store.set_plan(FaultPlan::none());
        bench.store.land_all().await;
        tokio::time::advance(LEASE).await;
        let last = bench.charge().await.unwrap();
        assert!(
            matches!(last, Outcome::Executed { .. } | Outcome::Replayed(_) | Outcome::Abandoned { .. }),
            "seed {seed}: {last:?}"
        );
    }
}
