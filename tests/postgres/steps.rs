//! A handler in steps whose process dies at every point between its statements: each effect happens once, and no
//! committed step is done again.

use crate::support::{Own, policy, request};
use async_trait::async_trait;
use idem_core::machine::Change;
use idem_core::store::{Erase, Erased, Inserted, Loaded, PurgeOptions, Purged, Stats, StuckPage, StuckQuery, Swapped};
use idem_core::{
    Claim, Engine, Error, Failure, Identity, Operation, Outcome, Record, Response, Scope, Status, Store, Version,
};
use idem_postgres::{PostgresConfig, PostgresStore};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

/// Where a process may die, counted as it comes by: before and after each call to the store, and before and after what
/// the provider does.
#[derive(Clone)]
struct Failpoints(Arc<Mutex<Countdown>>);

struct Countdown {
    passed: usize,
    dies_at: Option<usize>,
    dead: mpsc::UnboundedSender<()>,
}

impl Failpoints {
    /// Never comes back from the point at which the process dies: whoever waits for that kills the rest.
    async fn pass(&self) {
        let dies = {
            let mut countdown = self.0.lock().unwrap();
            countdown.passed += 1;
            countdown.dies_at == Some(countdown.passed)
        };
        if dies {
            let _ = self.0.lock().unwrap().dead.send(());
            std::future::pending::<()>().await;
        }
    }

    fn passed(&self) -> usize {
        self.0.lock().unwrap().passed
    }
}

/// A store between whose calls a process dies.
struct Mortal {
    store: PostgresStore,
    failpoints: Failpoints,
}

impl Mortal {
    async fn call<T>(&self, call: impl Future<Output = T>) -> T {
        self.failpoints.pass().await;
        let answer = call.await;
        self.failpoints.pass().await;
        answer
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Store for Mortal {
    async fn insert(&self, claim: &Claim) -> Result<Inserted, Error> {
        self.call(self.store.insert(claim)).await
    }
    async fn swap(&self, identity: &Identity, expected: &Version, change: &Change) -> Result<Swapped, Error> {
        self.call(self.store.swap(identity, expected, change)).await
    }
    async fn load(&self, identity: &Identity) -> Result<Loaded, Error> {
        self.call(self.store.load(identity)).await
    }
    async fn purge(&self, options: &PurgeOptions) -> Result<Purged, Error> {
        self.store.purge(options).await
    }
    async fn stuck(&self, query: &StuckQuery) -> Result<StuckPage, Error> {
        self.store.stuck(query).await
    }
    async fn stats(&self) -> Result<Stats, Error> {
        self.store.stats().await
    }
    async fn erase(&self, scope: &Scope, which: Erase) -> Result<Erased, Error> {
        self.store.erase(scope, which).await
    }
}

/// Whom the steps call: it knows a key that it has seen, and answers as it did then.
#[derive(Clone, Default)]
struct Provider(Arc<Mutex<BTreeMap<String, String>>>);

impl Provider {
    async fn call(&self, failpoints: &Failpoints, what: &str, key: String) -> String {
        failpoints.pass().await;
        let object = {
            let mut objects = self.0.lock().unwrap();
            let number = objects.len();
            objects.entry(key).or_insert_with(|| format!("{what}_{number}")).clone()
        };
        failpoints.pass().await;
        object
    }
}

const STEPS: [&str; 3] = ["charge", "receipt", "notify"];

/// Which steps ran in which attempt, beside what that attempt found committed.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<(u32, String)>>>);

async fn handler(
    operation: Operation,
    provider: Provider,
    failpoints: Failpoints,
    diary: Diary,
) -> Result<Response, Failure<()>> {
    let attempt = operation.attempt();
    let mut steps = operation.steps()?;
    let committed: BTreeSet<String> = steps.resumed().map(str::to_owned).collect();
    let mut objects = Vec::new();
    for name in STEPS {
        let object: String = steps
            .effect(name, async |key| {
                assert!(!committed.contains(name), "{name} was committed before attempt {attempt}");
                diary.0.lock().unwrap().push((attempt, name.to_owned()));
                Ok::<_, Failure<()>>(provider.call(&failpoints, name, key).await)
            })
            .await?;
        objects.push(object);
    }
    Ok(Response::new(201, objects.join(" ")))
}

/// One attempt in a process of its own, which dies at the point with this number if it comes by. What came of it, and how
/// many points it passed.
fn attempt(
    config: &PostgresConfig,
    key: &str,
    dies_at: Option<usize>,
    provider: &Provider,
    diary: &Diary,
) -> (Option<Outcome<Response, ()>>, usize) {
    let process: Runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (dead, mut dies) = mpsc::unbounded_channel();
    let failpoints = Failpoints(Arc::new(Mutex::new(Countdown { passed: 0, dies_at, dead })));
    let outcome = process.block_on(async {
        let store = PostgresStore::unchecked(config.clone().with_max_connections(1)).unwrap();
        let engine = Engine::builder(Mortal { store, failpoints: failpoints.clone() });
        let engine = engine.with_policy(policy()).without_sweeper().build().unwrap();
        let (provider, diary, points) = (provider.clone(), diary.clone(), failpoints.clone());
        let run = engine.execute(request(key), move |operation| handler(operation, provider, points, diary));
        tokio::select! {
            outcome = run => Some(outcome.unwrap()),
            Some(()) = dies.recv() => None,
        }
    });
    // Its tasks are gone with it, wherever they were.
    process.shutdown_timeout(std::time::Duration::from_secs(5));
    (outcome, failpoints.passed())
}

struct Bench {
    own: Own,
    runtime: Runtime,
}

impl Bench {
    fn new() -> Self {
        let runtime = Runtime::new().unwrap();
        Self { own: runtime.block_on(Own::new()), runtime }
    }

    /// The dead owner's lease is over.
    fn let_time_pass(&self, key: &str) {
        self.runtime.block_on(async {
            let mut client = sqlx::PgPool::connect(self.own.database.url()).await.unwrap().acquire().await.unwrap();
            sqlx::query("UPDATE idem.records SET lease_ms = 1 WHERE key = $1 AND status = 'in_progress'")
                .bind(key)
                .execute(&mut *client)
                .await
                .unwrap();
        });
    }

    fn record(&self, key: &str) -> Record {
        self.runtime.block_on(async {
            let store = PostgresStore::connect(self.own.config()).await.unwrap();
            crate::support::record(&store, key).await.unwrap()
        })
    }

    /// Attempts until one is done. `dies_at` says where each dies.
    fn until_done(&self, key: &str, mut dies_at: impl FnMut() -> Option<usize>) -> usize {
        let (provider, diary) = (Provider::default(), Diary::default());
        for number in 0.. {
            // The last of them may not die, or a request that kills its workers would be given up.
            let dies_at = if number < 3 { dies_at() } else { None };
            let (outcome, passed) = attempt(&self.own.config(), key, dies_at, &provider, &diary);
            match outcome {
                None => self.let_time_pass(key),
                Some(Outcome::Executed { response, .. } | Outcome::Replayed(response)) => {
                    self.check(key, &response, &provider);
                    return passed;
                }
                Some(other) => panic!("{other:?}"),
            }
        }
        unreachable!("one of them is done")
    }

    fn check(&self, key: &str, response: &Response, provider: &Provider) {
        let record = self.record(key);
        assert_eq!(record.status(), Status::Completed);
        // Each step's effect once, whatever died.
        let objects = provider.0.lock().unwrap();
        assert_eq!(objects.len(), STEPS.len(), "{objects:?}");
        let mut made: Vec<_> = objects.values().cloned().collect();
        made.sort_by_key(|object| object.rsplit('_').next().map(str::to_owned));
        assert_eq!(std::str::from_utf8(response.body()).unwrap(), made.join(" "));
    }
}

#[test]
fn a_death_at_any_point_repeats_no_effect_and_no_committed_step() {
    let bench = Bench::new();
    // One that nobody kills says how many points there are.
    let points = bench.until_done("alive", || None);
    assert!(points > 20, "insert, three marks, three calls, three commits, completion, twice each: {points}");
    for point in 1..=points {
        let mut deaths = vec![point];
        bench.until_done(&format!("dies at {point}"), || deaths.pop());
    }
}

/// The same with up to three deaths in a row, wherever they fall.
#[test]
#[expect(clippy::print_stderr, reason = "a seed, to run it again")]
fn five_hundred_rounds_of_deaths_anywhere() {
    let seed = std::env::var("IDEM_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random::<u64>);
    eprintln!("IDEM_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let bench = Bench::new();
    for round in 0..500 {
        bench.until_done(&format!("round {round}"), || Some(random.random_range(1..=22)));
    }
}
