//! What a PostgreSQL error means: one table from SQLSTATE to kind and outcome.

use idem_core::{Error, ErrorKind, WriteOutcome};
use sqlx::error::DatabaseError;
use sqlx::postgres::{PgDatabaseError, PgSeverity};
use std::fmt;

/// What PostgreSQL, or the way to it, said. The source of a store's [`Error`].
///
/// It keeps the SQLSTATE, and the server's message only for classes of errors whose messages hold no data (missing objects, rights, settings,
/// resources, connections).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresError {
    sqlstate: Option<String>,
    message: Option<String>,
}

impl PostgresError {
    /// The five characters of SQLSTATE, if the server answered.
    #[must_use]
    pub fn sqlstate(&self) -> Option<&str> {
        self.sqlstate.as_deref()
    }
}

impl fmt::Display for PostgresError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.sqlstate {
            Some(state) => write!(f, "SQLSTATE {state}")?,
            None => f.write_str("connection")?,
        }
        if let Some(message) = &self.message {
            write!(f, ": {message}")?;
        }
        if let Some(advice) = self.sqlstate.as_deref().and_then(advice) {
            write!(f, " ({advice})")?;
        }
        Ok(())
    }
}

impl std::error::Error for PostgresError {}

/// What the store does about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The statement was rolled back for no fault of its own: send it again.
    Again,
    /// It waited for a rival's uncommitted write for as long as it may.
    RivalUncommitted,
    /// Anything else, with its kind and whether it took effect.
    Is(ErrorKind, WriteOutcome),
}

impl Meaning {
    /// The same of an answer with which the session ended, in the middle of a commit perhaps: then the commit may be
    /// there when the server is back.
    fn of_a_last_word(self) -> Self {
        match self {
            Self::Again | Self::RivalUncommitted => Self::Is(ErrorKind::Unavailable, WriteOutcome::Unknown),
            Self::Is(kind, _) => Self::Is(kind, WriteOutcome::Unknown),
        }
    }
}

/// The table, for an answer after which the session goes on: the server rolled the statement back.
pub(crate) fn meaning(sqlstate: &str) -> Meaning {
    use ErrorKind::{Corrupt, Internal, Misconfigured, Timeout, Unavailable};
    use WriteOutcome::{NotApplied, Unknown};
    match sqlstate {
        // serialization_failure, deadlock_detected
        "40001" | "40P01" => Meaning::Again,
        // lock_not_available
        "55P03" => Meaning::RivalUncommitted,
        // query_canceled: the statement's own deadline, or somebody's pg_cancel_backend
        "57014" => Meaning::Is(Timeout, NotApplied),
        // admin_shutdown, crash_shutdown, database_dropped, idle_session_timeout: the session ended
        "57P01" | "57P02" | "57P04" | "57P05" => Meaning::Is(Unavailable, Unknown),
        // cannot_connect_now
        "57P03" => Meaning::Is(Unavailable, NotApplied),
        // read_only_sql_transaction: a standby, or a failover under way
        "25006" => Meaning::Is(Unavailable, NotApplied),
        // 40002, 40003 statement_completion_unknown
        _ if sqlstate.starts_with("40") => Meaning::Is(Unavailable, Unknown),
        _ => match &sqlstate[..2.min(sqlstate.len())] {
            // connection exceptions that the server reports
            "08" => Meaning::Is(Unavailable, Unknown),
            // invalid authorization, invalid catalog name, syntax or access rule, invalid schema name
            "28" | "3D" | "42" | "3F" => Meaning::Is(Misconfigured, NotApplied),
            // insufficient resources (disk full, out of memory, too many connections), object not in prerequisite state, system error
            "53" | "55" | "58" => Meaning::Is(Unavailable, NotApplied),
            // data exception, integrity constraint violation: the row would break a rule of the table
            "22" | "23" => Meaning::Is(Internal, NotApplied),
            // data corrupted, index corrupted
            "XX" if sqlstate != "XX000" => Meaning::Is(Corrupt, Unknown),
            _ => Meaning::Is(Internal, Unknown),
        },
    }
}

fn advice(sqlstate: &str) -> Option<&'static str> {
    Some(match sqlstate {
        "42P01" | "3F000" | "42703" => "run PostgresStore::migrate, or the SQL files, against this database",
        "42501" => "grant the role USAGE on the schema and SELECT, INSERT, UPDATE, DELETE on its tables",
        "28P01" | "28000" => "check user and password",
        "3D000" => "create the database, or name the right one",
        "53100" => "free space on the server's disk",
        "53300" => "raise max_connections, or lower the store's pool",
        "25006" => "connect to the primary",
        "57014" => "the statement reached its deadline",
        _ => return None,
    })
}

/// Whether a server's message of this class can hold no key, scope or body.
fn may_show_message(sqlstate: &str) -> bool {
    matches!(&sqlstate[..2.min(sqlstate.len())], "08" | "25" | "28" | "3D" | "3F" | "53" | "57" | "58")
        || matches!(sqlstate, "42P01" | "42501" | "42703")
}

/// Whether the session ended with this answer. Its number does not tell: `disk full` is a refusal at the end of a data
/// disk, and the server's last word at the end of the log's.
pub(crate) fn ends_session(answer: &(dyn DatabaseError + 'static)) -> bool {
    let severity = answer.try_downcast_ref().map(PgDatabaseError::severity);
    matches!(severity, Some(PgSeverity::Fatal | PgSeverity::Panic))
}

/// An error of sqlx while a statement was under way, as `meaning` has it.
pub(crate) fn classify(error: &sqlx::Error) -> (Meaning, PostgresError) {
    match error {
        sqlx::Error::Database(answer) => {
            let sqlstate = answer.code().unwrap_or_default().into_owned();
            let message = may_show_message(&sqlstate).then(|| answer.message().to_owned());
            let meaning = meaning(&sqlstate);
            let meaning = if ends_session(&**answer) { meaning.of_a_last_word() } else { meaning };
            (meaning, PostgresError { sqlstate: Some(sqlstate), message })
        }
        sqlx::Error::Io(cause) => (
            Meaning::Is(ErrorKind::Unavailable, WriteOutcome::Unknown),
            PostgresError { sqlstate: None, message: Some(cause.kind().to_string()) },
        ),
        sqlx::Error::Tls(_) => (
            Meaning::Is(ErrorKind::Misconfigured, WriteOutcome::Unknown),
            PostgresError {
                sqlstate: None,
                message: Some("TLS failed: check sslmode, and that sqlx has a TLS feature switched on".into()),
            },
        ),
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::ColumnNotFound(_) | sqlx::Error::Decode(_) => (
            Meaning::Is(ErrorKind::Corrupt, WriteOutcome::Unknown),
            PostgresError { sqlstate: None, message: Some("a row could not be read".into()) },
        ),
        _ => (
            Meaning::Is(ErrorKind::Unavailable, WriteOutcome::Unknown),
            PostgresError { sqlstate: None, message: Some("the protocol was interrupted".into()) },
        ),
    }
}

/// The store's error for an error of sqlx.
pub(crate) fn translate(operation: &'static str, error: &sqlx::Error) -> Error {
    let (meaning, source) = classify(error);
    let (kind, outcome) = match meaning {
        Meaning::Again | Meaning::RivalUncommitted => (ErrorKind::Unavailable, WriteOutcome::NotApplied),
        Meaning::Is(kind, outcome) => (kind, outcome),
    };
    Error::new(kind, operation, outcome).with_source(source)
}

/// As [`translate`], for a connection that could not be made: nothing was sent.
pub(crate) fn translate_connect(operation: &'static str, error: &sqlx::Error) -> Error {
    translate(operation, error).with_write_outcome(WriteOutcome::NotApplied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_that_was_decided_is_in_the_table() {
        use ErrorKind::{Internal, Misconfigured, Timeout, Unavailable};
        use WriteOutcome::{NotApplied, Unknown};
        for (state, expected) in [
            ("40001", Meaning::Again),
            ("40P01", Meaning::Again),
            ("40003", Meaning::Is(Unavailable, Unknown)),
            ("55P03", Meaning::RivalUncommitted),
            ("57014", Meaning::Is(Timeout, NotApplied)),
            ("57P01", Meaning::Is(Unavailable, Unknown)),
            ("57P03", Meaning::Is(Unavailable, NotApplied)),
            ("08006", Meaning::Is(Unavailable, Unknown)),
            ("25006", Meaning::Is(Unavailable, NotApplied)),
            ("53100", Meaning::Is(Unavailable, NotApplied)),
            ("53300", Meaning::Is(Unavailable, NotApplied)),
            ("42P01", Meaning::Is(Misconfigured, NotApplied)),
            ("42501", Meaning::Is(Misconfigured, NotApplied)),
            ("28P01", Meaning::Is(Misconfigured, NotApplied)),
            ("23514", Meaning::Is(Internal, NotApplied)),
            ("XX000", Meaning::Is(Internal, Unknown)),
            ("", Meaning::Is(Internal, Unknown)),
        ] {
            assert_eq!(meaning(state), expected, "{state}");
        }
    }

    #[test]
    fn a_last_word_refuses_nothing() {
        use ErrorKind::{Misconfigured, Unavailable};
        for (state, kind) in
            [("53100", Unavailable), ("40001", Unavailable), ("55P03", Unavailable), ("42501", Misconfigured)]
        {
            assert_eq!(meaning(state).of_a_last_word(), Meaning::Is(kind, WriteOutcome::Unknown), "{state}");
        }
    }

    #[test]
    fn messages_that_may_hold_data_are_not_kept() {
        for state in ["23505", "23514", "22021", "42601", "XX000"] {
            assert!(!may_show_message(state), "{state}");
        }
        assert!(may_show_message("42501"));
    }
}
