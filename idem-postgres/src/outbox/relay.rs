//! Publishes what is in an outbox: [`Relay`].

use super::{Outbox, OutboxEvent};
use crate::error::translate;
use async_trait::async_trait;
use bytes::Bytes;
use idem_core::{Error, ErrorKind, WriteOutcome};
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, PgPool, Row as _};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Where events go.
#[async_trait]
pub trait Publisher: Send + Sync {
    /// Publishes events, each of another aggregate, and says of each whether it is published: durably, as far as what it
    /// goes to is.
    ///
    /// An event whose answer is lost is published again, with the same id: so one that may have been published counts as
    /// failed. The answers are in the order of the events, and as many.
    ///
    /// # Cancel safety
    ///
    /// It is dropped at the relay's publish deadline, and when the relay stops: what it had sent by then may be published,
    /// and is published again.
    async fn publish(&self, events: &[OutboxEvent]) -> Vec<Result<(), PublishError>>;
}

/// An event is not published, or nobody knows.
#[derive(Debug, thiserror::Error)]
#[error("an event could not be published: {reason}")]
pub struct PublishError {
    reason: String,
}

impl PublishError {
    /// `reason` is for people, and holds no payload.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

/// What becomes of the later events of an aggregate of which one is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadEvents {
    /// They wait until somebody has seen to it: nothing is published out of order.
    Hold,
    /// They are published: one of them is missing.
    Skip,
}

/// How a [`Relay`] works.
#[derive(Debug, Clone)]
pub struct RelayOptions {
    batch: usize,
    of_one_aggregate: usize,
    interval: Duration,
    publish_deadline: Duration,
    max_attempts: u32,
    first_pause: Duration,
    longest_pause: Duration,
    dead: DeadEvents,
}

impl Default for RelayOptions {
    fn default() -> Self {
        Self {
            batch: 100,
            of_one_aggregate: 10,
            interval: Duration::from_millis(100),
            publish_deadline: Duration::from_secs(5),
            max_attempts: 20,
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(60),
            dead: DeadEvents::Hold,
        }
    }
}

impl RelayOptions {
    /// Of how many aggregates events are published together, at least 1. Defaults to 100.
    #[must_use]
    pub fn with_batch(mut self, batch: usize) -> Self {
        self.batch = batch.max(1);
        self
    }

    /// How many events of one aggregate are published in one transaction, one after the other, at least 1. Defaults to 10.
    #[must_use]
    pub fn with_events_of_one_aggregate(mut self, events: usize) -> Self {
        self.of_one_aggregate = events.max(1);
        self
    }

    /// How long to pause when there is nothing to publish. Defaults to 100 ms.
    #[must_use]
    pub fn with_interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// How long the publisher may take for one call; then its events count as failed. Their rows are locked meanwhile.
    /// Defaults to 5 s.
    #[must_use]
    pub fn with_publish_deadline(mut self, deadline: Duration) -> Self {
        self.publish_deadline = deadline;
        self
    }

    /// After how many failures an event is dead, at least 1. Defaults to 20, which with the default pauses takes about 11
    /// minutes.
    #[must_use]
    pub fn with_max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = attempts.max(1);
        self
    }

    /// How long an event waits after its first failure, and after any at the most; it waits twice as long after each.
    /// Defaults to 100 ms and a minute.
    #[must_use]
    pub fn with_pauses(mut self, first: Duration, longest: Duration) -> Self {
        (self.first_pause, self.longest_pause) = (first, longest.max(first));
        self
    }

    /// What becomes of the later events of an aggregate of which one is dead. Defaults to [`DeadEvents::Hold`].
    #[must_use]
    pub fn with_dead_events(mut self, dead: DeadEvents) -> Self {
        self.dead = dead;
        self
    }

    /// How long an event waits after so many failures.
    fn pause_after(&self, failures: u32) -> Duration {
        let factor = 2_u32.saturating_pow(failures.saturating_sub(1));
        self.first_pause.saturating_mul(factor).min(self.longest_pause)
    }
}

/// What one batch of a relay did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Relayed {
    /// Events that were published, and are gone from the outbox.
    pub published: u64,
    /// Events that were not, and are tried again later.
    pub failed: u64,
    /// Events that failed for the last time: they stay, marked as dead.
    pub dead: u64,
}

/// Publishes the events of an outbox, each at least once, those of one aggregate in order.
///
/// Any number of relays may work side by side, in as many processes: an aggregate is in the hands of one at a time. One
/// that is killed in the middle has published some events that are still in the outbox, and another publishes them again.
///
/// # Examples
///
/// ```no_run
/// use idem_postgres::outbox::{Outbox, Publisher, Relay, RelayOptions};
/// use sqlx::PgPool;
///
/// async fn start(pool: PgPool, publisher: impl Publisher + 'static) -> Result<(), Box<dyn std::error::Error>> {
///     let relay = Relay::new(&Outbox::new("idem", "outbox")?, pool, publisher, RelayOptions::default());
///     let running = relay.spawn();
///     // ... at the end of the process:
///     running.stop().await;
///     Ok(())
/// }
/// ```
pub struct Relay<P> {
    pool: PgPool,
    publisher: P,
    options: RelayOptions,
    heads: Arc<str>,
    followers: Arc<str>,
    delete: Arc<str>,
    postpone: Arc<str>,
}

/// An event in the outbox.
struct Waiting {
    id: i64,
    attempts: u32,
    event: OutboxEvent,
}

impl<P: Publisher> Relay<P> {
    /// A relay that publishes what is in `outbox`, reached by `pool`. It uses one connection at a time.
    pub fn new(outbox: &Outbox, pool: PgPool, publisher: P, options: RelayOptions) -> Self {
        let table = outbox.name();
        let columns = "o.id, o.event_id, o.topic, o.aggregate, o.payload, o.attempts";
        let earlier = match options.dead {
            DeadEvents::Hold => "",
            DeadEvents::Skip => "AND e.dead_at IS NULL ",
        };
        Self {
            pool,
            publisher,
            options,
            // The first event of an aggregate stands for all of it: whoever has it locked has the aggregate.
            heads: format!(
                "SELECT {columns} FROM {table} AS o WHERE o.dead_at IS NULL AND o.available_at <= clock_timestamp() \
                 AND NOT EXISTS (SELECT FROM {table} AS e WHERE e.aggregate = o.aggregate AND e.id < o.id {earlier}) \
                 ORDER BY o.id LIMIT $1 FOR UPDATE OF o SKIP LOCKED"
            )
            .into(),
            followers: format!(
                "SELECT {columns} FROM unnest($1::text[], $2::bigint[]) AS h (aggregate, id), \
                 LATERAL (SELECT * FROM {table} AS f WHERE f.aggregate = h.aggregate AND f.id > h.id \
                   AND f.dead_at IS NULL AND f.available_at <= clock_timestamp() ORDER BY f.id LIMIT $3) AS o \
                 ORDER BY o.aggregate, o.id"
            )
            .into(),
            delete: format!("DELETE FROM {table} WHERE id = ANY ($1::bigint[])").into(),
            postpone: format!(
                "UPDATE {table} SET attempts = attempts + 1, \
                   available_at = clock_timestamp() + $2 * interval '1 microsecond', \
                   dead_at = CASE WHEN $3 THEN clock_timestamp() END WHERE id = $1"
            )
            .into(),
        }
    }

    /// Publishes one batch.
    ///
    /// # Errors
    ///
    /// What the server answers. Events that were published before are published again then.
    ///
    /// # Cancel safety
    ///
    /// Dropped half-way, events may have been published that stay in the outbox.
    pub async fn run_once(&self) -> Result<Relayed, Error> {
        let mut transaction = self.pool.begin().await.map_err(|error| failed(&error))?;
        let mut relayed = Relayed::default();
        let mut lines = self.lines(&mut transaction).await?;
        let mut published: Vec<i64> = Vec::new();
        // In each round one event of each aggregate, so that the order within it is kept whatever the publisher does.
        loop {
            let round: Vec<Waiting> = lines.iter_mut().filter_map(VecDeque::pop_front).collect();
            if round.is_empty() {
                break;
            }
            let events: Vec<OutboxEvent> = round.iter().map(|waiting| waiting.event.clone()).collect();
            let mut answers = timeout(self.options.publish_deadline, self.publisher.publish(&events))
                .await
                .unwrap_or_default()
                .into_iter();
            for waiting in round {
                match answers.next() {
                    Some(Ok(())) => published.push(waiting.id),
                    // One without an answer has failed, too.
                    failure => {
                        let reason = failure.and_then(Result::err);
                        self.postpone(&mut transaction, &waiting, reason, &mut relayed).await?;
                        // What comes behind it waits, unless it is dead and to be skipped; then the next batch goes on.
                        lines.retain(|line| {
                            line.front().is_none_or(|next| next.event.aggregate != waiting.event.aggregate)
                        });
                    }
                }
            }
        }
        if !published.is_empty() {
            sqlx::query(AssertSqlSafe(Arc::clone(&self.delete)))
                .bind(&published)
                .execute(&mut *transaction)
                .await
                .map_err(|error| failed(&error))?;
        }
        transaction.commit().await.map_err(|error| failed(&error))?;
        relayed.published = published.len() as u64;
        Ok(relayed)
    }

    /// The events of a batch, locked: of each aggregate a line.
    async fn lines(&self, connection: &mut PgConnection) -> Result<Vec<VecDeque<Waiting>>, Error> {
        let heads = sqlx::query(AssertSqlSafe(Arc::clone(&self.heads)))
            .bind(i64::try_from(self.options.batch).unwrap_or(i64::MAX))
            .fetch_all(&mut *connection)
            .await
            .map_err(|error| failed(&error))?;
        let mut lines =
            heads.iter().map(|row| Ok(VecDeque::from([waiting(row)?]))).collect::<Result<Vec<_>, Error>>()?;
        let more = self.options.of_one_aggregate.saturating_sub(1);
        if more == 0 || lines.is_empty() {
            return Ok(lines);
        }
        let first = |line: &VecDeque<Waiting>| line.front().map(|head| (head.event.aggregate.clone(), head.id));
        let (aggregates, ids): (Vec<String>, Vec<i64>) = lines.iter().filter_map(first).unzip();
        let followers = sqlx::query(AssertSqlSafe(Arc::clone(&self.followers)))
            .bind(&aggregates)
            .bind(&ids)
            .bind(i64::try_from(more).unwrap_or(i64::MAX))
            .fetch_all(connection)
            .await
            .map_err(|error| failed(&error))?;
        let places: HashMap<String, usize> =
            aggregates.into_iter().enumerate().map(|(place, aggregate)| (aggregate, place)).collect();
        for row in &followers {
            let follower = waiting(row)?;
            if let Some(place) = places.get(&follower.event.aggregate)
                && let Some(line) = lines.get_mut(*place)
            {
                line.push_back(follower);
            }
        }
        Ok(lines)
    }

    async fn postpone(
        &self,
        connection: &mut PgConnection,
        waiting: &Waiting,
        reason: Option<PublishError>,
        relayed: &mut Relayed,
    ) -> Result<(), Error> {
        let failures = waiting.attempts.saturating_add(1);
        let dead = failures >= self.options.max_attempts;
        *(if dead { &mut relayed.dead } else { &mut relayed.failed }) += 1;
        let reason = reason.map_or_else(|| "no answer in time".to_owned(), |error| error.to_string());
        if dead {
            tracing::error!(target: "idem", outbox_id = waiting.id, failures, reason, "gave an event up: somebody has to look at it");
        } else {
            tracing::warn!(target: "idem", outbox_id = waiting.id, failures, reason, "could not publish an event");
        }
        let pause = i64::try_from(self.options.pause_after(failures).as_micros()).unwrap_or(i64::MAX);
        sqlx::query(AssertSqlSafe(Arc::clone(&self.postpone)))
            .bind(waiting.id)
            .bind(pause)
            .bind(dead)
            .execute(connection)
            .await
            .map_err(|error| failed(&error))?;
        Ok(())
    }

    /// Publishes in the background until the value is stopped or dropped.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub fn spawn(self) -> RunningRelay
    where
        P: 'static,
    {
        RunningRelay(tokio::spawn(async move {
            loop {
                match self.run_once().await {
                    // There may be more.
                    Ok(relayed) if relayed.published > 0 => {}
                    Ok(_) => sleep(self.options.interval).await,
                    Err(error) => {
                        tracing::warn!(target: "idem", kind = ?error.kind(), "the outbox could not be read");
                        sleep(self.options.longest_pause.min(Duration::from_secs(1))).await;
                    }
                }
            }
        }))
    }
}

impl<P> fmt::Debug for Relay<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay").field("options", &self.options).finish_non_exhaustive()
    }
}

/// A relay at work. Dropping it stops it.
#[derive(Debug)]
#[must_use = "a relay stops when it is dropped"]
pub struct RunningRelay(JoinHandle<()>);

impl RunningRelay {
    /// Stops at once: what is being published is published again by somebody else.
    ///
    /// # Cancel safety
    ///
    /// Dropped half-way, the relay stops all the same.
    pub async fn stop(mut self) {
        self.0.abort();
        // It was aborted, or it panicked: it is over either way.
        let _ = (&mut self.0).await;
    }
}

impl Drop for RunningRelay {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn waiting(row: &PgRow) -> Result<Waiting, Error> {
    let read = || -> Result<Waiting, sqlx::Error> {
        let payload: Vec<u8> = row.try_get("payload")?;
        let event = OutboxEvent {
            topic: row.try_get("topic")?,
            aggregate: row.try_get("aggregate")?,
            id: row.try_get("event_id")?,
            payload: Bytes::from(payload),
        };
        let attempts: i32 = row.try_get("attempts")?;
        Ok(Waiting { id: row.try_get("id")?, attempts: u32::try_from(attempts).unwrap_or(0), event })
    };
    // sqlx's error may quote a value.
    read().map_err(|_| Error::new(ErrorKind::Corrupt, "relay", WriteOutcome::NotApplied))
}

/// Publishing again is always right.
fn failed(error: &sqlx::Error) -> Error {
    translate("relay", error)
}
