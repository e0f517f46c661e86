//! Events that are written in the transaction that they tell of, and published afterwards: [`Outbox`], [`Relay`].

#[cfg(feature = "redis-streams")]
mod redis_streams;
mod relay;

#[cfg(feature = "redis-streams")]
pub use redis_streams::RedisStreams;
pub use relay::{DeadEvents, PublishError, Publisher, Relay, RelayOptions, Relayed, RunningRelay};

use crate::config::identifier;
use crate::error::translate;
use bytes::Bytes;
use idem_core::{Error, WriteOutcome};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, PgPool};
use std::fmt;
use std::sync::Arc;

/// The table of the outbox as plain SQL, for the schema `idem` and the table `outbox`.
pub const OUTBOX_MIGRATION: &str = include_str!("../../sql/outbox.sql");

/// Under which number processes that migrate queue up: "idem" in ASCII, as for the records.
const MIGRATION_LOCK: i64 = 0x6964_656d;

/// A table of events that wait to be published.
///
/// A handler [appends](Outbox::append) its events in the transaction that writes its business rows and its
/// [completion](crate::PostgresStore::complete_in): all of them are there, or none. A [`Relay`] publishes them, each at least
/// once; consumers recognise the second time by the event's id, with an [`Inbox`](crate::Inbox), say.
///
/// # Examples
///
/// ```no_run
/// use idem_postgres::outbox::{Outbox, OutboxEvent};
/// use sqlx::PgPool;
///
/// async fn ship(pool: &PgPool) -> Result<(), Box<dyn std::error::Error>> {
///     let outbox = Outbox::new("idem", "outbox")?;
///     let mut transaction = pool.begin().await?;
///     sqlx::query("UPDATE orders SET state = 'shipped' WHERE id = 7").execute(&mut *transaction).await?;
///     let event = OutboxEvent::new("orders", "order-7", "order-7-shipped", r#"{"order":7}"#);
///     outbox.append(&mut transaction, &event).await?;
///     transaction.commit().await?;
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct Outbox {
    schema: String,
    table: String,
    append: Arc<str>,
}

/// An event to publish.
#[derive(Clone, PartialEq, Eq)]
pub struct OutboxEvent {
    topic: String,
    aggregate: String,
    id: String,
    payload: Bytes,
}

impl OutboxEvent {
    /// An event of `aggregate` for the subscribers of `topic`, which recognise it by `id` when it comes again.
    ///
    /// The id names what happened and does not change when the operation is repeated: a
    /// [derived key](idem_core::Identity::derived_key) is one. Events of one aggregate are published one after the other, in
    /// the order in which they were appended by transactions that wait for each other, as those do that lock the aggregate's
    /// row first. Two that do not may append in one order and commit in the other.
    pub fn new(
        topic: impl Into<String>,
        aggregate: impl Into<String>,
        id: impl Into<String>,
        payload: impl Into<Bytes>,
    ) -> Self {
        Self { topic: topic.into(), aggregate: aggregate.into(), id: id.into(), payload: payload.into() }
    }

    /// Where it goes.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// What it is about.
    #[must_use]
    pub fn aggregate(&self) -> &str {
        &self.aggregate
    }

    /// By which consumers recognise it.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What it says.
    #[must_use]
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }
}

impl fmt::Debug for OutboxEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboxEvent").field("topic", &self.topic).field("bytes", &self.payload.len()).finish()
    }
}

impl Outbox {
    /// The outbox in this table.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](idem_core::ErrorKind::InvalidRequest) if a name is no identifier of up to 40 letters, digits and
    /// underscores.
    pub fn new(schema: &str, table: &str) -> Result<Self, Error> {
        let (schema, table) = (identifier(schema)?, identifier(table)?);
        let append = format!(
            "INSERT INTO \"{schema}\".\"{table}\" (event_id, topic, aggregate, payload) VALUES ($1, $2, $3, $4)"
        );
        Ok(Self { append: append.into(), schema, table })
    }

    /// Makes the table if it is not there. Safe when many processes do it at once.
    ///
    /// # Errors
    ///
    /// What the server answers.
    ///
    /// # Cancel safety
    ///
    /// Everything is one transaction: dropped half-way, all of it is there or nothing.
    pub async fn migrate(&self, pool: &PgPool) -> Result<(), Error> {
        let schema = &self.schema;
        // A role that may not create schemas may still use one that is there.
        let create = format!(
            "DO $idem$ BEGIN IF to_regnamespace('\"{schema}\"') IS NULL THEN CREATE SCHEMA \"{schema}\"; END IF; END $idem$;"
        );
        let migration = OUTBOX_MIGRATION
            .replace("CREATE SCHEMA IF NOT EXISTS idem;", &create)
            .replace("outbox_aggregate_idx", &format!("\"{}_aggregate_idx\"", self.table))
            .replace("idem.outbox", &self.name());
        // Several statements in one message are one transaction.
        let script = format!("SELECT pg_advisory_xact_lock({MIGRATION_LOCK}); {migration}");
        sqlx::raw_sql(AssertSqlSafe(script)).execute(pool).await.map_err(|error| translate("migrate", &error))?;
        Ok(())
    }

    /// Appends an event, in the caller's transaction: it is published if that is committed.
    ///
    /// # Errors
    ///
    /// What the server answers: roll back.
    ///
    /// # Cancel safety
    ///
    /// Dropped half-way, the transaction has to be rolled back, which its drop does.
    pub async fn append(&self, connection: &mut PgConnection, event: &OutboxEvent) -> Result<(), Error> {
        sqlx::query(AssertSqlSafe(Arc::clone(&self.append)))
            .bind(&event.id)
            .bind(&event.topic)
            .bind(&event.aggregate)
            .bind(&event.payload[..])
            .execute(connection)
            .await
            .map_err(|error| translate("append", &error).with_write_outcome(WriteOutcome::NotApplied))?;
        Ok(())
    }

    /// The statement of [`append`](Outbox::append), for transactions of other drivers: `$1` the event's id, `$2` its
    /// topic, `$3` its aggregate, all text, and `$4` its payload, bytea.
    #[must_use]
    pub fn append_statement(&self) -> &str {
        &self.append
    }

    fn name(&self) -> String {
        format!("\"{}\".\"{}\"", self.schema, self.table)
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("schema", &self.schema).field("table", &self.table).finish()
    }
}
