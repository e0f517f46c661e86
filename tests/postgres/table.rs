//! What the table is promised to cost: HOT completions, replays that write nothing, statements that use their index,
//! purge beside traffic.

#![expect(clippy::print_stderr, reason = "what was measured, for those who run it with --nocapture")]

use crate::servers::{Shared, Way, fresh, fresh_table};
use crate::support::now;
use idem_core::machine::Ownership;
use idem_core::store::{Inserted, Swapped};
use idem_core::{
    Claim, Fingerprint, Identity, Key, LeaseLength, Record, Response, Scope, Store, Sweeper, SweeperOptions, Takeover,
};
use idem_postgres::{PostgresConfig, PostgresStore};
use idem_tests::rig::postgres::{Postgres, Version};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

static SHARED: Shared = Shared::new(Version::Any, Way::Direct);

struct Bench {
    store: PostgresStore,
    table: String,
    client: PgConnection,
}

async fn bench() -> Bench {
    bench_at(SHARED.url().await).await
}

async fn bench_at(url: &str) -> Bench {
    let table = fresh_table();
    let config = PostgresConfig::from_url(url).unwrap().with_table(&table).unwrap();
    let store = fresh(config).await;
    Bench { store, table: format!("idem.{table}"), client: PgConnection::connect(url).await.unwrap() }
}

impl Bench {
    async fn number(&mut self, sql: &str) -> i64 {
        let row = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).fetch_one(&mut self.client).await.unwrap();
        row.try_get::<i64, _>(0).unwrap()
    }

    async fn execute(&mut self, sql: &str) {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut self.client).await.unwrap();
    }

    /// How the server runs one of the store's statements, whatever its values are.
    async fn plan(&mut self, statement: &str) -> String {
        let statements = self.store.statements();
        let (_, sql) = statements.iter().find(|(name, _)| *name == statement).unwrap();
        let parameters = (1..20).take_while(|number| sql.contains(&format!("${number}"))).count();
        let values = vec!["NULL"; parameters].join(", ");
        let values = if values.is_empty() { values } else { format!("({values})") };
        self.execute(&format!("PREPARE \"{statement}\" AS {sql}")).await;
        let explain = format!("EXPLAIN EXECUTE \"{statement}\"{values}");
        let lines = sqlx::raw_sql(AssertSqlSafe(explain)).fetch_all(&mut self.client).await.unwrap();
        self.execute(&format!("DEALLOCATE \"{statement}\"")).await;
        let lines: Vec<String> = lines.iter().map(|line| line.try_get(0).unwrap()).collect();
        lines.join("\n")
    }
}

fn claim(scope: &str, key: &str) -> Claim {
    let identity = Identity::new(Scope::new(scope).unwrap(), Key::new(key).unwrap());
    let fingerprint = Fingerprint::builder("POST /v1/charges").json(br#"{"amount":1000}"#).finish().unwrap();
    Claim::new(identity, fingerprint, Takeover::Resume)
}

async fn win(store: &PostgresStore, claim: &Claim) -> Record {
    let Inserted::Won(version) = store.insert(claim).await.unwrap() else { panic!("a new key") };
    claim.first_record(version.locked_at)
}

async fn complete(store: &PostgresStore, identity: &Identity, record: Record) {
    let version = record.version;
    let response = Response::new(201, vec![b'x'; 100]).with_header("location", "/v1/charges/ch_1");
    let change = Ownership::new(record).complete(response, Duration::ZERO, Duration::from_secs(3600));
    assert_eq!(store.swap(identity, &version, &change).await.unwrap(), Swapped::Applied);
}

async fn run(store: &PostgresStore, scope: &str, key: &str) {
    let claim = claim(scope, key);
    let record = win(store, &claim).await;
    complete(store, claim.identity(), record).await;
}

/// 100,000 replays of one key: no dead row, and no WAL but what the server writes by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_writes_nothing() {
    const REPLAYS: usize = 100_000;
    // A server of its own, on which nothing else writes.
    let server = Postgres::options().own().setting("autovacuum", "off").start().await;
    let database = server.database().await;
    let mut bench = bench_at(database.url()).await;
    bench.execute("CREATE EXTENSION IF NOT EXISTS pgstattuple").await;
    run(&bench.store, "acct_1", "k").await;
    // What the first readers set on the way (hint bits, the checkpoint behind them) is not the replays' doing.
    bench.execute(&format!("VACUUM {}", bench.table.clone())).await;
    bench.execute("CHECKPOINT").await;
    let wal = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint";
    let before = bench.number(wal).await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let store = bench.store.clone();
        tasks.spawn(async move {
            for _ in 0..REPLAYS / 8 {
                let answer = store.insert(&claim("acct_1", "k")).await.unwrap();
                assert!(matches!(answer, Inserted::Existing(..)), "{answer:?}");
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let written = bench.number(wal).await - before;
    // The server's own housekeeping, a snapshot of running transactions now and then, is some thousands of bytes; a
    // single byte a replay would be 100,000.
    let table = bench.table.clone();
    let dead = bench.number(&format!("SELECT dead_tuple_count FROM pgstattuple('{table}')")).await;
    let live = bench.number(&format!("SELECT tuple_count FROM pgstattuple('{table}')")).await;
    assert_eq!((dead, live), (0, 1));
    eprintln!("{REPLAYS} replays: {written} bytes of WAL");
    assert!(written < 50_000, "{written} bytes of WAL for {REPLAYS} replays");
}

/// In a steady state of claims, completions and purges, completing is a HOT update.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn completions_are_hot() {
    let mut bench = bench().await;
    let table = bench.table.clone();
    let hot = format!("SELECT pg_stat_get_tuples_hot_updated('{table}'::regclass)");
    let updated = format!("SELECT pg_stat_get_tuples_updated('{table}'::regclass)");
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..8 {
        let store = bench.store.clone();
        tasks.spawn(async move {
            for number in 0..1_000 {
                run(&store, &format!("acct_{}", number % 50), &format!("k-{task}-{number}")).await;
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    // Counters are reported when a backend goes idle, at most once a second.
    let deadline = now() + Duration::from_secs(20);
    while bench.number(&updated).await < 8_000 && now() < deadline {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (hot, updated) = (bench.number(&hot).await, bench.number(&updated).await);
    eprintln!("{hot} of {updated} updates were HOT");
    assert_eq!(updated, 8_000);
    assert!(hot * 100 > updated * 95, "{hot} of {updated}");
}

/// The generic plan of every statement, on a table with rows in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_statement_uses_the_index_that_it_should() {
    let mut bench = bench().await;
    let table = bench.table.clone();
    fill(&mut bench, 20_000, "now() + interval '1 day' - g * interval '1 second'").await;
    bench.execute(&format!("ANALYZE {table}; SET plan_cache_mode = force_generic_plan")).await;
    let name = table.trim_start_matches("idem.");
    let by_identity = format!("{name}_pkey");
    for (statement, _) in bench.store.statements() {
        let plan = bench.plan(statement).await;
        let expected: &[String] = match statement {
            // It has nothing to find; the conflict is the index's business.
            "insert" => &[],
            // Counts everything.
            "stats" => continue,
            "expired" | "given_up" => &[format!("{name}_expires_at_idx")],
            "pass" => &[format!("{name}_locked_at_idx")],
            "stuck" => &[format!("{name}_locked_at_idx"), format!("{name}_suspect_idx")],
            _ => std::slice::from_ref(&by_identity),
        };
        assert!(!plan.contains(&format!("Seq Scan on {name} ")), "{statement}:\n{plan}");
        for index in expected {
            assert!(plan.contains(index.as_str()), "{statement} does not use {index}:\n{plan}");
        }
    }
}

/// A table is young once, and a plan that was made then is kept until the statistics change, which takes a minute at the
/// least. It was an index scan of the whole table for every group of completions: the more rows, the slower.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_plan_of_a_young_table_walks_it() {
    let mut bench = bench().await;
    let table = bench.table.clone();
    let name = table.trim_start_matches("idem.").to_owned();
    for (setting, value) in PostgresStore::planning() {
        bench.execute(&format!("SET {setting} = {value}")).await;
    }
    for rows in [0, 1, 2] {
        if rows > 0 {
            bench.execute(&format!("TRUNCATE {table}")).await;
            fill(&mut bench, rows, "now()").await;
            bench.execute(&format!("ANALYZE {table}")).await;
        }
        let of_groups = ["insert_group", "load_group", "complete_group", "delete", "mark", "erase"];
        for statement in of_groups.into_iter().chain(["insert_or_read", "load", "complete", "takeover"]) {
            let plan = bench.plan(statement).await;
            let scans: Vec<_> = plan.split("->").filter(|node| node.contains(&format!(" on {name} "))).collect();
            assert!(scans.iter().any(|node| node.contains("Index Cond")), "{rows} rows, {statement}:\n{plan}");
            let writes = ["Insert on", "Update on", "Delete on"];
            for scan in scans.iter().filter(|node| !writes.iter().any(|write| node.contains(write))) {
                assert!(scan.contains("Index Cond"), "{rows} rows, {statement}:\n{plan}");
            }
        }
    }
}

/// Many expired rows, two sweepers and live traffic: every expired settled row goes and nothing else does.
///
/// `IDEM_PURGE_ROWS=1000000`, in a release build on a quiet machine, says how claims fare meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_rows_go_beside_live_traffic() {
    let rows: i64 = std::env::var("IDEM_PURGE_ROWS").map_or(100_000, |rows| rows.parse().unwrap());
    let mut bench = bench().await;
    let table = bench.table.clone();
    fill(&mut bench, rows, "now() - interval '1 hour' - g * interval '1 millisecond'").await;
    // What must stay: in progress past its retention, failed with an unknown past, and not yet expired.
    bench
        .execute(&format!(
            "UPDATE {table} SET status = 'in_progress', response_head = NULL, response_body = NULL WHERE key IN ('k-1', 'k-2'); \
             UPDATE {table} SET status = 'failed', unresolved = 1, response_head = NULL, response_body = NULL WHERE key = 'k-3'; \
             UPDATE {table} SET expires_at = now() + interval '1 hour' WHERE key IN ('k-4', 'k-5'); ANALYZE {table}"
        ))
        .await;
    run(&bench.store, "acct_1", "warm").await;
    let idle = claims_until(&bench.store, "idle", &AtomicBool::new(false), 5_000).await;

    let done = Arc::new(AtomicBool::new(false));
    let began = now();
    // As it comes, but for the pause between sweeps: two sweepers that meet keep apart by it.
    let options = SweeperOptions::default().with_interval(Duration::from_secs(1));
    let sweepers = [1, 2].map(|_| Sweeper::spawn(Arc::new(bench.store.clone()), options.clone()));
    let traffic = {
        let (store, done) = (bench.store.clone(), Arc::clone(&done));
        tokio::spawn(async move { claims_until(&store, "busy", &done, usize::MAX).await })
    };
    // Asked like this it costs the server next to nothing, so that it does not show in what is measured.
    let left = format!(
        "SELECT count(*) FROM (SELECT FROM {table} WHERE expires_at <= now() AND status = 'completed' ORDER BY expires_at LIMIT 1) AS e"
    );
    while bench.number(&left).await > 0 {
        assert!(began.elapsed() < Duration::from_secs(1200), "the purge does not get on");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let took = began.elapsed();
    done.store(true, Ordering::Relaxed);
    let busy = traffic.await.unwrap();
    for sweeper in sweepers {
        sweeper.stop().await;
    }
    assert_eq!(bench.number(&format!("SELECT count(*) FROM {table} WHERE key LIKE 'k-%'")).await, 5);
    eprintln!(
        "purged {} rows in {took:.1?}; claim p99 {:?} idle ({} claims), {:?} meanwhile ({} claims)",
        rows - 5,
        p99(&idle),
        idle.len(),
        p99(&busy),
        busy.len()
    );
}

/// Claims and completes until told to stop, or that many times; how long each claim took.
async fn claims_until(store: &PostgresStore, prefix: &str, done: &AtomicBool, most: usize) -> Vec<Duration> {
    let mut took = Vec::new();
    while !done.load(Ordering::Relaxed) && took.len() < most {
        let claim = claim("acct_traffic", &format!("{prefix}-{}", took.len()));
        let began = now();
        let record = win(store, &claim).await;
        took.push(began.elapsed());
        complete(store, claim.identity(), record).await;
    }
    took
}

fn p99(took: &[Duration]) -> Duration {
    let mut sorted = took.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() * 99 / 100).copied().unwrap_or_default()
}

/// Completed rows, written by the server itself.
async fn fill(bench: &mut Bench, rows: i64, expires_at: &str) {
    let (table, store) = (bench.table.clone(), bench.store.clone());
    run(&store, "acct_sample", "sample").await;
    bench
        .execute(&format!(
            "INSERT INTO {table} (scope, key, fingerprint, status, attempt, owner, locked_at, lease_ms, created_at, expires_at, \
               response_code, response_head, response_body) \
             SELECT 'acct_' || g % 1000, 'k-' || g, s.fingerprint, 'completed', 1, gen_random_uuid(), \
               now() - interval '25 hours' + g * interval '1 millisecond', {lease}, now() - interval '25 hours', {expires_at}, \
               s.response_code, s.response_head, s.response_body \
             FROM {table} AS s, generate_series(1, {rows}) AS g WHERE s.key = 'sample'",
            lease = LeaseLength::from_millis(90_000).as_millis(),
        ))
        .await;
    bench.execute(&format!("DELETE FROM {table} WHERE key = 'sample'")).await;
}

/// Where the server can, long bodies are compressed by the method that costs least.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_are_compressed_fast_where_the_server_can() {
    let mut bench = bench().await;
    let can = "SELECT ('lz4' = ANY (enumvals))::int::bigint FROM pg_settings WHERE name = 'default_toast_compression'";
    let does = format!(
        "SELECT (attcompression = 'l')::int::bigint FROM pg_attribute \
         WHERE attrelid = '{}'::regclass AND attname = 'response_body'",
        bench.table
    );
    assert_eq!(bench.number(can).await, bench.number(&does).await);
}
