//! Records in every state, and every change that could be tried on them.

use super::trial::{HOUR, TICK, Trial, answer, claim, lease, next, request_of, take_over};
use crate::key::Identity;
use crate::machine::{Change, NextOwnership};
use crate::record::{Record, RecoveryPoint, Status};
use crate::time::LeaseLength;
use std::time::Duration;

/// The kinds of record that a change can meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// In progress, just claimed.
    Fresh,
    /// In progress after a takeover, with both marks and a recovery point.
    Marked,
    /// As `Marked`, abandoned by its owner.
    Abandoned,
    /// Completed, with all that `Marked` has.
    Completed,
    /// Failed, nothing unknown.
    Failed,
    /// Failed, with all that `Marked` has.
    FailedMarked,
}

impl Standing {
    pub(super) const ALL: [Self; 6] =
        [Self::Fresh, Self::Marked, Self::Abandoned, Self::Completed, Self::Failed, Self::FailedMarked];
}

impl Trial {
    /// Makes a record of that kind under a name of its own.
    pub(super) async fn stand(&self, standing: Standing) -> (Identity, Record) {
        let identity = self.identity();
        let record = self.win(claim(&identity)).await;
        let record = match standing {
            Standing::Fresh => return (identity, record),
            Standing::Failed => self.apply(&identity, &record, &failure(&record, false)).await,
            Standing::Marked | Standing::Abandoned | Standing::Completed | Standing::FailedMarked => {
                let begin = Change::BeginEffect { lease: lease(HOUR + Duration::from_millis(1)) };
                let record = self.apply(&identity, &record, &begin).await;
                let record = self.apply(&identity, &record, &checkpoint(&record, "charged")).await;
                self.apply(&identity, &record, &take_over(&record)).await
            }
        };
        let record = match standing {
            Standing::Fresh | Standing::Marked | Standing::Failed => record,
            Standing::Abandoned => self.apply(&identity, &record, &Change::Abandon).await,
            Standing::Completed => self.apply(&identity, &record, &completion(&record, "first")).await,
            Standing::FailedMarked => self.apply(&identity, &record, &failure(&record, false)).await,
        };
        (identity, record)
    }
}

/// Every ownership change with every status that it could claim to have read, right in all but perhaps that.
pub(super) fn ownership_changes(record: &Record) -> Vec<Change> {
    let read_lease = record.lease;
    let mut changes =
        vec![Change::Retry { read_lease, next: next(record) }, Change::Relock { read_lease, next: same_owner(record) }];
    for from in Status::ALL {
        changes.push(Change::Takeover { from, read_lease, next: next(record), unresolved: record.unresolved + 1 });
        let next = NextOwnership { attempt: 1, ..next(record) };
        changes.push(Change::AsNew { from, read_lease, next, fingerprint: request_of(b"another life") });
    }
    changes
}

/// Every progress write, with a lease that is longer than the one that stands.
pub(super) fn progress_changes(record: &Record) -> Vec<Change> {
    progress_with(record.lease.next())
}

/// Every progress write, with this lease.
pub(super) fn progress_with(lease: LeaseLength) -> Vec<Change> {
    let recovery_point = RecoveryPoint { name: "captured".into(), data: (&b"\x00\xffnext"[..]).into() };
    vec![Change::Renew { lease }, Change::BeginEffect { lease }, Change::Checkpoint { lease, recovery_point }]
}

/// Every settlement.
pub(super) fn settling_changes(record: &Record) -> Vec<Change> {
    vec![completion(record, "another"), failure(record, false), failure(record, true), Change::Abandon]
}

pub(super) fn all_changes(record: &Record) -> Vec<Change> {
    [ownership_changes(record), progress_changes(record), settling_changes(record)].concat()
}

/// A change as the one who read another lease would have made it.
pub(super) fn having_read(change: &Change, lease: LeaseLength) -> Change {
    let mut change = change.clone();
    match &mut change {
        Change::Retry { read_lease, .. }
        | Change::Takeover { read_lease, .. }
        | Change::AsNew { read_lease, .. }
        | Change::Relock { read_lease, .. } => *read_lease = lease,
        Change::Renew { .. }
        | Change::BeginEffect { .. }
        | Change::Checkpoint { .. }
        | Change::Complete { .. }
        | Change::Fail { .. }
        | Change::Abandon => panic!("only ownership changes compare the lease as read"),
    }
    change
}

fn same_owner(record: &Record) -> NextOwnership {
    let mut next = NextOwnership { attempt: record.attempt, expires_at: record.expires_at, ..next(record) };
    next.version.owner = record.version.owner;
    next
}

pub(super) fn checkpoint(record: &Record, name: &str) -> Change {
    let recovery_point = RecoveryPoint { name: name.into(), data: name.as_bytes().to_vec().into() };
    Change::Checkpoint { lease: record.lease.next(), recovery_point }
}

/// A completion that also moves the expiry.
pub(super) fn completion(record: &Record, body: &str) -> Change {
    Change::Complete { response: answer(body), expires_at: record.expires_at.saturating_add(2 * TICK) }
}

/// A failure that also moves the expiry.
pub(super) fn failure(record: &Record, clear_marks: bool) -> Change {
    Change::Fail { clear_marks, expires_at: record.expires_at.saturating_add(3 * TICK) }
}
