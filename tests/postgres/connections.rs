//! Many callers, few connections, and connections that end, hang or stay behind in the middle of something.

use crate::load::Load;
use crate::support::{Own, acquired, all, answer, claim, engine, identity, now, record, request};
use idem_core::machine::Change;
use idem_core::store::{Erase, Inserted, PurgeOptions, StuckQuery, UnresolvedRows};
use idem_core::{Begun, Engine, Error, ErrorKind, Scope, Settlement, Status, Store, Timestamp, Version, WriteOutcome};
use idem_postgres::{PostgresConfig, PostgresStore};
use idem_tests::rig::postgres::Postgres;
use idem_tests::rig::proxy::{Direction, Proxy};
use idem_tests::rig::wait::until;
use sqlx::{Connection, Executor, PgConnection};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

const SOON: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stderr, reason = "how long it takes is one of the figures")]
async fn sixty_four_connections_claim_one_new_key_at_a_barrier() {
    const CONNECTIONS: usize = 64;
    const ROUNDS: usize = 2_000;
    let own = Own::new().await;
    let config = own.config().with_max_connections(CONNECTIONS).with_lock_timeout(Duration::from_secs(1));
    // Each for itself, all at once; claims that go together are in `groups.rs`.
    let store = PostgresStore::connect(config.with_group_limit(1)).await.unwrap();
    let barrier = Arc::new(Barrier::new(CONNECTIONS));
    let begun = now();
    let mut claimers = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (store, barrier) = (store.clone(), Arc::clone(&barrier));
        claimers.spawn(async move {
            let mut won = Vec::new();
            let mut seen = Vec::new();
            for round in 0..ROUNDS {
                let claim = claim(&format!("key_{round}"));
                barrier.wait().await;
                match store.insert(&claim).await {
                    Ok(Inserted::Won(version)) => {
                        assert_eq!(version.owner, claim.owner());
                        won.push(round);
                        seen.push(version);
                    }
                    Ok(Inserted::Existing(record, _)) => seen.push(record.version),
                    other => panic!("round {round}: {other:?}"),
                }
            }
            (won, seen)
        });
    }
    let results = all(claimers).await;
    eprintln!("{ROUNDS} rounds of {CONNECTIONS} took {:?}", begun.elapsed());
    assert_eq!(own.connections("true").await, 64, "each had a connection of its own");
    let mut winners: Vec<usize> = results.iter().flat_map(|(won, _)| won.clone()).collect();
    winners.sort_unstable();
    assert_eq!(winners, (0..ROUNDS).collect::<Vec<_>>(), "one grant in each round");
    for (_, seen) in &results {
        assert_eq!(*seen, results[0].1, "everybody was told of the same winners");
    }
}

#[tokio::test]
async fn fifty_callers_on_a_pool_of_two_all_finish() {
    let own = Own::new().await;
    let proxy = Proxy::start(&own.server.address()).await;
    let engine = engine(&PostgresStore::connect(own.config_by(&proxy).with_max_connections(2)).await.unwrap());
    let mut callers = JoinSet::new();
    for n in 0..50 {
        let engine = engine.clone();
        callers.spawn(async move {
            let key = format!("key_{n}");
            assert_eq!(acquired(&engine, &key).await.complete(answer(&key)).await.unwrap(), Settlement::Recorded);
        });
    }
    assert_eq!(all(callers).await.len(), 50);
    assert!(proxy.accepted() <= 2, "{} connections", proxy.accepted());
    assert_eq!(engine.store().stats().await.unwrap().completed, 50);
}

/// Separate connections are to the server what separate processes are: `migrate` opens one of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_migrations_at_once_make_one_table() {
    for isolation in ["read committed", "serializable"] {
        let own = Own::new().await;
        own.database.execute("DROP SCHEMA idem CASCADE").await;
        own.server
            .execute(&format!(
                "ALTER DATABASE {} SET default_transaction_isolation = '{isolation}'",
                own.database.name()
            ))
            .await;
        let barrier = Arc::new(Barrier::new(16));
        let mut migrations = JoinSet::new();
        for n in 0..16 {
            // Two tables: not only the second attempt at the same one has to wait.
            let config = own.config().with_table(["one", "two"][n % 2]).unwrap();
            let barrier = Arc::clone(&barrier);
            migrations.spawn(async move {
                barrier.wait().await;
                PostgresStore::migrate(&config).await
            });
        }
        for result in all(migrations).await {
            result.unwrap_or_else(|error| panic!("{isolation}: {error:?}"));
        }
        for table in ["one", "two"] {
            let store = PostgresStore::connect(own.config().with_table(table).unwrap()).await.unwrap();
            assert!(matches!(store.insert(&claim("key")).await.unwrap(), Inserted::Won(_)));
        }
    }
}

/// A pool is shared, a caller goes away in the middle of `begin`, and its connection may go back with a transaction open in which the next
/// user's statements drown. The store has connections of its own.
#[tokio::test]
async fn a_begin_that_was_dropped_half_way_on_the_users_pool_does_not_touch_idem() {
    let own = Own::new().await;
    let proxy = Proxy::start(&own.server.address()).await;
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(1);
    let pool = pool.connect(&proxy.url(own.database.url())).await.unwrap();
    proxy.delay(Direction::ToClient, Duration::from_millis(200));
    let dropped = tokio::time::timeout(Duration::from_millis(50), pool.begin()).await;
    assert!(dropped.is_err(), "it was to be dropped half-way");
    proxy.heal().await;
    // And one that is open all the while.
    let mut transaction = pool.begin().await.unwrap();
    transaction.execute("SELECT 1").await.unwrap();

    let config = PostgresConfig::from_options((*pool.connect_options()).clone());
    let engine = engine(&PostgresStore::connect(config).await.unwrap());
    let lease = acquired(&engine, "key").await;
    let direct = PostgresStore::connect(own.config()).await.unwrap();
    let seen = record(&direct, "key").await.expect("others see the claim at once");
    assert_eq!(seen.version.fencing_token(), lease.fencing_token());
    transaction.rollback().await.unwrap();
    drop(pool);
    assert_eq!(record(&direct, "key").await, Some(seen), "the user's rollback is the user's");
    assert_eq!(lease.complete(answer("key")).await.unwrap(), Settlement::Recorded);
}

/// A future that is polled so often at most, and then is dropped.
struct Polled<F> {
    future: Option<Pin<Box<F>>>,
    left: usize,
}

impl<F: Future> Future for Polled<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(future) = self.future.as_mut() else { return Poll::Ready(None) };
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        self.left -= 1;
        if self.left == 0 {
            self.future = None;
            return Poll::Ready(None);
        }
        Poll::Pending
    }
}

/// A way to end a call early.
#[derive(Clone, Copy, Debug)]
enum Early {
    AfterPolls(usize),
    After(Duration),
}

impl Early {
    /// Runs the call, or some of it; says whether all of it ran.
    async fn run<T>(self, call: impl Future<Output = Result<T, Error>>) -> bool {
        let result = match self {
            Self::AfterPolls(left) => Polled { future: Some(Box::pin(call)), left }.await,
            Self::After(limit) => tokio::time::timeout(limit, call).await.ok(),
        };
        match result {
            Some(Ok(_)) => true,
            // A swap of a dropped insert's record finds none, which is an answer; errors are not.
            Some(Err(error)) => panic!("{self:?}: {error:?}"),
            None => false,
        }
    }
}

const CALLS: [&str; 11] =
    ["insert", "existing", "complete", "load", "purge", "stuck", "stats", "erase", "connect", "check", "migrate"];

const OPEN_TRANSACTIONS: &str = "SELECT count(*) FROM pg_stat_activity \
    WHERE datname = current_database() AND application_name = 'idem' AND state LIKE 'idle in transaction%'";

/// One call of the public API, ended early, on a pool of one.
async fn call(
    name: &str,
    early: Early,
    store: &PostgresStore,
    config: &PostgresConfig,
    key: &str,
    owned: &Version,
) -> bool {
    let identity = identity(key);
    match name {
        "insert" => {
            let fresh = claim(&format!("{key}-fresh"));
            early.run(store.insert(&fresh)).await
        }
        "existing" => early.run(store.insert(&claim(key))).await,
        "complete" => {
            let change = Change::Complete { response: answer(key), expires_at: Timestamp::from_micros(i64::MAX / 4) };
            early.run(store.swap(&identity, owned, &change)).await
        }
        "load" => early.run(store.load(&identity)).await,
        "purge" => {
            let options = PurgeOptions::default().with_unresolved(UnresolvedRows::DropAfter(Duration::ZERO));
            early.run(store.purge(&options)).await
        }
        "stuck" => early.run(store.stuck(&StuckQuery::default())).await,
        "stats" => early.run(store.stats()).await,
        "erase" => early.run(store.erase(&Scope::new("somebody else").unwrap(), Erase::Everything)).await,
        "connect" => early.run(PostgresStore::connect(config.clone())).await,
        "check" => early.run(store.check()).await,
        "migrate" => early.run(PostgresStore::migrate(config)).await,
        other => unreachable!("{other}"),
    }
}

/// Ends one call early in every way of a series, until it is not early any more, and looks at what is left.
#[expect(clippy::print_stderr, reason = "how often each call was dropped belongs to the test's output")]
async fn nothing_is_left_behind(own: &Own, config: &PostgresConfig, series: impl Fn(usize) -> Early) {
    const MOST: usize = 400;
    let direct = PostgresStore::connect(own.config().with_max_connections(1)).await.unwrap();
    let mut observer = own.database.client().await;
    for name in CALLS {
        // A store of its own for each name, so that a drop falls into the making of a connection and of a statement too.
        let store = PostgresStore::unchecked(config.clone().with_max_connections(1)).unwrap();
        let mut drops = 0;
        for n in 1..=MOST {
            let key = format!("{name}_{n}_{}", own.database.name());
            let claim = claim(&key);
            let Inserted::Won(owned) = direct.insert(&claim).await.unwrap() else { panic!("{key} is new") };
            let early = series(n);
            let whole = call(name, early, &store, config, &key, &owned).await;
            let context = format!("{name}, {early:?}");

            // The key is settled, or still its owner's, or was never taken.
            let found = record(&direct, &key).await.unwrap();
            assert_eq!((found.version, found.attempt), (owned, 1), "{context}");
            let settled = found.status() == Status::Completed;
            assert!(!whole || settled == (name == "complete"), "{context}: {found:?}");
            // Before anybody uses the connection again and perhaps ends what was left open on it, and after.
            let mut open =
                async || sqlx::query_scalar::<_, i64>(OPEN_TRANSACTIONS).fetch_one(&mut observer).await.unwrap();
            assert_eq!(open().await, 0, "{context}: a transaction was left open");
            // The only connection is as good as new, or another one is.
            let again = store.load(claim.identity()).await.unwrap_or_else(|error| panic!("{context}, then: {error:?}"));
            assert_eq!(again.record.unwrap().version, owned, "{context}");
            assert_eq!(open().await, 0, "{context}: a transaction was left open");
            if whole {
                break;
            }
            drops += 1;
            assert!(n < MOST, "{context}: it never ends");
        }
        eprintln!("{name}: dropped {drops} times");
        assert!(drops > 0, "{name} was never dropped half-way");
        drop(store);
        let gone = until("what was dropped is gone from the server", SOON, || async {
            // One is the direct store's.
            (own.connections("true").await == 1).then_some(())
        });
        gone.await.unwrap();
    }
}

#[tokio::test]
async fn every_call_may_be_dropped_at_every_poll() {
    let own = Own::new().await;
    nothing_is_left_behind(&own, &own.config(), Early::AfterPolls).await;
}

#[tokio::test]
async fn every_call_may_be_dropped_at_any_time() {
    let own = Own::new().await;
    let proxy = Proxy::start(&own.server.address()).await;
    // So that the time passes between the steps and not in them.
    proxy.delay(Direction::ToServer, Duration::from_millis(2));
    proxy.delay(Direction::ToClient, Duration::from_millis(2));
    let series = |n| Early::After(Duration::from_millis(n as u64));
    nothing_is_left_behind(&own, &own.config_by(&proxy), series).await;
}

/// While a dropped call's statement still runs, its connection is no longer in the pool, and its end is the server's business: no
/// transaction stays open.
#[tokio::test]
async fn a_call_that_is_dropped_while_it_waits_for_a_lock_leaves_no_transaction() {
    let own = Own::new().await;
    let store = PostgresStore::connect(own.config().with_max_connections(1)).await.unwrap();
    let mut rival = own.database.client().await;
    hold_uncommitted(&mut rival, "key").await;
    {
        let claim = claim("key");
        let mut waiting = Box::pin(store.insert(&claim));
        let blocked = async {
            let blocked = || async { (own.connections(BLOCKED).await == 1).then_some(()) };
            until("the claim waits for its rival", Duration::from_secs(5), blocked).await.unwrap();
        };
        tokio::select! {
            biased;
            early = &mut waiting => panic!("the rival has not decided: {early:?}"),
            () = blocked => {}
        }
    }
    // On another connection, at once, though the first one's statement may still wait.
    assert!(matches!(store.insert(&claim("other")).await.unwrap(), Inserted::Won(_)));
    let gone = || async { (own.connections("true").await == 1).then_some(()) };
    until("the dropped claim's session has ended", SOON, gone).await.unwrap();
    rival.execute("ROLLBACK").await.unwrap();
    assert!(record(&store, "key").await.is_none(), "nobody claimed it");
}

const BLOCKED: &str = "cardinality(pg_blocking_pids(pid)) > 0";

/// A claim by hand that is neither committed nor rolled back.
pub(crate) async fn hold_uncommitted(rival: &mut PgConnection, key: &str) {
    let insert = "BEGIN; INSERT INTO idem.records \
          (scope, key, fingerprint, status, attempt, owner, locked_at, lease_ms, created_at, expires_at) \
        SELECT 'acct_1', $1, $2, 'in_progress', 1, gen_random_uuid(), now(), 60000, now(), now() + interval '1 day'";
    let (begin, insert) = insert.split_once("; ").unwrap();
    rival.execute(begin).await.unwrap();
    let fingerprint = claim(key).fingerprint().to_bytes();
    sqlx::query(insert).bind(key).bind(fingerprint).execute(rival).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rivals_uncommitted_claim_delays_one_key_for_the_lock_timeout() {
    const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
    let own = Own::new().await;
    let config = own.config().with_max_connections(4).with_lock_timeout(LOCK_TIMEOUT);
    // Two processes: what the first one finds out about a blocked key, the second does not know.
    let other = engine(&PostgresStore::connect(config.clone()).await.unwrap());
    let engine = engine(&PostgresStore::connect(config).await.unwrap());
    for commit in [true, false] {
        let key = format!("key_{commit}");
        let mut rival = own.database.client().await;
        hold_uncommitted(&mut rival, &key).await;
        let ask = |engine: &Engine| {
            let (engine, request) = (engine.clone(), request(&key));
            tokio::spawn(async move { engine.begin(request).await.unwrap() })
        };
        let blocked = || async { (own.connections(BLOCKED).await == 1).then_some(()) };

        // Undecided: busy, after the lock timeout, and other keys do not notice.
        let began = now();
        let first = ask(&engine);
        until("the claim waits for its rival", SOON, blocked).await.unwrap();
        for n in 0..10 {
            let _ = acquired(&engine, &format!("{key}_{n}")).await.fail().await.unwrap();
        }
        assert!(!first.is_finished(), "ten claims of other keys took longer than the lock timeout");
        let begun = first.await.unwrap();
        let took = began.elapsed();
        assert!(matches!(begun, Begun::InProgress { since: None, .. }), "{begun:?}");
        assert!(took >= LOCK_TIMEOUT && took < LOCK_TIMEOUT * 3, "{took:?}");

        // Decided while somebody waits.
        let second = ask(&other);
        until("the claim waits for its rival", SOON, blocked).await.unwrap();
        rival.execute(if commit { "COMMIT" } else { "ROLLBACK" }).await.unwrap();
        let begun = second.await.unwrap();
        if commit {
            assert!(matches!(begun, Begun::InProgress { since: Some(_), .. }), "the loser sees the winner: {begun:?}");
        } else {
            let Begun::Acquired(lease) = begun else { panic!("nobody holds it: {begun:?}") };
            assert_eq!(lease.attempt(), 1);
            assert_eq!(lease.complete(answer(&key)).await.unwrap(), Settlement::Recorded);
        }
        rival.close().await.unwrap();
    }
}

/// All idle connections were ended by the server, as by its restart. Whoever comes next shall not have to try them one by one.
#[tokio::test]
async fn a_pool_of_dead_connections_costs_nobody_an_error() {
    const POOL: usize = 8;
    let own = Own::new().await;
    let proxy = Proxy::start(&own.server.address()).await;
    let store = PostgresStore::unchecked(own.config_by(&proxy).with_max_connections(POOL)).unwrap();
    let engine = engine(&store);
    for round in 0..3 {
        // Eight calls that all hold a connection at the same time.
        proxy.pause(Direction::ToClient);
        let mut loads = JoinSet::new();
        for _ in 0..POOL {
            let store = store.clone();
            loads.spawn(async move { store.load(&identity("nobody's")).await.map(drop) });
        }
        let open = || async { (proxy.connections() == POOL).then_some(()) };
        until("eight connections are open", Duration::from_secs(4), open).await.unwrap();
        proxy.resume(Direction::ToClient);
        for load in all(loads).await {
            load.unwrap();
        }
        let ours = format!("datname = '{}' AND application_name = 'idem'", own.database.name());
        assert_eq!(own.server.terminate_where(&ours).await, POOL as u64);
        let none = || async { (own.connections("true").await == 0).then_some(()) };
        until("they are all dead", SOON, none).await.unwrap();
        let key = format!("key_{round}");
        let lease = acquired(&engine, &key).await;
        assert_eq!(lease.complete(answer(&key)).await.unwrap(), Settlement::Recorded);
    }
}

/// Numbers from a seed, for what shall look like chance and be the same every time.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stderr, reason = "a seed that fails has to be known")]
async fn backends_that_are_terminated_at_random_lead_to_no_wrong_grant() {
    const SEED: u64 = 20;
    let own = Own::new().await;
    let stores = [(); 2].map(|()| PostgresStore::unchecked(own.config().with_max_connections(4)).unwrap());
    let load = Load::start(stores.clone());
    let mut draw = Draw(SEED);
    let mut ended = 0;
    let until_then = now() + Duration::from_secs(4);
    while now() < until_then {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let backends = own.server.backends(own.database.name()).await;
        if !backends.is_empty() {
            let pid = backends[draw.below(backends.len())];
            ended += own.server.terminate_where(&format!("pid = {pid}")).await;
        }
    }
    let told = load.stop().await;
    eprintln!(
        "seed {SEED}: {ended} ended, {} granted, {} completed, {} errors",
        told.grants.len(),
        told.completed.len(),
        told.errors.len()
    );
    assert!(ended >= 20 && told.completed.len() >= 100, "it was not a test");
    let direct = PostgresStore::connect(own.config().with_max_connections(1)).await.unwrap();
    told.verify(&direct).await;
    for (n, store) in stores.iter().enumerate() {
        let engine = engine(store);
        for call in 0..8 {
            let key = format!("after_{n}_{call}");
            assert_eq!(acquired(&engine, &key).await.complete(answer(&key)).await.unwrap(), Settlement::Recorded);
        }
    }
}

/// A server of the test's own, that may be paused.
async fn paused_store(server: &Postgres, pool: usize) -> PostgresStore {
    let config = PostgresConfig::from_url(server.url()).unwrap();
    PostgresStore::migrate(&config).await.unwrap();
    PostgresStore::connect(config.with_statement_deadline(DEADLINE).with_max_connections(pool)).await.unwrap()
}

/// Long enough that twice as long is something else than late.
const DEADLINE: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_frozen_backend_costs_one_call_its_deadline() {
    let server = Postgres::options().own().start().await;
    let store = paused_store(&server, 1).await;
    let query = "SELECT pid FROM pg_stat_activity WHERE application_name = 'idem'";
    let backend: i32 = sqlx::query_scalar(query).fetch_one(&mut server.client().await).await.unwrap();
    server.pause_backend(backend).await;

    let frozen = claim("key");
    let began = now();
    let error = store.insert(&frozen).await.unwrap_err();
    let took = began.elapsed();
    assert_eq!((error.kind(), error.write_outcome()), (ErrorKind::Timeout, WriteOutcome::Unknown));
    assert!(took >= DEADLINE && took < DEADLINE * 19 / 10, "{took:?}");
    // Another connection, at once.
    let began = now();
    assert!(matches!(store.insert(&claim("other")).await.unwrap(), Inserted::Won(_)));
    assert!(began.elapsed() < DEADLINE, "{:?}", began.elapsed());

    // What was on its way may land when the backend goes on; then it is the first claim's.
    server.resume_backend(backend);
    let gone = || async {
        let left: i64 = sqlx::query_scalar("SELECT count(*) FROM pg_stat_activity WHERE pid = $1")
            .bind(backend)
            .fetch_one(&mut server.client().await)
            .await
            .unwrap();
        (left == 0).then_some(())
    };
    until("the forgotten session ends", SOON, gone).await.unwrap();
    if let Some(landed) = record(&store, "key").await {
        assert_eq!((landed.version.owner, landed.attempt), (frozen.owner(), 1));
    }
}

/// Every call ends by its deadline, also one that waits for the only connection, gets the place of it, and has to make a new one.
#[tokio::test]
async fn a_frozen_server_costs_every_call_its_deadline_once() {
    let server = Postgres::options().own().start().await;
    let store = paused_store(&server, 1).await;
    server.pause().await;
    let mut calls = JoinSet::new();
    for n in 0..3 {
        let store = store.clone();
        calls.spawn(async move {
            let began = now();
            let error = store.insert(&claim(&format!("key_{n}"))).await.unwrap_err();
            (error, began.elapsed())
        });
    }
    for (error, took) in all(calls).await {
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error:?}");
        assert!(took >= DEADLINE && took < DEADLINE * 19 / 10, "{took:?}: {error:?}");
    }
    server.resume();
    assert!(matches!(store.insert(&claim("after")).await.unwrap(), Inserted::Won(_)));
}

/// Bug: a hundred callers of a key whose rival does not commit took every connection of the pool for a lock timeout each,
/// again and again, and claims of other keys waited seconds. Cause: each first ask waited for the rival by itself. Fix: the
/// store remembers the key for a lock timeout, answers others `Busy`, and lets one at a time look.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_key_takes_one_connection_and_not_the_pool() {
    let own = Own::new().await;
    let store = PostgresStore::connect(own.config().with_max_connections(4)).await.unwrap();
    let mut rival = own.database.client().await;
    hold_uncommitted(&mut rival, "blocked").await;
    // The first wave finds out that the key is blocked; each of the pool's connections may wait once.
    let mut wave = JoinSet::new();
    for _ in 0..4 {
        let store = store.clone();
        wave.spawn(async move { store.insert(&claim("blocked")).await.unwrap() });
    }
    assert!(all(wave).await.iter().all(|answer| matches!(answer, Inserted::Busy { .. })));

    let (stop, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut callers = JoinSet::new();
    for _ in 0..100 {
        let (store, stop, asked) = (store.clone(), Arc::clone(&stop), Arc::clone(&asked));
        callers.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let answer = store.insert(&claim("blocked")).await.unwrap();
                assert!(matches!(answer, Inserted::Busy { .. }), "{answer:?}");
                asked.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
    }
    for number in 0..200 {
        let waiting = own.connections("wait_event_type = 'Lock'").await;
        assert!(waiting <= 1, "{waiting} connections wait for one key");
        let answer = store.insert(&claim(&format!("other-{number}"))).await.unwrap();
        assert!(matches!(answer, Inserted::Won(_)), "{answer:?}");
    }
    assert!(asked.load(Ordering::Relaxed) > 1_000, "the key was hardly asked for: nothing was tested");
    stop.store(true, Ordering::Relaxed);
    all(callers).await;
    // Once the rival has given up, the key is granted, a lock timeout later at the most.
    rival.execute("ROLLBACK").await.unwrap();
    let granted = || async { matches!(store.insert(&claim("blocked")).await.unwrap(), Inserted::Won(_)).then_some(()) };
    until("the key is free again", Duration::from_secs(5), granted).await.unwrap();
}
