//! What is in the database: idem's records and outbox, and the tables of the two services.
//!
//! Neither of these has a unique key on what must not be there twice: what keeps it from that is idem alone, and what
//! idem lets through is counted.

use crate::AnyError;
use idem_postgres::outbox::Outbox;
use idem_postgres::{PostgresConfig, PostgresStore};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

/// The stream, which is the topic of the events, too.
pub(crate) const TOPIC: &str = "charges";

/// A database as a process uses it.
#[derive(Clone)]
pub(crate) struct Tables {
    pub(crate) store: PostgresStore,
    pub(crate) pool: PgPool,
    pub(crate) outbox: Outbox,
}

impl Tables {
    /// Connects, and makes what is not there.
    pub(crate) async fn open(url: &str) -> Result<Self, AnyError> {
        let config = PostgresConfig::from_url(url)?.with_max_connections(4);
        PostgresStore::migrate(&config).await?;
        let store = PostgresStore::connect(config).await?;
        let pool = PgPoolOptions::new().max_connections(8).connect(url).await?;
        let outbox = Outbox::new("idem", "outbox")?;
        outbox.migrate(&pool).await?;
        sqlx::raw_sql(
            "SELECT pg_advisory_xact_lock(7); \
             CREATE TABLE IF NOT EXISTS charges (id uuid NOT NULL, key text NOT NULL, amount bigint NOT NULL); \
             CREATE TABLE IF NOT EXISTS entries (event text NOT NULL, amount bigint NOT NULL)",
        )
        .execute(&pool)
        .await?;
        Ok(Self { store, pool, outbox })
    }
}
