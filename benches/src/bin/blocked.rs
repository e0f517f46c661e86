//! What other keys suffer from one that is blocked: claims and completions of sixteen callers, at a fixed pace, alone and
//! beside a hundred rivals of a key that somebody's transaction has claimed and not committed.
//!
//! `cargo run --release -p idem-benches --bin blocked`, on a machine that does nothing else.
#![expect(clippy::print_stdout, reason = "a command-line program: what it prints is its answer")]

use clap::Parser;
use hdrhistogram::Histogram;
use idem_benches::median::median;
use idem_benches::sample::{request, response};
use idem_benches::servers::Server;
use idem_benches::workload::new_key;
use idem_core::{Begun, Claim, Engine, Fingerprint, Identity, Key, Scope, Takeover};
use idem_postgres::{ClaimedIn, PostgresConfig, PostgresStore};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

type Error = Box<dyn std::error::Error + Send + Sync>;

#[derive(Parser)]
#[command(about = "Measures what other keys suffer from one that is blocked", version)]
struct Options {
    /// How often each is measured, in turn.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// For how many seconds.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// How many other operations start in a second.
    #[arg(long, default_value_t = 500)]
    per_second: u32,
    /// How many rivals the blocked key has; each asks again a tenth of a second after its answer.
    #[arg(long, default_value_t = 100)]
    rivals: usize,
}

/// Callers of other keys.
const CALLERS: u32 = 16;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let options = Options::parse();
    let server = Server::find(None).await?;
    for line in idem_benches::servers::machine(Some(&server)) {
        println!("{line}");
    }
    for (name, limit) in [("in groups", None), ("one statement per call", Some(1))] {
        let space = server.database().await;
        let config = PostgresConfig::from_url(space.url())?;
        PostgresStore::migrate(&config).await?;
        let config = limit.map_or(config.clone(), |limit| config.with_group_limit(limit));
        let store = PostgresStore::connect(config).await?;
        let engine = Engine::builder(store.clone()).with_max_in_flight(4_096).without_sweeper().build()?;
        let pool = sqlx::PgPool::connect(space.url()).await?;
        let (mut alone, mut beside, mut answers) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            alone.push(others(&engine, &options).await);
            let key = new_key();
            let mut transaction = pool.begin().await?;
            let fingerprint = Fingerprint::builder("POST /v1/charges").finish()?;
            let identity = Identity::new(Scope::new("acct_1")?, Key::new(&key)?);
            let held = store.claim_in(&mut transaction, &Claim::new(identity, fingerprint, Takeover::Resume)).await?;
            assert!(matches!(held, ClaimedIn::Acquired(_)), "{held:?}");
            let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
            let rivals = rivals(&engine, &key, options.rivals, &stop, &answered);
            beside.push(others(&engine, &options).await);
            stop.store(true, Ordering::Relaxed);
            rivals.join_all().await;
            answers.push(answered.load(Ordering::Relaxed) as f64 / options.seconds);
            transaction.rollback().await?;
        }
        let of = |figures: &[(f64, f64)], which: fn(&(f64, f64)) -> f64| median(figures.iter().map(which));
        let (p50, p99) = (|pair: &(f64, f64)| pair.0, |pair: &(f64, f64)| pair.1);
        println!(
            "{name}: p50 {:.2} ms alone, {:.2} beside; p99 {:.2} ms alone, {:.2} beside ({:.2} times); {:.0} answers a second to the rivals",
            of(&alone, p50),
            of(&beside, p50),
            of(&alone, p99),
            of(&beside, p99),
            of(&beside, p99) / of(&alone, p99),
            median(answers),
        );
    }
    Ok(())
}

/// Half of the other operations, and 99 of 100, took at most so many milliseconds.
async fn others(engine: &Engine, options: &Options) -> (f64, f64) {
    let ends = Instant::now() + Duration::from_secs_f64(options.seconds);
    let pace = Duration::from_secs_f64(f64::from(CALLERS) / f64::from(options.per_second));
    let mut callers = JoinSet::new();
    for number in 0..CALLERS {
        let engine = engine.clone();
        callers.spawn(async move {
            // Not all at once.
            sleep(pace * number / CALLERS).await;
            let mut ticks = interval(pace);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut times = Vec::new();
            while Instant::now() < ends {
                ticks.tick().await;
                let began = Instant::now();
                let Ok(Begun::Acquired(lease)) = engine.begin(request(new_key())).await else { panic!("a new key") };
                lease.complete(response()).await.map(drop).expect("it completes");
                times.push(began.elapsed());
            }
            times
        });
    }
    let mut times = Histogram::<u64>::new(3).expect("three digits");
    for took in callers.join_all().await.into_iter().flatten() {
        times.record(took.as_nanos().try_into().unwrap_or(u64::MAX)).expect("it grows by itself");
    }
    let milliseconds = |quantile| times.value_at_quantile(quantile) as f64 / 1e6;
    (milliseconds(0.5), milliseconds(0.99))
}

fn rivals(engine: &Engine, key: &str, count: usize, stop: &Arc<AtomicBool>, answered: &Arc<AtomicU64>) -> JoinSet<()> {
    let mut rivals = JoinSet::new();
    for _ in 0..count {
        let (engine, key, stop, answered) = (engine.clone(), key.to_owned(), Arc::clone(stop), Arc::clone(answered));
        rivals.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let begun = engine.begin(request(&key)).await;
                assert!(matches!(begun, Ok(Begun::InProgress { .. })), "{begun:?}");
                answered.fetch_add(1, Ordering::Relaxed);
                sleep(Duration::from_millis(100)).await;
            }
        });
    }
    rivals
}
