//! An owner is stopped past its lease, as a process is that swaps, or whose virtual machine is moved. Another one takes over and answers. Then
//! the first goes on as if nothing had been.
//!
//! It is told that it was fenced, and gets the answer that is stored, which does not change in a byte.

use crate::support::{Stage, Worker};
use rustix::process::Signal;

const ROUNDS: u32 = 4;

/// The stopped owner charged the provider at its first step, and holds a lease of its own making.
async fn overtake(stage: &Stage, key: &str, stopped: &Worker, point: &str) -> String {
    stopped.signal(Signal::STOP);
    let mut other = stage.worker(key).await;
    let told = format!("acquired 2 Unknown {{ effect_begun: true }} {point}");
    assert_eq!(stage.take_over(key, &mut other).await, told);
    other.succeed(&["charge"]).await;
    assert_eq!(other.tell("complete second").await, "recorded");
    stage.whole_row(key).await
}

async fn unchanged(stage: &Stage, key: &str, stored: &str) {
    assert_eq!(stage.whole_row(key).await, stored, "the stored answer and everything beside it");
    assert_eq!(stage.worker(key).await.tell("claim").await, "replayed second");
    assert_eq!(stage.arrivals(key).await, [2], "both called, and one of them charged");
}

#[tokio::test]
async fn a_lease_in_the_hand_of_a_stopped_owner_is_fenced() {
    let stage = Stage::new().await;
    let round = async |round: u32| {
        let key = format!("round-{round}");
        let mut owner = stage.worker(&key).await;
        assert_eq!(owner.tell("claim").await, "acquired 1 None -");
        owner.succeed(&["begin_effect", "checkpoint charging 1000", "charge"]).await;
        let stored = overtake(&stage, &key, &owner, "charging=1000").await;
        owner.signal(Signal::CONT);
        if round.is_multiple_of(2) {
            // What it does next changes as little as its answer.
            let said = owner.tell("checkpoint late 1").await;
            assert!(said.starts_with("interrupted"), "{said}");
        }
        assert_eq!(owner.tell("complete first").await, "fenced second");
        unchanged(&stage, &key, &stored).await;
    };
    futures_util::future::join_all((0..ROUNDS).map(round)).await;
    assert_eq!(stage.charges().await, i64::from(ROUNDS));
}

#[tokio::test]
async fn a_handler_of_a_stopped_process_is_fenced() {
    let stage = Stage::new().await;
    let round = async |round: u32| {
        let key = format!("round-{round}");
        let mut owner = stage.worker(&key).await;
        // The engine renews for as long as the process runs.
        assert_eq!(owner.tell("run first").await, "charged");
        let stored = overtake(&stage, &key, &owner, "charging=1000").await;
        if round.is_multiple_of(2) {
            // Its handler is done as soon as it wakes; else the engine stops it.
            owner.order("go").await;
        }
        owner.signal(Signal::CONT);
        assert_eq!(owner.hear().await, "fenced second");
        unchanged(&stage, &key, &stored).await;
    };
    futures_util::future::join_all((0..ROUNDS).map(round)).await;
    assert_eq!(stage.charges().await, i64::from(ROUNDS));
}
