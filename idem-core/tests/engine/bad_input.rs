//! Bad input gets a typed error that says what to do, and changes nothing.

use crate::support::*;
use idem_core::conformance::FaultPlan;
use idem_core::{Begun, Engine, ErrorKind, Failure, Interrupted, Outcome, Response, WriteOutcome};

#[tokio::test(start_paused = true)]
async fn a_checkpoint_out_of_bounds_is_refused_before_it_is_sent() {
    let bench = Bench::with(FaultPlan::none(), |builder| builder.with_recovery_data_limit(10));
    let Begun::Acquired(lease) = bench.engine.begin(request()).await.unwrap() else { panic!("granted") };
    let before = bench.store.calls();
    let long = "n".repeat(256);
    for (name, data, says) in [
        ("", "", "1 to 255 bytes"),
        (long.as_str(), "", "1 to 255 bytes"),
        ("a\nb", "", "no control characters"),
        ("phase", "eleven byte", "keep it within 10"),
    ] {
        let Err(Interrupted::Store(error)) = lease.checkpoint(name, data).await else { panic!("refused") };
        assert_eq!((error.kind(), error.write_outcome()), (ErrorKind::InvalidRequest, WriteOutcome::NotApplied));
        assert!(error.to_string().contains(says), "{error}");
    }
    assert_eq!(bench.store.calls(), before);
    lease.checkpoint("phase", "ten bytes!").await.unwrap();
    let _ = lease.complete(answer(1)).await.unwrap();
}

#[test]
fn an_engine_outside_a_runtime_is_an_error() {
    let error = Engine::builder(idem_core::conformance::ReferenceStore::default()).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
}

#[tokio::test(start_paused = true)]
async fn bodies_of_every_kind_come_back_byte_for_byte() {
    let every: Vec<u8> = (0..=255).collect();
    for body in [vec![], every, b"null".to_vec(), b"{\"a\":\"\\u0000\"}".to_vec(), vec![b'x'; 1024 * 1024]] {
        let bench = Bench::new();
        let response = Response::new(200, body);
        let stored = response.clone();
        let run = bench.engine.execute(request(), |_| async move { Ok::<_, Failure<()>>(stored) });
        assert!(matches!(run.await.unwrap(), Outcome::Executed { .. }));
        assert!(matches!(bench.charge().await.unwrap(), Outcome::Replayed(replay) if replay == response));
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_under_an_unknown_scheme_is_an_error_and_not_a_mismatch() {
    let bench = Bench::new();
    // A later release wrote this: version 9 of the scheme.
    let future = idem_core::Fingerprint::from_bytes(&[9, 1, 2, 3]).unwrap();
    let claim = idem_core::Claim::new(identity(), future, idem_core::Takeover::Resume);
    let _ = idem_core::Store::insert(bench.store.inner(), &claim).await.unwrap();
    let error = bench.charge().await.unwrap_err();
    assert_eq!((error.kind(), error.write_outcome()), (ErrorKind::UnknownFingerprint, WriteOutcome::NotApplied));
}
