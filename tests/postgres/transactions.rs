//! Claims and completions in the caller's own transaction, at every isolation level.

use crate::support::{Own, acquired, all, answer, claim, engine, identity, record, request};
use futures_util::FutureExt;
use idem_core::{
    Begun, Claim, ErrorKind, Failure, Fingerprint, NotCompleted, Outcome, Recorded, Settlement, Status, StopReason,
    Store, Takeover,
};
use idem_postgres::{ClaimedIn, CompletionValues, HeldIn, PostgresStore};
use idem_tests::rig::wait::until;
use sqlx::PgPool;
use sqlx::postgres::{PgConnection, PgPoolOptions};
use std::time::Duration;
use tokio::task::JoinSet;

const LEVELS: [&str; 3] = ["read committed", "repeatable read", "serializable"];

/// A pool of the application's, whose role has this isolation level as its default, and a table of its own.
async fn application(own: &Own, level: &str) -> PgPool {
    let options = own.database.url().parse::<sqlx::postgres::PgConnectOptions>().unwrap();
    let options = options.options([("default_transaction_isolation", level)]);
    let pool = PgPoolOptions::new().max_connections(8).connect_with(options).await.unwrap();
    sqlx::query("CREATE TABLE IF NOT EXISTS charges (id text PRIMARY KEY)").execute(&pool).await.unwrap();
    pool
}

async fn charge(connection: &mut PgConnection, id: &str) {
    sqlx::query("INSERT INTO charges VALUES ($1)").bind(id).execute(connection).await.unwrap();
}

async fn charges(pool: &PgPool) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM charges").fetch_one(pool).await.unwrap()
}

async fn held(store: &PostgresStore, connection: &mut PgConnection, key: &str) -> HeldIn {
    match store.claim_in(connection, &claim(key)).await.unwrap() {
        ClaimedIn::Acquired(held) => held,
        other => panic!("{key} was to be granted: {other:?}"),
    }
}

/// That the transaction goes on as if nothing had happened.
async fn is_usable(connection: &mut PgConnection) {
    let one: i32 = sqlx::query_scalar("SELECT 1").fetch_one(connection).await.unwrap();
    assert_eq!(one, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_and_answer_are_committed_together() {
    let own = Own::new().await;
    for level in LEVELS {
        let store = PostgresStore::connect(own.config()).await.unwrap();
        let (engine, pool) = (engine(&store), application(&own, level).await);
        let before = charges(&pool).await;
        let handler = {
            let (store, pool) = (store.clone(), pool.clone());
            move |operation: idem_core::Operation| async move {
                let mut transaction = pool.begin().await.unwrap();
                charge(&mut transaction, level).await;
                let completion = operation.completion(&answer(level)).await?;
                store.complete_in(&mut transaction, &completion).await?;
                transaction.commit().await.unwrap();
                Ok::<_, Failure<()>>(answer(level))
            }
        };
        let outcome = engine.execute(request(level), handler).await.unwrap();
        assert!(matches!(outcome, Outcome::Executed { recorded: Recorded::Yes, .. }), "{level}: {outcome:?}");
        assert_eq!(charges(&pool).await, before + 1);
        let again = engine.execute(request(level), |_| async { Err(Failure::Unknown(())) }).await.unwrap();
        let Outcome::Replayed(response) = again else { panic!("{level}: {again:?}") };
        assert_eq!(response, answer(level));
    }
}

/// The handler says that it is done, and its transaction was rolled back: nothing is recorded, and a retry may run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_whose_transaction_was_rolled_back_is_not_recorded() {
    let own = Own::new().await;
    let store = PostgresStore::connect(own.config()).await.unwrap();
    let (engine, pool) = (engine(&store), application(&own, LEVELS[0]).await);
    let handler = {
        let (store, pool) = (store.clone(), pool.clone());
        move |operation: idem_core::Operation| async move {
            let mut transaction = pool.begin().await.unwrap();
            charge(&mut transaction, "ch_1").await;
            store.complete_in(&mut transaction, &operation.completion(&answer("1")).await?).await?;
            // Forgotten: the commit.
            drop(transaction);
            Ok::<_, Failure<()>>(answer("1"))
        }
    };
    let outcome = engine.execute(request("k"), handler).await.unwrap();
    assert!(matches!(outcome, Outcome::Stopped { reason: StopReason::NotCommitted }), "{outcome:?}");
    assert_eq!(charges(&pool).await, 0);
    let lease = acquired(&engine, "k").await;
    assert_eq!(lease.attempt(), 2, "free at once");

    // The same by hand.
    let mut transaction = pool.begin().await.unwrap();
    store.complete_in(&mut transaction, &lease.completion(&answer("2")).await.unwrap()).await.unwrap();
    transaction.rollback().await.unwrap();
    let error = lease.complete(answer("2")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    let lease = acquired(&engine, "k").await;
    let mut transaction = pool.begin().await.unwrap();
    store.complete_in(&mut transaction, &lease.completion(&answer("3")).await.unwrap()).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(lease.complete(answer("3")).await.unwrap(), Settlement::Recorded);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_completion_whose_lease_was_lost_takes_the_rows_back_with_it() {
    let own = Own::new().await;
    for level in LEVELS {
        let store = PostgresStore::connect(own.config()).await.unwrap();
        let (engine, pool) = (engine(&store), application(&own, level).await);
        let late = acquired(&engine, level).await;
        // Its lease is over by the server's clock, and somebody takes over.
        sqlx::query("UPDATE idem.records SET lease_ms = 1 WHERE key = $1").bind(level).execute(&pool).await.unwrap();
        let rival = acquired(&engine, level).await;

        let mut transaction = pool.begin().await.unwrap();
        charge(&mut transaction, level).await;
        let completion = late.completion(&answer("late")).await.unwrap();
        let refused = store.complete_in(&mut transaction, &completion).await.unwrap_err();
        assert!(matches!(refused, NotCompleted::Fenced), "{level}: {refused:?}");
        drop(transaction);
        assert_eq!(charges(&pool).await, 0);
        assert!(matches!(late.abandon().await.unwrap(), Settlement::Fenced { .. }));
        assert_eq!(rival.complete(answer("rival")).await.unwrap(), Settlement::Recorded);
    }
}

/// The same if somebody takes over between the transaction's first statement and its completion: above READ COMMITTED the
/// server refuses, and whatever it says, nothing is committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rival_in_the_middle_of_the_transaction_takes_the_rows_back_too() {
    let own = Own::new().await;
    for level in LEVELS {
        let store = PostgresStore::connect(own.config()).await.unwrap();
        let (engine, pool) = (engine(&store), application(&own, level).await);
        let late = acquired(&engine, level).await;
        let mut transaction = pool.begin().await.unwrap();
        charge(&mut transaction, level).await;
        sqlx::query("UPDATE idem.records SET lease_ms = 1 WHERE key = $1").bind(level).execute(&pool).await.unwrap();
        let rival = acquired(&engine, level).await;
        let completion = late.completion(&answer("late")).await.unwrap();
        match store.complete_in(&mut transaction, &completion).await.unwrap_err() {
            NotCompleted::Fenced => assert_eq!(level, LEVELS[0]),
            NotCompleted::Store(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{level}: {error}"),
        }
        drop(transaction);
        assert_eq!(charges(&pool).await, 0);
        let _ = late.abandon().await.unwrap();
        assert_eq!(rival.complete(answer("rival")).await.unwrap(), Settlement::Recorded);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_began_before_the_claim_is_told_so() {
    let own = Own::new().await;
    let store = PostgresStore::connect(own.config()).await.unwrap();
    let (engine, pool) = (engine(&store), application(&own, "repeatable read").await);
    let mut transaction = pool.begin().await.unwrap();
    is_usable(&mut transaction).await;
    let lease = acquired(&engine, "k").await;
    let completion = lease.completion(&answer("1")).await.unwrap();
    let Err(NotCompleted::Store(error)) = store.complete_in(&mut transaction, &completion).await else {
        panic!("it cannot see the claim")
    };
    assert!(error.to_string().contains("begin the transaction after"), "{error}");
    drop(transaction);
    // Another transaction can, and the completion is asked for again.
    let mut transaction = pool.begin().await.unwrap();
    store.complete_in(&mut transaction, &lease.completion(&answer("1")).await.unwrap()).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(lease.complete(answer("1")).await.unwrap(), Settlement::Recorded);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claim_work_and_completion_are_one_transaction() {
    let own = Own::new().await;
    for level in LEVELS {
        let store = PostgresStore::connect(own.config()).await.unwrap();
        let (engine, pool) = (engine(&store), application(&own, level).await);
        let mut transaction = pool.begin().await.unwrap();
        let held = held(&store, &mut transaction, level).await;
        assert_eq!(held.attempt(), 1);
        charge(&mut transaction, level).await;
        assert_eq!(record(&store, level).await, None, "nobody sees it");
        store.complete_in(&mut transaction, &held.completion(answer(level))).await.unwrap();
        transaction.commit().await.unwrap();
        assert_eq!(record(&store, level).await.unwrap().status(), Status::Completed);
        // For everybody, an engine as well as another transaction.
        assert!(
            matches!(engine.begin(request(level)).await.unwrap(), Begun::Replayed(found) if found == answer(level))
        );
        let mut transaction = pool.begin().await.unwrap();
        let again = store.claim_in(&mut transaction, &claim(level)).await.unwrap();
        assert!(matches!(again, ClaimedIn::Replayed(found) if found == answer(level)), "{level}");
        is_usable(&mut transaction).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_on_a_taken_key_leaves_the_transaction_usable() {
    let own = Own::new().await;
    for level in LEVELS {
        let store = PostgresStore::connect(own.config()).await.unwrap();
        let (engine, pool) = (engine(&store), application(&own, level).await);
        let key = |what: &str| format!("{what}, {level}");

        let lease = acquired(&engine, &key("live")).await;
        let mut transaction = pool.begin().await.unwrap();
        charge(&mut transaction, level).await;
        let live = store.claim_in(&mut transaction, &claim(&key("live"))).await.unwrap();
        assert!(matches!(live, ClaimedIn::InProgress { since: Some(_), .. }), "{live:?}");
        is_usable(&mut transaction).await;

        let other = Fingerprint::builder("POST /refunds").finish().unwrap();
        let other = Claim::new(identity(&key("live")), other, Takeover::Resume);
        let mismatch = store.claim_in(&mut transaction, &other).await.unwrap();
        assert!(matches!(mismatch, ClaimedIn::Mismatch { .. }), "{mismatch:?}");
        is_usable(&mut transaction).await;

        // Somebody was faster, after this transaction's snapshot was taken.
        let fast = acquired(&engine, &key("fast")).await;
        let _ = fast.complete(answer("fast")).await.unwrap();
        let faster = store.claim_in(&mut transaction, &claim(&key("fast"))).await.unwrap();
        if level == LEVELS[0] {
            assert!(matches!(faster, ClaimedIn::Replayed(_)), "{faster:?}");
        } else {
            assert!(matches!(faster, ClaimedIn::InProgress { since: None, .. }), "{faster:?}");
        }
        is_usable(&mut transaction).await;

        // What it did before is still there.
        transaction.commit().await.unwrap();
        let count: i64 = sqlx::query_scalar("SELECT count(*) FROM charges WHERE id = $1")
            .bind(level)
            .fetch_one(&pool)
            .await
            .unwrap();
        assert_eq!(count, 1);
        let _ = lease.complete(answer("live")).await.unwrap();
    }
}

/// Not one of them waits for anything: the store's lock timeout is longer than the test may take. They hold no
/// connection, since one of the store's is enough for all of them and for another key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_rivals_of_an_uncommitted_claim_return_at_once() {
    let own = Own::new().await;
    for (level, group) in [(LEVELS[0], 1), (LEVELS[0], 256), (LEVELS[2], 1), (LEVELS[2], 256)] {
        let config = own.config().with_max_connections(1).with_group_limit(group);
        let config =
            config.with_lock_timeout(Duration::from_secs(3_000)).with_statement_deadline(Duration::from_secs(6_000));
        let store = PostgresStore::connect(config).await.unwrap();
        let (engine, pool) = (engine_with_patience(&store), application(&own, level).await);
        let key = format!("{level}, {group}");
        let mut transaction = pool.begin().await.unwrap();
        let held = held(&store, &mut transaction, &key).await;

        let mut rivals = JoinSet::new();
        for number in 0..100 {
            // Others are served in between.
            if number % 10 == 0 {
                let (engine, key) = (engine.clone(), format!("{key}, other {number}"));
                rivals.spawn(async move {
                    let _ = acquired(&engine, &key).await.complete(answer("other")).await.unwrap();
                });
            }
            let (engine, store, key, pool) = (engine.clone(), store.clone(), key.clone(), pool.clone());
            rivals.spawn(async move {
                // Some of them in transactions of their own.
                if number % 20 == 0 {
                    let mut transaction = pool.begin().await.unwrap();
                    let claimed = store.claim_in(&mut transaction, &claim(&key)).await.unwrap();
                    assert!(matches!(claimed, ClaimedIn::InProgress { since: None, .. }), "{claimed:?}");
                    is_usable(&mut transaction).await;
                } else {
                    let begun = engine.begin(request(&key)).await.unwrap();
                    assert!(matches!(begun, Begun::InProgress { since: None, .. }), "{begun:?}");
                }
            });
        }
        all(rivals).await;
        assert_eq!(own.connections("wait_event_type = 'Lock'").await, 0);

        // Rolled back, the key is free at once.
        drop(held);
        transaction.rollback().await.unwrap();
        let mut transaction = pool.begin().await.unwrap();
        let held = self::held(&store, &mut transaction, &key).await;
        assert_eq!(held.attempt(), 1);
        store.complete_in(&mut transaction, &held.completion(answer("2"))).await.unwrap();
        transaction.commit().await.unwrap();
        assert_eq!(record(&store, &key).await.unwrap().attempt, 1);
    }
}

/// Bug: while a transaction held a key, groups waited for it again and again, 20 ms each, and all other keys with them.
/// Cause: a look at the key forgot that it was blocked before it found out that it still is, and whoever came in between
/// went with a group. Fix: it is forgotten when it is known to be free. What was left of it is that the first group to
/// meet such a key waited; now groups, too, see whether a transaction holds it. A group that waits in vain is rolled
/// back, which the server counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_a_transaction_holds_never_holds_a_group_up() {
    let own = Own::new().await;
    let pool = application(&own, LEVELS[0]).await;
    let before = own.counted("xact_rollback").await;
    {
        // A look counts for as long as this, so that there are many.
        let config = own.config().with_max_connections(2).with_lock_timeout(Duration::from_millis(1));
        let store = PostgresStore::connect(config).await.unwrap();
        let engine = engine_with_patience(&store);
        let mut transaction = pool.begin().await.unwrap();
        let keys = ["k1", "k2", "k3", "k4", "k5"];
        for key in keys {
            let _held = held(&store, &mut transaction, key).await;
        }
        let mut rivals = JoinSet::new();
        for number in 0..50 {
            let (engine, key) = (engine.clone(), keys[number % keys.len()]);
            rivals.spawn(async move {
                for _ in 0..100 {
                    assert!(matches!(engine.begin(request(key)).await.unwrap(), Begun::InProgress { .. }));
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            });
        }
        // So many others that whoever comes goes with a group.
        for number in 0..30 {
            let engine = engine.clone();
            rivals.spawn(async move {
                for round in 0..20 {
                    let lease = acquired(&engine, &format!("other {number}, {round}")).await;
                    let _ = lease.complete(answer("other")).await.unwrap();
                }
            });
        }
        all(rivals).await;
        transaction.commit().await.unwrap();
        engine.drain(Duration::from_secs(5)).await;
    }
    let closed = || async { (own.connections("true").await == 0).then_some(()) };
    until("the connections are closed", Duration::from_secs(10), closed).await.unwrap();
    assert_eq!(own.counted("xact_rollback").await - before, 0);
}

/// The engine's own patience is the test's, so that nothing but an answer ends a call.
fn engine_with_patience(store: &PostgresStore) -> idem_core::Engine {
    let policy = idem_core::Policy::builder().with_lease(Duration::from_secs(90));
    let policy = policy.with_statement_deadline(Duration::from_secs(60)).build().unwrap();
    idem_core::Engine::builder(store.clone()).with_policy(policy).without_sweeper().build().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_and_an_abandoned_key_are_claimed_in_a_transaction_as_anywhere() {
    let own = Own::new().await;
    let store = PostgresStore::connect(own.config()).await.unwrap();
    let (engine, pool) = (engine(&store), application(&own, LEVELS[2]).await);
    let _ = acquired(&engine, "failed").await.fail().await.unwrap();
    let _ = acquired(&engine, "abandoned").await.abandon().await.unwrap();
    for key in ["failed", "abandoned"] {
        let mut transaction = pool.begin().await.unwrap();
        let held = held(&store, &mut transaction, key).await;
        assert_eq!(held.attempt(), 2);
        store.complete_in(&mut transaction, &held.completion(answer(key))).await.unwrap();
        transaction.commit().await.unwrap();
        assert_eq!(record(&store, key).await.unwrap().status(), Status::Completed);
    }
    let _ = acquired(&engine, "never").await.abandon().await.unwrap();
    let fingerprint = Fingerprint::builder("POST /charges").json(b"{\"amount\":1}").finish().unwrap();
    let never = Claim::new(identity("never"), fingerprint, Takeover::Never);
    let mut transaction = pool.begin().await.unwrap();
    let abandoned = store.claim_in(&mut transaction, &never).await.unwrap();
    assert!(matches!(abandoned, ClaimedIn::Abandoned { .. }), "{abandoned:?}");
    is_usable(&mut transaction).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outside_a_transaction_nothing_is_claimed() {
    let own = Own::new().await;
    let store = PostgresStore::connect(own.config()).await.unwrap();
    let pool = application(&own, LEVELS[0]).await;
    let mut connection = pool.acquire().await.unwrap();
    let error = store.claim_in(&mut connection, &claim("k")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    assert!(error.to_string().contains("begin one"), "{error}");
    assert_eq!(record(&store, "k").await, None);
}

/// Whatever the future was doing when its caller went away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_transaction_leaves_nothing() {
    let own = Own::new().await;
    let store = PostgresStore::connect(own.config()).await.unwrap();
    let pool = application(&own, LEVELS[0]).await;
    for polls in 1..12 {
        let work = async {
            let mut transaction = pool.begin().await.unwrap();
            let held = held(&store, &mut transaction, "k").await;
            charge(&mut transaction, "ch_1").await;
            store.complete_in(&mut transaction, &held.completion(answer("k"))).await.unwrap();
            // It never commits.
            std::future::pending::<()>().await;
        };
        let mut work = Box::pin(work);
        for _ in 0..polls {
            if work.as_mut().now_or_never().is_some() {
                unreachable!("it never ends");
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        drop(work);
        let mut transaction = pool.begin().await.unwrap();
        // The server learns of a rollback when the connection is used again, or closed.
        let held = loop {
            match store.claim_in(&mut transaction, &claim("k")).await.unwrap() {
                ClaimedIn::Acquired(held) => break held,
                ClaimedIn::InProgress { .. } => tokio::task::yield_now().await,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(held.attempt(), 1, "after {polls}");
        transaction.rollback().await.unwrap();
        assert_eq!(charges(&pool).await, 0);
    }
    assert_eq!(store.stats().await.unwrap().total(), 0);
}

/// The same transaction with another driver: the statement and its values are public.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_of_another_driver_completes_too() {
    let own = Own::new().await;
    let store = PostgresStore::connect(own.config()).await.unwrap();
    let engine = engine(&store);
    let (mut client, connection) = tokio_postgres::connect(own.database.url(), tokio_postgres::NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    client.batch_execute("CREATE TABLE charges (id text PRIMARY KEY)").await.unwrap();

    let lease = acquired(&engine, "k").await;
    let completion = lease.completion(&answer("k")).await.unwrap();
    let values = CompletionValues::from(&completion);
    let transaction = client.transaction().await.unwrap();
    transaction.execute("INSERT INTO charges VALUES ('ch_1')", &[]).await.unwrap();
    let body = &values.response_body[..];
    let rows = transaction
        .query(
            store.completion_statement(),
            &[
                &values.scope,
                &values.key,
                &values.locked_at,
                &values.owner,
                &values.expires_at,
                &values.response_code,
                &values.response_head,
                &body,
            ],
        )
        .await
        .unwrap();
    assert_eq!(rows.len(), 1, "or roll back");
    transaction.commit().await.unwrap();
    assert_eq!(lease.complete(answer("k")).await.unwrap(), Settlement::Recorded);
    assert!(matches!(engine.begin(request("k")).await.unwrap(), Begun::Replayed(found) if found == answer("k")));
    drop(client);
    connection.await.unwrap().unwrap();
}
