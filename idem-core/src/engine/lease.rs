//! A key in the caller's hands: [`Lease`].

use super::detached::detached;
use super::outcome::Interrupted;
use super::tenure::{Settled, Tenure};
use super::work;
use crate::error::{Error, ErrorKind, WriteOutcome};
use crate::machine::{Completion, Previous};
use crate::record::{FencingToken, RecoveryPoint};
use crate::response::Response;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// The right to run one operation, for a while: the step-by-step way to use the engine.
///
/// Made by [`Engine::begin`](crate::Engine::begin), finished by value with [`complete`](Lease::complete),
/// [`fail`](Lease::fail) or [`abandon`](Lease::abandon). It is not renewed by itself: call [`renew`](Lease::renew)
/// before [`remaining`](Lease::remaining) is zero, and stop when it is. A lease that is dropped unfinished is reported
/// and abandoned from a spawned task, as far as that is possible; if it is not, it goes stale by itself.
///
/// # Examples
///
/// ```
/// # use idem_core::conformance::ReferenceStore;
/// use idem_core::{Begun, Engine, Fingerprint, Key, Request, Response, Scope, Takeover};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store = ReferenceStore::default();
/// let engine = Engine::builder(store).build()?;
/// let fingerprint = Fingerprint::builder("POST /charges").json(br#"{"amount":1000}"#).finish()?;
/// let request = Request::new(Scope::new("acct_1")?, Key::new("k")?, fingerprint, Takeover::Resume);
///
/// if let Begun::Acquired(lease) = engine.begin(request).await? {
///     lease.begin_effect("charge").await?;
///     // ... call the provider with lease.derived_key("charge") ...
///     lease.complete(Response::new(201, r#"{"id":"ch_1"}"#)).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a lease that is dropped is abandoned: finish it with `complete`, `fail` or `abandon`"]
pub struct Lease {
    tenure: Arc<Tenure>,
    /// Whether a caller holds it, so that a drain has to know of it.
    by_hand: bool,
    finished: bool,
}

/// How a settlement of a [`Lease`] ended, when that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Settlement {
    /// It is stored.
    Recorded,
    /// The lease was over and somebody took the key: this settlement changed nothing, and never will.
    Fenced {
        /// The new owner's answer, if there is one yet.
        response: Option<Response>,
    },
}

impl Lease {
    /// For a handler that the engine runs.
    pub(super) fn new(tenure: Arc<Tenure>) -> Self {
        Self { tenure, by_hand: false, finished: false }
    }

    /// The same for a caller that takes the steps by hand.
    pub(super) fn by_hand(mut self) -> Self {
        self.tenure.shared().remember(&self.tenure);
        self.by_hand = true;
        self
    }

    pub(super) fn tenure(&self) -> &Arc<Tenure> {
        &self.tenure
    }

    /// Takes the duty to settle off this lease.
    pub(super) fn finish(mut self) -> Arc<Tenure> {
        self.finished = true;
        Arc::clone(&self.tenure)
    }

    /// Which attempt this is, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.tenure.granted().attempt
    }

    /// What is known of the attempts before this one.
    #[must_use]
    pub fn previous(&self) -> Previous {
        self.tenure.granted().previous()
    }

    /// The last phase that an earlier attempt committed.
    #[must_use]
    pub fn recovery_point(&self) -> Option<&RecoveryPoint> {
        self.tenure.granted().recovery_point.as_ref()
    }

    /// The number to hand to a sink that can compare.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.tenure.version().fencing_token()
    }

    /// The key to send to a provider for the external call named `label`; see
    /// [`Identity::derived_key`](crate::Identity::derived_key).
    #[must_use]
    pub fn derived_key(&self, label: &str) -> String {
        self.tenure.identity().derived_key(label)
    }

    /// For how long the lease lasts, by the owner's own clock. At zero, stop.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.tenure.remaining()
    }

    /// Marks, durably, that an external call follows. `name` is for events only.
    ///
    /// Extends the lease too. From here on a failure is `NoEffect` only if it is verified.
    ///
    /// # Errors
    ///
    /// [`Interrupted`]: do not make the call.
    ///
    /// # Cancel safety
    ///
    /// Dropped half-way, the mark may or may not be stored; it counts as set either way.
    pub async fn begin_effect(&self, name: &str) -> Result<(), Interrupted> {
        work::begin_effect(&self.tenure, name).await
    }

    /// Commits a phase: the next attempt gets `name` and `data` as its recovery point.
    ///
    /// Extends the lease too. `name` has 1 to 255 bytes without control characters, `data` at most the engine's limit
    /// (64 KiB).
    ///
    /// # Errors
    ///
    /// [`Interrupted`]: stop. [`ErrorKind::InvalidRequest`] if name or data are out of bounds; then nothing was sent.
    ///
    /// # Cancel safety
    ///
    /// Dropped half-way, the phase may or may not be committed.
    pub async fn checkpoint(&self, name: &str, data: impl Into<Bytes>) -> Result<(), Interrupted> {
        work::checkpoint(&self.tenure, name, data.into()).await
    }

    /// Extends the lease to a full length from now, up to the policy's `max_run` in all.
    ///
    /// # Errors
    ///
    /// [`Interrupted`]: stop.
    ///
    /// # Cancel safety
    ///
    /// Dropped half-way, the lease may or may not be extended; [`remaining`](Lease::remaining) counts the shorter one.
    pub async fn renew(&self) -> Result<(), Interrupted> {
        self.tenure.renew().await.map(drop)
    }

    /// The completion with `response`, for the caller's own transaction to write; see [`Completion`].
    ///
    /// From here on the lease is not renewed any more, and nothing but that transaction completes the operation: [`complete`](Lease::complete)
    /// looks whether it did.
    /// Ask again for a transaction that is tried again.
    ///
    /// # Errors
    ///
    /// [`Interrupted::LeaseLost`]: roll back.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop and to call again. It waits for a write of this operation's that is under way.
    pub async fn completion(&self, response: &Response) -> Result<Completion, Interrupted> {
        self.tenure.completion(response).await
    }

    /// Stores the answer: every repeat gets it, verbatim. One over the engine's limit (1 MiB) leaves a tombstone.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidRequest`] if a transaction was to store it, by a [`Completion`], and did not; the lease is
    /// abandoned. [`WriteOutcome::Unknown`]: the answer is true and may be given to the caller, but may not be stored. Do not run the operation
    /// again.
    ///
    /// # Cancel safety
    ///
    /// Dropped half-way, the settlement goes on in a task of its own.
    pub async fn complete(self, response: Response) -> Result<Settlement, Error> {
        self.settle("complete", |tenure| async move { Ok(tenure.complete(&response).await) }).await
    }

    /// Stores that nothing happened, so that a retry may run.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidRequest`] after [`begin_effect`](Lease::begin_effect) or a takeover, with
    /// [`NoEffectRefused`](crate::machine::NoEffectRefused) as its source: then the lease is abandoned instead. Else as
    /// [`complete`](Lease::complete).
    ///
    /// # Cancel safety
    ///
    /// As [`complete`](Lease::complete).
    pub async fn fail(self) -> Result<Settlement, Error> {
        self.fail_as(false).await
    }

    /// Stores that nothing happened, after the caller looked the effect up at its sink.
    ///
    /// # Errors
    ///
    /// As [`complete`](Lease::complete).
    ///
    /// # Cancel safety
    ///
    /// As [`complete`](Lease::complete).
    pub async fn fail_verified(self) -> Result<Settlement, Error> {
        self.fail_as(true).await
    }

    /// Gives the key up with an unknown outcome: a retry takes over at once, as its policy says.
    ///
    /// # Errors
    ///
    /// As [`complete`](Lease::complete).
    ///
    /// # Cancel safety
    ///
    /// As [`complete`](Lease::complete).
    pub async fn abandon(self) -> Result<Settlement, Error> {
        self.settle("abandon", |tenure| async move { Ok(tenure.abandon().await) }).await
    }

    async fn fail_as(self, verified: bool) -> Result<Settlement, Error> {
        let fail = |tenure: Arc<Tenure>| async move {
            match tenure.fail(verified).await {
                Ok(settled) => Ok(settled),
                Err(refused) => {
                    tenure.abandon().await;
                    Err(Error::new(ErrorKind::InvalidRequest, "fail", WriteOutcome::NotApplied).with_source(refused))
                }
            }
        };
        self.settle("fail", fail).await
    }

    async fn settle<F>(
        self,
        operation: &'static str,
        settle: impl FnOnce(Arc<Tenure>) -> F,
    ) -> Result<Settlement, Error>
    where
        F: Future<Output = Result<Settled, Error>> + Send + 'static,
    {
        let tenure = self.finish();
        let task = Box::pin(settle(Arc::clone(&tenure)));
        let settled = detached(&tenure.shared().tracker, operation, task).await?;
        match settled {
            Settled::Recorded => Ok(Settlement::Recorded),
            Settled::Fenced(found) => Ok(Settlement::Fenced { response: tenure.their_answer(found) }),
            Settled::NotCommitted => Err(not_committed()),
            Settled::Unknown(error) => Err(error.with_write_outcome(WriteOutcome::Unknown)),
        }
    }
}

fn not_committed() -> Error {
    Error::new(ErrorKind::InvalidRequest, "complete", WriteOutcome::NotApplied)
        .with_source("the transaction that was to store the completion was not committed: nothing of it happened")
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.by_hand {
            self.tenure.shared().forget(&self.tenure);
        }
        if self.finished {
            return;
        }
        work::report_dropped(&self.tenure);
        let tenure = Arc::clone(&self.tenure);
        self.tenure.shared().spawn_if_possible(async move { drop(tenure.abandon().await) });
    }
}
