//! What a handler gets: [`Operation`].

use super::outcome::Interrupted;
use super::steps::Steps;
use super::tenure::Tenure;
use super::work;
use crate::machine::{Completion, Previous};
use crate::record::{FencingToken, Owner, RecoveryPoint};
use crate::response::Response;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// A handler's view of the operation that it runs: what happened before, and what it may tell the store on its way.
///
/// Cheap to clone. A clone that outlives its handler can do nothing any more: every call answers [`Interrupted`].
///
/// # Examples
///
/// ```
/// use idem_core::{Failure, Operation, Response};
/// use idem_core::machine::Previous;
///
/// async fn charge(operation: Operation) -> Result<Response, Failure<String>> {
///     if let Previous::Unknown { effect_begun: true } = operation.previous() {
///         // Somebody may have charged the card: the provider recognises the derived key below.
///     }
///     operation.begin_effect("charge").await?;
///     let provider_key = operation.derived_key("charge");
///     // ... send the charge with `provider_key` ...
///     # let _ = provider_key;
///     operation.checkpoint("charged", "ch_1").await?;
///     Ok(Response::new(201, r#"{"id":"ch_1"}"#))
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Operation {
    tenure: Arc<Tenure>,
}

impl Operation {
    pub(super) fn new(tenure: Arc<Tenure>) -> Self {
        Self { tenure }
    }

    pub(super) fn tenure(&self) -> &Tenure {
        &self.tenure
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

    /// Whether an external call may have begun, in this attempt or in one before it: from here on only a
    /// [verified](crate::Failure::VerifiedNoEffect) failure frees the key.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop and to call again. It waits for a write of this operation's that is under way.
    pub async fn effect_may_have_begun(&self) -> bool {
        self.tenure.effect_may_have_begun().await
    }

    /// The last phase that an earlier attempt committed.
    #[must_use]
    pub fn recovery_point(&self) -> Option<&RecoveryPoint> {
        self.tenure.granted().recovery_point.as_ref()
    }

    /// The steps of this operation, with what earlier attempts committed of them.
    ///
    /// # Errors
    ///
    /// [`Interrupted::Store`] with [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if an earlier attempt committed a
    /// phase by [`checkpoint`](Operation::checkpoint) instead.
    pub fn steps(&self) -> Result<Steps, Interrupted> {
        Steps::resume(self.clone())
    }

    /// Who holds the key: stored in the row, and safe to log.
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.tenure.version().owner
    }

    /// The number to hand to a sink that can compare: it accepts a token that is not smaller than the last one.
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

    /// For how long the lease lasts without another renewal, by the owner's own clock. Zero once the handler was told
    /// to stop.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.tenure.remaining()
    }

    /// Waits until the handler is told to stop: its lease cannot be kept, or somebody else has the key. Shortly after,
    /// at the end of the lease, the handler is stopped at its next await point.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop and to call again.
    pub async fn lease_lost(&self) {
        self.tenure.told_over().await;
    }

    /// Marks, durably, that an external call follows. `name` is for events only.
    ///
    /// Call it before the first call to anything that cannot be rolled back. From here on a failure is
    /// [`NoEffect`](crate::Failure::NoEffect) only if it is verified, and a takeover is told that an effect had begun.
    ///
    /// # Errors
    ///
    /// [`Interrupted`]: do not make the call; `?` settles the rest.
    ///
    /// # Cancel safety
    ///
    /// Dropped half-way, the mark may or may not be stored; it counts as set either way.
    pub async fn begin_effect(&self, name: &str) -> Result<(), Interrupted> {
        work::begin_effect(&self.tenure, name).await
    }

    /// The completion with `response`, for the caller's own transaction to write; see [`Completion`].
    ///
    /// From here on the lease is not renewed any more, and nothing but that transaction completes the operation: a
    /// handler that returns an answer although it was rolled back is [stopped](crate::StopReason::NotCommitted) instead.
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

    /// Commits a phase: the next attempt gets `name` and `data` as its recovery point.
    ///
    /// `name` has 1 to 255 bytes without control characters, `data` at most the engine's limit (64 KiB).
    ///
    /// # Errors
    ///
    /// [`Interrupted`]: stop; `?` settles the rest. Nothing was sent if the store error in it is
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest).
    ///
    /// # Cancel safety
    ///
    /// Dropped half-way, the phase may or may not be committed.
    pub async fn checkpoint(&self, name: &str, data: impl Into<Bytes>) -> Result<(), Interrupted> {
        work::checkpoint(&self.tenure, name, data.into()).await
    }
}
