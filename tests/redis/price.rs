//! What the cache costs and what it saves, measured against the bare store in the same run.
//!
//! `IDEM_PRICE_ROUNDS=40 cargo test --release -p idem-tests --test redis price -- --nocapture`, on a quiet machine.

#![expect(clippy::print_stderr, reason = "what was measured, for those who run it with --nocapture")]

use crate::servers::Place;
use crate::support::{answer, claim, fresh_prefix, identity, now, reach};
use idem_core::Store;
use idem_core::machine::Change;
use idem_core::store::{Inserted, Swapped};
use idem_postgres::{PostgresConfig, PostgresStore};
use idem_redis_cache::NegativeCache;
use idem_tests::rig::postgres::{Version, shared};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

const CALLERS: usize = 64;

/// How long each of so many questions took, by kind: a new key, a running one, one that is done.
#[derive(Default)]
struct Took {
    fresh: Vec<Duration>,
    running: Vec<Duration>,
    done: Vec<Duration>,
}

type Kind = fn(&Took) -> &Vec<Duration>;

async fn ask(store: &dyn Store, key: &str, took: &mut Vec<Duration>) -> Inserted {
    let claim = claim(key);
    let began = now();
    let met = store.insert(&claim).await.unwrap();
    took.push(began.elapsed());
    met
}

/// One round: keys are claimed, asked for while they run, completed and asked for again.
async fn round(store: &dyn Store, claims: usize, took: &mut Took) {
    let prefix = fresh_prefix();
    for number in 0..claims {
        let key = format!("{prefix}{number}");
        let Inserted::Won(version) = ask(store, &key, &mut took.fresh).await else { panic!("it is new") };
        let met = ask(store, &key, &mut took.running).await;
        assert!(!matches!(met, Inserted::Won(_)), "{met:?}");
        let record = claim(&key).first_record(version.locked_at);
        let done = Change::Complete { response: answer("done"), expires_at: record.expires_at };
        assert_eq!(store.swap(&identity(&key), &version, &done).await.unwrap(), Swapped::Applied);
        let met = ask(store, &key, &mut took.done).await;
        assert!(matches!(met, Inserted::Existing(..)), "{met:?}");
    }
}

/// Many callers who ask for one running key: how long each question took, and how long they all.
async fn storm(store: &Arc<dyn Store>, claims: usize, took: &mut Vec<Duration>) -> Duration {
    let key = fresh_prefix();
    store.insert(&claim(&key)).await.unwrap();
    let began = now();
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let (store, key) = (Arc::clone(store), key.clone());
        callers.spawn(async move {
            let mut took = Vec::new();
            for _ in 0..claims / 4 {
                ask(&*store, &key, &mut took).await;
            }
            took
        });
    }
    took.extend(callers.join_all().await.into_iter().flatten());
    began.elapsed()
}

fn percentile(took: &[Duration], percent: usize) -> f64 {
    let mut sorted = took.to_vec();
    sorted.sort_unstable();
    sorted[(sorted.len() - 1) * percent / 100].as_secs_f64() * 1e6
}

/// Of every round the percentile, and of those the median.
fn typical(rounds: &[Took], of: Kind, percent: usize) -> f64 {
    let mut each: Vec<f64> = rounds.iter().map(|took| percentile(of(took), percent)).collect();
    each.sort_unstable_by(f64::total_cmp);
    each[each.len() / 2]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_price_of_a_fresh_claim_and_what_a_retry_saves() {
    let rounds = std::env::var("IDEM_PRICE_ROUNDS").map(|rounds| rounds.parse().unwrap());
    // Unasked, it only shows that it still works.
    let (rounds, claims): (usize, usize) = rounds.map_or((1, 40), |rounds| (rounds, 200));
    // As it is by default: it waits for the disk.
    let database = shared(Version::Any).await.database().await;
    let config = PostgresConfig::from_url(database.url()).unwrap();
    PostgresStore::migrate(&config).await.unwrap();
    let connect = || async { PostgresStore::connect(config.clone()).await.unwrap() };
    let bare: Arc<dyn Store> = Arc::new(connect().await);
    let cached = NegativeCache::new(connect().await, Place::Redis.config().await);
    reach(&cached).await;
    let cached: Arc<dyn Store> = Arc::new(cached);

    let (mut without, mut with) = (Vec::new(), Vec::new());
    let (mut storms, mut calm) = ((Vec::new(), Duration::ZERO), (Vec::new(), Duration::ZERO));
    for number in 0..=rounds {
        for turn in 0..2 {
            // Who goes first takes turns, too.
            let (store, all) = if (number + turn) % 2 == 0 { (&bare, &mut without) } else { (&cached, &mut with) };
            let mut took = Took::default();
            round(&**store, claims, &mut took).await;
            // The first round warms up.
            if number > 0 || rounds == 1 {
                all.push(took);
            }
        }
        storms.1 += storm(&bare, claims, &mut storms.0).await;
        calm.1 += storm(&cached, claims, &mut calm.0).await;
    }

    eprintln!("µs, medians of {rounds} rounds of {claims}:  without p50, p99; with p50, p99");
    let mut medians = Vec::new();
    let kinds: [(&str, Kind); 3] = [
        ("a new key", |took| &took.fresh),
        ("a running key", |took| &took.running),
        ("a key that is done", |took| &took.done),
    ];
    for (what, of) in kinds {
        let figures = [(&without, 50), (&without, 99), (&with, 50), (&with, 99)].map(|(all, p)| typical(all, of, p));
        eprintln!("{what:20} {:8.0} {:8.0} {:8.0} {:8.0}", figures[0], figures[1], figures[2], figures[3]);
        medians.push((figures[0], figures[2]));
    }
    for (what, (took, whole)) in [("without", &storms), ("with", &calm)] {
        let rate = took.len() as f64 / whole.as_secs_f64();
        let (p50, p99) = (percentile(took, 50), percentile(took, 99));
        eprintln!("{CALLERS} callers of one running key, {what}: {rate:.0}/s, p50 {p50:.0}, p99 {p99:.0}");
    }
    let (cost, saved) = (medians[0].1 - medians[0].0, medians[1].0 - medians[1].1);
    if cost > 0.0 && saved > 0.0 {
        let share = cost / (cost + saved) * 100.0;
        eprintln!(
            "a new key costs {cost:.0} more, a running one {saved:.0} less: even at {share:.0} % of running ones"
        );
    } else {
        eprintln!("a new key costs {cost:.0} more, a running one {saved:.0} less");
    }
}
