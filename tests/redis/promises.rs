//! What an entry says to others, step by step: on one server, on Valkey and on a cluster.
//!
//! The cap is a minute here, so that a busy entry that nobody takes away is not over before its test fails.

use crate::servers::{Place, redis};
use crate::support::{answer, busy, claim, connect, fresh_prefix, identity, name, now, reach, somebody, win};
use idem_core::conformance::{CallKind, FaultPlan, FaultStore, Injection};
use idem_core::machine::Change;
use idem_core::store::{Inserted, Swapped};
use idem_core::{Claim, LeaseLength, State, Store, Takeover};
use idem_memory::MemoryStore;
use idem_redis_cache::{CacheConfig, NegativeCache};
use idem_tests::rig::redis::{Cluster, Flavour};
use idem_tests::rig::wait::{PATIENCE, until};
use redis::cmd;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

const HEALTHY: [Place; 3] = [Place::Redis, Place::Valkey, Place::Cluster];
const CAP: Duration = Duration::from_secs(60);
/// How soon other processes see what one did, at the very latest: long before the cap.
const SOON: Duration = Duration::from_secs(20);

type Process = NegativeCache<Arc<FaultStore<MemoryStore>>>;

/// Two processes that share a store, which fails on demand, and a Redis.
async fn two(place: Place) -> [Process; 2] {
    let store = Arc::new(FaultStore::new(MemoryStore::default(), FaultPlan::none()));
    let config = place.config().await.with_cap(CAP);
    let two = [(); 2].map(|()| NegativeCache::new(Arc::clone(&store), config.clone()));
    for process in &two {
        reach(process).await;
    }
    two
}

async fn is_busy(process: &Process, key: &str) -> bool {
    matches!(process.insert(&claim(key)).await.unwrap(), Inserted::Busy { .. })
}

/// Waits until the other process hears of it, and not from the end of the entry.
async fn is_soon_free(process: &Process, key: &str) {
    let free = until("the entry is no longer busy", SOON, || async { (!is_busy(process, key).await).then_some(()) });
    free.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_key_is_busy_for_everybody_else() {
    for place in HEALTHY {
        let [one, other] = two(place).await;
        win(&one, &claim("k")).await;
        for process in [&one, &other] {
            let before = process.inner().calls_of(CallKind::Insert);
            let met = process.insert(&claim("k")).await.unwrap();
            let Inserted::Busy { retry_after } = met else { panic!("{place:?}: {met:?}") };
            assert!(retry_after <= Duration::from_secs(1), "{place:?}: {retry_after:?}");
            assert_eq!(process.inner().calls_of(CallKind::Insert), before, "{place:?}: the store was not asked");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_was_asked_before_reaches_the_store() {
    for place in HEALTHY {
        let [one, other] = two(place).await;
        let mut mine = claim("k");
        win(&one, &mine).await;
        mine.mark_asked();
        let found = one.insert(&mine).await.unwrap();
        assert!(
            matches!(&found, Inserted::Existing(row, _) if row.version.owner == mine.owner()),
            "{place:?}: {found:?}"
        );
        let mut rival = claim("k");
        rival.mark_asked();
        let found = other.insert(&rival).await.unwrap();
        assert!(matches!(found, Inserted::Existing(..)), "{place:?}: {found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completion_is_replayed_at_once_by_any_number_of_callers() {
    for place in HEALTHY {
        let [one, other] = two(place).await;
        let record = win(&one, &claim("k")).await;
        let done = Change::Complete { response: answer("done"), expires_at: record.expires_at };
        assert_eq!(one.swap(&identity("k"), &record.version, &done).await.unwrap(), Swapped::Applied);
        // What a process told Redis goes before what it asks.
        assert!(!is_busy(&one, "k").await, "{place:?}");
        is_soon_free(&other, "k").await;
        let mut callers = JoinSet::new();
        for number in 0..64 {
            let process = [&one, &other][number % 2].clone();
            callers.spawn(async move { process.insert(&claim("k")).await.unwrap() });
        }
        while let Some(met) = callers.join_next().await {
            let met = met.unwrap();
            assert!(
                matches!(&met, Inserted::Existing(row, _) if matches!(row.state, State::Completed(_))),
                "{place:?}: {met:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_failed_or_was_given_up_can_be_taken_at_once() {
    for place in HEALTHY {
        let [one, other] = two(place).await;
        for key in ["failed", "abandoned", "elsewhere"] {
            let record = win(&one, &claim(key)).await;
            let change = match key {
                "abandoned" => Change::Abandon,
                _ => Change::Fail { clear_marks: false, expires_at: record.expires_at },
            };
            assert_eq!(one.swap(&identity(key), &record.version, &change).await.unwrap(), Swapped::Applied);
            match key {
                "elsewhere" => is_soon_free(&other, key).await,
                _ => assert!(!is_busy(&one, key).await, "{place:?}: {key}"),
            }
            // That claim is about to take over, so the next one waits.
            assert!(is_busy(&other, key).await, "{place:?}: {key}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_settlement_leaves_nothing_busy() {
    for place in HEALTHY {
        for lost in [Injection::LoseRequest, Injection::LoseReply] {
            let [one, _other] = two(place).await;
            let record = win(&one, &claim("k")).await;
            one.inner().set_plan(FaultPlan::none().on(CallKind::Swap, 1, lost));
            let done = Change::Complete { response: answer("done"), expires_at: record.expires_at };
            one.swap(&identity("k"), &record.version, &done).await.unwrap_err();
            assert!(!is_busy(&one, "k").await, "{place:?} {lost:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_came_to_nothing_takes_its_announcement_back() {
    for place in HEALTHY {
        let [one, _other] = two(place).await;
        one.inner().set_plan(FaultPlan::none().on(CallKind::Insert, 1, Injection::Refuse));
        one.insert(&claim("refused")).await.unwrap_err();
        assert!(!is_busy(&one, "refused").await, "{place:?}");

        // Nobody is at work on it, and nobody may be: each caller is told so, and none waits for another.
        let mut owner = claim("stale").with_lease(LeaseLength::ZERO);
        owner.mark_asked();
        win(&one, &owner).await;
        for _ in 0..2 {
            let never = Claim::new(identity("stale"), owner.candidates().clone(), Takeover::Never);
            let met = one.insert(&never).await.unwrap();
            assert!(matches!(met, Inserted::Existing(..)), "{place:?}: {met:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_is_asked_about_a_running_key_once_in_a_cap() {
    const SHORT: Duration = Duration::from_millis(300);
    for place in HEALTHY {
        let config = place.config().await.with_cap(SHORT);
        let store = Arc::new(FaultStore::new(MemoryStore::default(), FaultPlan::none()));
        let process = NegativeCache::new(Arc::clone(&store), config);
        reach(&process).await;
        win(&process, &claim("k")).await;
        let (began, before) = (now(), store.calls_of(CallKind::Insert));
        while began.elapsed() < SHORT * 4 {
            process.insert(&claim("k")).await.unwrap();
        }
        let caps = began.elapsed().div_duration_f64(SHORT).ceil();
        let asked = store.calls_of(CallKind::Insert) - before;
        assert!((2..=caps as u64).contains(&asked), "{place:?}: asked {asked} times in {caps} caps");
        assert!(process.counts().busy > 20 * asked, "{place:?}: {:?}", process.counts());
    }
}

/// Each entry ends after the cap. But another can follow at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_liar_who_never_stops_delays_by_the_cap_and_no_longer() {
    const SHORT: Duration = Duration::from_millis(300);
    // Redis counts in milliseconds.
    const TICK: Duration = Duration::from_millis(2);
    let prefix = fresh_prefix();
    let config = Place::Redis.config().await.with_prefix(&prefix).with_cap(SHORT);
    let process = NegativeCache::new(MemoryStore::default(), config);
    reach(&process).await;
    let mut liar = connect(redis().await.url()).await.unwrap();
    let name = name(&prefix, &identity("k"));
    let mut lies = async || {
        let lie = cmd("SET").arg(&name).arg(busy(somebody())).arg("PX").arg(SHORT.as_millis() as u64).take();
        lie.exec_async(&mut liar).await.unwrap();
    };
    // For a claim, and, now that the key is running, for everybody else.
    for won in [true, false, false] {
        lies().await;
        let first_asked = now();
        assert!(matches!(process.insert(&claim("k")).await.unwrap(), Inserted::Busy { .. }));
        let first_told = now();
        loop {
            lies().await;
            let asked = now();
            match process.insert(&claim("k")).await.unwrap() {
                Inserted::Busy { .. } => {
                    assert!(asked - first_told < SHORT + TICK, "busy for {:?}", asked - first_asked);
                }
                met => {
                    assert_eq!(matches!(met, Inserted::Won(_)), won, "{met:?}");
                    assert!(now() - first_asked >= SHORT, "believed for as long as an entry lives");
                    break;
                }
            }
        }
    }
}

/// A third of the keys has nowhere to be announced for a while; their claims go past it, and everything is as before
/// when the node is back.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_loses_a_node_changes_nothing_and_gets_over_it() {
    const KEYS: usize = 30;
    const TIMEOUT: Duration = Duration::from_millis(100);
    let cluster = Cluster::start(Flavour::Redis).await;
    let config = CacheConfig::from_cluster_urls(cluster.urls()).unwrap().with_cap(CAP);
    let config = config.with_timeout(TIMEOUT).with_longest_pause(Duration::from_millis(200));
    let process = NegativeCache::new(MemoryStore::default(), config);
    reach(&process).await;
    for stalls in [true, false] {
        let node = &cluster.nodes()[1];
        if stalls {
            node.pause().await;
        } else {
            node.crash().await;
        }
        let prefix = fresh_prefix();
        for number in 0..KEYS {
            let key = format!("{prefix}{number}");
            let began = now();
            let met = process.insert(&claim(&key)).await.unwrap();
            assert!(matches!(met, Inserted::Won(_)), "{met:?}");
            // What a busy machine adds once does not add up to what thirty calls would take without a limit.
            assert!(began.elapsed() < TIMEOUT * 10, "{:?}", began.elapsed());
        }
        if stalls {
            node.resume();
        } else {
            node.start_again().await;
        }
        cluster.is_whole().await.unwrap();
        let all = until("every key can be announced again", PATIENCE, || async {
            let prefix = fresh_prefix();
            for number in 0..KEYS {
                let key = format!("{prefix}{number}");
                process.insert(&claim(&key)).await.unwrap();
                if !matches!(process.insert(&claim(&key)).await.unwrap(), Inserted::Busy { .. }) {
                    return None;
                }
            }
            Some(())
        });
        all.await.unwrap();
    }
    assert!(process.counts().failed > 0, "{:?}", process.counts());
}
