//! What a store keeps for one [`Identity`](crate::Identity): the [`Record`].

use crate::fingerprint::Fingerprint;
use crate::response::Response;
use crate::time::{LeaseLength, Timestamp, nanoseconds};
use std::fmt;
use uuid::Uuid;

/// One ownership of a record: a random 128-bit value that the claimer makes before it sends the claim.
///
/// It is fresh for every claim call and never supplied, kept or reused, so that a claimer whose reply was lost can
/// recognise its own row. It names no person and no machine and may be logged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(Uuid);

impl Owner {
    /// A new owner. Only [`Claim::new`](crate::Claim::new) needs one.
    ///
    /// Its bits come from the thread's own generator, which the system seeds, and seeds again after every 64 KiB: to ask
    /// the system each time would take longer than all else that a claim in memory does.
    pub(crate) fn mint() -> Self {
        Self::made_of(rand::random(), nanoseconds())
    }

    /// Random bits alone would not do: memory can be copied, by a fork or by a virtual machine that is restored twice,
    /// and the copies of a generator give the same bits. Two claimers of one key with one owner would both take its row
    /// for their own. With the time in it, the copies would have to claim in the same nanosecond.
    fn made_of(random: u128, nanoseconds: u64) -> Self {
        let bits = random ^ u128::from(nanoseconds);
        Self(uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid())
    }

    /// An owner as it was stored; for back ends that read a row. Never make a claim with it.
    #[must_use]
    pub const fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid)
    }

    /// The value to store.
    #[must_use]
    pub const fn as_uuid(&self) -> &Uuid {
        &self.0
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Which ownership of a record is meant: `locked_at` together with `owner`.
///
/// Both change when ownership changes and at no other time. `locked_at` alone would not do: after one backward step of
/// the clock, or a purge and a new insert in the same tick, a late completion would be accepted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Version {
    /// When this ownership began, by the store's clock; strictly grows within a record's life.
    pub locked_at: Timestamp,
    /// Who holds it.
    pub owner: Owner,
}

impl Version {
    /// The number to hand to a sink that can compare: see [`FencingToken`].
    #[must_use]
    pub const fn fencing_token(&self) -> FencingToken {
        FencingToken(self.locked_at.as_micros())
    }
}

/// A number that grows with every ownership of a record: `locked_at` in microseconds.
///
/// A sink that remembers the last token per key and accepts `token >= last` shuts out an owner that outlived its
/// lease. idem's own record does this by itself; for anything else the sink has to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FencingToken(i64);

impl FencingToken {
    /// The token's value.
    #[must_use]
    pub const fn as_i64(self) -> i64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The three states of a record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Status {
    /// Someone owns it, or owned it and never came back.
    InProgress,
    /// Final: the response is stored and is replayed until it expires.
    Completed,
    /// The last attempt said that nothing happened; a retry may run.
    Failed,
}

impl Status {
    /// All states, for tables and tests.
    pub const ALL: [Self; 3] = [Self::InProgress, Self::Completed, Self::Failed];

    /// The text that goes into a column: `in_progress`, `completed` or `failed`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }

    /// Whether the last ownership is over and said so: completed or failed.
    #[must_use]
    pub const fn is_settled(self) -> bool {
        match self {
            Self::InProgress => false,
            Self::Completed | Self::Failed => true,
        }
    }
}

/// A record's state together with what only that state has.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// See [`Status::InProgress`].
    InProgress,
    /// See [`Status::Completed`]; with the answer that every replay gets.
    Completed(Response),
    /// See [`Status::Failed`].
    Failed,
}

impl State {
    /// The state's name.
    #[must_use]
    pub const fn status(&self) -> Status {
        match self {
            Self::InProgress => Status::InProgress,
            Self::Completed(_) => Status::Completed,
            Self::Failed => Status::Failed,
        }
    }
}

/// The last phase that a multi-step handler committed.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RecoveryPoint {
    /// The phase's name, as the handler gave it to `checkpoint`.
    pub name: String,
    /// What the handler needs to go on from there.
    pub data: bytes::Bytes,
}

impl fmt::Debug for RecoveryPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecoveryPoint({:?}, {} bytes)", self.name, self.data.len())
    }
}

/// Everything that a store keeps for one identity.
///
/// Exhaustive on purpose: a back end that forgets a field of a record is wrong, and a new field shows it at compile
/// time. `Debug` shows no response and no recovery data.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Record {
    /// What the first request of this life looked like. Settling never touches it.
    pub fingerprint: Fingerprint,
    /// The state, and the response if there is one.
    pub state: State,
    /// 1 for the first owner of a life, then one more at each retry and takeover.
    pub attempt: u32,
    /// The current ownership, or the last one if the record is settled.
    pub version: Version,
    /// How long the ownership promised to last, from `version.locked_at`. Strictly grows within an ownership, except
    /// that abandoning sets it to zero.
    pub lease: LeaseLength,
    /// Whether an external call may have been made in this life. Sticky until a new life or a verified failure.
    pub effect_begun: bool,
    /// How many attempts of this life ended without anybody knowing their outcome. Above zero the record is
    /// *unresolved*; sticky until a new life or a verified failure.
    pub unresolved: u32,
    /// The last committed phase.
    pub recovery_point: Option<RecoveryPoint>,
    /// When this life was first claimed. A takeover does not move it.
    pub created_at: Timestamp,
    /// Until when a resolved record is kept. An unresolved record does not expire.
    pub expires_at: Timestamp,
}

impl Record {
    /// The state's name.
    #[must_use]
    pub const fn status(&self) -> Status {
        self.state.status()
    }

    /// When the current lease is over, by the store's clock.
    #[must_use]
    pub fn lease_until(&self) -> Timestamp {
        self.version.locked_at.saturating_add(self.lease.as_duration())
    }

    /// Whether somebody may be working right now: in progress, `lease > 0` and `locked_at + lease > clock`.
    ///
    /// This is the one predicate for liveness. At the very instant of equality the lock is stale. An abandoned lease,
    /// zero, is stale whatever the clock says: `locked_at` may be ahead of it after a backward step, and nobody is
    /// working.
    #[must_use]
    pub fn is_live(&self, clock: Timestamp) -> bool {
        self.status() == Status::InProgress && self.lease > LeaseLength::ZERO && self.lease_until() > clock
    }

    /// Whether the record is in progress with nobody working: the complement of [`Record::is_live`] among the
    /// in-progress ones.
    #[must_use]
    pub fn is_stale(&self, clock: Timestamp) -> bool {
        self.status() == Status::InProgress && !self.is_live(clock)
    }

    /// Whether the outcome is known for good: completed, or failed with nothing unknown in the past.
    ///
    /// Only a resolved record expires. A failed one with an [unknown past](Record::has_unknown_past) does not: its last
    /// owner did nothing, but an earlier one may have, and the passing of time must not make the key run again.
    #[must_use]
    pub fn is_resolved(&self) -> bool {
        match self.status() {
            Status::InProgress => false,
            Status::Completed => true,
            Status::Failed => !self.has_unknown_past(),
        }
    }

    /// Whether the record is [resolved](Record::is_resolved) and its retention is over: `expires_at <= clock`.
    ///
    /// This is the one predicate for expiry; an unresolved record never expires.
    #[must_use]
    pub fn is_expired(&self, clock: Timestamp) -> bool {
        self.is_resolved() && self.expires_at <= clock
    }

    /// Whether somebody may have to look: not [resolved](Record::is_resolved), and nobody is working on it.
    #[must_use]
    pub fn is_stuck(&self, clock: Timestamp) -> bool {
        !self.is_resolved() && !self.is_live(clock)
    }

    /// Whether something unknown or already begun lies in this life's past, so that running again is the takeover
    /// policy's choice.
    #[must_use]
    pub fn has_unknown_past(&self) -> bool {
        self.unresolved > 0 || self.effect_begun
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_owner_is_minted_twice() {
        let mint = || (0..10_000).map(|_| Owner::mint()).collect::<Vec<_>>();
        let minted = std::thread::scope(|threads| {
            let threads: Vec<_> = (0..4).map(|_| threads.spawn(mint)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(minted.iter().collect::<HashSet<_>>().len(), minted.len());
        assert!(minted.iter().all(|owner| owner.as_uuid().get_version_num() == 4));
    }

    /// A process that was copied: both halves draw the same bits, a little apart.
    #[test]
    fn copies_of_a_generator_give_different_owners() {
        let now = nanoseconds();
        for bits in [0, u128::MAX, rand::random()] {
            assert_ne!(Owner::made_of(bits, now), Owner::made_of(bits, now + 1), "{bits:x}");
        }
    }
}
