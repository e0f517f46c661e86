//! What a storm of retries on one running key costs PostgreSQL, by its own count.

use crate::support::{answer, patient};
use idem_core::{Begun, Engine, Fingerprint, Key, Request, Scope, Settlement, Store, Takeover};
use idem_postgres::{PostgresConfig, PostgresStore};
use idem_redis_cache::{CacheConfig, NegativeCache};
use idem_tests::rig::postgres::{Database, Postgres};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::task::JoinSet;

const RETRIES: usize = 2_000;
const CALLERS: usize = 64;

fn request(key: &str) -> Request {
    let fingerprint = Fingerprint::builder("POST /charges").json(b"{\"amount\":1}").finish().unwrap();
    Request::new(Scope::new("acct_1").unwrap(), Key::new(key).unwrap(), fingerprint, Takeover::Resume)
}

/// How many statements this database has executed, those that ask this not counted.
async fn statements(database: &Database) -> i64 {
    let sql = "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements AS s \
               JOIN pg_database AS d ON d.oid = s.dbid \
               WHERE d.datname = current_database() AND query NOT LIKE '%pg_stat_statements%'";
    sqlx::query_scalar(sql).fetch_one(&mut database.client().await).await.unwrap()
}

/// The key is claimed, and its owner is at work until everybody has been told so and gone away.
async fn storm(database: &Database, store: impl Store + 'static, key: &'static str) -> i64 {
    let engine = Engine::builder(store).without_sweeper().build().unwrap();
    let Begun::Acquired(lease) = engine.begin(request(key)).await.unwrap() else { panic!("it is new") };
    let before = statements(database).await;
    let left = Arc::new(AtomicUsize::new(RETRIES));
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let (engine, left) = (engine.clone(), Arc::clone(&left));
        callers.spawn(async move {
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                let begun = engine.begin(request(key)).await.unwrap();
                assert!(matches!(begun, Begun::InProgress { .. }), "{begun:?}");
            }
        });
    }
    callers.join_all().await;
    let cost = statements(database).await - before;
    assert_eq!(lease.complete(answer("done")).await.unwrap(), Settlement::Recorded);
    let begun = engine.begin(request(key)).await.unwrap();
    assert!(matches!(&begun, Begun::Replayed(response) if *response == answer("done")), "{begun:?}");
    cost
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stderr, reason = "what was counted, for those who run it with --nocapture")]
async fn retries_of_a_running_key_hardly_reach_postgres() {
    let server = Postgres::options().setting("shared_preload_libraries", "pg_stat_statements").start().await;
    let database = server.database().await;
    database.execute("CREATE EXTENSION pg_stat_statements").await;
    let config = PostgresConfig::from_url(database.url()).unwrap();
    PostgresStore::migrate(&config).await.unwrap();
    let single = PostgresStore::connect(config.clone().with_group_limit(1)).await.unwrap();
    let grouped = PostgresStore::connect(config.clone()).await.unwrap();
    let cache = CacheConfig::from_url(crate::servers::redis().await.url()).unwrap();
    let cache = patient(cache).with_prefix(crate::support::fresh_prefix());
    let cached = NegativeCache::new(PostgresStore::connect(config).await.unwrap(), cache);
    crate::support::reach(&cached).await;

    let without = storm(&database, single, "single").await;
    let together = storm(&database, grouped, "together").await;
    let with = storm(&database, cached.clone(), "with").await;
    eprintln!(
        "{RETRIES} retries: {without} statements without the cache, {together} where they go together, {with} with it"
    );
    assert!(without >= i64::try_from(RETRIES).unwrap(), "{without}");
    assert!(together < without, "{together} and {without}");
    assert!(with * 50 <= together, "{with} and {together}");
    // Not because nobody came.
    assert!(cached.counts().busy as usize >= RETRIES * 9 / 10, "{:?}", cached.counts());
}
