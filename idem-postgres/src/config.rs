//! How the store is set up: [`PostgresConfig`].

use crate::group::Limits;
use idem_core::{Error, ErrorKind, WriteOutcome};
use sqlx::postgres::PgConnectOptions;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The longest name of a schema or a table, in bytes: room for what is added to it within PostgreSQL's 63.
const MAX_IDENTIFIER_BYTES: usize = 40;

/// How many callers are enough for a group of their own. What a statement costs is then a small part of what its group costs, and more is gained by
/// keeping the server busy while another group waits for the disk.
const ENOUGH: usize = 32;
/// How many bytes go together. What is larger takes its time, which is better taken by several connections at once.
const GROUP_BYTES: usize = 1 << 18;
/// How many callers of a lane wait in its queue before others wait for room in it.
const WAITING: usize = 4_096;

/// Where the records are, and how they are reached. `Debug` shows no password and no host.
///
/// # Examples
///
/// ```
/// use idem_postgres::PostgresConfig;
/// use std::time::Duration;
///
/// let config = PostgresConfig::from_url("postgres://payments@localhost/payments")?
///     .with_table("charges")?
///     .with_max_connections(4)
///     .with_lock_timeout(Duration::from_millis(100));
///
/// let refused = PostgresConfig::from_url("postgres://localhost")?.with_table("charges\"; --").unwrap_err();
/// assert!(refused.to_string().contains("letters, digits and underscores"), "{refused}");
/// # Ok::<(), idem_core::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "a configuration does nothing until a store connects"]
pub struct PostgresConfig {
    pub(crate) options: PgConnectOptions,
    pub(crate) schema: String,
    pub(crate) table: String,
    pub(crate) max_connections: usize,
    pub(crate) lock_timeout: Duration,
    pub(crate) statement_deadline: Duration,
    pub(crate) transaction_pooler: bool,
    pub(crate) allow_unsafe_durability: bool,
    pub(crate) group: usize,
    pub(crate) nobody_alone: bool,
}

/// Why a configuration cannot work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The connection URL cannot be read. It is not shown, since it may hold a password.
    #[error("the connection URL cannot be read: write it as postgres://user:password@host:port/database")]
    Url,
    /// A schema's or a table's name is not an identifier.
    #[error("a schema's or table's name has 1 to 40 letters, digits and underscores and does not begin with a digit")]
    Identifier,
}

impl PostgresConfig {
    /// Reads a connection URL, as `postgres://user:password@host:port/database?sslmode=...`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidRequest`] with [`ConfigError::Url`] as its source.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        // sqlx takes any scheme.
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(invalid(ConfigError::Url));
        }
        // Its error quotes the URL.
        PgConnectOptions::from_str(url).map(Self::from_options).map_err(|_| invalid(ConfigError::Url))
    }

    /// Takes the options of a pool that is there: `PgPool::connect_options`.
    pub fn from_options(options: PgConnectOptions) -> Self {
        Self {
            options,
            schema: "idem".into(),
            table: "records".into(),
            max_connections: 8,
            lock_timeout: Duration::from_millis(250),
            statement_deadline: Duration::from_secs(5),
            transaction_pooler: false,
            allow_unsafe_durability: false,
            group: 256,
            nobody_alone: false,
        }
    }

    /// The schema of the table: 1 to 40 ASCII letters, digits and underscores. Defaults to `idem`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidRequest`] with [`ConfigError::Identifier`] as its source.
    pub fn with_schema(mut self, schema: &str) -> Result<Self, Error> {
        self.schema = identifier(schema)?;
        Ok(self)
    }

    /// The table of the records: 1 to 40 ASCII letters, digits and underscores. Defaults to `records`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidRequest`] with [`ConfigError::Identifier`] as its source.
    pub fn with_table(mut self, table: &str) -> Result<Self, Error> {
        self.table = identifier(table)?;
        Ok(self)
    }

    /// How many connections the store opens at most, at least 1. Defaults to 8.
    pub fn with_max_connections(mut self, max_connections: usize) -> Self {
        self.max_connections = max_connections.max(1);
        self
    }

    /// How long a statement waits for a rival's uncommitted write, 1 ms to 1 s. Defaults to 250 ms.
    ///
    /// It has to be shorter than any lease, and [`Policy`](idem_core::Policy) allows none under a second.
    pub fn with_lock_timeout(mut self, lock_timeout: Duration) -> Self {
        self.lock_timeout = lock_timeout.clamp(Duration::from_millis(1), Duration::from_secs(1));
        self
    }

    /// How long a statement may take, at both ends, 10 ms to one hour: after that the server gives it up and the store calls its outcome unknown.
    /// Defaults to 5 s.
    pub fn with_statement_deadline(mut self, statement_deadline: Duration) -> Self {
        self.statement_deadline = statement_deadline.clamp(Duration::from_millis(10), Duration::from_secs(3600));
        self
    }

    /// Whether the connection leads to a pooler that gives a server to a transaction, such as PgBouncer with `pool_mode = transaction`. Defaults
    /// to false.
    ///
    /// Every call then is one simple query, without prepared statements, with its settings in front of it.
    pub fn with_transaction_pooler(mut self, transaction_pooler: bool) -> Self {
        self.transaction_pooler = transaction_pooler;
        self
    }

    /// How many claims, or completions, of concurrent callers go to the server in one statement at most. Below 2 each goes
    /// alone. Defaults to 256.
    ///
    /// Nobody waits for a larger group: each goes alone and at once while there are up to half as many callers again as
    /// [connections](PostgresConfig::with_max_connections); more go together as soon as the last group comes back.
    pub fn with_group_limit(mut self, calls: usize) -> Self {
        self.group = calls;
        self
    }

    /// For tests: nobody goes alone, and every claim and completion is a group's.
    #[doc(hidden)]
    pub fn with_nobody_alone(mut self) -> Self {
        self.nobody_alone = true;
        self
    }

    pub(crate) fn group_limits(&self) -> Option<Limits> {
        // Who goes with a group waits for half a statement before, on average. So groups pay when there are half as many
        // callers again as connections: then those who go alone wait for a connection as long.
        let alone = if self.nobody_alone { 0 } else { self.max_connections.saturating_mul(3) / 2 };
        // Both lanes share the pool.
        let groups = (self.max_connections / 2).max(1);
        let (items, enough) = (self.group.max(1), ENOUGH.min(self.group.max(1)));
        let limits = Limits { alone, items, bytes: GROUP_BYTES, enough, groups, waiting: WAITING };
        (self.group > 1 || self.nobody_alone).then_some(limits)
    }

    /// Accepts a server with `fsync` or `synchronous_commit` off. Then what was acknowledged can be lost in a crash, and with it the first promise. Defaults to
    /// false.
    pub fn allow_unsafe_durability(mut self, allow: bool) -> Self {
        self.allow_unsafe_durability = allow;
        self
    }
}

impl fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresConfig")
            .field("schema", &self.schema)
            .field("table", &self.table)
            .field("max_connections", &self.max_connections)
            .field("lock_timeout", &self.lock_timeout)
            .field("statement_deadline", &self.statement_deadline)
            .field("transaction_pooler", &self.transaction_pooler)
            .finish_non_exhaustive()
    }
}

pub(crate) fn identifier(name: &str) -> Result<String, Error> {
    let fits =
        !name.is_empty() && name.len() <= MAX_IDENTIFIER_BYTES && !name.starts_with(|c: char| c.is_ascii_digit());
    if fits && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        Ok(name.to_owned())
    } else {
        Err(invalid(ConfigError::Identifier))
    }
}

fn invalid(reason: ConfigError) -> Error {
    Error::new(ErrorKind::InvalidRequest, "configure", WriteOutcome::NotApplied).with_source(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_no_identifiers_are_refused() {
        let config = || PostgresConfig::from_url("postgres://localhost").unwrap();
        for name in ["", "a b", "a\"b", "a;b", "1a", "a.b", "\u{e9}", "a\0", &"x".repeat(41)] {
            assert!(config().with_table(name).is_err(), "{name:?}");
            assert!(config().with_schema(name).is_err(), "{name:?}");
        }
        for name in ["a", "_a1", "Records", &"x".repeat(40)] {
            assert!(config().with_table(name).is_ok(), "{name:?}");
        }
    }

    #[test]
    fn nothing_secret_is_shown() {
        let config = PostgresConfig::from_url("postgres://canary:canary@canary.example/canary").unwrap();
        assert!(!format!("{config:?}").contains("canary"));
        for url in ["postgres://canary:canary@[canary/", "canary://canary", "canary"] {
            let error = PostgresConfig::from_url(url).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
        }
    }
}
