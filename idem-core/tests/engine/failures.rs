//! What a handler may say about its own failure, and what becomes of the key.

use crate::support::*;
use idem_core::machine::{NoEffectRefused, Previous};
use idem_core::{Begun, Disposition, ErrorKind, Failure, Outcome, Response, Status, WriteOutcome};
use std::error::Error as _;

#[tokio::test(start_paused = true)]
async fn no_effect_after_begin_effect_is_refused_and_says_what_to_do() {
    let bench = Bench::new();
    let run = bench.engine.execute(request(), |operation| async move {
        operation.begin_effect("charge").await?;
        Err(Failure::NoEffect("I do not think so"))
    });
    let Outcome::Failed { disposition: Disposition::Refused(refused), .. } = run.await.unwrap() else {
        panic!("refused")
    };
    assert_eq!(refused, NoEffectRefused::EffectBegun);
    assert!(refused.to_string().contains("return `VerifiedNoEffect`"), "{refused}");
    // The key is not free as if nothing had happened: the next owner is told.
    let Begun::Acquired(lease) = bench.engine.begin(request()).await.unwrap() else { panic!("takes over") };
    assert_eq!(lease.previous(), Previous::Unknown { effect_begun: true });
    let _ = lease.complete(answer(2)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn no_effect_after_a_takeover_is_refused() {
    let bench = Bench::new();
    let lost = bench.engine.execute(request(), |_| async { Err(Failure::Unknown("lost")) });
    assert!(matches!(lost.await.unwrap(), Outcome::Failed { .. }));
    let run = bench.engine.execute(request(), |_| async { Err(Failure::NoEffect("not mine")) });
    let Outcome::Failed { disposition, .. } = run.await.unwrap() else { panic!("fails") };
    assert_eq!(disposition, Disposition::Refused(NoEffectRefused::PreviousUnknown));
    assert_eq!(bench.record().await.unwrap().status(), Status::InProgress);
}

#[tokio::test(start_paused = true)]
async fn a_verified_failure_frees_the_key_and_clears_what_its_own_attempt_marked() {
    let bench = Bench::new();
    let run = bench.engine.execute(request(), |operation| async move {
        operation.begin_effect("charge").await?;
        Err(Failure::VerifiedNoEffect("the provider has no such charge"))
    });
    assert!(matches!(run.await.unwrap(), Outcome::Failed { disposition: Disposition::Retryable, .. }));
    let record = bench.record().await.unwrap();
    assert_eq!((record.status(), record.effect_begun, record.unresolved), (Status::Failed, false, 0));
    let Begun::Acquired(lease) = bench.engine.begin(request()).await.unwrap() else { panic!("retries") };
    assert_eq!(lease.previous(), Previous::NoEffect);
    let _ = lease.complete(answer(2)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_verified_failure_does_not_clear_what_an_earlier_owner_marked() {
    let bench = Bench::new();
    let lost = bench.engine.execute(request(), |operation| async move {
        operation.begin_effect("charge").await?;
        Err(Failure::Unknown("timed out"))
    });
    assert!(matches!(lost.await.unwrap(), Outcome::Failed { .. }));
    let run = bench.engine.execute(request(), |_| async { Err(Failure::VerifiedNoEffect("nothing there yet")) });
    assert!(matches!(run.await.unwrap(), Outcome::Failed { disposition: Disposition::Retryable, .. }));
    let record = bench.record().await.unwrap();
    assert_eq!((record.status(), record.effect_begun, record.unresolved), (Status::Failed, true, 1));
}

#[tokio::test(start_paused = true)]
async fn a_panic_leaves_the_outcome_unknown_and_the_key_free_at_once() {
    let bench = Bench::new();
    let run = bench.engine.execute(request(), |_| async {
        if true {
            panic!("boom");
        }
        Ok::<_, Failure<()>>(answer(1))
    });
    let Outcome::Panicked(payload) = run.await.unwrap() else { panic!("panics") };
    assert_eq!(*payload.into_inner().downcast::<&str>().unwrap(), "boom");
    let Begun::Acquired(lease) = bench.engine.begin(request()).await.unwrap() else { panic!("takes over") };
    assert_eq!(lease.previous(), Previous::Unknown { effect_begun: false });
    let _ = lease.complete(answer(2)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_before_its_future_exists_is_a_panic_too() {
    let bench = Bench::new();
    fn handler(_: idem_core::Operation) -> std::future::Ready<Result<Response, Failure<()>>> {
        panic!("before the first poll")
    }
    assert!(matches!(bench.engine.execute(request(), handler).await.unwrap(), Outcome::Panicked(_)));
    assert!(!bench.is_live().await);
}

#[tokio::test(start_paused = true)]
async fn by_hand_a_refused_failure_is_a_typed_error_and_gives_the_key_up() {
    let bench = Bench::new();
    let Begun::Acquired(lease) = bench.engine.begin(request()).await.unwrap() else { panic!("granted") };
    lease.begin_effect("charge").await.unwrap();
    let error = lease.fail().await.unwrap_err();
    assert_eq!((error.kind(), error.write_outcome()), (ErrorKind::InvalidRequest, WriteOutcome::NotApplied));
    assert!(error.source().unwrap().downcast_ref::<NoEffectRefused>().is_some());
    assert!(error.to_string().contains("look the effect up"), "{error}");
    assert!(!bench.is_live().await);
}
