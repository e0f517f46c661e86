//! What comes of an operation: [`Outcome`], and what a handler says of its own failure: [`Failure`].

use crate::error::Error;
use crate::fingerprint::Part;
use crate::machine::{AbandonReason, NoEffectRefused, NotCompleted};
use crate::response::Response;
use crate::time::Timestamp;
use std::any::Any;
use std::fmt;
use std::time::Duration;

/// What came of a request. `R` is the answer, `E` the handler's own error.
#[derive(Debug)]
#[must_use]
pub enum Outcome<R, E> {
    /// The handler ran, here and now, and this is its answer.
    Executed {
        /// The handler's answer.
        response: R,
        /// Whether it is known to be stored.
        recorded: Recorded,
    },
    /// The operation was done before; this is the stored answer, verbatim.
    Replayed(R),
    /// Somebody else is working on it: ask again.
    InProgress {
        /// Since when, by the store's clock; `None` if only a cache was asked.
        since: Option<Timestamp>,
        /// When to ask again.
        retry_after: Duration,
    },
    /// The key belongs to a different request. Nothing ran.
    Mismatch {
        /// The first part of the request that differs, if that can be told.
        part: Option<Part>,
    },
    /// An earlier attempt never came back, its outcome is unknown, and no policy allows running again. Nothing ran.
    Abandoned {
        /// Why not.
        reason: AbandonReason,
    },
    /// The handler ran, but its lease was over and somebody took the key; what it would have answered was dropped.
    Fenced {
        /// The new owner's answer, if there is one yet.
        response: Option<R>,
    },
    /// The handler failed without an answer to store.
    Failed {
        /// The handler's error.
        error: E,
        /// What that means for the key.
        disposition: Disposition,
    },
    /// The handler panicked. The outcome of its effects is unknown; the key is free for a takeover at once.
    Panicked(PanicPayload),
    /// The handler was stopped. The outcome of its effects is unknown; the key is free for a takeover at once.
    Stopped {
        /// Why it was stopped.
        reason: StopReason,
    },
}

/// Whether an answer is known to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Recorded {
    /// It is: every repeat gets it.
    Yes,
    /// The store did not say. The answer is true and may be given to the caller; a repeat gets it, waits, or takes over
    /// as its policy says.
    Unknown,
}

/// What a failed handler means for its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// Nothing happened, and that is stored: a retry with the same key runs.
    Retryable,
    /// Something may have happened, or the store did not say whether the failure is stored. A retry takes over as its
    /// policy says.
    Unknown,
    /// The handler said that nothing happened, but cannot know. Stored as unknown.
    Refused(NoEffectRefused),
}

/// Why a handler was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// Its lease could not be renewed in time.
    LeaseLost,
    /// It ran for as long as a handler may run.
    MaxRun,
    /// The engine is draining, and its time for that is over.
    Drained,
    /// Its transaction was to store the completion and was not committed, and yet the handler returned an answer.
    NotCommitted,
    /// A call of the handler to the store through its [`Operation`](crate::Operation) failed, and the handler gave up.
    StoreFailed,
}

/// How a handler says that it failed.
///
/// What the failure *means* is in the type: whether anything may have happened decides whether a retry may run.
///
/// # Examples
///
/// ```
/// use idem_core::{Failure, Response};
///
/// fn declined_before_the_call() -> Result<Response, Failure<&'static str>> {
///     Err(Failure::NoEffect("the provider's circuit is open"))
/// }
///
/// fn refused_by_the_provider() -> Result<Response, Failure<&'static str>> {
///     // The card was declined: that is an answer, and every repeat gets it.
///     Err(Failure::Final(Response::new(402, r#"{"error":"card_declined"}"#)))
/// }
/// # assert!(declined_before_the_call().is_err() && refused_by_the_provider().is_err());
/// ```
#[derive(Debug)]
pub enum Failure<E, R = Response> {
    /// Nothing happened; a retry may run. Refused after `begin_effect` and after a takeover: then nobody can know
    /// without looking.
    NoEffect(E),
    /// Nothing happened: the handler looked the effect up at its sink, not only in its own memory.
    VerifiedNoEffect(E),
    /// Something may have happened and the handler cannot tell: a call to the provider timed out.
    Unknown(E),
    /// Something may have happened, and this is the answer: stored and replayed like a success.
    Final(R),
    /// The handler's own call to its [`Operation`](crate::Operation) says to stop. Made by `?`.
    Interrupted(Interrupted),
}

/// Why a handler must stop: what a call to its [`Operation`](crate::Operation) or [`Lease`](crate::Lease) came back
/// with.
#[derive(Debug, thiserror::Error)]
pub enum Interrupted {
    /// Somebody else has the key.
    #[error("somebody else has the key: stop, and make no further external call")]
    Fenced,
    /// The lease is over, by the owner's own clock.
    #[error("the lease is over: stop, and make no further external call")]
    LeaseLost,
    /// The store could not say within the lease, or refused the call.
    #[error(transparent)]
    Store(#[from] Error),
}

impl From<NotCompleted> for Interrupted {
    fn from(not_completed: NotCompleted) -> Self {
        match not_completed {
            NotCompleted::Fenced => Self::Fenced,
            NotCompleted::Store(error) => Self::Store(error),
        }
    }
}

impl<E, R> From<NotCompleted> for Failure<E, R> {
    fn from(not_completed: NotCompleted) -> Self {
        Self::Interrupted(not_completed.into())
    }
}

impl<E, R> From<Interrupted> for Failure<E, R> {
    fn from(interrupted: Interrupted) -> Self {
        Self::Interrupted(interrupted)
    }
}

/// What a handler panicked with. `Debug` does not show it.
pub struct PanicPayload(Box<dyn Any + Send>);

impl PanicPayload {
    pub(super) fn new(payload: Box<dyn Any + Send>) -> Self {
        Self(payload)
    }

    /// The payload, for [`std::panic::resume_unwind`].
    #[must_use]
    pub fn into_inner(self) -> Box<dyn Any + Send> {
        self.0
    }
}

impl fmt::Debug for PanicPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PanicPayload(..)")
    }
}
