//! The conformance suite, the same list, with the cache in front of both back ends, wherever Redis is.

use crate::servers::{Place, crashing, postgres};
use crate::support::{claim, fresh_prefix, reach, try_to_reach};
use idem_core::Store;
use idem_core::conformance::{Fresh, Harness};
use idem_memory::MemoryStore;
use idem_postgres::PostgresStore;
use idem_redis_cache::NegativeCache;
use idem_tests::rig::wait::{PATIENCE, until};
use std::sync::atomic::Ordering;
use std::time::Duration;

async fn in_front<S: Store>(inner: S, place: Place) -> Fresh<NegativeCache<S>> {
    let cache = NegativeCache::new(inner, place.config().await);
    if place.is_healthy() {
        reach(&cache).await;
    } else {
        try_to_reach(&cache, Duration::from_millis(50)).await;
    }
    Fresh::new(cache)
}

struct OverMemory(Place);

#[async_trait::async_trait]
impl Harness for OverMemory {
    type Store = NegativeCache<MemoryStore>;
    type Guard = ();

    async fn fresh(&self) -> Fresh<Self::Store> {
        in_front(MemoryStore::default(), self.0).await
    }

    fn race_rounds(&self) -> usize {
        20
    }
}

struct OverPostgres(Place);

#[async_trait::async_trait]
impl Harness for OverPostgres {
    type Store = NegativeCache<PostgresStore>;
    type Guard = ();

    async fn fresh(&self) -> Fresh<Self::Store> {
        in_front(postgres().await, self.0).await
    }

    fn race_rounds(&self) -> usize {
        20
    }
}

macro_rules! wherever_redis_is {
    ($($module:ident: $place:ident,)*) => {
        mod memory {
            $(mod $module {
                use super::super::{OverMemory, Place};
                idem_core::conformance_suite!(OverMemory(Place::$place));
            })*
        }
        mod postgres {
            $(mod $module {
                use super::super::{OverPostgres, Place};
                idem_core::conformance_suite!(OverPostgres(Place::$place));
            })*
        }
    };
}

wherever_redis_is! {
    redis: Redis,
    valkey: Valkey,
    cluster: Cluster,
    crashing: Crashing,
    nowhere: Nowhere,
}

/// What the suites above run on is what it says it is: calls get through, calls fail, and Redis is found again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_crashes_is_lost_and_found() {
    let crashes = &crashing().await.1;
    let cache = NegativeCache::new(MemoryStore::default(), Place::Crashing.config().await);
    let before = crashes.load(Ordering::Relaxed);
    let mut number = 0_u64;
    let both = until("calls that get through and calls that fail", PATIENCE, || {
        number += 1;
        let claim = claim(&format!("{}{number}", fresh_prefix()));
        let cache = &cache;
        async move {
            cache.insert(&claim).await.unwrap();
            let counts = cache.counts();
            let crashed = crashes.load(Ordering::Relaxed) - before;
            (counts.asked > 20 && counts.failed > 2 && counts.past > 2 && crashed > 3).then_some(())
        }
    });
    both.await.unwrap();
}
