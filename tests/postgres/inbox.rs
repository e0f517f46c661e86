//! Events of a queue that delivers at least once: each is done once.

use crate::support::{Own, all};
use idem_core::{Key, Scope};
use idem_postgres::{ConsumeError, Consumed, Event, Inbox, PostgresStore, Work};
use sqlx::PgPool;
use sqlx::postgres::PgConnection;
use std::time::Duration;
use tokio::task::JoinSet;

struct Bench {
    own: Own,
    store: PostgresStore,
    pool: PgPool,
}

impl Bench {
    async fn new() -> Self {
        let own = Own::new().await;
        let store = PostgresStore::connect(own.config()).await.unwrap();
        let pool = PgPool::connect(own.database.url()).await.unwrap();
        sqlx::query("CREATE TABLE ledger (consumer text, event text)").execute(&pool).await.unwrap();
        Self { own, store, pool }
    }

    fn inbox(&self, consumer: &str) -> Inbox {
        Inbox::new(self.store.clone(), self.pool.clone(), Scope::new(consumer).unwrap())
    }

    async fn booked(&self) -> Vec<(String, String)> {
        sqlx::query_as("SELECT consumer, event FROM ledger ORDER BY 1, 2").fetch_all(&self.pool).await.unwrap()
    }
}

fn event(id: &str) -> Event {
    Event::new(Key::new(id).unwrap())
}

fn book<'c>(connection: &'c mut PgConnection, consumer: &str, event: &str) -> Work<'c, (), sqlx::Error> {
    let row = (consumer.to_owned(), event.to_owned());
    Box::pin(async move {
        sqlx::query("INSERT INTO ledger VALUES ($1, $2)").bind(row.0).bind(row.1).execute(connection).await.map(drop)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_is_done_once_by_each_consumer() {
    let bench = Bench::new().await;
    for consumer in ["ledger", "mailer"] {
        let inbox = bench.inbox(consumer);
        let first = inbox.consume(&event("e1"), |connection| book(connection, consumer, "e1")).await.unwrap();
        assert_eq!(first, Consumed::Done(()));
        for _ in 0..3 {
            let again = inbox.consume(&event("e1"), |connection| book(connection, consumer, "e1")).await.unwrap();
            assert_eq!(again, Consumed::Duplicate);
        }
    }
    let booked = [("ledger", "e1"), ("mailer", "e1")].map(|(one, other)| (one.to_owned(), other.to_owned()));
    assert_eq!(bench.booked().await, booked);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_deliveries_at_once_one_is_done() {
    let bench = Bench::new().await;
    let mut deliveries = JoinSet::new();
    for _ in 0..40 {
        let inbox = bench.inbox("ledger");
        deliveries.spawn(async move {
            loop {
                match inbox.consume(&event("e1"), |connection| book(connection, "ledger", "e1")).await.unwrap() {
                    Consumed::Done(()) => return 1,
                    Consumed::Duplicate => return 0,
                    Consumed::Busy { .. } => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
        });
    }
    assert_eq!(all(deliveries).await.into_iter().sum::<i32>(), 1);
    assert_eq!(bench.booked().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_fails_leaves_nothing_and_is_done_again() {
    let bench = Bench::new().await;
    let inbox = bench.inbox("ledger");
    let first = event("e1");
    let fails = inbox.consume(&first, |connection| {
        Box::pin(async move {
            book(connection, "ledger", "e1").await.unwrap();
            Err::<(), _>("not today")
        })
    });
    let error = fails.await.unwrap_err();
    assert!(matches!(error, ConsumeError::Work("not today")));
    assert_eq!(bench.booked().await, []);
    let again = inbox.consume(&event("e1"), |connection| book(connection, "ledger", "e1")).await.unwrap();
    assert_eq!(again, Consumed::Done(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_payload_under_the_same_id_is_no_duplicate() {
    let bench = Bench::new().await;
    let inbox = bench.inbox("ledger");
    let first = inbox.consume(&event("e1").with_payload("10"), |connection| book(connection, "ledger", "e1")).await;
    assert_eq!(first.unwrap(), Consumed::Done(()));
    let other = inbox.consume(&event("e1").with_payload("11"), |connection| book(connection, "ledger", "e1")).await;
    assert!(matches!(other.unwrap_err(), ConsumeError::AnotherEvent));
    assert_eq!(bench.booked().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_batch_each_event_has_an_outcome_of_its_own() {
    let bench = Bench::new().await;
    let inbox = bench.inbox("ledger");
    let _ = inbox.consume(&event("old"), |connection| book(connection, "ledger", "old")).await.unwrap();
    // Somebody else is at this one.
    let (mut transaction, busy) = (bench.pool.begin().await.unwrap(), event("busy"));
    let busy = inbox.consume_in(&mut transaction, &busy, |connection| book(connection, "ledger", "busy"));
    assert_eq!(busy.await.unwrap(), Consumed::Done(()));

    let ids = ["new", "old", "bad", "busy", "new", "last"];
    let events: Vec<_> = ids.iter().map(|id| event(id)).collect();
    let outcomes = inbox
        .consume_batch(&events, |number, connection| {
            Box::pin(async move {
                book(connection, "ledger", ids[number]).await?;
                if ids[number] == "bad" {
                    // A statement that fails ends a transaction, but not this one.
                    sqlx::query("SELECT 1 / 0").execute(connection).await?;
                }
                Ok::<_, sqlx::Error>(number)
            })
        })
        .await
        .unwrap();
    assert!(matches!(outcomes[0], Ok(Consumed::Done(0))), "{outcomes:?}");
    assert!(matches!(outcomes[1], Ok(Consumed::Duplicate)), "{outcomes:?}");
    assert!(matches!(outcomes[2], Err(ConsumeError::Work(_))), "{outcomes:?}");
    assert!(matches!(outcomes[3], Ok(Consumed::Busy { .. })), "{outcomes:?}");
    assert!(matches!(outcomes[4], Ok(Consumed::Duplicate)), "{outcomes:?}");
    assert!(matches!(outcomes[5], Ok(Consumed::Done(5))), "{outcomes:?}");
    transaction.rollback().await.unwrap();
    let booked: Vec<_> = bench.booked().await.into_iter().map(|(_, event)| event).collect();
    assert_eq!(booked, ["last", "new", "old"]);
}

/// A consumer that dies between its work and the commit has done nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_dies_before_the_commit_has_done_nothing() {
    let bench = Bench::new().await;
    let inbox = bench.inbox("ledger");
    let (reached, mut has_reached) = tokio::sync::mpsc::channel::<()>(1);
    let dies = tokio::spawn({
        let inbox = inbox.clone();
        async move {
            let event = event("e1");
            let dies = inbox.consume(&event, |connection| {
                Box::pin(async move {
                    book(connection, "ledger", "e1").await?;
                    reached.send(()).await.unwrap();
                    std::future::pending::<Result<(), sqlx::Error>>().await
                })
            });
            dies.await.map(drop).unwrap();
        }
    });
    has_reached.recv().await.unwrap();
    let busy = inbox.consume(&event("e1"), |connection| book(connection, "ledger", "e1")).await.unwrap();
    assert!(matches!(busy, Consumed::Busy { .. }), "{busy:?}");
    dies.abort();
    assert!(dies.await.unwrap_err().is_cancelled());
    loop {
        match inbox.consume(&event("e1"), |connection| book(connection, "ledger", "e1")).await.unwrap() {
            Consumed::Done(()) => break,
            Consumed::Busy { .. } => tokio::task::yield_now().await,
            Consumed::Duplicate => panic!("nothing was done"),
        }
    }
    assert_eq!(bench.booked().await.len(), 1);
    drop(bench.own);
}
