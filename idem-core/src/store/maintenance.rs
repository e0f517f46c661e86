//! Options and answers of the primitives that look after a store: purge, stuck, stats, erase.

use crate::key::Identity;
use crate::record::{Record, Status, Version};
use crate::time::{LeaseLength, Timestamp};
use std::time::Duration;

/// What [`Store::purge`](crate::Store::purge) deletes in one batch.
///
/// # Examples
///
/// ```
/// use idem_core::store::{PurgeOptions, UnresolvedRows};
/// use std::time::Duration;
///
/// let options = PurgeOptions::default()
///     .with_batch(100)
///     .with_unresolved(UnresolvedRows::DropAfter(Duration::from_secs(7 * 24 * 3600)));
/// assert_eq!(options.batch(), 100);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PurgeOptions {
    batch: usize,
    unresolved: UnresolvedRows,
}

/// What a purge does with records that are [stuck](Record::is_stuck) and past their retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnresolvedRows {
    /// Keeps them: somebody has to find out what happened.
    Keep,
    /// Deletes them this long after `expires_at`. From then on the same key is a new request and runs again.
    DropAfter(Duration),
}

impl Default for PurgeOptions {
    fn default() -> Self {
        Self { batch: 1_000, unresolved: UnresolvedRows::Keep }
    }
}

impl PurgeOptions {
    /// How many records one call deletes at most, at least 1. Defaults to 1,000.
    #[must_use]
    pub fn with_batch(mut self, batch: usize) -> Self {
        self.batch = batch.max(1);
        self
    }

    /// What happens to unresolved records past their retention. Defaults to [`UnresolvedRows::Keep`].
    #[must_use]
    pub fn with_unresolved(mut self, unresolved: UnresolvedRows) -> Self {
        self.unresolved = unresolved;
        self
    }

    /// How many records one call deletes at most.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// What happens to unresolved records past their retention.
    #[must_use]
    pub fn unresolved(&self) -> UnresolvedRows {
        self.unresolved
    }

    /// Whether a purge at `clock` deletes `record`: the reference for every back end.
    #[must_use]
    pub fn deletes(&self, record: &Record, clock: Timestamp) -> bool {
        match self.unresolved {
            _ if record.is_resolved() => record.is_expired(clock),
            UnresolvedRows::Keep => false,
            UnresolvedRows::DropAfter(grace) => {
                record.is_stuck(clock) && record.expires_at.saturating_add(grace) <= clock
            }
        }
    }
}

/// What a purge did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Purged {
    /// Resolved records that were deleted.
    pub settled: u64,
    /// Unresolved records that were deleted by explicit choice.
    pub unresolved: u64,
    /// For how long the oldest resolved record that was found had been expired.
    pub oldest_expired: Option<Duration>,
}

impl Purged {
    /// All records that were deleted.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.settled + self.unresolved
    }

    /// Adds what another batch did.
    pub fn add(&mut self, other: &Self) {
        self.settled += other.settled;
        self.unresolved += other.unresolved;
        self.oldest_expired = self.oldest_expired.max(other.oldest_expired);
    }

    /// Counts one deleted record.
    pub fn count(&mut self, record: &Record, clock: Timestamp) {
        if record.is_resolved() {
            self.settled += 1;
            let expired_for = clock.saturating_duration_since(record.expires_at);
            self.oldest_expired = self.oldest_expired.max(Some(expired_for));
        } else {
            self.unresolved += 1;
        }
    }
}

/// Which stuck records to list.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct StuckQuery {
    limit: Option<usize>,
    after: Option<StuckCursor>,
    at_least: Duration,
}

impl StuckQuery {
    /// How many records a page holds at most, 1 to 1,000. Defaults to 100.
    #[must_use]
    pub fn with_limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit.clamp(1, 1_000));
        self
    }

    /// Goes on behind the last record of a page. Defaults to the beginning.
    #[must_use]
    pub fn after(mut self, cursor: StuckCursor) -> Self {
        self.after = Some(cursor);
        self
    }

    /// Lists only what has been stuck for so long, from the end of its last lease. Defaults to zero.
    #[must_use]
    pub fn with_stale_for(mut self, at_least: Duration) -> Self {
        self.at_least = at_least;
        self
    }

    /// How many records a page holds at most.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit.unwrap_or(100)
    }

    /// Where the page begins.
    #[must_use]
    pub fn cursor(&self) -> Option<&StuckCursor> {
        self.after.as_ref()
    }

    /// For how long a listed record has been stuck at the least.
    #[must_use]
    pub fn stale_for(&self) -> Duration {
        self.at_least
    }

    /// Whether `record` is listed at `clock`, cursor aside: the reference for every back end.
    #[must_use]
    pub fn lists(&self, record: &Record, clock: Timestamp) -> bool {
        record.is_stuck(clock) && clock.saturating_duration_since(record.lease_until()) >= self.at_least
    }
}

/// A position in the list of stuck records: `locked_at`, then identity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StuckCursor {
    /// `locked_at` of the last record of a page.
    pub locked_at: Timestamp,
    /// Its identity.
    pub identity: Identity,
}

/// One page of stuck records.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct StuckPage {
    /// The records, oldest `locked_at` first.
    pub records: Vec<Stuck>,
    /// Where the next page begins, if there may be one.
    pub next: Option<StuckCursor>,
}

/// A record whose outcome is unknown with nobody working on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stuck {
    /// Which record.
    pub identity: Identity,
    /// In progress; or failed, if its last owner did nothing but an earlier one may have.
    pub status: Status,
    /// Its last ownership.
    pub version: Version,
    /// How long that was promised to last.
    pub lease: LeaseLength,
    /// Which attempt it was.
    pub attempt: u32,
    /// Whether an external call may have been made.
    pub effect_begun: bool,
    /// How many attempts before it ended with an unknown outcome.
    pub unresolved: u32,
    /// The name of the last committed phase.
    pub recovery_point: Option<String>,
    /// When the life began.
    pub created_at: Timestamp,
}

impl StuckPage {
    /// The page of `query` out of records that it [lists](StuckQuery::lists), for back ends that hold them in memory.
    #[must_use]
    pub fn from_listed(query: &StuckQuery, mut listed: Vec<Stuck>) -> Self {
        listed.sort_by_cached_key(Stuck::cursor);
        if let Some(after) = query.cursor() {
            listed.retain(|stuck| stuck.cursor() > *after);
        }
        let more = listed.len() > query.limit();
        listed.truncate(query.limit());
        let next = if more { listed.last().map(Stuck::cursor) } else { None };
        Self { records: listed, next }
    }
}

impl Stuck {
    /// What `record`, under `identity`, looks like in the list.
    #[must_use]
    pub fn new(identity: Identity, record: &Record) -> Self {
        Self {
            identity,
            status: record.status(),
            version: record.version,
            lease: record.lease,
            attempt: record.attempt,
            effect_begun: record.effect_begun,
            unresolved: record.unresolved,
            recovery_point: record.recovery_point.as_ref().map(|point| point.name.clone()),
            created_at: record.created_at,
        }
    }

    /// Its position in the list.
    #[must_use]
    pub fn cursor(&self) -> StuckCursor {
        StuckCursor { locked_at: self.version.locked_at, identity: self.identity.clone() }
    }
}

/// How many records there are, by what they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// In progress with a live lock.
    pub live: u64,
    /// In progress with nobody working.
    pub stale: u64,
    /// Completed, expired ones included.
    pub completed: u64,
    /// Failed, expired ones included.
    pub failed: u64,
    /// What [`Store::stuck`](crate::Store::stuck) lists: the stale ones, and the failed ones with an unknown past.
    pub stuck: u64,
    /// Resolved and expired: what a purge would delete.
    pub expired: u64,
}

impl Stats {
    /// All records.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.live + self.stale + self.completed + self.failed
    }

    /// Counts one record.
    pub fn count(&mut self, record: &Record, clock: Timestamp) {
        match record.status() {
            Status::InProgress if record.is_live(clock) => self.live += 1,
            Status::InProgress => self.stale += 1,
            Status::Completed => self.completed += 1,
            Status::Failed => self.failed += 1,
        }
        self.stuck += u64::from(record.is_stuck(clock));
        self.expired += u64::from(record.is_expired(clock));
    }
}

/// Which records of a scope [`Store::erase`](crate::Store::erase) deletes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Erase {
    /// [Resolved](Record::is_resolved) ones. Keys that were used become new requests.
    Settled,
    /// All of them, live ones too: force. Owners that are at work are fenced, and their keys may run again.
    Everything,
}

impl Erase {
    /// Whether `record` is deleted.
    #[must_use]
    pub fn deletes(self, record: &Record) -> bool {
        match self {
            Self::Settled => record.is_resolved(),
            Self::Everything => true,
        }
    }
}

/// What an erasure did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Erased {
    /// Records that were deleted.
    pub deleted: u64,
    /// Records of the scope that were kept, because their outcome is unknown.
    pub kept: u64,
}
