//! What the two ends of an HTTP connection agree on: header names and the kinds of problems, as plain text.
//!
//! The server's side is `idem-tower`.

use std::fmt;

/// The request header that names the operation, of
/// [draft-ietf-httpapi-idempotency-key-header](https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/).
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// The response header that marks a stored answer: `true` on every replay, absent otherwise.
pub const IDEMPOTENT_REPLAYED: &str = "idempotent-replayed";

/// Where the kinds of problems are explained, each under its [name](ProblemKind::as_str).
const PROBLEM_BASE: &str = "https://github.com/idem-rs/idem/blob/main/docs/problems.md#";

/// What went wrong, as the `type` of an `application/problem+json` body
/// ([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)) says it.
///
/// # Examples
///
/// ```
/// use idem_core::http::{Advice, ProblemKind};
///
/// let uri = "https://github.com/idem-rs/idem/blob/main/docs/problems.md#in-progress";
/// assert_eq!(ProblemKind::InProgress.uri(), uri);
/// assert_eq!(ProblemKind::from_uri(uri), Some(ProblemKind::InProgress));
/// assert_eq!(ProblemKind::InProgress.advice(), Advice::Retry);
/// assert_eq!(ProblemKind::from_uri("about:blank"), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProblemKind {
    /// The request needs an `Idempotency-Key` and has none.
    KeyMissing,
    /// The `Idempotency-Key` is not one key.
    KeyMalformed,
    /// The key belongs to another request.
    KeyReused,
    /// The first attempt is still running.
    InProgress,
    /// The operation is done, but its answer was too large to keep, or a stream.
    AnswerNotKept,
    /// An earlier attempt never came back, and no policy allows another one: somebody has to look.
    Abandoned,
    /// The handler failed before anything happened.
    NothingDone,
    /// The handler failed, and may have done something.
    OutcomeUnknown,
    /// The handler was stopped, and may have done something.
    Stopped,
    /// The instance is stopping and takes no new operations.
    Draining,
    /// The instance runs as many operations as it may.
    Overloaded,
    /// The store of the answers cannot be reached: nothing was run.
    StoreUnavailable,
    /// The stored record is of a later release than this instance, or hashed with a key that it does not know.
    LaterRelease,
    /// The request's body is longer than the server takes.
    BodyTooLarge,
    /// The request's body did not arrive in time.
    BodyTooSlow,
    /// The request's body broke off.
    BodyCutOff,
    /// The server cannot say whose key it is: the caller is not known, or not allowed.
    ScopeRefused,
    /// The server has a fault, or the record is not readable.
    Internal,
}

/// What a client should do about a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Advice {
    /// Send the same request with the same key again: after the `Retry-After` of the answer, or else after a pause of
    /// one's own.
    Retry,
    /// Send the request with a key of its own: this one belongs to another operation.
    NewKey,
    /// Do not send it again: it is done, or wrong, or somebody has to look.
    Stop,
}

impl ProblemKind {
    /// Every kind.
    pub const ALL: [Self; 18] = [
        Self::KeyMissing,
        Self::KeyMalformed,
        Self::KeyReused,
        Self::InProgress,
        Self::AnswerNotKept,
        Self::Abandoned,
        Self::NothingDone,
        Self::OutcomeUnknown,
        Self::Stopped,
        Self::Draining,
        Self::Overloaded,
        Self::StoreUnavailable,
        Self::LaterRelease,
        Self::BodyTooLarge,
        Self::BodyTooSlow,
        Self::BodyCutOff,
        Self::ScopeRefused,
        Self::Internal,
    ];

    /// Its name: the last part of its [URI](Self::uri).
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::KeyMissing => "key-missing",
            Self::KeyMalformed => "key-malformed",
            Self::KeyReused => "key-reused",
            Self::InProgress => "in-progress",
            Self::AnswerNotKept => "answer-not-kept",
            Self::Abandoned => "abandoned",
            Self::NothingDone => "nothing-done",
            Self::OutcomeUnknown => "outcome-unknown",
            Self::Stopped => "stopped",
            Self::Draining => "draining",
            Self::Overloaded => "overloaded",
            Self::StoreUnavailable => "store-unavailable",
            Self::LaterRelease => "later-release",
            Self::BodyTooLarge => "body-too-large",
            Self::BodyTooSlow => "body-too-slow",
            Self::BodyCutOff => "body-cut-off",
            Self::ScopeRefused => "scope-refused",
            Self::Internal => "internal",
        }
    }

    /// The `type` of the problem.
    #[must_use]
    pub fn uri(self) -> String {
        format!("{PROBLEM_BASE}{}", self.as_str())
    }

    /// The kind that a `type` names; `None` if it is not one of ours.
    #[must_use]
    pub fn from_uri(uri: &str) -> Option<Self> {
        let name = uri.strip_prefix(PROBLEM_BASE)?;
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// What the client should do.
    #[must_use]
    pub const fn advice(self) -> Advice {
        match self {
            Self::InProgress
            | Self::NothingDone
            | Self::OutcomeUnknown
            | Self::Stopped
            | Self::Draining
            | Self::Overloaded
            | Self::StoreUnavailable
            | Self::LaterRelease
            | Self::BodyTooSlow
            | Self::BodyCutOff
            | Self::Internal => Advice::Retry,
            Self::KeyMissing | Self::KeyMalformed | Self::KeyReused => Advice::NewKey,
            Self::AnswerNotKept | Self::Abandoned | Self::BodyTooLarge | Self::ScopeRefused => Advice::Stop,
        }
    }
}

impl fmt::Display for ProblemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Advice {
    /// The word for it in a problem's `advice` member.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::NewKey => "new-key",
            Self::Stop => "stop",
        }
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_kind_is_found_by_its_uri_and_by_no_other() {
        let uris: HashSet<String> = ProblemKind::ALL.map(ProblemKind::uri).into();
        assert_eq!(uris.len(), ProblemKind::ALL.len());
        for kind in ProblemKind::ALL {
            assert_eq!(ProblemKind::from_uri(&kind.uri()), Some(kind));
            assert_eq!(ProblemKind::from_uri(kind.as_str()), None);
            assert_eq!(ProblemKind::from_uri(&format!("{}x", kind.uri())), None);
        }
    }
}
