//! The outbox: what is committed is published, in the order of its aggregate, at least once, and nothing else is.

use crate::support::{Own, all};
use async_trait::async_trait;
use idem_postgres::outbox::{DeadEvents, Outbox, OutboxEvent, PublishError, Publisher, Relay, RelayOptions};
use idem_tests::rig::redis::{Flavour, Redis};
use sqlx::PgPool;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;

struct Bench {
    _own: Own,
    outbox: Outbox,
    pool: PgPool,
}

impl Bench {
    async fn new() -> Self {
        let own = Own::new().await;
        let pool = PgPool::connect(own.database.url()).await.unwrap();
        let outbox = Outbox::new("idem", "outbox").unwrap();
        outbox.migrate(&pool).await.unwrap();
        outbox.migrate(&pool).await.unwrap();
        Self { _own: own, outbox, pool }
    }

    async fn append(&self, aggregate: &str, number: usize) {
        let mut transaction = self.pool.begin().await.unwrap();
        self.outbox.append(&mut transaction, &event(aggregate, number)).await.unwrap();
        transaction.commit().await.unwrap();
    }

    fn relay<P: Publisher>(&self, publisher: P, options: RelayOptions) -> Relay<P> {
        Relay::new(&self.outbox, self.pool.clone(), publisher, options)
    }

    async fn waiting(&self) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM idem.outbox").fetch_one(&self.pool).await.unwrap()
    }
}

fn event(aggregate: &str, number: usize) -> OutboxEvent {
    OutboxEvent::new("orders", aggregate, format!("{aggregate}-{number}"), number.to_string())
}

/// What was published, in its order; some events fail, as often as they are told to.
#[derive(Clone, Default)]
struct Board {
    published: Arc<Mutex<Vec<OutboxEvent>>>,
    failures: Arc<Mutex<HashMap<String, u32>>>,
    /// Told of every call, which then never comes back.
    hangs: Option<Arc<Notify>>,
}

impl Board {
    fn failing(failures: &[(&str, u32)]) -> Self {
        let failures = failures.iter().map(|(id, times)| ((*id).to_owned(), *times)).collect();
        Self { failures: Arc::new(Mutex::new(failures)), ..Self::default() }
    }

    fn ids(&self) -> Vec<String> {
        self.published.lock().unwrap().iter().map(|event| event.id().to_owned()).collect()
    }

    fn numbers_of(&self, aggregate: &str) -> Vec<usize> {
        let published = self.published.lock().unwrap();
        let of_it = published.iter().filter(|event| event.aggregate() == aggregate);
        of_it.map(|event| std::str::from_utf8(event.payload()).unwrap().parse().unwrap()).collect()
    }
}

#[async_trait]
impl Publisher for Board {
    async fn publish(&self, events: &[OutboxEvent]) -> Vec<Result<(), PublishError>> {
        let answers = events
            .iter()
            .map(|event| {
                let mut failures = self.failures.lock().unwrap();
                if let Some(times @ 1..) = failures.get_mut(event.id()) {
                    *times -= 1;
                    return Err(PublishError::new("not today"));
                }
                self.published.lock().unwrap().push(event.clone());
                Ok(())
            })
            .collect();
        if let Some(called) = &self.hangs {
            called.notify_one();
            std::future::pending::<()>().await;
        }
        answers
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_rolled_back_is_not_published() {
    let bench = Bench::new().await;
    let mut transaction = bench.pool.begin().await.unwrap();
    bench.outbox.append(&mut transaction, &event("a", 1)).await.unwrap();
    transaction.rollback().await.unwrap();
    let mut uncommitted = bench.pool.begin().await.unwrap();
    bench.outbox.append(&mut uncommitted, &event("a", 2)).await.unwrap();
    bench.append("b", 1).await;

    let board = Board::default();
    let relay = bench.relay(board.clone(), RelayOptions::default());
    assert_eq!(relay.run_once().await.unwrap().published, 1);
    assert_eq!(board.ids(), ["b-1"]);
    uncommitted.commit().await.unwrap();
    assert_eq!(relay.run_once().await.unwrap().published, 1);
    assert_eq!(board.ids(), ["b-1", "a-2"]);
    assert_eq!(bench.waiting().await, 0);
}

/// Four relays at once, twenty aggregates of thirty events: each event once, since nobody dies, and in its order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_relays_side_by_side_keep_the_order() {
    let bench = Bench::new().await;
    for number in 0..30 {
        for aggregate in 0..20 {
            bench.append(&format!("a{aggregate}"), number).await;
        }
    }
    let board = Board::default();
    let mut relays = JoinSet::new();
    for _ in 0..4 {
        let relay = bench.relay(board.clone(), RelayOptions::default().with_batch(3).with_events_of_one_aggregate(4));
        let pool = bench.pool.clone();
        relays.spawn(async move {
            loop {
                let relayed = relay.run_once().await.unwrap();
                let waiting: i64 =
                    sqlx::query_scalar("SELECT count(*) FROM idem.outbox").fetch_one(&pool).await.unwrap();
                if relayed.published == 0 && waiting == 0 {
                    break;
                }
            }
        });
    }
    all(relays).await;
    for aggregate in 0..20 {
        assert_eq!(board.numbers_of(&format!("a{aggregate}")), (0..30).collect::<Vec<_>>(), "{aggregate}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_fails_keeps_its_followers_waiting_and_nobody_else() {
    let bench = Bench::new().await;
    for number in 1..=3 {
        bench.append("a", number).await;
        bench.append("b", number).await;
    }
    let board = Board::failing(&[("a-2", 2)]);
    let options = RelayOptions::default().with_pauses(Duration::from_millis(1), Duration::from_millis(1));
    let relay = bench.relay(board.clone(), options);
    let relayed = relay.run_once().await.unwrap();
    assert_eq!((relayed.published, relayed.failed, relayed.dead), (4, 1, 0));
    assert_eq!(board.numbers_of("b"), [1, 2, 3]);
    assert_eq!(board.numbers_of("a"), [1]);
    while bench.waiting().await > 0 {
        relay.run_once().await.unwrap();
    }
    assert_eq!(board.numbers_of("a"), [1, 2, 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_event_stays_and_holds_its_aggregate_unless_it_is_skipped() {
    for (dead, published) in [(DeadEvents::Hold, vec![1]), (DeadEvents::Skip, vec![1, 3])] {
        let bench = Bench::new().await;
        for number in 1..=3 {
            bench.append("a", number).await;
        }
        bench.append("b", 1).await;
        let board = Board::failing(&[("a-2", u32::MAX)]);
        let options = RelayOptions::default().with_max_attempts(3).with_dead_events(dead);
        let options = options.with_pauses(Duration::from_millis(1), Duration::from_millis(1));
        let relay = bench.relay(board.clone(), options);
        let mut died = 0;
        while died == 0 {
            died += relay.run_once().await.unwrap().dead;
        }
        for _ in 0..3 {
            relay.run_once().await.unwrap();
        }
        assert_eq!(board.numbers_of("a"), published, "{dead:?}");
        assert_eq!(board.numbers_of("b"), [1]);
        let (id, attempts): (String, i32) =
            sqlx::query_as("SELECT event_id, attempts FROM idem.outbox WHERE dead_at IS NOT NULL")
                .fetch_one(&bench.pool)
                .await
                .unwrap();
        assert_eq!((id.as_str(), attempts), ("a-2", 3), "nothing is lost");
    }
}

/// Killed after the publisher took the events and before that is committed: they are published again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_dies_leaves_its_events_to_the_next() {
    let bench = Bench::new().await;
    bench.append("a", 1).await;
    bench.append("a", 2).await;
    let called = Arc::new(Notify::new());
    let board = Board { hangs: Some(Arc::clone(&called)), ..Board::default() };
    let running = bench.relay(board.clone(), RelayOptions::default()).spawn();
    called.notified().await;
    // Somebody else leaves the aggregate to it meanwhile.
    let other = bench.relay(Board::default(), RelayOptions::default());
    assert_eq!(other.run_once().await.unwrap().published, 0);
    running.stop().await;
    let next = Board::default();
    let relay = bench.relay(next.clone(), RelayOptions::default());
    while bench.waiting().await > 0 {
        relay.run_once().await.unwrap();
    }
    assert_eq!(board.ids(), ["a-1"]);
    assert_eq!(next.numbers_of("a"), [1, 2]);
}

/// A publisher that does not come back in time counts as failed, and the table is not locked for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publisher_that_hangs_is_tried_again_later() {
    let bench = Bench::new().await;
    bench.append("a", 1).await;
    let board = Board { hangs: Some(Arc::default()), ..Board::default() };
    let relay = bench.relay(board, RelayOptions::default().with_publish_deadline(Duration::from_millis(50)));
    let relayed = relay.run_once().await.unwrap();
    assert_eq!((relayed.published, relayed.failed), (0, 1));
    assert_eq!(bench.waiting().await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_streams_get_every_event_in_its_order() {
    use idem_postgres::outbox::RedisStreams;
    let bench = Bench::new().await;
    let redis = Redis::own(Flavour::Redis, &[]).await.unwrap();
    let client = redis::Client::open(redis.url()).unwrap();
    let connection = client.get_connection_manager().await.unwrap();
    // An event whose topic is of another type fails, and nobody else does.
    let mut plain = client.get_multiplexed_async_connection().await.unwrap();
    let () = redis::cmd("SET").arg("taken").arg("1").query_async(&mut plain).await.unwrap();
    for number in 1..=3 {
        bench.append("a", number).await;
        bench.append("b", number).await;
    }
    let mut transaction = bench.pool.begin().await.unwrap();
    bench.outbox.append(&mut transaction, &OutboxEvent::new("taken", "c", "c-1", "1")).await.unwrap();
    transaction.commit().await.unwrap();

    let relay = bench.relay(RedisStreams::new(connection), RelayOptions::default());
    let relayed = relay.run_once().await.unwrap();
    assert_eq!((relayed.published, relayed.failed), (6, 1));
    let entries: Vec<(String, Vec<String>)> =
        redis::cmd("XRANGE").arg("orders").arg("-").arg("+").query_async(&mut plain).await.unwrap();
    let of = |aggregate: &str| -> Vec<String> {
        let fields = entries.iter().map(|(_, fields)| fields);
        fields.filter(|fields| fields[3] == aggregate).map(|fields| fields[1].clone()).collect()
    };
    assert_eq!(of("a"), ["a-1", "a-2", "a-3"]);
    assert_eq!(of("b"), ["b-1", "b-2", "b-3"]);
    assert_eq!(entries[0].1, ["id", "a-1", "aggregate", "a", "payload", "1"]);
}
