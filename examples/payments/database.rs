//! Where the keys are kept: in this process, or in a table of PostgreSQL with or without a Redis in front, and what the
//! storm reads there afterwards.

use crate::AnyError;
use crate::cli::DatabaseArgs;
use idem_core::Store;
use idem_memory::MemoryStore;
use idem_postgres::{PostgresConfig, PostgresStore};
use idem_redis_cache::{CacheConfig, NegativeCache};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// How long a retry may hear that an owner is at work who is not any more: no longer than half of the shortest lease,
/// so that it is the lease that says when somebody else may begin.
const CAP: Duration = Duration::from_millis(500);

/// A table of idem in a database.
#[derive(Debug)]
pub(crate) struct Table {
    url: String,
    name: String,
    /// A Redis in front of it.
    redis_url: Option<String>,
    /// Whether it was made for this run, and goes with it.
    own: bool,
}

/// The rows of a table, by tenant and key.
pub(crate) type Rows = HashMap<(String, String), Row>;

/// What a row tells about the runs of its operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) completed: bool,
    /// How many owners it has had.
    pub(crate) attempt: u32,
    /// Owners who were lost, since it was last known what they had done.
    pub(crate) unresolved: u32,
}

/// The store that the arguments name, with its table made or upgraded.
pub(crate) async fn store(args: &DatabaseArgs) -> Result<Arc<dyn Store>, AnyError> {
    let Some(url) = &args.database_url else { return Ok(Arc::new(MemoryStore::default())) };
    let mut config = PostgresConfig::from_url(url)?;
    if let Some(table) = &args.table {
        config = config.with_table(table)?;
    }
    // Every process does it, whoever is first.
    PostgresStore::migrate(&config).await?;
    let records = PostgresStore::connect(config).await?;
    Ok(match &args.redis_url {
        Some(url) => Arc::new(NegativeCache::new(records, CacheConfig::from_url(url.as_str())?.with_cap(CAP))),
        None => Arc::new(records),
    })
}

impl Table {
    /// The table that the arguments name, or a fresh one if they name only a database.
    pub(crate) fn of(args: &DatabaseArgs) -> Option<Self> {
        let url = args.database_url.clone()?;
        let fresh = || format!("storm_{}", Uuid::new_v4().simple());
        let (name, redis_url) = (args.table.clone().unwrap_or_else(fresh), args.redis_url.clone());
        Some(Self { url, name, redis_url, own: args.table.is_none() })
    }

    /// The arguments that name it.
    pub(crate) fn args(&self) -> DatabaseArgs {
        let (database_url, table) = (Some(self.url.clone()), Some(self.name.clone()));
        DatabaseArgs { database_url, table, redis_url: self.redis_url.clone() }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The name of another table, beside it, that goes with it.
    pub(crate) fn beside(&self) -> String {
        format!("idem.\"{}_naive\"", self.name)
    }

    /// Every row, read in one statement.
    pub(crate) async fn rows(&self) -> Result<Rows, AnyError> {
        // The store has checked that the name is an identifier.
        let sql = format!("SELECT scope, key, status = 'completed', attempt, unresolved FROM idem.\"{}\"", self.name);
        let mut connection = PgConnection::connect(&self.url).await?;
        let rows: Vec<(String, String, bool, i32, i32)> =
            sqlx::query_as(AssertSqlSafe(sql)).fetch_all(&mut connection).await?;
        connection.close().await?;
        let row = |(scope, key, completed, attempt, unresolved): (_, _, _, i32, i32)| {
            ((scope, key), Row { completed, attempt: attempt.unsigned_abs(), unresolved: unresolved.unsigned_abs() })
        };
        Ok(rows.into_iter().map(row).collect())
    }

    /// Drops it, if it was made for this run.
    pub(crate) async fn close(self) -> Result<(), AnyError> {
        if self.own {
            // A control may leave a transaction behind that hangs for a while.
            let sql = format!(
                "SET lock_timeout = '60s'; DROP TABLE IF EXISTS idem.\"{0}\", idem.\"{0}_meta\", {1}",
                self.name,
                self.beside()
            );
            let mut connection = PgConnection::connect(&self.url).await?;
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await?;
            connection.close().await?;
        }
        Ok(())
    }
}
