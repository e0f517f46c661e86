//! `wait_up_to`: waiting for the first attempt's answer.

use crate::support::*;
use idem_core::{Begun, Failure, Outcome};
use std::time::Duration;
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn a_waiting_repeat_gets_the_first_answer() {
    let bench = Bench::new();
    let first = bench.engine.execute(request(), |_| async {
        sleep(Duration::from_secs(2)).await;
        Ok::<_, Failure<String>>(answer(1))
    });
    let second = async {
        sleep(Duration::from_millis(10)).await;
        let wait = request().wait_up_to(Duration::from_secs(20));
        bench.engine.execute(wait, |_| async { Err(Failure::NoEffect("never runs".to_owned())) }).await
    };
    let (first, second) = tokio::join!(first, second);
    assert!(matches!(first.unwrap(), Outcome::Executed { .. }));
    assert!(matches!(second.unwrap(), Outcome::Replayed(response) if response == answer(1)));
}

#[tokio::test(start_paused = true)]
async fn a_wait_has_an_end_of_its_own() {
    let bench = Bench::new();
    let Begun::Acquired(lease) = bench.engine.begin(request()).await.unwrap() else { panic!("granted") };
    let clock = RuntimeClock::start();
    let before = idem_core::Clock::now(&clock);
    let waited = bench.engine.begin(request().wait_up_to(Duration::from_secs(1))).await.unwrap();
    assert!(matches!(waited, Begun::InProgress { .. }), "{waited:?}");
    let took = idem_core::Clock::now(&clock).saturating_duration_since(before);
    assert!(took >= Duration::from_secs(1) && took < Duration::from_millis(1_100), "{took:?}");
    // Waiting longer than the holder lives ends in a takeover, claimed anew and not assumed.
    let Begun::Acquired(taken) = bench.engine.begin(request().wait_up_to(2 * LEASE)).await.unwrap() else {
        panic!("stale")
    };
    assert_eq!(taken.attempt(), 2);
    assert_eq!(lease.complete(answer(1)).await.unwrap(), idem_core::Settlement::Fenced { response: None });
    let _ = taken.complete(answer(2)).await.unwrap();
}
