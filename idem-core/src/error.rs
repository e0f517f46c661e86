//! The one error of stores and engine: [`Error`].

use std::error::Error as StdError;
use std::fmt;

type Source = Box<dyn StdError + Send + Sync + 'static>;

/// Something could not be done, or nobody knows whether it was.
///
/// Losing a race is not an error: it is a value. An error says what went wrong ([`ErrorKind`]), in which operation, and
/// whether a write that it belongs to was [not applied or is unknown](WriteOutcome). It holds no key, scope, body or
/// connection string; a back end must not put one into the source either.
///
/// # Examples
///
/// ```
/// use idem_core::{Error, ErrorKind, WriteOutcome};
///
/// let lost_reply = Error::new(ErrorKind::Unavailable, "swap", WriteOutcome::Unknown)
///     .with_source(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
///
/// assert_eq!(
///     lost_reply.to_string(),
///     "swap: store is unavailable, retry: connection reset (outcome unknown)"
/// );
/// ```
pub struct Error {
    kind: ErrorKind,
    operation: &'static str,
    write_outcome: WriteOutcome,
    source: Option<Source>,
}

/// Whether a write that ended in an error took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WriteOutcome {
    /// It did not and never will.
    NotApplied,
    /// It may have taken effect, or may still do so. Settled by loading the record and comparing versions; never taken
    /// for either.
    Unknown,
}

/// What kind of thing went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The store cannot be reached, or refuses work for now.
    #[error("store is unavailable, retry")]
    Unavailable,
    /// The store did not answer in time.
    #[error("store did not answer in time, retry")]
    Timeout,
    /// The store holds as much as it may.
    #[error("store is full: retry later, or raise its capacity")]
    Capacity,
    /// More handlers are running than the engine allows.
    #[error("too many handlers are running: retry later, or raise the engine's limit")]
    Overloaded,
    /// The engine is draining and claims nothing any more.
    #[error("engine is draining: retry with the same key on another instance")]
    Draining,
    /// A row was written by a build with a later fingerprint scheme, or with a hash key that this one was not given.
    #[error(
        "record has a fingerprint scheme or hash key that is unknown here: deploy the newer release, or accept its hash key, everywhere"
    )]
    UnknownFingerprint,
    /// A stored row cannot be read.
    #[error("stored record is corrupt: look at the row by hand")]
    Corrupt,
    /// The operation is done, but its answer was too large to keep, or could not be written down.
    #[error("operation is done, but its answer was not kept: do not retry")]
    AnswerNotKept,
    /// The caller asked for something that cannot be: the source says what and what to do.
    #[error("invalid request")]
    InvalidRequest,
    /// The store is not set up, or set up in a way that would break a promise: the source says how.
    #[error("store is not usable as configured")]
    Misconfigured,
    /// The store broke its contract, or the library has a bug.
    #[error("internal error: please report it")]
    Internal,
}

impl Error {
    /// An error of `operation`, which is a fixed name such as `insert` and never holds data.
    #[must_use]
    pub fn new(kind: ErrorKind, operation: &'static str, write_outcome: WriteOutcome) -> Self {
        Self { kind, operation, write_outcome, source: None }
    }

    /// Adds what caused it. The source must not show a key, scope, body or connection string.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Source>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The same error, of a larger operation whose write ended like this.
    #[must_use]
    pub fn with_write_outcome(mut self, write_outcome: WriteOutcome) -> Self {
        self.write_outcome = write_outcome;
        self
    }

    /// What kind of thing went wrong.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// In which operation.
    #[must_use]
    pub fn operation(&self) -> &'static str {
        self.operation
    }

    /// Whether the write took effect.
    #[must_use]
    pub fn write_outcome(&self) -> WriteOutcome {
        self.write_outcome
    }

    /// Whether the same call may succeed later without anybody changing anything.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self.kind {
            ErrorKind::Unavailable
            | ErrorKind::Timeout
            | ErrorKind::Capacity
            | ErrorKind::Overloaded
            | ErrorKind::Draining => true,
            ErrorKind::UnknownFingerprint
            | ErrorKind::Corrupt
            | ErrorKind::AnswerNotKept
            | ErrorKind::InvalidRequest
            | ErrorKind::Misconfigured
            | ErrorKind::Internal => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.operation, self.kind)?;
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        match self.write_outcome {
            WriteOutcome::NotApplied => Ok(()),
            WriteOutcome::Unknown => f.write_str(" (outcome unknown)"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.kind)
            .field("operation", &self.operation)
            .field("write_outcome", &self.write_outcome)
            .field("source", &self.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}
