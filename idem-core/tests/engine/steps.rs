//! Steps: what was committed comes back, and what cannot be read is not guessed.

use crate::support::*;
use idem_core::{ErrorKind, Failure, Outcome, Response, StopReason};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

#[tokio::test(start_paused = true)]
async fn what_was_committed_comes_back_and_the_rest_runs() {
    let bench = Bench::new();
    let first = bench.engine.execute(request(), |operation| async move {
        let mut steps = operation.steps()?;
        assert_eq!(steps.resumed().count(), 0);
        let charge: String =
            steps.effect("charge", |key| async move { Ok::<_, Failure<()>>(format!("ch_{key}")) }).await?;
        let total: u128 = steps.step("total", || async { Ok::<_, Failure<()>>(u128::MAX) }).await?;
        let _ = (charge, total);
        Err::<Response, _>(Failure::Unknown(()))
    });
    assert!(matches!(first.await.unwrap(), Outcome::Failed { .. }));

    let second = bench.engine.execute(request(), |operation| async move {
        let expected = format!("ch_{}", operation.derived_key("charge"));
        let mut steps = operation.steps()?;
        assert_eq!(steps.resumed().collect::<Vec<_>>(), ["charge", "total"]);
        let charge: String = steps.effect("charge", |_| async { Err(Failure::Unknown(())) }).await?;
        assert_eq!(charge, expected);
        // A number that no float holds.
        let total: u128 = steps.step("total", || async { Err(Failure::Unknown(())) }).await?;
        assert_eq!(total, u128::MAX);
        let last: u32 = steps.step("last", || async { Ok::<_, Failure<()>>(3) }).await?;
        Ok::<_, Failure<()>>(answer(last))
    });
    let Outcome::Executed { response, .. } = second.await.unwrap() else { panic!("it goes on") };
    assert_eq!(response, answer(3));
}

#[tokio::test(start_paused = true)]
async fn a_step_that_fails_commits_nothing() {
    let bench = Bench::new();
    let runs = Arc::new(AtomicU32::new(0));
    for attempt in 1..=2 {
        let runs = Arc::clone(&runs);
        let outcome = bench.engine.execute(request(), move |operation| async move {
            let mut steps = operation.steps()?;
            steps
                .step("flaky", || async {
                    runs.fetch_add(1, Ordering::SeqCst);
                    if attempt == 1 { Err(Failure::NoEffect("not today")) } else { Ok(()) }
                })
                .await?;
            Ok(answer(attempt))
        });
        match outcome.await.unwrap() {
            Outcome::Failed { error: "not today", .. } => assert_eq!(attempt, 1),
            Outcome::Executed { .. } => assert_eq!(attempt, 2),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

/// What a handler was stopped with, in an attempt of its own.
async fn refusal<F>(bench: &Bench, handler: impl FnOnce(idem_core::Operation) -> F + Send + 'static) -> idem_core::Error
where
    F: Future<Output = Result<Response, Failure<()>>> + Send + 'static,
{
    let (says, said) = tokio::sync::oneshot::channel();
    let outcome = bench.engine.execute(request(), |operation| async move {
        match handler(operation).await {
            Err(Failure::Interrupted(idem_core::Interrupted::Store(error))) => {
                let text = error.to_string();
                says.send((error.kind(), text)).unwrap();
                Err(Failure::Interrupted(idem_core::Interrupted::Store(error)))
            }
            other => other,
        }
    });
    let outcome = outcome.await.unwrap();
    assert!(matches!(outcome, Outcome::Stopped { reason: StopReason::StoreFailed }), "{outcome:?}");
    let (kind, text) = said.await.unwrap();
    idem_core::Error::new(kind, "step", idem_core::WriteOutcome::NotApplied).with_source(text)
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_is_said_and_not_guessed() {
    let bench = Bench::new();
    let twice = refusal(&bench, |operation| async move {
        let mut steps = operation.steps()?;
        let _: u32 = steps.step("one", || async { Ok::<_, Failure<()>>(1) }).await?;
        let _: u32 = steps.step("one", || async { Ok::<_, Failure<()>>(2) }).await?;
        Ok(answer(1))
    });
    let twice = twice.await;
    assert_eq!(twice.kind(), ErrorKind::InvalidRequest);
    assert!(twice.to_string().contains("step `one` was asked for twice"), "{twice}");

    let other_type = refusal(&bench, |operation| async move {
        let mut steps = operation.steps()?;
        let _: String = steps.step("one", || async { Ok::<_, Failure<()>>(String::new()) }).await?;
        Ok(answer(1))
    });
    let other_type = other_type.await;
    assert_eq!(other_type.kind(), ErrorKind::Corrupt);
    assert!(other_type.to_string().contains("step `one` was committed with a result"), "{other_type}");

    let too_large = refusal(&bench, |operation| async move {
        let mut steps = operation.steps()?;
        let _: String = steps.step("large", || async { Ok::<_, Failure<()>>("x".repeat(70_000)) }).await?;
        Ok(answer(1))
    });
    assert_eq!(too_large.await.kind(), ErrorKind::InvalidRequest);

    let bench = Bench::new();
    let first = bench.engine.execute(request(), |operation| async move {
        operation.checkpoint("by hand", "1").await?;
        Err::<Response, _>(Failure::Unknown(()))
    });
    assert!(matches!(first.await.unwrap(), Outcome::Failed { .. }));
    let by_hand = refusal(&bench, |operation| async move { operation.steps().map(|_| answer(1)).map_err(Into::into) });
    let by_hand = by_hand.await;
    assert_eq!(by_hand.kind(), ErrorKind::Corrupt);
    assert!(by_hand.to_string().contains("not both"), "{by_hand}");
}

/// What is stored is read by later releases.
#[tokio::test(start_paused = true)]
async fn the_layout_of_what_is_stored_does_not_change() {
    let bench = Bench::new();
    let outcome = bench.engine.execute(request(), |operation| async move {
        let mut steps = operation.steps()?;
        let _: String = steps.step("charge", || async { Ok::<_, Failure<()>>("ch_1".to_owned()) }).await?;
        let _: Option<u8> = steps.step("receipt", || async { Ok::<_, Failure<()>>(None) }).await?;
        Err::<Response, _>(Failure::Unknown(()))
    });
    assert!(matches!(outcome.await.unwrap(), Outcome::Failed { .. }));
    let point = bench.record().await.unwrap().recovery_point.unwrap();
    assert_eq!(point.name, "receipt");
    assert_eq!(
        point.data,
        r#"{"steps":1,"done":[{"step":"charge","result":"ch_1"},{"step":"receipt","result":null}]}"#
    );
}

#[tokio::test(start_paused = true)]
async fn no_result_shows() {
    let bench = Bench::new();
    let outcome = bench.engine.execute(request(), |operation| async move {
        let mut steps = operation.steps()?;
        let _: String = steps.step("secret", || async { Ok::<_, Failure<()>>("4242424242424242".to_owned()) }).await?;
        assert!(!format!("{steps:?}").contains("4242"), "{steps:?}");
        Ok::<_, Failure<()>>(answer(1))
    });
    assert!(matches!(outcome.await.unwrap(), Outcome::Executed { .. }));
}
