//! What an owner knows, what it proposes, and what it concludes from an answer: [`Ownership`].
//!
//! No I/O and no clock: elapsed time comes in, changes and verdicts come out. The engine sends the changes; so can
//! anybody who drives a [`Store`](crate::Store) by hand.

use super::change::Change;
use super::decide::Previous;
use crate::record::{Record, RecoveryPoint, State, Status, Version};
use crate::response::Response;
use crate::time::LeaseLength;
use std::time::Duration;

/// One ownership of a record, seen by its owner.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ownership {
    /// The record as far as the owner knows: what it was when the ownership began, with every write of its own that is
    /// known to have landed.
    record: Record,
    /// The largest lease that was ever proposed, landed or not. The next proposal is larger.
    proposed: LeaseLength,
    /// Marks that an effect follows, whether or not that is known to be stored.
    effect_may_have_begun: bool,
    /// Whether the record had `effect_begun` when this owner claimed it.
    effect_had_begun: bool,
    /// Whether a settlement was sent whose outcome is unknown. From then on a rival's row proves nothing.
    settlement_unknown: bool,
}

/// What an owner concludes about a progress write from the row that it found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProgressVerdict {
    /// It landed.
    Applied,
    /// It did not land so far; send it again with a larger lease.
    SendAgain,
    /// The row is the owner's own, under the version of a relock that landed late: go on with that and send again.
    Adopt(Record),
    /// Somebody else has the key, or the owner's own ownership was settled or abandoned by force. The row that was
    /// found.
    Fenced(Option<Record>),
}

/// What an owner concludes about a settlement from the row that it found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettlementVerdict {
    /// It landed.
    Applied,
    /// It did not land so far; send the same one again.
    SendAgain,
    /// The row is the owner's own, under the version of a relock that landed late: settle that.
    Adopt(Record),
    /// It did not land and cannot: somebody else has the key. The row that was found.
    Fenced(Option<Record>),
    /// Somebody else has the key by now, or it is gone, but an earlier send of the settlement may have landed before.
    Unknown,
}

/// A handler said that nothing happened, without having verified it, although something may have.
///
/// idem then leaves the outcome unknown instead of freeing the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoEffectRefused {
    /// This attempt marked that an effect follows.
    #[error(
        "`NoEffect` after `begin_effect`: look the effect up and return `VerifiedNoEffect`, or return `Final` with the answer"
    )]
    EffectBegun,
    /// An earlier attempt's outcome is unknown.
    #[error(
        "`NoEffect` after a takeover: look the earlier attempt's effect up and return `VerifiedNoEffect`, or return `Final` with the answer"
    )]
    PreviousUnknown,
}

impl Ownership {
    /// The ownership of `record`, which the caller was granted.
    #[must_use]
    pub fn new(record: Record) -> Self {
        Self {
            proposed: record.lease,
            effect_may_have_begun: record.effect_begun,
            effect_had_begun: record.effect_begun,
            settlement_unknown: false,
            record,
        }
    }

    /// The record as far as the owner knows.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The version that every write of this owner compares.
    #[must_use]
    pub fn version(&self) -> Version {
        self.record.version
    }

    /// Whether an external call may have been made in this life, as far as the owner knows.
    #[must_use]
    pub fn effect_may_have_begun(&self) -> bool {
        self.effect_may_have_begun
    }

    /// A lease that lasts `length` from now, `elapsed` after the ownership began; always larger than every one before.
    fn propose(&mut self, elapsed: Duration, length: Duration) -> LeaseLength {
        self.proposed = LeaseLength::from_duration(elapsed.saturating_add(length)).max(self.proposed.next());
        self.proposed
    }

    /// Proposes a lease of `length` from now.
    pub fn renew(&mut self, elapsed: Duration, length: Duration) -> Change {
        Change::Renew { lease: self.propose(elapsed, length) }
    }

    /// Proposes the mark that an external call follows, with a lease of `length` from now.
    pub fn begin_effect(&mut self, elapsed: Duration, length: Duration) -> Change {
        // From here on the mark may be stored, whatever comes back.
        self.effect_may_have_begun = true;
        Change::BeginEffect { lease: self.propose(elapsed, length) }
    }

    /// Proposes a committed phase, with a lease of `length` from now.
    pub fn checkpoint(&mut self, recovery_point: RecoveryPoint, elapsed: Duration, length: Duration) -> Change {
        Change::Checkpoint { lease: self.propose(elapsed, length), recovery_point }
    }

    /// The completion with `response`, `elapsed` after the ownership began, kept for `replay_floor` at the least.
    #[must_use]
    pub fn complete(&self, response: Response, elapsed: Duration, replay_floor: Duration) -> Change {
        Change::Complete { response, expires_at: self.settled_expiry(elapsed, replay_floor) }
    }

    /// The failure: nothing happened, a retry may run.
    ///
    /// `verified` says that the handler looked the effect up. The marks of the past are cleared only if it did and no
    /// effect had begun when this owner claimed: what an earlier owner began, this one cannot rule out.
    ///
    /// # Errors
    ///
    /// [`NoEffectRefused`] if something may have happened and it was not verified that nothing did.
    pub fn fail(&self, verified: bool, elapsed: Duration, replay_floor: Duration) -> Result<Change, NoEffectRefused> {
        if !verified && self.effect_may_have_begun {
            return Err(NoEffectRefused::EffectBegun);
        }
        if !verified && self.record.unresolved > 0 {
            return Err(NoEffectRefused::PreviousUnknown);
        }
        let clear_marks = verified && !self.effect_had_begun;
        Ok(Change::Fail { clear_marks, expires_at: self.settled_expiry(elapsed, replay_floor) })
    }

    /// Notes that a settlement was sent and nobody knows whether it landed.
    pub fn settlement_became_unknown(&mut self) {
        self.settlement_unknown = true;
    }

    /// Notes that `change` landed.
    pub fn landed(&mut self, change: &Change) {
        if let Some(after) = change.apply(&self.record, &self.record.version) {
            self.record = after;
        }
    }

    /// Goes on with the owner's own record under the version of a relock that landed late.
    pub fn adopt(&mut self, record: Record) {
        self.proposed = self.proposed.max(record.lease);
        self.effect_may_have_begun |= record.effect_begun;
        self.record = record;
    }

    /// What to conclude about the progress write `change` from the row that was found instead of, or after, an answer.
    #[must_use]
    pub fn judge_progress(&self, change: &Change, found: Option<&Record>) -> ProgressVerdict {
        let Some(record) = found else { return ProgressVerdict::Fenced(None) };
        if self.is_late_relock(record) {
            return ProgressVerdict::Adopt(record.clone());
        }
        if record.version != self.version() || record.status() != Status::InProgress {
            return ProgressVerdict::Fenced(Some(record.clone()));
        }
        let proposed = match change {
            Change::Renew { lease } | Change::BeginEffect { lease } | Change::Checkpoint { lease, .. } => *lease,
            Change::Retry { .. }
            | Change::Takeover { .. }
            | Change::AsNew { .. }
            | Change::Relock { .. }
            | Change::Complete { .. }
            | Change::Fail { .. }
            | Change::Abandon => return ProgressVerdict::SendAgain,
        };
        // At the longest lease that there is proposals cannot grow, so what the write sets is looked at as well.
        let shows = match change {
            Change::BeginEffect { .. } => record.effect_begun,
            Change::Checkpoint { recovery_point, .. } => record.recovery_point.as_ref() == Some(recovery_point),
            _ => true,
        };
        if record.lease == LeaseLength::ZERO {
            ProgressVerdict::Fenced(Some(record.clone()))
        } else if record.lease == proposed && shows {
            ProgressVerdict::Applied
        } else {
            // Smaller: not there yet. Larger: another write of this owner landed, which proves "still mine" and no
            // more.
            ProgressVerdict::SendAgain
        }
    }

    /// What to conclude about the settlement `change` from the row that was found instead of, or after, an answer.
    #[must_use]
    pub fn judge_settlement(&self, change: &Change, found: Option<&Record>) -> SettlementVerdict {
        let Some(record) = found else { return self.lost_to(None) };
        if self.is_late_relock(record) {
            return SettlementVerdict::Adopt(record.clone());
        }
        if record.version != self.version() {
            return self.lost_to(Some(record));
        }
        let landed = match (change, &record.state) {
            (Change::Complete { response, .. }, State::Completed(stored)) => response == stored,
            (Change::Fail { .. }, State::Failed) => true,
            (Change::Abandon, State::InProgress) => record.lease == LeaseLength::ZERO,
            _ => false,
        };
        if landed {
            SettlementVerdict::Applied
        } else if record.status() == Status::InProgress {
            SettlementVerdict::SendAgain
        } else {
            // Settled under this very version, but not by this owner: force.
            SettlementVerdict::Fenced(Some(record.clone()))
        }
    }

    /// What the owner is told about the attempts before its own.
    #[must_use]
    pub fn previous(&self) -> Previous {
        self.record.previous()
    }

    fn lost_to(&self, found: Option<&Record>) -> SettlementVerdict {
        if self.settlement_unknown { SettlementVerdict::Unknown } else { SettlementVerdict::Fenced(found.cloned()) }
    }

    fn is_late_relock(&self, record: &Record) -> bool {
        record.version.owner == self.version().owner
            && record.version.locked_at != self.version().locked_at
            && record.status() == Status::InProgress
            && record.created_at == self.record.created_at
    }

    /// What a settlement sets as the expiry, `elapsed` after the ownership began: never before the record's own.
    #[must_use]
    pub fn settled_expiry(&self, elapsed: Duration, replay_floor: Duration) -> crate::Timestamp {
        let now = self.version().locked_at.saturating_add(elapsed);
        self.record.expires_at.max(now.saturating_add(replay_floor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Claim, Fingerprint, Identity, Key, Scope, Takeover, Timestamp};

    fn record(lease: LeaseLength) -> Record {
        let identity = Identity::new(Scope::new("s").unwrap(), Key::new("k").unwrap());
        let fingerprint = Fingerprint::builder("POST /charges").finish().unwrap();
        Claim::new(identity, fingerprint, Takeover::Never).with_lease(lease).first_record(Timestamp::from_micros(1))
    }

    #[test]
    fn proposals_only_grow_also_within_a_millisecond() {
        let mut ownership = Ownership::new(record(LeaseLength::from_millis(5)));
        let mut last = LeaseLength::from_millis(5);
        for _ in 0..3 {
            let Change::Renew { lease } = ownership.renew(Duration::ZERO, Duration::from_millis(5)) else { panic!() };
            assert!(lease > last);
            last = lease;
        }
    }

    /// Bug: at the longest lease that there is a proposal cannot grow, the store refuses it, and the refused mark was
    /// taken for a stored one because the lease that was found equals the proposed one. Cause: the lease alone
    /// identified the write. Fix: the mark or the phase has to be there as well.
    #[test]
    fn at_the_longest_lease_a_refused_mark_is_not_taken_for_a_stored_one() {
        let stored = record(LeaseLength::MAX);
        let mut ownership = Ownership::new(stored.clone());
        let mark = ownership.begin_effect(Duration::ZERO, Duration::from_secs(1));
        assert_eq!(mark.apply(&stored, &stored.version), None, "refused");
        assert_eq!(ownership.judge_progress(&mark, Some(&stored)), ProgressVerdict::SendAgain);
        let point = RecoveryPoint { name: "charged".into(), data: bytes::Bytes::new() };
        let checkpoint = ownership.checkpoint(point, Duration::ZERO, Duration::from_secs(1));
        assert_eq!(ownership.judge_progress(&checkpoint, Some(&stored)), ProgressVerdict::SendAgain);
    }
}
