//! The engine: claims a key, runs the handler under a lease, and settles.

mod answer;
mod builder;
mod calls;
mod claiming;
mod clock;
mod detached;
mod drain;
mod events;
mod execute;
mod lease;
mod operation;
mod outcome;
mod reconcile;
mod request;
mod shared;
mod steps;
mod tenure;
mod work;

pub use builder::EngineBuilder;
pub use drain::Drained;
pub use lease::{Lease, Settlement};
pub use operation::Operation;
pub use outcome::{Disposition, Failure, Interrupted, Outcome, PanicPayload, Recorded, StopReason};
pub use reconcile::{Finding, ReconcileOptions, Reconciled, Reconciler, Unresolved};
pub use request::Request;
pub use steps::Steps;

use crate::error::{Error, ErrorKind, WriteOutcome};
use crate::fingerprint::Part;
use crate::machine::AbandonReason;
use crate::response::Response;
use crate::store::Store;
use crate::sweeper::Sweeper;
use crate::time::Timestamp;
use answer::{Answer, Typed};
use claiming::{Claimed, Grant, claim};
pub(crate) use clock::now;
use detached::detached;
use futures_util::FutureExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use shared::Shared;
use std::convert::Infallible;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tenure::Settled;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::sleep;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Runs operations so that a retry is safe: the first attempt runs, every repeat gets its answer, nothing runs twice.
///
/// One for a process, shared by cloning. It needs a Tokio runtime with time enabled.
///
/// # Examples
///
/// ```
/// # use idem_core::conformance::ReferenceStore;
/// use idem_core::{Engine, Failure, Fingerprint, Key, Outcome, Request, Response, Scope, Takeover};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store = ReferenceStore::default();
/// let engine = Engine::builder(store).build()?;
/// let fingerprint = Fingerprint::builder("POST /charges").json(br#"{"amount":1000}"#).finish()?;
/// let request = Request::new(Scope::new("acct_1")?, Key::new("k")?, fingerprint, Takeover::Resume);
///
/// let first = engine
///     .execute(request.clone(), |operation| async move {
///         operation.begin_effect("charge").await?;
///         // ... call the provider with operation.derived_key("charge") ...
///         Ok::<_, Failure<String>>(Response::new(201, r#"{"id":"ch_1"}"#))
///     })
///     .await?;
/// assert!(matches!(first, Outcome::Executed { .. }));
///
/// let second = engine
///     .execute(request, |_| async { Err(Failure::Unknown("never runs".to_owned())) })
///     .await?;
/// let Outcome::Replayed(response) = second else { panic!("a repeat gets the first answer") };
/// assert_eq!(response.body(), r#"{"id":"ch_1"}"#);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
    sweeper: Arc<Mutex<Option<Sweeper>>>,
}

/// What came of [`Engine::begin`].
#[derive(Debug)]
#[must_use]
pub enum Begun {
    /// The key is the caller's: run the operation, then finish the lease.
    Acquired(Lease),
    /// The operation was done before; this is the stored answer, verbatim.
    Replayed(Response),
    /// Somebody else is working on it: ask again.
    InProgress {
        /// Since when, by the store's clock; `None` if only a cache was asked.
        since: Option<Timestamp>,
        /// When to ask again.
        retry_after: Duration,
    },
    /// The key belongs to a different request.
    Mismatch {
        /// The first part of the request that differs, if that can be told.
        part: Option<Part>,
    },
    /// An earlier attempt never came back, its outcome is unknown, and no policy allows running again.
    Abandoned {
        /// Why not.
        reason: AbandonReason,
    },
}

impl Engine {
    /// Starts an engine over a store, with the defaults of [`EngineBuilder`].
    pub fn builder(store: impl Store + 'static) -> EngineBuilder {
        EngineBuilder::new(Arc::new(store))
    }

    fn new(shared: Shared, sweeper: Option<Sweeper>) -> Self {
        Self { shared: Arc::new(shared), sweeper: Arc::new(Mutex::new(sweeper)) }
    }

    /// The store underneath.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// How many bytes a stored response takes at most, fields included; see [`Response::kept_within`].
    #[must_use]
    pub fn response_limit(&self) -> usize {
        self.shared.limits.response
    }

    /// Claims the key and runs `handler`, or says why it does not run.
    ///
    /// What has to wait runs in a task of its own: a caller that goes away neither cuts the handler in two nor leaves a
    /// claim without an owner. While the handler runs its lease is renewed; if that fails it is
    /// [told](Operation::lease_lost) to stop and then stopped.
    ///
    /// # Errors
    ///
    /// Nothing ran, and the store could not say why: [`WriteOutcome::Unknown`] means that a row without an owner may be
    /// left, which goes stale after one lease. Retrying with the same key is always right, except as [`ErrorKind`]
    /// says.
    ///
    /// # Cancel safety
    ///
    /// Dropped before the first poll, nothing happens. Dropped later, the operation goes on without its caller and is
    /// settled; a repeat gets its answer.
    pub async fn execute<E, H, F>(&self, request: Request, handler: H) -> Result<Outcome<Response, E>, Error>
    where
        E: Send + 'static,
        H: FnOnce(Operation) -> F + Send + 'static,
        F: Future<Output = Result<Response, Failure<E>>> + Send + 'static,
    {
        self.execute_detached(request, handler).await
    }

    /// As [`execute`](Engine::execute), for a handler that returns a value instead of a response.
    ///
    /// The value is stored as JSON. It should read back what it writes: a value that cannot be written leaves a
    /// tombstone, so that it never runs again.
    ///
    /// # Errors
    ///
    /// As [`execute`](Engine::execute); and [`ErrorKind::Corrupt`] if the stored answer is not a `T`,
    /// [`ErrorKind::AnswerNotKept`] if it is a tombstone.
    ///
    /// # Cancel safety
    ///
    /// As [`execute`](Engine::execute).
    pub async fn execute_typed<T, E, H, F>(&self, request: Request, handler: H) -> Result<Outcome<T, E>, Error>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        E: Send + 'static,
        H: FnOnce(Operation) -> F + Send + 'static,
        F: Future<Output = Result<T, Failure<E, T>>> + Send + 'static,
    {
        let typed = |operation| async move {
            handler(operation).await.map(Typed).map_err(|failure| match failure {
                Failure::NoEffect(error) => Failure::NoEffect(error),
                Failure::VerifiedNoEffect(error) => Failure::VerifiedNoEffect(error),
                Failure::Unknown(error) => Failure::Unknown(error),
                Failure::Final(value) => Failure::Final(Typed(value)),
                Failure::Interrupted(interrupted) => Failure::Interrupted(interrupted),
            })
        };
        Ok(match self.execute_detached(request, typed).await? {
            Outcome::Executed { response: Typed(response), recorded } => Outcome::Executed { response, recorded },
            Outcome::Replayed(Typed(response)) => Outcome::Replayed(response),
            Outcome::InProgress { since, retry_after } => Outcome::InProgress { since, retry_after },
            Outcome::Mismatch { part } => Outcome::Mismatch { part },
            Outcome::Abandoned { reason } => Outcome::Abandoned { reason },
            Outcome::Fenced { response } => Outcome::Fenced { response: response.map(|Typed(response)| response) },
            Outcome::Failed { error, disposition } => Outcome::Failed { error, disposition },
            Outcome::Panicked(payload) => Outcome::Panicked(payload),
            Outcome::Stopped { reason } => Outcome::Stopped { reason },
        })
    }

    /// As [`execute`](Engine::execute), for a handler that borrows: it runs in the caller's own task.
    ///
    /// # Errors
    ///
    /// As [`execute`](Engine::execute).
    ///
    /// # Cancel safety
    ///
    /// Dropped while the handler runs, the handler is dropped with it and the key is abandoned, best effort: the
    /// outcome is unknown and a retry takes over as its policy says.
    pub async fn execute_inline<E, H, F>(&self, request: Request, handler: H) -> Result<Outcome<Response, E>, Error>
    where
        H: FnOnce(Operation) -> F,
        F: Future<Output = Result<Response, Failure<E>>>,
    {
        let _admission = self.admit()?;
        match self.begin_waiting(&request).await? {
            Claimed::Acquired(grant) => execute::run(lease(grant)?, handler).await,
            other => refused(other),
        }
    }

    /// Stores `response` first, and only then starts `work`: a crash loses the work instead of repeating it.
    ///
    /// For effects of which a second one is worse than none, such as a message that the next one supersedes. `work`
    /// starts only after the answer is *known* to be stored and while the lease lasts; what becomes of it is not
    /// recorded.
    ///
    /// # Errors
    ///
    /// As [`execute`](Engine::execute); the work was not started. After [`WriteOutcome::Unknown`] the answer may be
    /// stored all the same, and then the work is lost.
    ///
    /// # Cancel safety
    ///
    /// As [`execute`](Engine::execute).
    pub async fn execute_at_most_once<W, F>(
        &self,
        request: Request,
        response: Response,
        work: W,
    ) -> Result<Outcome<Response, Infallible>, Error>
    where
        W: FnOnce() -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let admission = self.admit()?;
        let engine = self.clone();
        let run = Box::pin(async move {
            let _admission = admission;
            let lease = match engine.begin_waiting(&request).await? {
                Claimed::Acquired(grant) => lease(grant)?,
                other => return refused(other),
            };
            let deadline = lease.tenure().deadline();
            let settled = lease.tenure().complete(&response).await;
            let tenure = lease.finish();
            match settled {
                Settled::Recorded if now() < deadline => {}
                Settled::Recorded => {
                    return Err(Error::new(ErrorKind::Timeout, "execute_at_most_once", WriteOutcome::Unknown));
                }
                Settled::NotCommitted => {
                    return Err(Error::new(ErrorKind::Internal, "execute_at_most_once", WriteOutcome::Unknown));
                }
                Settled::Unknown(error) => return Err(error.with_write_outcome(WriteOutcome::Unknown)),
                Settled::Fenced(found) => return Ok(Outcome::Fenced { response: tenure.their_answer(found) }),
            }
            match AssertUnwindSafe(async { work().await }).catch_unwind().await {
                Ok(()) => Ok(Outcome::Executed { response, recorded: Recorded::Yes }),
                Err(payload) => Ok(Outcome::Panicked(PanicPayload::new(payload))),
            }
        });
        detached(&self.shared.tracker, "execute_at_most_once", run).await
    }

    /// Claims the key for a caller that takes the steps by hand.
    ///
    /// # Errors
    ///
    /// As [`execute`](Engine::execute).
    ///
    /// # Cancel safety
    ///
    /// A claim that has to wait does so in a task of its own. If the caller is gone when it is granted, it is given back: a retry may
    /// run at once.
    pub async fn begin(&self, request: Request) -> Result<Begun, Error> {
        let _tracked = self.shared.tracker.token();
        Ok(match self.begin_waiting(&request).await? {
            Claimed::Acquired(grant) => Begun::Acquired(lease(grant)?.by_hand()),
            Claimed::Replay(response) => Begun::Replayed(response),
            Claimed::InProgress { since, retry_after } => Begun::InProgress { since, retry_after },
            Claimed::Mismatch { part } => Begun::Mismatch { part },
            Claimed::Abandoned { reason } => Begun::Abandoned { reason },
        })
    }

    async fn execute_detached<R, E, H, F>(&self, request: Request, handler: H) -> Result<Outcome<R, E>, Error>
    where
        R: Answer + 'static,
        E: Send + 'static,
        H: FnOnce(Operation) -> F + Send + 'static,
        F: Future<Output = Result<R, Failure<E, R>>> + Send + 'static,
    {
        /// Whether the handler was used.
        enum Step<T, H> {
            Done(T),
            Busy { since: Option<Timestamp>, retry_after: Duration, handler: H },
        }

        let give_up_at = request.wait().map(|wait| now() + wait);
        let mut handler = handler;
        loop {
            let admission = self.admit()?;
            let shared = Arc::clone(&self.shared);
            let policy = request.policy_or(&shared.policy);
            let mut attempt = request.claim(&policy);
            let run = Box::pin(async move {
                let _admission = admission;
                match claim(&shared, &policy, &mut attempt).await? {
                    Claimed::Acquired(grant) => execute::run(lease(grant)?, handler).await.map(Step::Done),
                    Claimed::InProgress { since, retry_after } => Ok(Step::Busy { since, retry_after, handler }),
                    other => refused(other).map(Step::Done),
                }
            });
            match detached(&self.shared.tracker, "execute", run).await? {
                Step::Done(outcome) => return Ok(outcome),
                Step::Busy { since, retry_after, handler: unused } => {
                    handler = unused;
                    if !self.wait_until_free(&request, give_up_at).await {
                        return Ok(Outcome::InProgress { since, retry_after });
                    }
                }
            }
        }
    }

    /// Claims, whatever becomes of the caller, waiting for a rival as the request says.
    async fn begin_waiting(&self, request: &Request) -> Result<Claimed, Error> {
        let give_up_at = request.wait().map(|wait| now() + wait);
        loop {
            if self.shared.draining.is_cancelled() {
                return Err(Error::new(ErrorKind::Draining, "claim", WriteOutcome::NotApplied));
            }
            let shared = Arc::clone(&self.shared);
            let policy = request.policy_or(&shared.policy);
            let mut attempt = request.claim(&policy);
            // If the caller is gone by then, the grant is dropped with the task's result, and so given back.
            let run = Box::pin(async move { claim(&shared, &policy, &mut attempt).await });
            match detached(&self.shared.tracker, "claim", run).await? {
                Claimed::InProgress { .. } if self.wait_until_free(request, give_up_at).await => {}
                other => return Ok(other),
            }
        }
    }

    /// Waits while somebody works on the key; false if the time for that is over.
    async fn wait_until_free(&self, request: &Request, give_up_at: Option<clock::Instant>) -> bool {
        let Some(give_up_at) = give_up_at else { return false };
        for pause in calls::pauses() {
            let at = now();
            if at >= give_up_at || self.shared.draining.is_cancelled() {
                return false;
            }
            sleep(pause.min(give_up_at - at)).await;
            let policy = request.policy_or(&self.shared.policy);
            let call = self.shared.store.load(request.identity());
            // Not knowing is no reason to stop waiting.
            if let Ok(loaded) = calls::until(now() + policy.statement_deadline(), "load", call).await
                && !loaded.record.is_some_and(|record| record.is_live(loaded.clock))
            {
                return true;
            }
        }
        false
    }

    /// Lets a call in, unless the engine drains or has enough to do.
    fn admit(&self) -> Result<Admission, Error> {
        // Counted first: a drain that begins after the look waits for it.
        let tracked = self.shared.tracker.token();
        if self.shared.draining.is_cancelled() {
            return Err(Error::new(ErrorKind::Draining, "claim", WriteOutcome::NotApplied));
        }
        let permit = Arc::clone(&self.shared.permits)
            .try_acquire_owned()
            .map_err(|_| Error::new(ErrorKind::Overloaded, "claim", WriteOutcome::NotApplied))?;
        Ok(Admission { _tracked: tracked, _permit: permit })
    }

    fn take_sweeper(&self) -> Option<Sweeper> {
        // Nothing panics while it is held.
        self.sweeper.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A call that was let in: a drain waits for it, and it counts among those in flight.
struct Admission {
    _tracked: TaskTrackerToken,
    _permit: OwnedSemaphorePermit,
}

/// The outcome of a claim that was not granted.
fn refused<R: Answer, E>(claimed: Claimed) -> Result<Outcome<R, E>, Error> {
    Ok(match claimed {
        Claimed::Replay(response) => Outcome::Replayed(R::from_response(response)?),
        Claimed::InProgress { since, retry_after } => Outcome::InProgress { since, retry_after },
        Claimed::Mismatch { part } => Outcome::Mismatch { part },
        Claimed::Abandoned { reason } => Outcome::Abandoned { reason },
        Claimed::Acquired(_) => return Err(Error::new(ErrorKind::Internal, "claim", WriteOutcome::Unknown)),
    })
}

fn lease(grant: Grant) -> Result<Lease, Error> {
    grant.take().map(Lease::new).ok_or_else(|| Error::new(ErrorKind::Internal, "claim", WriteOutcome::Unknown))
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("shared", &self.shared).finish_non_exhaustive()
    }
}
