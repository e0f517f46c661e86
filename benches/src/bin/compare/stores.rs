//! The stores of idem that are measured.

use crate::Error;
use crate::idem::{Emptied, engine};
use async_trait::async_trait;
use idem_core::Engine;
use idem_memory::{MemoryConfig, MemoryStore};
use idem_postgres::{PostgresConfig, PostgresStore};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

/// A table of its own.
pub(crate) struct Postgres {
    url: String,
    table: String,
    engine: Engine,
}

impl Postgres {
    pub(crate) async fn new(url: &str, table: &str, group_limit: Option<usize>) -> Result<Self, Error> {
        let mut config = PostgresConfig::from_url(url)?.with_table(table)?;
        if let Some(calls) = group_limit {
            config = config.with_group_limit(calls);
        }
        PostgresStore::migrate(&config).await?;
        let engine = engine(PostgresStore::connect(config).await?)?;
        Ok(Self { url: url.to_owned(), table: table.to_owned(), engine })
    }
}

#[async_trait]
impl Emptied for Postgres {
    async fn engine(&self) -> Result<Engine, Error> {
        run(&self.url, &format!("TRUNCATE idem.{}", self.table)).await?;
        Ok(self.engine.clone())
    }
}

pub(crate) struct Memory;

#[async_trait]
impl Emptied for Memory {
    async fn engine(&self) -> Result<Engine, Error> {
        // A measurement is not to end at a limit.
        let config = MemoryConfig::default().with_max_records(usize::MAX).with_max_bytes(usize::MAX);
        engine(MemoryStore::new(config))
    }
}

/// Runs statements on a connection of their own.
pub(crate) async fn run(url: &str, sql: &str) -> Result<(), Error> {
    let mut connection = PgConnection::connect(url).await?;
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await?;
    Ok(connection.close().await?)
}
