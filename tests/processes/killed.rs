//! An owner is killed after the provider was charged and before anybody wrote down the answer.
//!
//! The key is free again within one lease of the database's clock. Whoever takes it over is told that an earlier attempt had begun its effect,
//! and how far it had got; it sends the provider the same derived key, and there is one charge.

use crate::support::{LEASE_US, Stage};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const ROUNDS: u64 = 6;

#[tokio::test]
async fn the_takeover_knows_it_and_the_card_is_charged_once() {
    let stage = Stage::new().await;
    futures_util::future::join_all((0..ROUNDS).map(|seed| round(&stage, seed))).await;
    assert_eq!(stage.charges().await, i64::try_from(ROUNDS).unwrap());
}

async fn round(stage: &Stage, seed: u64) {
    println!("round of seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let key = format!("round-{seed}");
    let lost: i32 = rng.random_range(1..=2);
    let mut told = "acquired 1 None -".to_owned();
    for attempt in 1..=lost {
        let mut owner = stage.worker(&key).await;
        let said = if attempt == 1 { owner.tell("claim").await } else { stage.take_over(&key, &mut owner).await };
        assert_eq!(said, told);

        owner.succeed(&["begin_effect"]).await;
        let mut point = String::new();
        for number in 0..rng.random_range(1..=3) {
            point = format!("step-{attempt}-{number} data-{}", rng.random_range(0..1_000_000));
            owner.succeed(&[&format!("checkpoint {point}")]).await;
        }
        owner.succeed(&["charge"]).await;
        owner.kill().await;

        let row = stage.row(&key).await;
        assert_eq!((row.status.as_str(), row.attempt, row.unresolved), ("in_progress", attempt, attempt - 1));
        assert!(row.effect_begun);
        assert!(row.lease_until <= row.clock + LEASE_US, "free within one lease: {row:?}");
        told = format!("acquired {} Unknown {{ effect_begun: true }} {}", attempt + 1, point.replace(' ', "="));
    }

    let mut last = stage.worker(&key).await;
    assert_eq!(stage.take_over(&key, &mut last).await, told);
    last.succeed(&["charge"]).await;
    assert_eq!(last.tell("complete done").await, "recorded");

    assert_eq!(stage.arrivals(&key).await, [lost + 1], "every owner called, and one of them charged");
    let row = stage.row(&key).await;
    assert_eq!((row.status.as_str(), row.attempt, row.unresolved), ("completed", lost + 1, lost));
    assert_eq!(stage.worker(&key).await.tell("claim").await, "replayed done");
}
