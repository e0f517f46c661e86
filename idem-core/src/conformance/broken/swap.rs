//! Mistakes in what a swap compares and sets.

use super::Fault;
use crate::fingerprint::Fingerprint;
use crate::machine::{Change, Event};
use crate::record::{Record, RecoveryPoint, State, Status, Version};
use crate::response::Response;
use crate::time::{LeaseLength, Timestamp};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ownership,
    Progress,
    Settling,
}

fn kind(change: &Change) -> Kind {
    match change {
        Change::Retry { .. } | Change::Takeover { .. } | Change::AsNew { .. } | Change::Relock { .. } => {
            Kind::Ownership
        }
        Change::Renew { .. } | Change::BeginEffect { .. } | Change::Checkpoint { .. } => Kind::Progress,
        Change::Complete { .. } | Change::Fail { .. } | Change::Abandon => Kind::Settling,
    }
}

/// What a fault forgets to compare.
#[derive(Default, Clone, Copy)]
struct Forgotten {
    locked_at: bool,
    owner: bool,
    status: bool,
    lease: bool,
}

impl Fault {
    /// [`Change::apply`] as a store with this fault understands it.
    pub(super) fn apply(
        self,
        record: &Record,
        expected: &Version,
        change: &Change,
        clock: Timestamp,
    ) -> Option<Record> {
        let refuses_the_late = match kind(change) {
            Kind::Progress => self == Self::ProgressAsksTheClock,
            Kind::Settling => self == Self::SettlingAsksTheClock,
            Kind::Ownership => false,
        };
        if refuses_the_late && record.is_stale(clock) {
            return None;
        }
        let (compared, expected, change) = self.compared(record, *expected, change.clone());
        let after = change.apply(&compared, &expected)?;
        Some(self.set(record, &change, after, clock))
    }

    fn forgets(self, change: &Change) -> Forgotten {
        let is = |event: Event| change.event() == event;
        let all = Forgotten { locked_at: true, owner: true, status: true, lease: true };
        let none = Forgotten::default();
        match (kind(change), self) {
            (Kind::Ownership, Self::TakeoverComparesNothing) if is(Event::Takeover) => all,
            (Kind::Ownership, Self::OwnershipIgnoresOwner) => Forgotten { owner: true, ..none },
            (Kind::Ownership, Self::OwnershipIgnoresLease) => Forgotten { lease: true, ..none },
            (Kind::Ownership, Self::OwnershipIgnoresStatus) => Forgotten { status: true, ..none },
            (Kind::Progress, Self::ProgressIgnoresLockedAt) => Forgotten { locked_at: true, ..none },
            (Kind::Progress, Self::ProgressIgnoresOwner) => Forgotten { owner: true, ..none },
            (Kind::Progress, Self::ProgressComparesNothing) => Forgotten { locked_at: true, owner: true, ..none },
            (Kind::Progress, Self::ProgressIgnoresStatus) => Forgotten { status: true, ..none },
            (Kind::Settling, Self::SettlingIgnoresLockedAt) => Forgotten { locked_at: true, ..none },
            (Kind::Settling, Self::SettlingIgnoresOwner) => Forgotten { owner: true, ..none },
            (Kind::Settling, Self::SettlingComparesNoVersion) => Forgotten { locked_at: true, owner: true, ..none },
            (Kind::Settling, Self::SettlingIgnoresStatus) => Forgotten { status: true, ..none },
            _ => none,
        }
    }

    /// Record, version and change, made equal in what this fault forgets to compare.
    fn compared(self, record: &Record, mut expected: Version, mut change: Change) -> (Record, Version, Change) {
        let forgotten = self.forgets(&change);
        let mut compared = record.clone();
        if forgotten.locked_at {
            expected.locked_at = record.version.locked_at;
        }
        if forgotten.owner {
            expected.owner = record.version.owner;
        }
        match &mut change {
            Change::Retry { read_lease, .. }
            | Change::Takeover { read_lease, .. }
            | Change::AsNew { read_lease, .. }
            | Change::Relock { read_lease, .. }
                if forgotten.lease =>
            {
                *read_lease = record.lease;
            }
            Change::Renew { lease }
                if self == Self::RenewalMayShrink && record.lease > LeaseLength::ZERO && *lease > LeaseLength::ZERO =>
            {
                compared.lease = compared.lease.min(LeaseLength::from_millis(lease.as_millis() - 1));
                compared.lease = compared.lease.max(LeaseLength::from_millis(1));
            }
            Change::Renew { .. } | Change::BeginEffect { .. } | Change::Checkpoint { .. }
                if self == Self::ProgressRevivesAbandoned && record.lease == LeaseLength::ZERO =>
            {
                compared.lease = LeaseLength::from_millis(1);
            }
            _ => {}
        }
        let reopens = self == Self::TakeoverFromCompleted
            && matches!(change, Change::Takeover { from: Status::Completed, .. })
            && record.status() == Status::Completed;
        let begins_anew = self == Self::AsNewFromInProgress
            && matches!(change, Change::AsNew { from: Status::InProgress, .. })
            && record.status() == Status::InProgress;
        match &mut change {
            Change::Takeover { from, .. } if forgotten.status || reopens => *from = Status::InProgress,
            Change::AsNew { from, .. } if forgotten.status || begins_anew => *from = Status::Completed,
            _ => {}
        }
        if forgotten.status || reopens || begins_anew {
            compared.state = match change.required_status() {
                Status::InProgress => State::InProgress,
                Status::Completed => State::Completed(Response::value("")),
                Status::Failed => State::Failed,
            };
        }
        (compared, expected, change)
    }

    /// What this fault sets besides, or does not set.
    fn set(self, before: &Record, change: &Change, mut after: Record, clock: Timestamp) -> Record {
        match (self, change.event()) {
            (Self::TakeoverMovesCreatedAt, Event::Takeover) => after.created_at = after.version.locked_at,
            (Self::TakeoverDropsRecoveryPoint, Event::Takeover) => after.recovery_point = None,
            (Self::TakeoverCountsForItself, Event::Takeover) => {
                after.attempt = before.attempt + 1;
                after.unresolved = before.unresolved + 1;
            }
            (Self::RetryClearsMarks, Event::Retry)
            | (Self::CompletionClearsMarks, Event::Complete)
            | (Self::FailureAlwaysClearsMarks, Event::Fail) => {
                after.effect_begun = false;
                after.unresolved = 0;
            }
            (Self::AsNewKeepsMarks, Event::AsNew) | (Self::FailureNeverClearsMarks, Event::Fail) => {
                after.effect_begun = before.effect_begun;
                after.unresolved = before.unresolved;
            }
            (Self::AsNewKeepsRecoveryPoint, Event::AsNew) => after.recovery_point = before.recovery_point.clone(),
            (Self::AsNewKeepsCreatedAt, Event::AsNew) => after.created_at = before.created_at,
            (Self::AsNewKeepsFingerprint, Event::AsNew) => after.fingerprint = before.fingerprint.clone(),
            (Self::OwnershipStampsForItself, _) if kind(change) == Kind::Ownership => after.version.locked_at = clock,
            (Self::RelockCountsAnAttempt, Event::Relock) => after.attempt += 1,
            (Self::FirstCheckpointStays, Event::Checkpoint) => {
                let first: Option<RecoveryPoint> = before.recovery_point.clone();
                after.recovery_point = first.or(after.recovery_point);
            }
            (Self::CompletionTouchesFingerprint, Event::Complete) => after.fingerprint = another_fingerprint(),
            (Self::CompletionClearsRecoveryPoint, Event::Complete) => after.recovery_point = None,
            (Self::CompletionClearsLease, Event::Complete) => after.lease = LeaseLength::ZERO,
            (Self::CompletionKeepsExpiry, Event::Complete) => after.expires_at = before.expires_at,
            (Self::AbandonFails, Event::Abandon) => after.state = State::Failed,
            _ => {}
        }
        after
    }
}

/// The record that a swap makes out of nothing when it is written as an upsert.
pub(super) fn made_of_nothing(expected: &Version, change: &Change) -> Record {
    let state = match change.required_status() {
        Status::InProgress => State::InProgress,
        Status::Completed => State::Completed(Response::value("")),
        Status::Failed => State::Failed,
    };
    Record {
        fingerprint: another_fingerprint(),
        state,
        attempt: 1,
        version: *expected,
        lease: LeaseLength::ZERO,
        effect_begun: false,
        unresolved: 0,
        recovery_point: None,
        created_at: expected.locked_at,
        expires_at: expected.locked_at,
    }
}

fn another_fingerprint() -> Fingerprint {
    let built = Fingerprint::builder("another request").finish();
    built.expect("a request without a body has a fingerprint").current().clone()
}
