//! From the stream to the ledger.

use crate::AnyError;
use crate::cli::{Naive, RelayArgs};
use crate::signal::end_with_parent;
use crate::tables::{TOPIC, Tables};
use idem_core::{Key, Scope};
use idem_postgres::{Consumed, Event, Inbox, Work};
use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;
use redis::streams::{StreamAutoClaimOptions, StreamAutoClaimReply, StreamId, StreamReadOptions, StreamReadReply};
use sqlx::postgres::PgConnection;
use std::time::Duration;
use uuid::Uuid;

/// The group of consumers that book.
pub(crate) const GROUP: &str = "ledger";
/// For how long an entry is in the hands of one that may be dead.
const TAKE_OVER_AFTER_MS: usize = 500;

pub(crate) async fn run(args: RelayArgs) -> Result<(), AnyError> {
    if args.until_stdin_closes {
        end_with_parent()?;
    }
    let tables = Tables::open(&args.database_url).await?;
    let consumer = Consumer {
        stream: redis::Client::open(args.redis_url)?.get_multiplexed_async_connection().await?,
        name: Uuid::new_v4().to_string(),
        inbox: Inbox::new(tables.store.clone(), tables.pool.clone(), Scope::new("ledger")?),
        tables,
        naive: args.naive,
    };
    consumer.make_group().await;
    println!("consuming");
    consumer.run().await
}

struct Consumer {
    stream: MultiplexedConnection,
    /// New in every process: what a dead one had is claimed after a while.
    name: String,
    inbox: Inbox,
    tables: Tables,
    naive: Option<Naive>,
}

/// An event of the stream.
struct Delivery {
    entry: String,
    event: String,
    amount: i64,
}

impl Consumer {
    async fn make_group(&self) {
        // An error says that it is there.
        let made: Result<String, _> = self.stream.clone().xgroup_create_mkstream(TOPIC, GROUP, "0").await;
        drop(made);
    }

    async fn run(mut self) -> Result<(), AnyError> {
        loop {
            let options = StreamAutoClaimOptions::default().count(50);
            let left: StreamAutoClaimReply =
                self.stream.xautoclaim_options(TOPIC, GROUP, &self.name, TAKE_OVER_AFTER_MS, "0-0", options).await?;
            self.book(deliveries(left.claimed)).await?;
            let options = StreamReadOptions::default().group(GROUP, &self.name).count(50).block(100);
            let read: Option<StreamReadReply> = self.stream.xread_options(&[TOPIC], &[">"], &options).await?;
            let entries = read.into_iter().flat_map(|read| read.keys).flat_map(|key| key.ids).collect();
            self.book(deliveries(entries)).await?;
        }
    }

    /// Books, and acknowledges what is booked; the rest comes again.
    async fn book(&mut self, deliveries: Vec<Delivery>) -> Result<(), AnyError> {
        if deliveries.is_empty() {
            return Ok(());
        }
        let booked: Vec<&str> = if self.naive == Some(Naive::NoInbox) {
            let mut transaction = self.tables.pool.begin().await?;
            for delivery in &deliveries {
                entry(&mut transaction, &delivery.event, delivery.amount).await?;
            }
            transaction.commit().await?;
            deliveries.iter().map(|delivery| delivery.entry.as_str()).collect()
        } else {
            let events = deliveries.iter().map(|delivery| Ok(Event::new(Key::new(&delivery.event)?)));
            let events: Vec<Event> = events.collect::<Result<_, AnyError>>()?;
            let work = self.inbox.consume_batch(&events, |number, connection| -> Work<'_, (), sqlx::Error> {
                let Delivery { event, amount, .. } = &deliveries[number];
                let (event, amount) = (event.clone(), *amount);
                Box::pin(async move { entry(connection, &event, amount).await })
            });
            let outcomes = work.await?;
            let done =
                |outcome: &Result<Consumed<()>, _>| matches!(outcome, Ok(Consumed::Done(()) | Consumed::Duplicate));
            let pairs = deliveries.iter().zip(&outcomes).filter(|(_, outcome)| done(outcome));
            pairs.map(|(delivery, _)| delivery.entry.as_str()).collect()
        };
        if booked.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
            return Ok(());
        }
        let _: usize = self.stream.xack(TOPIC, GROUP, &booked).await?;
        Ok(())
    }
}

async fn entry(connection: &mut PgConnection, event: &str, amount: i64) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO entries VALUES ($1, $2)").bind(event).bind(amount).execute(connection).await.map(drop)
}

fn deliveries(entries: Vec<StreamId>) -> Vec<Delivery> {
    let read = |entry: StreamId| {
        let payload: String = entry.get("payload")?;
        Some(Delivery { event: entry.get("id")?, amount: payload.parse().ok()?, entry: entry.id })
    };
    entries.into_iter().filter_map(read).collect()
}
