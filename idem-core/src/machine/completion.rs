//! A completion that the caller's own transaction writes: [`Completion`].

use super::Change;
use crate::error::Error;
use crate::key::Identity;
use crate::record::Version;
use crate::response::Response;
use crate::time::Timestamp;
use std::fmt;

/// The completion of an operation, to be written by somebody else: in the caller's own transaction, so that the answer
/// is stored exactly if the work is.
///
/// Made by [`Operation::completion`](crate::Operation::completion) or [`Lease::completion`](crate::Lease::completion),
/// and handed to a back end, such as `PostgresStore::complete_in` of idem-postgres. It is the same
/// [compare-and-swap](Change::Complete) as ever: if somebody else has the key by then it applies to nothing, and the
/// transaction must be rolled back.
///
/// When the transaction is committed, return the same response from the handler, or hand it to
/// [`Lease::complete`](crate::Lease::complete): the engine then sends no completion of its own, and looks whether this one
/// is there.
#[derive(Clone)]
pub struct Completion {
    identity: Identity,
    version: Version,
    response: Response,
    expires_at: Timestamp,
}

/// A transaction must be rolled back, because its [`Completion`] could not be written.
///
/// In a handler, `?` makes it [`Interrupted`](crate::Interrupted).
#[derive(Debug, thiserror::Error)]
pub enum NotCompleted {
    /// Somebody else has the key.
    #[error("somebody else has the key: roll the transaction back")]
    Fenced,
    /// The store failed, or refused.
    #[error(transparent)]
    Store(#[from] Error),
}

impl Completion {
    /// The completion of the ownership `version` of `identity` with `response`, for a back end that grants ownerships
    /// without an engine.
    #[must_use]
    pub fn new(identity: Identity, version: Version, response: Response, expires_at: Timestamp) -> Self {
        Self { identity, version, response, expires_at }
    }

    /// Which record.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The version to compare.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The answer to store: that of the handler, or its tombstone if it is over the engine's limit.
    #[must_use]
    pub fn response(&self) -> &Response {
        &self.response
    }

    /// The expiry to store.
    #[must_use]
    pub fn expires_at(&self) -> Timestamp {
        self.expires_at
    }

    /// The same as a change, for a back end's ordinary swap.
    #[must_use]
    pub fn change(&self) -> Change {
        Change::Complete { response: self.response.clone(), expires_at: self.expires_at }
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion").field("version", &self.version).finish_non_exhaustive()
    }
}
