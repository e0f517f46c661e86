//! What a Redis that hangs costs: a timeout while the first calls find out, nothing once they have, and nobody has to
//! be told when it is back.

use crate::support::{PATIENT, claim, fresh_prefix, now, reach};
use idem_core::Store;
use idem_core::store::Inserted;
use idem_memory::MemoryStore;
use idem_redis_cache::{CacheConfig, NegativeCache};
use idem_tests::rig::redis::{Flavour, Redis};
use idem_tests::rig::wait::{PATIENCE, until};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

const TIMEOUT: Duration = Duration::from_millis(100);
/// By how much a busy machine may be late with waking somebody up.
const SLACK: Duration = Duration::from_millis(150);
const CALLERS: usize = 64;
const CLAIMS: usize = 2_000;

/// How long a claim of a new key takes.
async fn claims(store: &impl Store) -> Duration {
    let claim = claim(&fresh_prefix());
    let began = now();
    let won = store.insert(&claim).await.unwrap();
    let took = began.elapsed();
    assert!(matches!(won, Inserted::Won(_)), "{won:?}");
    took
}

fn percentile(took: &[Duration], percent: usize) -> Duration {
    let mut sorted = took.to_vec();
    sorted.sort_unstable();
    sorted[(sorted.len() - 1) * percent / 100]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stderr, reason = "what was measured, for those who run it with --nocapture")]
async fn a_stalled_redis_adds_less_than_its_timeout_and_soon_nothing() {
    let server = Redis::own(Flavour::Redis, &[]).await.unwrap();
    let config = CacheConfig::from_url(server.url()).unwrap().with_connect_timeout(PATIENT);
    let config = config.with_longest_pause(Duration::from_millis(200));
    let bare = MemoryStore::default();
    let cache = NegativeCache::new(MemoryStore::default(), config.clone().with_timeout(TIMEOUT));
    // As it is by default: nothing of what is shown below depends on it.
    let default = NegativeCache::new(Arc::new(MemoryStore::default()), config);
    reach(&cache).await;
    reach(&default).await;
    server.pause().await;

    // One after the other, until they have found out.
    let mut waited = Vec::new();
    while cache.is_up() && waited.len() < 10 {
        waited.push(claims(&cache).await);
    }
    assert_eq!(waited.len(), 3, "{waited:?}");
    for took in &waited {
        assert!((TIMEOUT..TIMEOUT + SLACK).contains(took), "{took:?}");
    }

    // Many at once: they wait at the same time, and not for one another.
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let default = default.clone();
        callers.spawn(async move { claims(&default).await });
    }
    let together = callers.join_all().await;
    let most = together.iter().max().unwrap();
    assert!(*most < Duration::from_millis(20) + SLACK, "{most:?}");
    assert!(!default.is_up());

    // Known to hang, it costs nothing, however often it is looked for in the background.
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..CLAIMS {
        with.push(claims(&cache).await);
        without.push(claims(&bare).await);
    }
    let (before, past) = (cache.counts(), percentile(&with, 50).saturating_sub(percentile(&without, 50)));
    assert!(before.past as usize >= CLAIMS, "{before:?}");
    assert!(past < Duration::from_millis(1), "{past:?}");
    waited.extend(with);
    let added = percentile(&waited, 99).saturating_sub(percentile(&without, 99));
    eprintln!(
        "first {:.1?}; {CALLERS} at once {most:.1?}; known: {past:.1?} more at p50; p99 of all {added:.1?} more",
        &waited[..3],
    );
    assert!(added < TIMEOUT, "{added:?}");

    server.resume();
    let back = until("the cache finds Redis again", PATIENCE, || async {
        claims(&cache).await;
        cache.is_up().then_some(())
    });
    back.await.unwrap();
    let key = claim("running");
    cache.insert(&key).await.unwrap();
    // The machine may be slow once more, but not every time.
    let busy = until("a running key is busy again", PATIENCE, || async {
        matches!(cache.insert(&claim("running")).await.unwrap(), Inserted::Busy { .. }).then_some(())
    });
    busy.await.unwrap();
}
