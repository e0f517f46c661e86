//! Round trips, counted on the wire: one to claim, one to complete, one to replay after another replay, and not one more than
//! that.

use crate::servers::{Shared, Way};
use crate::support::{acquired, answer, engine, request};
use idem_core::{Begun, Engine, Lease, Settlement};
use idem_postgres::{PostgresConfig, PostgresStore};
use idem_tests::rig::postgres::Version;
use idem_tests::rig::proxy::{Counts, Proxy};
use std::collections::BTreeMap;

static SHARED: Shared = Shared::new(Version::Any, Way::Direct);

const TIMES: u64 = 20;

/// An engine whose one connection leads through a proxy that counts.
struct Wire {
    proxy: Proxy,
    engine: Engine,
}

impl Wire {
    async fn new(simple: bool) -> Self {
        let proxy = Proxy::start(&SHARED.server().await.address()).await;
        let table = SHARED.table().await;
        let config = PostgresConfig::from_url(&proxy.url(SHARED.url().await)).unwrap().with_table(&table).unwrap();
        let config = config.with_max_connections(1).with_transaction_pooler(simple);
        let wire = Self { proxy, engine: engine(&PostgresStore::connect(config).await.unwrap()) };
        // Warm: everything that is counted below has been prepared on this connection.
        wire.everything_once("warm").await;
        wire
    }

    async fn everything_once(&self, key: &str) {
        let lease = self.claim(key).await;
        lease.begin_effect("charge").await.unwrap();
        lease.checkpoint("charged", "1").await.unwrap();
        lease.renew().await.unwrap();
        assert_eq!(lease.complete(answer(key)).await.unwrap(), Settlement::Recorded);
        self.replay(key).await;
        let key = format!("{key}-left");
        let _ = self.claim(&key).await.abandon().await.unwrap();
        assert_eq!(self.claim(&key).await.fail_verified().await.unwrap(), Settlement::Recorded);
    }

    async fn claim(&self, key: &str) -> Lease {
        acquired(&self.engine, key).await
    }

    async fn replay(&self, key: &str) {
        let begun = self.engine.begin(request(key)).await.unwrap();
        assert!(matches!(&begun, Begun::Replayed(response) if *response == answer(key)), "{begun:?}");
    }

    /// What passes while `work` runs.
    async fn passed<T>(&self, work: impl Future<Output = T>) -> (T, Counts) {
        let before = self.proxy.counts();
        let result = work.await;
        let passed = self.proxy.counts().since(&before);
        assert_eq!(passed.requests(), passed.answers());
        assert_eq!(self.proxy.accepted(), 1, "the one connection lives on");
        (result, passed)
    }
}

/// Every message that a client sends for so many round trips.
fn round_trips(simple: bool, count: u64) -> BTreeMap<u8, u64> {
    if simple {
        BTreeMap::from([(b'Q', count)])
    } else {
        // Bind, Execute, Close of the portal, Sync: no Parse and no Describe, since the statement is prepared, and no ping.
        BTreeMap::from([b'B', b'E', b'C', b'S'].map(|kind| (kind, count)))
    }
}

async fn round_trips_are_counted(simple: bool) {
    let wire = Wire::new(simple).await;
    let keys: Vec<String> = (0..TIMES).map(|n| format!("key_{n}")).collect();
    let mut leases = Vec::new();
    for key in &keys {
        let (lease, passed) = wire.passed(wire.claim(key)).await;
        assert_eq!(passed.to_server.messages, round_trips(simple, 1), "a claim");
        leases.push(lease);
    }
    let (_, passed) = wire
        .passed(async {
            for lease in &leases {
                lease.begin_effect("charge").await.unwrap();
                lease.checkpoint("charged", "1").await.unwrap();
                lease.renew().await.unwrap();
            }
        })
        .await;
    assert_eq!(passed.to_server.messages, round_trips(simple, 3 * TIMES), "a mark, a checkpoint, a renewal");
    for (lease, key) in leases.into_iter().zip(&keys) {
        let (settled, passed) = wire.passed(lease.complete(answer(key))).await;
        assert_eq!(settled.unwrap(), Settlement::Recorded);
        assert_eq!(passed.to_server.messages, round_trips(simple, 1), "a completion");
    }
    let (_, passed) = wire
        .passed(async {
            for key in &keys {
                wire.replay(key).await;
            }
        })
        .await;
    // The first one finds out that there are retries.
    let counts = round_trips(simple, TIMES + 1);
    assert_eq!(passed.to_server.messages, counts, "a replay: an insert that reads what is in its way");
}

/// Callers that go together share the one statement: the first goes alone, and all others meanwhile.
#[tokio::test]
async fn replays_of_a_group_cost_one_round_trip() {
    let wire = Wire::new(false).await;
    let keys: Vec<String> = (0..TIMES).map(|n| format!("key_{n}")).collect();
    for key in &keys {
        assert_eq!(wire.claim(key).await.complete(answer(key)).await.unwrap(), Settlement::Recorded);
    }
    let replays = || futures_util::future::join_all(keys.iter().map(|key| wire.replay(key)));
    // The statement of groups is prepared, too.
    replays().await;
    let (_, passed) = wire.passed(replays()).await;
    assert!(passed.requests() <= 3, "{} for {TIMES} replays", passed.requests());
}

/// What is rarer may cost more, but not without being noticed.
async fn the_rarer_ways_are_counted(simple: bool) {
    let wire = Wire::new(simple).await;
    let lease = wire.claim("key").await;
    let (_, passed) = wire.passed(lease.abandon()).await;
    assert_eq!(passed.requests(), 1, "an abandoned lease");
    let (lease, passed) = wire.passed(wire.claim("key")).await;
    assert_eq!((lease.attempt(), passed.requests()), (2, 3), "a takeover: a refused insert, a read, a swap");
    let (_, passed) = wire.passed(lease.fail_verified()).await;
    assert_eq!(passed.requests(), 1, "a failure");
}

#[tokio::test]
async fn prepared_statements_cost_one_round_trip_each() {
    round_trips_are_counted(false).await;
    the_rarer_ways_are_counted(false).await;
}

#[tokio::test]
async fn simple_queries_cost_one_round_trip_each() {
    round_trips_are_counted(true).await;
    the_rarer_ways_are_counted(true).await;
}
