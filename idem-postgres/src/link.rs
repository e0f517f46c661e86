//! The way to the server: a small pool, and one exchange at a time on a connection.

use crate::config::PostgresConfig;
use crate::error::{Meaning, classify, ends_session, translate, translate_connect};
use crate::sql::{BY_THE_TABLE, ROW_BY_ROW};
use crate::statement::{Value, arguments, written_out};
use deadpool::managed::{self, Metrics, Object, PoolError, RecycleError, RecycleResult, Timeouts};
use idem_core::{Error, ErrorKind, WriteOutcome};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How often a statement that was rolled back for no fault of its own is sent again.
const MAX_REPEATS: u32 = 5;

/// Connections to one server.
pub(crate) struct Link {
    pool: managed::Pool<Connections>,
    deadline: Duration,
    /// What goes in front of every simple query; `None` if statements are prepared.
    preamble: Option<String>,
    /// The same for statements that read a great part of the table, which are simple queries always.
    slow_preamble: String,
}

/// How many ordinary deadlines a statement may take that reads a great part of the table.
const SLOW: u32 = 12;

/// A connection, and whether an exchange on it is under way. One that was left in the middle of an exchange is never used again.
pub(crate) struct Line {
    connection: PgConnection,
    busy: bool,
}

struct Connections {
    options: PgConnectOptions,
}

impl managed::Manager for Connections {
    type Type = Line;
    type Error = sqlx::Error;

    async fn create(&self) -> Result<Line, sqlx::Error> {
        Ok(Line { connection: self.options.connect().await?, busy: false })
    }

    async fn recycle(&self, line: &mut Line, _: &Metrics) -> RecycleResult<sqlx::Error> {
        // No ping: it would be a second round trip. A connection that died meanwhile costs its user an unknown outcome, which is looked up.
        if line.busy { Err(RecycleError::message("left in the middle of an exchange")) } else { Ok(()) }
    }
}

/// A connection in use. Dropped in the middle of an exchange, it is closed at once instead of going back.
struct Checkout(Option<Object<Connections>>);

impl Drop for Checkout {
    fn drop(&mut self) {
        if let Some(object) = self.0.take()
            && object.busy
        {
            drop(Object::take(object));
        }
    }
}

/// A statement to send.
#[derive(Clone, Copy)]
struct Call<'a> {
    operation: &'static str,
    sql: &'a Arc<str>,
    values: &'a [Value<'a>],
    ends: Instant,
    /// What goes in front of it, if it goes as a simple query.
    preamble: Option<&'a str>,
}

/// What became of a statement.
pub(crate) enum Answer {
    Rows(Vec<PgRow>),
    /// It waited for a rival's uncommitted write for as long as it may, and changed nothing.
    RivalUncommitted,
}

impl Link {
    pub(crate) fn new(config: &PostgresConfig) -> Result<Self, Error> {
        let (lock_timeout, deadline) = (config.lock_timeout.as_millis(), config.statement_deadline.as_millis());
        let options = config.options.clone().application_name("idem");
        // One simple query is one transaction: what it sets is gone with it.
        let preamble = |deadline: u128, plans: &[(&str, &str)]| {
            let mut preamble = format!(
                "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = {lock_timeout}; \
                 SET LOCAL statement_timeout = {deadline}; "
            );
            for (name, value) in plans {
                let _ = write!(preamble, "SET LOCAL {name} = {value}; ");
            }
            preamble
        };
        // What reads a great part of the table is planned as the server sees fit.
        let slow_preamble = preamble(deadline * u128::from(SLOW), &BY_THE_TABLE);
        let (options, preamble) = if config.transaction_pooler {
            let options = options.statement_cache_capacity(0).extra_float_digits(None);
            (options, Some(preamble(deadline, &ROW_BY_ROW)))
        } else {
            let settings = [
                ("lock_timeout", lock_timeout.to_string()),
                ("statement_timeout", deadline.to_string()),
                ("default_transaction_isolation", "read committed".to_owned()),
            ];
            (options.options(settings).options(ROW_BY_ROW), None)
        };
        let manager = Connections { options: options.disable_statement_logging() };
        let pool = managed::Pool::builder(manager)
            .max_size(config.max_connections)
            .runtime(deadpool::Runtime::Tokio1)
            .build()
            .map_err(|error| Error::new(ErrorKind::Internal, "connect", WriteOutcome::NotApplied).with_source(error))?;
        Ok(Self { pool, deadline: config.statement_deadline, preamble, slow_preamble })
    }

    /// Runs one statement in a transaction of its own and returns its rows.
    ///
    /// A statement that was rolled back for a conflict with another transaction is sent again, a few times, within the deadline: it is
    /// known not to have been applied.
    pub(crate) async fn run(
        &self,
        operation: &'static str,
        sql: &Arc<str>,
        values: &[Value<'_>],
    ) -> Result<Answer, Error> {
        let (ends, preamble) = (now() + self.deadline, self.preamble.as_deref());
        self.repeat(Call { operation, sql, values, ends, preamble }).await
    }

    /// As [`run`](Link::run), with a longer deadline.
    pub(crate) async fn run_slowly(
        &self,
        operation: &'static str,
        sql: &Arc<str>,
        values: &[Value<'_>],
    ) -> Result<Answer, Error> {
        let (ends, preamble) = (now() + SLOW * self.deadline, Some(self.slow_preamble.as_str()));
        self.repeat(Call { operation, sql, values, ends, preamble }).await
    }

    async fn repeat(&self, call: Call<'_>) -> Result<Answer, Error> {
        let mut repeats = MAX_REPEATS;
        loop {
            let error = match self.exchange(call).await? {
                Ok(rows) => return Ok(Answer::Rows(rows)),
                Err(error) => error,
            };
            match classify(&error).0 {
                Meaning::RivalUncommitted => return Ok(Answer::RivalUncommitted),
                Meaning::Again if repeats > 0 && now() < call.ends => repeats -= 1,
                Meaning::Again | Meaning::Is(..) => return Err(translate(call.operation, &error)),
            }
        }
    }

    /// Runs one statement; the outer error is about the way to the server, the inner one the server's answer.
    async fn exchange(&self, call: Call<'_>) -> Result<Result<Vec<PgRow>, sqlx::Error>, Error> {
        let Call { operation, sql, values, ends, preamble } = call;
        let mut checkout = self.checkout(operation, ends).await?;
        let Some(line) = checkout.0.as_deref_mut() else {
            return Err(Error::new(ErrorKind::Internal, operation, WriteOutcome::NotApplied));
        };
        let unencodable =
            |error| Error::new(ErrorKind::InvalidRequest, operation, WriteOutcome::NotApplied).with_source(error);
        line.busy = true;
        let rows = match preamble {
            None => {
                let query = sqlx::query_with(AssertSqlSafe(Arc::clone(sql)), arguments(values).map_err(unencodable)?);
                timeout_at(ends, query.fetch_all(&mut line.connection)).await
            }
            Some(preamble) => {
                let query = sqlx::raw_sql(AssertSqlSafe(preamble.to_owned() + &written_out(sql, values)));
                timeout_at(ends, query.fetch_all(&mut line.connection)).await
            }
        };
        let Ok(rows) = rows else {
            return Err(Error::new(ErrorKind::Timeout, operation, WriteOutcome::Unknown));
        };
        line.busy = match &rows {
            Ok(_) => false,
            // After an error that the server answered with, the connection is ready again, unless the session is over.
            Err(sqlx::Error::Database(answer)) => ends_session(&**answer),
            // After any other it is in an unknown state.
            Err(_) => true,
        };
        if line.busy {
            // What ended this connection, a restart say, has probably ended the idle ones too. Whoever repeats the call shall not have to try them
            // one by one.
            self.pool.retain(|_, _| false);
        }
        Ok(rows)
    }

    async fn checkout(&self, operation: &'static str, ends: Instant) -> Result<Checkout, Error> {
        let left = ends.saturating_duration_since(now());
        let timeouts = Timeouts { wait: Some(left), create: Some(left), recycle: None };
        // The pool's limits are for each step: one that waited for a place and then has to connect would get them twice.
        match timeout_at(ends, self.pool.timeout_get(&timeouts)).await {
            Ok(Ok(object)) => Ok(Checkout(Some(object))),
            Ok(Err(PoolError::Backend(error))) => Err(translate_connect(operation, &error)),
            Err(_) | Ok(Err(PoolError::Timeout(_))) => {
                Err(Error::new(ErrorKind::Timeout, operation, WriteOutcome::NotApplied))
            }
            Ok(Err(other)) => {
                Err(Error::new(ErrorKind::Unavailable, operation, WriteOutcome::NotApplied)
                    .with_source(other.to_string()))
            }
        }
    }

    /// Runs statements one after the other in one transaction, on a connection of their own.
    pub(crate) async fn script(config: &PostgresConfig, operation: &'static str, sql: String) -> Result<(), Error> {
        let options = config.options.clone().application_name("idem").disable_statement_logging();
        // Only the way to the server has a deadline: what a migration does, and waits for, takes as long as it takes.
        let Ok(connected) = timeout_at(now() + config.statement_deadline, options.connect()).await else {
            return Err(Error::new(ErrorKind::Timeout, operation, WriteOutcome::NotApplied));
        };
        let mut connection = connected.map_err(|error| translate_connect(operation, &error))?;
        // Several statements in one simple query are one transaction.
        let result = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await;
        let closed = connection.close().await;
        result.map_err(|error| translate(operation, &error))?;
        // Everything is committed by now; a farewell that fails changes nothing.
        drop(closed);
        Ok(())
    }
}

#[expect(clippy::disallowed_methods, reason = "the deadline of a statement, measured on the client's monotonic clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
