//! The closed list of compare-and-swaps: what each compares, and what it sets.

use super::table::{Event, Transition, next_status};
use crate::fingerprint::Fingerprint;
use crate::record::{Record, RecoveryPoint, State, Status, Version};
use crate::response::Response;
use crate::time::{LeaseLength, Timestamp};

/// One legal change of a record that is there.
///
/// A store compares and sets, and computes nothing: every value is in the change. There are three kinds of comparison,
/// and each also compares the *status*, since settling does not move the version:
///
/// | kind | changes | compares |
/// |---|---|---|
/// | ownership | [`Retry`](Self::Retry), [`Takeover`](Self::Takeover), [`AsNew`](Self::AsNew), [`Relock`](Self::Relock) | status as read, `locked_at`, `owner`, and the lease as read: if the owner renewed in between, the rival loses |
/// | progress | [`Renew`](Self::Renew), [`BeginEffect`](Self::BeginEffect), [`Checkpoint`](Self::Checkpoint) | in progress, `locked_at`, `owner`, and `0 < lease < proposed`: a delayed older write is refused, and nothing revives an abandoned lease |
/// | settling | [`Complete`](Self::Complete), [`Fail`](Self::Fail), [`Abandon`](Self::Abandon) | in progress, `locked_at`, `owner`: valid after the lease is over, until someone else has the row |
///
/// The version to compare with is an argument of [`Store::swap`](crate::Store::swap) and of [`Change::apply`], which is
/// the reference meaning of every change: a back end in the process calls it, a SQL back end has one statement per
/// change that does the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Change {
    /// Failed becomes in progress, attempt + 1; fingerprint, marks and recovery point stay.
    Retry {
        /// The lease as it was read.
        read_lease: LeaseLength,
        /// The new ownership.
        next: NextOwnership,
    },
    /// In progress (stale) or failed with an unknown past becomes in progress under a new owner, attempt + 1; the
    /// recovery point stays.
    Takeover {
        /// The status as it was read: in progress or failed.
        from: Status,
        /// The lease as it was read.
        read_lease: LeaseLength,
        /// The new ownership.
        next: NextOwnership,
        /// The new count of attempts with an unknown outcome; at least 1.
        unresolved: u32,
    },
    /// An expired settled record starts a new life: new fingerprint, `created_at = next.version.locked_at`, marks,
    /// response and recovery point cleared.
    AsNew {
        /// The status as it was read: completed or failed.
        from: Status,
        /// The lease as it was read.
        read_lease: LeaseLength,
        /// The new ownership; its attempt is 1.
        next: NextOwnership,
        /// The fingerprint of the new life.
        fingerprint: Fingerprint,
    },
    /// The claimer's own stale record, locked again by the same owner for the same attempt.
    Relock {
        /// The lease as it was read.
        read_lease: LeaseLength,
        /// The new ownership; owner and attempt as before.
        next: NextOwnership,
    },
    /// Sets the lease.
    Renew {
        /// The proposed lease.
        lease: LeaseLength,
    },
    /// Sets the lease and `effect_begun`.
    BeginEffect {
        /// The proposed lease.
        lease: LeaseLength,
    },
    /// Sets the lease and the recovery point.
    Checkpoint {
        /// The proposed lease.
        lease: LeaseLength,
        /// The phase that is committed with it.
        recovery_point: RecoveryPoint,
    },
    /// In progress becomes completed; nothing but status, response and expiry changes.
    Complete {
        /// The answer that every replay gets.
        response: Response,
        /// The new expiry; never before the old one.
        expires_at: Timestamp,
    },
    /// In progress becomes failed.
    Fail {
        /// Whether `effect_begun` and `unresolved` are cleared: the owner verified that nothing happened.
        clear_marks: bool,
        /// The new expiry; never before the old one.
        expires_at: Timestamp,
    },
    /// The lease becomes zero, so that the record is stale at once; still in progress.
    Abandon,
}

/// What an ownership change sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NextOwnership {
    /// The new version; `locked_at` is larger than the old one.
    pub version: Version,
    /// The new lease.
    pub lease: LeaseLength,
    /// The new attempt.
    pub attempt: u32,
    /// The new expiry.
    pub expires_at: Timestamp,
}

impl Change {
    /// The row of the transition table that this change belongs to.
    #[must_use]
    pub const fn event(&self) -> Event {
        match self {
            Self::Retry { .. } => Event::Retry,
            Self::Takeover { .. } => Event::Takeover,
            Self::AsNew { .. } => Event::AsNew,
            Self::Relock { .. } => Event::Relock,
            Self::Renew { .. } => Event::Renew,
            Self::BeginEffect { .. } => Event::BeginEffect,
            Self::Checkpoint { .. } => Event::Checkpoint,
            Self::Complete { .. } => Event::Complete,
            Self::Fail { .. } => Event::Fail,
            Self::Abandon => Event::Abandon,
        }
    }

    /// The status that the record must have for this change to apply.
    #[must_use]
    pub const fn required_status(&self) -> Status {
        match self {
            Self::Retry { .. } => Status::Failed,
            Self::Takeover { from, .. } | Self::AsNew { from, .. } => *from,
            Self::Relock { .. }
            | Self::Renew { .. }
            | Self::BeginEffect { .. }
            | Self::Checkpoint { .. }
            | Self::Complete { .. }
            | Self::Fail { .. }
            | Self::Abandon => Status::InProgress,
        }
    }

    /// The record as it is after this change, or `None` if a comparison failed and nothing changes.
    ///
    /// # Examples
    ///
    /// ```
    /// use idem_core::{Claim, Fingerprint, Identity, Key, LeaseLength, Scope, Takeover, Timestamp};
    /// use idem_core::machine::Change;
    ///
    /// let identity = Identity::new(Scope::new("acct_1")?, Key::new("k")?);
    /// let fingerprint = Fingerprint::builder("POST /charges").bytes(b"100").finish()?;
    /// let claim = Claim::new(identity, fingerprint, Takeover::Resume)
    ///     .with_lease(LeaseLength::from_millis(90_000));
    /// let record = claim.first_record(Timestamp::from_micros(1));
    ///
    /// let renew = Change::Renew { lease: LeaseLength::from_millis(120_000) };
    /// let renewed = renew.apply(&record, &record.version).unwrap();
    /// assert_eq!(renewed.lease.as_millis(), 120_000);
    /// // A delayed copy of the same write is refused: leases only grow.
    /// assert_eq!(renew.apply(&renewed, &renewed.version), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn apply(&self, record: &Record, expected: &Version) -> Option<Record> {
        let status = record.status();
        if record.version != *expected || status != self.required_status() {
            return None;
        }
        let Transition::To(_) = next_status(Some(status), self.event()) else { return None };

        let mut after = record.clone();
        match self {
            Self::Retry { read_lease, next } | Self::Relock { read_lease, next } => {
                own(&mut after, *read_lease, next)?;
            }
            Self::Takeover { from: _, read_lease, next, unresolved } => {
                own(&mut after, *read_lease, next)?;
                after.unresolved = *unresolved;
            }
            Self::AsNew { from: _, read_lease, next, fingerprint } => {
                own(&mut after, *read_lease, next)?;
                after.fingerprint = fingerprint.clone();
                after.created_at = next.version.locked_at;
                after.recovery_point = None;
                after.effect_begun = false;
                after.unresolved = 0;
            }
            Self::Renew { lease } => progress(&mut after, *lease)?,
            Self::BeginEffect { lease } => {
                progress(&mut after, *lease)?;
                after.effect_begun = true;
            }
            Self::Checkpoint { lease, recovery_point } => {
                progress(&mut after, *lease)?;
                after.recovery_point = Some(recovery_point.clone());
            }
            Self::Complete { response, expires_at } => {
                after.state = State::Completed(response.clone());
                after.expires_at = *expires_at;
            }
            Self::Fail { clear_marks, expires_at } => {
                after.state = State::Failed;
                after.expires_at = *expires_at;
                if *clear_marks {
                    after.effect_begun = false;
                    after.unresolved = 0;
                }
            }
            Self::Abandon => after.lease = LeaseLength::ZERO,
        }
        Some(after)
    }
}

fn own(record: &mut Record, read_lease: LeaseLength, next: &NextOwnership) -> Option<()> {
    if record.lease != read_lease {
        return None;
    }
    record.state = State::InProgress;
    record.version = next.version;
    record.lease = next.lease;
    record.attempt = next.attempt;
    record.expires_at = next.expires_at;
    Some(())
}

fn progress(record: &mut Record, proposed: LeaseLength) -> Option<()> {
    if record.lease == LeaseLength::ZERO || record.lease >= proposed {
        return None;
    }
    record.lease = proposed;
    Some(())
}
