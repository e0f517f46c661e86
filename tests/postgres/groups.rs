//! Group commit: claims and completions that go to the server together are answered as if each had gone alone.

use crate::support::{Own, all, answer, claim, record};
use idem_core::machine::{Change, Ownership};
use idem_core::store::{Inserted, Swapped};
use idem_core::{Claim, Record, State, Status, Store, Version, WriteOutcome};
use idem_postgres::PostgresStore;
use idem_tests::rig::proxy::{Cut, Direction, Proxy};
use idem_tests::rig::wait::until;
use sqlx::Executor;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// One connection: one caller goes alone, all others together.
async fn store(own: &Own) -> PostgresStore {
    PostgresStore::connect(own.config().with_max_connections(1)).await.unwrap()
}

/// All at once: what comes of each claim, in the order of the claims.
async fn insert_all(store: &PostgresStore, claims: Vec<Claim>) -> Vec<(Claim, Result<Inserted, idem_core::Error>)> {
    let mut calls = JoinSet::new();
    for (number, claim) in claims.into_iter().enumerate() {
        let store = store.clone();
        calls.spawn(async move {
            let inserted = store.insert(&claim).await;
            (number, claim, inserted)
        });
    }
    let mut answers = all(calls).await;
    answers.sort_by_key(|(number, ..)| *number);
    answers.into_iter().map(|(_, claim, inserted)| (claim, inserted)).collect()
}

fn completion(record: Record, text: &str) -> Change {
    Ownership::new(record).complete(answer(text), Duration::ZERO, Duration::from_secs(3_600))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_callers_share_a_few_statements() {
    let own = Own::new().await;
    let store = store(&own).await;
    store.load(claim("warm").identity()).await.unwrap();
    let before = own.counted("xact_commit").await;
    let claims = (0..100).map(|number| claim(&format!("key_{number}"))).collect();
    let mut calls = JoinSet::new();
    for (claim, inserted) in insert_all(&store, claims).await {
        let Ok(Inserted::Won(version)) = inserted else { panic!("a new key: {inserted:?}") };
        assert_eq!(version.owner, claim.owner(), "everybody gets its own answer");
        let (store, key) = (store.clone(), claim.identity().key().as_str().to_owned());
        let change = completion(claim.first_record(version.locked_at), &key);
        calls.spawn(async move {
            assert_eq!(store.swap(claim.identity(), &version, &change).await.unwrap(), Swapped::Applied);
            let State::Completed(response) = record(&store, &key).await.unwrap().state else {
                panic!("it is completed")
            };
            assert_eq!(response.body(), key.as_str());
        });
    }
    assert_eq!(all(calls).await.len(), 100);
    drop(store);
    // A backend says what it did when it ends. The last hundred are the looks.
    let few = || async { (own.connections("true").await == 0).then_some(()) };
    until("the connections are closed", Duration::from_secs(10), few).await.unwrap();
    let statements = own.counted("xact_commit").await - before - 100;
    assert!(statements < 60, "{statements} statements for 200 calls");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_of_one_key_in_one_group_are_answered_one_by_one() {
    let own = Own::new().await;
    let store = store(&own).await;
    for round in 0..50 {
        let claims = (0..40).map(|number| claim(&format!("key_{round}_{}", number % 4))).collect();
        let mut winners: Vec<Version> = Vec::new();
        let mut seen: Vec<Version> = Vec::new();
        for (claim, inserted) in insert_all(&store, claims).await {
            match inserted.unwrap() {
                Inserted::Won(version) => {
                    assert_eq!(version.owner, claim.owner());
                    winners.push(version);
                }
                Inserted::Existing(record, _) => seen.push(record.version),
                Inserted::Busy { .. } => panic!("nobody is in the way"),
            }
        }
        assert_eq!((winners.len(), seen.len()), (4, 36), "one grant for each key");
        assert!(seen.iter().all(|version| winners.contains(version)), "everybody else is shown a winner");
    }
}

/// A group looks whether somebody's transaction holds one of its keys by taking a lock of the session's, and gives it back
/// at once. Whatever ends the statement, it is given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_is_cancelled_leaves_no_lock() {
    let own = Own::new().await;
    let store = PostgresStore::connect(own.config().with_max_connections(2)).await.unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let mut callers = JoinSet::new();
    for caller in 0..60 {
        let (store, done) = (store.clone(), Arc::clone(&done));
        callers.spawn(async move {
            let mut refused = 0;
            for number in 0.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                match store.insert(&claim(&format!("key_{caller}_{number}"))).await {
                    Ok(Inserted::Won(_)) => {}
                    Ok(other) => panic!("a new key: {other:?}"),
                    Err(_) => refused += 1,
                }
            }
            refused
        });
    }
    let mut client = own.server.client().await;
    let mut cancelled = 0;
    while cancelled < 500 {
        cancelled += sqlx::query_scalar::<_, i64>(
            "SELECT count(*) FILTER (WHERE pg_cancel_backend(pid)) FROM pg_stat_activity \
             WHERE datname = $1 AND application_name = 'idem' AND state = 'active'",
        )
        .bind(own.database.name())
        .fetch_one(&mut client)
        .await
        .unwrap();
    }
    done.store(true, Ordering::Relaxed);
    let refused: u32 = all(callers).await.into_iter().sum();
    assert!(refused > 0, "nothing was cancelled");
    assert!(own.connections("true").await > 0, "the sessions are there");
    let locks: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database \
         WHERE l.locktype = 'advisory' AND d.datname = $1",
    )
    .bind(own.database.name())
    .fetch_one(&mut client)
    .await
    .unwrap();
    assert_eq!(locks, 0);
}

/// One key of a group waits for a rival's uncommitted claim. The others are granted while it still does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_rival_does_not_keep_its_group() {
    let own = Own::new().await;
    let store = PostgresStore::connect(own.config().with_max_connections(2)).await.unwrap();
    let mut rival = own.database.client().await;
    crate::connections::hold_uncommitted(&mut rival, "blocked").await;
    let mut claims: Vec<Claim> = (0..60).map(|number| claim(&format!("key_{number}"))).collect();
    claims.extend((0..4).map(|_| claim("blocked")));
    for (claim, inserted) in insert_all(&store, claims).await {
        match inserted.unwrap() {
            Inserted::Busy { .. } => assert_eq!(claim.identity().key().as_str(), "blocked"),
            Inserted::Won(version) => assert_eq!(version.owner, claim.owner()),
            Inserted::Existing(..) => panic!("the rival has not committed"),
        }
    }
    rival.execute("ROLLBACK").await.unwrap();
}

/// The connection breaks while groups are on their way, at many places: nobody is told anything untrue, and whoever asks again with the same
/// claim learns what became of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_whose_answer_is_lost_is_unknown_to_all_of_it() {
    let own = Own::new().await;
    let direct = store(&own).await;
    let (mut unknown, mut landed) = (0, 0);
    for round in 0_u64..60 {
        let proxy = Proxy::start(&own.server.address()).await;
        let store = PostgresStore::connect(own.config_by(&proxy).with_max_connections(1)).await.unwrap();
        let direction = if round % 2 == 0 { Direction::ToClient } else { Direction::ToServer };
        proxy.cut_after(direction, 37 * round, if round % 3 == 0 { Cut::Reset } else { Cut::Finish });
        let claims = (0..20).map(|number| claim(&format!("key_{round}_{number}"))).collect();
        for (mut claim, inserted) in insert_all(&store, claims).await {
            let key = claim.identity().key().as_str().to_owned();
            let there = record(&direct, &key).await;
            let version = match inserted {
                Ok(Inserted::Won(version)) => {
                    assert_eq!(there.unwrap().version, version, "{key}: what was granted is there");
                    version
                }
                Err(error) if error.write_outcome() == WriteOutcome::NotApplied => {
                    assert_eq!(there, None, "{key}: {error:?}");
                    continue;
                }
                Err(_) => {
                    unknown += 1;
                    landed += u32::from(there.is_some());
                    claim.mark_asked();
                    match direct.insert(&claim).await.unwrap() {
                        Inserted::Won(version) => version,
                        Inserted::Existing(record, _) => record.version,
                        Inserted::Busy { .. } => panic!("{key}: asked before"),
                    }
                }
                other => panic!("{key}: {other:?}"),
            };
            assert_eq!(version.owner, claim.owner(), "{key}: there was no other claim");
            let change = completion(claim.first_record(version.locked_at), &key);
            assert_eq!(direct.swap(claim.identity(), &version, &change).await.unwrap(), Swapped::Applied);
            assert_eq!(record(&direct, &key).await.unwrap().status(), Status::Completed);
        }
    }
    assert!(unknown > 100 && landed > 0 && landed < unknown, "{unknown} unknown, {landed} of them there");
}
