//! Renewal, deadlines and rivals, in virtual time.

use crate::support::*;
use idem_core::conformance::{CallKind, FaultPlan, Injection};
use idem_core::machine::{Event, Previous};
use idem_core::{Begun, Failure, Interrupted, Outcome, Response, Settlement, StopReason};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{advance, sleep};

#[tokio::test(start_paused = true)]
async fn a_slow_handler_keeps_its_key() {
    let bench = Bench::new();
    let slow = bench.engine.execute(request(), |_| async {
        sleep(5 * LEASE).await;
        Ok::<_, Failure<()>>(answer(1))
    });
    let watch = async {
        for _ in 0..(5 * LEASE).as_millis() / 100 - 1 {
            sleep(Duration::from_millis(100)).await;
            assert!(bench.is_live().await);
        }
        // In all that time the owner never promised more than one lease ahead.
        let record = bench.record().await.unwrap();
        assert!(record.lease.as_duration() <= 6 * LEASE, "{:?}", record.lease);
    };
    let (outcome, ()) = tokio::join!(slow, watch);
    assert!(matches!(outcome.unwrap(), Outcome::Executed { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_hung_handler_is_stopped_at_max_run_and_its_key_is_free() {
    let bench = Bench::new();
    let began = RuntimeClock::start();
    let hung = bench.engine.execute(request(), |_| std::future::pending::<Result<Response, Failure<()>>>()).await;
    assert!(matches!(hung.unwrap(), Outcome::Stopped { reason: StopReason::MaxRun }));
    let ran = idem_core::Clock::now(&began).saturating_duration_since(idem_core::Clock::now(&RuntimeClock::start()));
    assert!(ran <= MAX_RUN + Duration::from_secs(1) && ran >= MAX_RUN - LEASE, "{ran:?}");
    assert!(!bench.is_live().await);
    assert!(matches!(bench.charge().await.unwrap(), Outcome::Executed { .. }));
}

/// The store does not answer from the first renewal on: the handler is told before its lease is over, by its own clock,
/// although a renewal is still under way, and stopped when the lease is over.
#[tokio::test(start_paused = true)]
async fn a_stalled_store_stops_the_handler_before_a_rival_can_start() {
    let plan = FaultPlan::none().onward(CallKind::SwapOf(Event::Renew), 1, Injection::Hang);
    let bench = Bench::failing(plan);
    let told = Arc::new(std::sync::Mutex::new(None));
    let run = bench.engine.execute(request(), {
        let told = Arc::clone(&told);
        let clock = RuntimeClock::start();
        move |operation| async move {
            operation.lease_lost().await;
            *told.lock().unwrap() = Some(idem_core::Clock::now(&clock));
            assert!(matches!(operation.begin_effect("too late").await, Err(Interrupted::LeaseLost)));
            std::future::pending::<Result<Response, Failure<()>>>().await
        }
    });
    let began = idem_core::Clock::now(&RuntimeClock::start());
    let outcome = run.await.unwrap();
    assert!(matches!(outcome, Outcome::Stopped { reason: StopReason::LeaseLost }), "{outcome:?}");
    let told = told.lock().unwrap().unwrap().saturating_duration_since(began);
    assert!(told < LEASE, "told after {told:?}");
    assert!(told >= LEASE - LEASE / 10, "told after {told:?}");
}

/// The owner is paused past its lease, another one completes, and the first wakes up.
#[tokio::test(start_paused = true)]
async fn a_late_owner_is_fenced_and_gets_the_rivals_answer() {
    let plan = FaultPlan::none().onward(CallKind::SwapOf(Event::Renew), 1, Injection::Refuse);
    let bench = Bench::failing(plan);
    let Begun::Acquired(late) = bench.engine.begin(request()).await.unwrap() else { panic!("granted") };
    let token = late.fencing_token();
    advance(LEASE).await;
    assert!(late.remaining().is_zero());
    assert!(matches!(late.begin_effect("charge").await, Err(Interrupted::LeaseLost)));

    let rival = bench.rival();
    let Begun::Acquired(lease) = rival.begin(request()).await.unwrap() else { panic!("takes over") };
    assert_eq!(lease.previous(), Previous::Unknown { effect_begun: false });
    assert!(lease.fencing_token() > token);
    let rivals = Response::new(201, "the rival's");
    assert_eq!(lease.complete(rivals.clone()).await.unwrap(), Settlement::Recorded);

    let settled = late.complete(Response::new(201, "the late owner's")).await.unwrap();
    assert_eq!(settled, Settlement::Fenced { response: Some(rivals.clone()) });
    assert!(matches!(bench.charge().await.unwrap(), Outcome::Replayed(response) if response == rivals));
}

#[tokio::test(start_paused = true)]
async fn an_owner_past_its_lease_still_completes_if_nobody_took_the_key() {
    let bench = Bench::new();
    let Begun::Acquired(lease) = bench.engine.begin(request()).await.unwrap() else { panic!("granted") };
    advance(2 * LEASE).await;
    assert_eq!(lease.complete(answer(1)).await.unwrap(), Settlement::Recorded);
}

/// The rival's answer is another request's: the key expired and began a new life. It is not shown.
#[tokio::test(start_paused = true)]
async fn an_owner_fenced_by_a_new_life_never_sees_its_answer() {
    let bench = Bench::new();
    let Begun::Acquired(late) = bench.engine.begin(request()).await.unwrap() else { panic!("granted") };
    advance(LEASE).await;
    let rival = bench.rival();
    let Begun::Acquired(lease) = rival.begin(request()).await.unwrap() else { panic!("takes over") };
    let _ = lease.complete(answer(2)).await.unwrap();
    advance(policy().retention() + policy().replay_floor()).await;
    let identity = identity();
    let other = idem_core::Request::new(
        identity.scope().clone(),
        identity.key().clone(),
        fingerprint(b"{\"amount\":999}"),
        idem_core::Takeover::Resume,
    );
    let Begun::Acquired(lease) = rival.begin(other).await.unwrap() else { panic!("as new") };
    let _ = lease.complete(Response::new(201, "another request's")).await.unwrap();

    assert_eq!(late.complete(answer(1)).await.unwrap(), Settlement::Fenced { response: None });
}

/// A renewal finds that somebody else has the key (force, or a store whose clock jumped): the handler is told and
/// stopped early, and the caller gets the rival's answer.
#[tokio::test(start_paused = true)]
async fn a_running_handler_learns_of_its_fencing() {
    let bench = Bench::new();
    let started = Arc::new(Notify::new());
    let run = {
        let started = Arc::clone(&started);
        bench.engine.execute(request(), move |operation| async move {
            started.notify_one();
            operation.lease_lost().await;
            Err::<Response, _>(Failure::<()>::Interrupted(Interrupted::LeaseLost))
        })
    };
    let force = async {
        started.notified().await;
        let scope = identity().scope().clone();
        let erased =
            idem_core::Store::erase(bench.store.inner(), &scope, idem_core::store::Erase::Everything).await.unwrap();
        assert_eq!(erased.deleted, 1);
        advance(Duration::from_micros(1)).await;
        let Begun::Acquired(lease) = bench.rival().begin(request()).await.unwrap() else { panic!("free") };
        lease.complete(Response::new(201, "the rival's")).await.unwrap()
    };
    let (outcome, settled) = tokio::join!(run, force);
    assert_eq!(settled, Settlement::Recorded);
    // The row was erased and made anew: another life, so its answer is not this request's.
    assert!(matches!(outcome.unwrap(), Outcome::Fenced { response: None }));
}

#[tokio::test(start_paused = true)]
async fn effect_and_checkpoint_extend_the_lease_as_a_renewal_does() {
    let bench = Bench::new();
    let Begun::Acquired(lease) = bench.engine.begin(request()).await.unwrap() else { panic!("granted") };
    advance(LEASE / 2).await;
    lease.begin_effect("charge").await.unwrap();
    assert!(lease.remaining() > LEASE - Duration::from_millis(2), "{:?}", lease.remaining());
    advance(LEASE / 2).await;
    lease.checkpoint("charged", "x").await.unwrap();
    assert!(lease.remaining() > LEASE - Duration::from_millis(2), "{:?}", lease.remaining());
    let _ = lease.complete(answer(1)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_dropped_lease_is_given_up() {
    let bench = Bench::new();
    let Begun::Acquired(lease) = bench.engine.begin(request()).await.unwrap() else { panic!("granted") };
    drop(lease);
    tokio::task::yield_now().await;
    while bench.is_live().await {
        tokio::task::yield_now().await;
    }
    let Begun::Acquired(lease) = bench.engine.begin(request()).await.unwrap() else { panic!("takes over") };
    assert_eq!(lease.previous(), Previous::Unknown { effect_begun: false });
    let _ = lease.complete(answer(2)).await.unwrap();
}
