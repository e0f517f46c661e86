//! What can be wrong with the machine that the rig runs on.

use std::io;
use std::path::Path;
use std::time::Duration;

/// Why the rig could not do what a test asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Programs are not there; the text says which ones and how to install them.
    #[error("missing: {what}\n{help}")]
    Missing {
        /// What was looked for, and where.
        what: String,
        /// What to do about it.
        help: String,
    },
    /// The machine does not allow it to this process; the text says what would.
    #[error("not allowed: {what}: {error}\n{help}")]
    Forbidden {
        /// What was tried.
        what: String,
        /// What the machine said.
        #[source]
        error: io::Error,
        /// What to do about it.
        help: String,
    },
    /// A program did not do its work.
    #[error("{program}: {message}{log}")]
    Program {
        /// Which one.
        program: String,
        /// What it did instead.
        message: String,
        /// The end of what it wrote, or nothing.
        log: String,
    },
    /// Something did not come true in time.
    #[error("{what} did not come true within {limit:?}")]
    Late {
        /// What was waited for.
        what: String,
        /// For how long.
        limit: Duration,
    },
    /// The server at hand is not one that the rig may stop, pause or kill.
    #[error("{operation} needs a server that the rig started from programs; this one is {server}")]
    NotOurs {
        /// What was asked for.
        operation: &'static str,
        /// What the server is.
        server: &'static str,
    },
    /// The machine refused a file, a process or a socket.
    #[error("{what}: {error}")]
    Io {
        /// During what.
        what: String,
        /// What it said.
        #[source]
        error: io::Error,
    },
    /// The server refused a statement or a connection.
    #[error("{what}: {error}")]
    Sql {
        /// During what.
        what: String,
        /// What it said.
        #[source]
        error: sqlx::Error,
    },
}

impl Error {
    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |error| Self::Io { what, error }
    }

    pub(super) fn sql(what: impl Into<String>) -> impl FnOnce(sqlx::Error) -> Self {
        let what = what.into();
        move |error| Self::Sql { what, error }
    }

    pub(super) fn program(program: &Path, message: impl Into<String>, log: &str) -> Self {
        let log = if log.is_empty() { String::new() } else { format!("\n--- the end of its log ---\n{log}") };
        Self::Program { program: program.display().to_string(), message: message.into(), log }
    }
}

/// The last lines of a log file, or nothing if there is none.
pub(super) fn tail(file: &Path) -> String {
    const LINES: usize = 40;
    let Ok(bytes) = std::fs::read(file) else { return String::new() };
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}
