//! One attempt to own a key: [`Claim`].

use crate::fingerprint::{Candidates, Fingerprint};
use crate::key::Identity;
use crate::policy::{Policy, Takeover};
use crate::record::{Owner, Record, State, Version};
use crate::time::{LeaseLength, Timestamp};
use std::fmt;
use std::time::Duration;

/// What a claimer sends to a store: identity, fingerprint, a fresh owner, and how long things shall last.
///
/// The engine makes one per claim call. Back-end authors and tests make them by hand; here a lease and a retention of
/// zero are allowed, which is how tests move time without waiting. Not `Clone`: a claim's owner is never used twice.
///
/// # Examples
///
/// ```
/// use idem_core::{Claim, Fingerprint, Identity, Key, LeaseLength, Scope, Takeover};
///
/// let identity = Identity::new(Scope::new("acct_1")?, Key::new("k")?);
/// let fingerprint = Fingerprint::builder("POST /charges").json(br#"{"amount":100}"#).finish()?;
/// let claim = Claim::new(identity, fingerprint, Takeover::OnlyBeforeEffect)
///     .with_lease(LeaseLength::ZERO);
/// assert_eq!(claim.lease(), LeaseLength::ZERO);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a claim does nothing until a store is asked"]
pub struct Claim {
    identity: Identity,
    candidates: Candidates,
    owner: Owner,
    takeover: Takeover,
    lease: LeaseLength,
    retention: Duration,
    provider_window: Duration,
    max_attempts: u32,
    asked_before: bool,
}

impl Claim {
    /// A claim with the durations of [`Policy::default`] and an owner of its own.
    pub fn new(identity: Identity, fingerprint: impl Into<Candidates>, takeover: Takeover) -> Self {
        Self::under(&Policy::default(), identity, fingerprint, takeover)
    }

    /// A claim with the durations of `policy` and an owner of its own.
    pub fn under(policy: &Policy, identity: Identity, fingerprint: impl Into<Candidates>, takeover: Takeover) -> Self {
        Self {
            identity,
            candidates: fingerprint.into(),
            owner: Owner::mint(),
            takeover,
            lease: LeaseLength::from_duration(policy.lease()),
            retention: policy.retention(),
            provider_window: policy.provider_window(),
            max_attempts: policy.max_attempts(),
            asked_before: false,
        }
    }

    /// A claim with a chosen owner, so that a model's states repeat.
    #[cfg(test)]
    pub(crate) fn with_owner(mut self, owner: Owner) -> Self {
        self.owner = owner;
        self
    }

    /// Asks for another lease. Defaults to the policy's; zero is stale at once.
    pub fn with_lease(mut self, lease: LeaseLength) -> Self {
        self.lease = lease;
        self
    }

    /// Asks for another retention. Defaults to the policy's; zero expires as soon as it is settled.
    pub fn with_retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// Sets how long after the first claim a takeover may run. Defaults to the policy's.
    pub fn with_provider_window(mut self, provider_window: Duration) -> Self {
        self.provider_window = provider_window;
        self
    }

    /// Sets how many attempts may end with an unknown outcome. Defaults to the policy's.
    pub fn with_max_attempts(mut self, max_attempts: u32) -> Self {
        self.max_attempts = max_attempts;
        self
    }

    /// Which key, in which scope.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Every fingerprint of the request that is still accepted.
    #[must_use]
    pub fn candidates(&self) -> &Candidates {
        &self.candidates
    }

    /// The fingerprint to store.
    #[must_use]
    pub fn fingerprint(&self) -> &Fingerprint {
        self.candidates.current()
    }

    /// The owner that was made for this claim.
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// Who may take over.
    #[must_use]
    pub fn takeover(&self) -> Takeover {
        self.takeover
    }

    /// The lease that is asked for.
    #[must_use]
    pub fn lease(&self) -> LeaseLength {
        self.lease
    }

    /// How long the record is kept, from the claim.
    #[must_use]
    pub fn retention(&self) -> Duration {
        self.retention
    }

    /// How long after the first claim a takeover may run.
    #[must_use]
    pub fn provider_window(&self) -> Duration {
        self.provider_window
    }

    /// How many attempts may end with an unknown outcome.
    #[must_use]
    pub fn max_attempts(&self) -> u32 {
        self.max_attempts
    }

    /// Whether a store was asked with this claim before.
    ///
    /// A cache in front of a store answers only the first ask: a claimer whose reply was lost would find its own row
    /// busy.
    #[must_use]
    pub fn was_asked_before(&self) -> bool {
        self.asked_before
    }

    /// Notes that a store is being asked with this claim; every later ask is a repetition.
    pub fn mark_asked(&mut self) {
        self.asked_before = true;
    }

    /// The same claim with the same owner, for a fault store whose writes land late. Deliberately not `Clone`.
    #[cfg(feature = "conformance")]
    pub(crate) fn same_again(&self) -> Self {
        Self { identity: self.identity.clone(), candidates: self.candidates.clone(), ..*self }
    }

    /// The record that an insert makes at `clock`, the store's time.
    ///
    /// The reference for every back end: `locked_at` and `created_at` are `clock`, expiry is `clock + retention`.
    #[must_use]
    pub fn first_record(&self, clock: Timestamp) -> Record {
        Record {
            fingerprint: self.fingerprint().clone(),
            state: State::InProgress,
            attempt: 1,
            version: Version { locked_at: clock, owner: self.owner },
            lease: self.lease,
            effect_begun: false,
            unresolved: 0,
            recovery_point: None,
            created_at: clock,
            expires_at: clock.saturating_add(self.retention),
        }
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("identity", &self.identity)
            .field("owner", &self.owner)
            .field("takeover", &self.takeover)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}
