//! What a claim that meets a row does: [`decide`].

use super::change::{Change, NextOwnership};
use crate::claim::Claim;
use crate::fingerprint::{Comparison, Part};
use crate::policy::Takeover;
use crate::record::{Record, State, Status, Version};
use crate::response::Response;
use crate::time::Timestamp;
use std::time::Duration;

/// What a claim does about the row that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The row is the claimer's own and its lock is live: it holds the key already, and an earlier reply was lost.
    Acquired,
    /// Swap; if it applies, the claimer holds the key, and if it loses, it decides again from the row that won.
    Swap {
        /// The version that was read.
        expected: Version,
        /// What to change.
        change: Change,
    },
    /// Another request under the same key. It is not executed and never sees the stored response.
    Mismatch {
        /// The first part that differs, if the short digests can tell.
        part: Option<Part>,
    },
    /// The row's fingerprint scheme or hash key is unknown to this build: an error, never a mismatch.
    UnknownFingerprint,
    /// The operation is done, and this is its answer.
    Replay(Response),
    /// Somebody is working on it.
    InProgress {
        /// Since when, by the store's clock.
        since: Timestamp,
        /// When to ask again.
        retry_after: Duration,
    },
    /// Nobody is working on it, its outcome is unknown, and no policy allows running it again.
    Abandoned {
        /// Why not.
        reason: AbandonReason,
    },
}

/// Why a record with an unknown past is not run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum AbandonReason {
    /// The request's policy is [`Takeover::Never`].
    #[error("the takeover policy is to never run again")]
    NeverTakeOver,
    /// The request's policy is [`Takeover::OnlyBeforeEffect`] and an effect has begun.
    #[error("an effect may have happened")]
    EffectBegun,
    /// The provider may have forgotten its keys: `clock - created_at` is beyond the
    /// [provider window](crate::Policy::provider_window).
    #[error("the provider window is over")]
    ProviderWindowOver,
    /// So many attempts ended with an unknown outcome that the request itself is suspect.
    #[error("too many attempts ended with an unknown outcome")]
    TooManyAttempts,
}

/// What an owner is told about the attempts before its own. It comes from the row, not from the path on which the claim
/// was won.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Previous {
    /// This is the first attempt of this life.
    None,
    /// Every earlier attempt said that nothing happened.
    NoEffect,
    /// Somebody may have done something.
    Unknown {
        /// Whether one of them marked that an external call follows.
        effect_begun: bool,
    },
}

impl Record {
    /// What the owner of this record is told about the attempts before its own.
    #[must_use]
    pub fn previous(&self) -> Previous {
        if self.has_unknown_past() {
            Previous::Unknown { effect_begun: self.effect_begun }
        } else if self.attempt > 1 {
            Previous::NoEffect
        } else {
            Previous::None
        }
    }
}

/// What `claim` does about `record`, at `clock`, the store's time that came with it.
///
/// The rules in order:
///
/// | # | the row that is there | decision |
/// |---|---|---|
/// | 1 | in progress, the claimer's own, same fingerprint | lock live: `Acquired`; over: `Swap` to relock it |
/// | 2 | completed, or failed with nothing unknown, and expired | `Swap` to a new life |
/// | 3 | fingerprint differs | `Mismatch`, in every status; unknown scheme: `UnknownFingerprint` |
/// | 4 | completed | `Replay` |
/// | 5 | failed | nothing unknown: `Swap` to retry; else as 7 |
/// | 6 | in progress, live | `InProgress` |
/// | 7 | in progress, stale | by takeover policy: `Swap`, or `Abandoned` |
///
/// # Examples
///
/// ```
/// use idem_core::machine::{Decision, decide};
/// use idem_core::{Claim, Fingerprint, Identity, Key, LeaseLength, Scope, Takeover, Timestamp};
///
/// let identity = Identity::new(Scope::new("acct_1")?, Key::new("k")?);
/// let fingerprint = Fingerprint::builder("POST /charges").bytes(b"100").finish()?;
/// let first = Claim::new(identity.clone(), fingerprint.clone(), Takeover::Resume)
///     .with_lease(LeaseLength::from_millis(1_000));
/// let record = first.first_record(Timestamp::from_micros(0));
///
/// let second = Claim::new(identity, fingerprint, Takeover::Never);
/// let within = decide(&record, &second, Timestamp::from_micros(999_999));
/// assert!(matches!(within, Decision::InProgress { .. }));
/// let after = decide(&record, &second, Timestamp::from_micros(1_000_000));
/// assert!(matches!(after, Decision::Abandoned { .. }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn decide(record: &Record, claim: &Claim, clock: Timestamp) -> Decision {
    let comparison = claim.candidates().compare(&record.fingerprint);
    let mine = record.status() == Status::InProgress
        && record.version.owner == claim.owner()
        && matches!(comparison, Comparison::Equal);

    if mine && record.is_live(clock) {
        return Decision::Acquired;
    }
    if mine {
        let next =
            NextOwnership { attempt: record.attempt, expires_at: record.expires_at, ..next(record, claim, clock) };
        return swap(record, Change::Relock { read_lease: record.lease, next });
    }
    if record.is_expired(clock) {
        let next = NextOwnership {
            attempt: 1,
            expires_at: clock.saturating_add(claim.retention()),
            ..next(record, claim, clock)
        };
        let fingerprint = claim.candidates().current().clone();
        return swap(record, Change::AsNew { from: record.status(), read_lease: record.lease, next, fingerprint });
    }
    match comparison {
        Comparison::Equal => {}
        Comparison::Differs { part } => return Decision::Mismatch { part },
        Comparison::UnknownScheme => return Decision::UnknownFingerprint,
    }
    match &record.state {
        State::Completed(response) => Decision::Replay(response.clone()),
        State::Failed if record.has_unknown_past() => take_over(record, claim, clock),
        State::Failed => swap(record, Change::Retry { read_lease: record.lease, next: next(record, claim, clock) }),
        State::InProgress if record.is_live(clock) => in_progress(record, clock),
        State::InProgress => take_over(record, claim, clock),
    }
}

/// `InProgress` for a record that is being worked on, or that was lost to rivals too often.
///
/// `retry_after` is the age of the lock, at least 1 s, at most 10 s and at most what is left of the lease.
#[must_use]
pub fn in_progress(record: &Record, clock: Timestamp) -> Decision {
    const LEAST: Duration = Duration::from_secs(1);
    const MOST: Duration = Duration::from_secs(10);
    let since = record.version.locked_at;
    let left = record.lease_until().saturating_duration_since(clock);
    let retry_after = clock.saturating_duration_since(since).min(MOST).min(left).max(LEAST);
    Decision::InProgress { since, retry_after }
}

fn take_over(record: &Record, claim: &Claim, clock: Timestamp) -> Decision {
    // A stale owner's own attempt is one more whose outcome nobody knows; a failed one said what it knows of itself.
    let unresolved = match record.status() {
        Status::InProgress => record.unresolved.saturating_add(1),
        Status::Completed | Status::Failed => record.unresolved.max(1),
    };
    let refused = if claim.takeover() == Takeover::Never {
        Some(AbandonReason::NeverTakeOver)
    } else if claim.takeover() == Takeover::OnlyBeforeEffect && record.effect_begun {
        Some(AbandonReason::EffectBegun)
    } else if clock.saturating_duration_since(record.created_at) > claim.provider_window() {
        Some(AbandonReason::ProviderWindowOver)
    } else if unresolved >= claim.max_attempts() {
        Some(AbandonReason::TooManyAttempts)
    } else {
        None
    };
    match refused {
        Some(reason) => Decision::Abandoned { reason },
        None => {
            let next = next(record, claim, clock);
            swap(record, Change::Takeover { from: record.status(), read_lease: record.lease, next, unresolved })
        }
    }
}

/// How a reconciler takes over a [stuck](Record::is_stuck) record: the version to expect, and the change. `None` if the
/// record is not stuck.
///
/// The same change as a takeover that every policy allows, by the owner and the durations of `claim`. It counts no attempt
/// with an unknown outcome: it runs nothing, and if it finds out nothing and is over, the ownership that is left behind
/// stands for the one that it took over. So looking again and again uses up none of a request's
/// [attempts](crate::Policy::max_attempts).
#[must_use]
pub fn reconcile(record: &Record, claim: &Claim, clock: Timestamp) -> Option<(Version, Change)> {
    if !record.is_stuck(clock) {
        return None;
    }
    let next = next(record, claim, clock);
    let unresolved = record.unresolved.max(1);
    let change = Change::Takeover { from: record.status(), read_lease: record.lease, next, unresolved };
    Some((record.version, change))
}

/// The next ownership: `locked_at` grows even if the clock stands still or stepped back.
fn next(record: &Record, claim: &Claim, clock: Timestamp) -> NextOwnership {
    let after_old = record.version.locked_at.saturating_add(Duration::from_micros(1));
    NextOwnership {
        version: Version { locked_at: clock.max(after_old), owner: claim.owner() },
        lease: claim.lease(),
        attempt: record.attempt.saturating_add(1),
        expires_at: record.expires_at.max(clock.saturating_add(claim.retention())),
    }
}

fn swap(record: &Record, change: Change) -> Decision {
    Decision::Swap { expected: record.version, change }
}
