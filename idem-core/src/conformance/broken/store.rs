//! The reference store with one fault in it: [`BrokenStore`].

use super::super::reference::{ReferenceStore, Rows, erase, purge};
use super::Fault;
use super::swap::made_of_nothing;
use crate::claim::Claim;
use crate::error::{Error, ErrorKind, WriteOutcome};
use crate::key::{Identity, Scope};
use crate::machine::Change;
use crate::record::{Record, Status, Version};
use crate::store::{
    Erase, Erased, Inserted, Loaded, PurgeOptions, Purged, Stats, Store, Stuck, StuckPage, StuckQuery, Swapped,
    UnresolvedRows,
};
use crate::time::{LeaseLength, Timestamp};
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::yield_now;

/// The [`ReferenceStore`] with one [`Fault`]. The case that [`Fault::caught_by`] names fails on it, which is how the
/// suite itself is tested. Good for nothing else.
///
/// # Examples
///
/// ```
/// use idem_core::conformance::{BrokenStore, Case, Fault};
///
/// for fault in Fault::ALL {
///     assert!(Case::named(fault.caught_by()).is_some());
/// }
/// let store = BrokenStore::new(Fault::EraseByPrefix);
/// assert_eq!(store.fault().caught_by(), "erasing_touches_one_scope");
/// ```
pub struct BrokenStore {
    fault: Fault,
    inner: ReferenceStore,
    cache: Mutex<BTreeMap<Identity, Box<Record>>>,
    locked: AtomicBool,
}

impl BrokenStore {
    /// An empty store on the system clock.
    #[must_use]
    pub fn new(fault: Fault) -> Self {
        Self { fault, inner: ReferenceStore::default(), cache: Mutex::default(), locked: AtomicBool::new(false) }
    }

    /// What is wrong with it.
    #[must_use]
    pub fn fault(&self) -> Fault {
        self.fault
    }

    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    /// With one of these faults: takes a lock for a moment, or for ever if the future is dropped in it.
    async fn lock_if(&self, faults: &[Fault]) -> Result<(), Error> {
        if faults.contains(&self.fault) {
            if self.locked.swap(true, Ordering::SeqCst) {
                return Err(Error::new(ErrorKind::Timeout, "lock", WriteOutcome::NotApplied));
            }
            yield_now().await;
            self.locked.store(false, Ordering::SeqCst);
        }
        Ok(())
    }

    fn make(&self, rows: &mut Rows, clock: Timestamp, identity: Identity, claim: &Claim) -> Inserted {
        let ahead = if self.is(Fault::InsertHasAClockOfItsOwn) { Duration::from_secs(60) } else { Duration::ZERO };
        let mut record = claim.first_record(clock.saturating_add(ahead));
        if self.is(Fault::ZeroLeaseIsForever) && record.lease == LeaseLength::ZERO {
            record.lease = LeaseLength::MAX;
        }
        let record = self.fault.stored(record);
        let version = record.version;
        rows.insert(identity, record);
        Inserted::Won(version)
    }

    fn writes_twice(&self) -> bool {
        matches!(self.fault, Fault::DroppedFutureLeavesHalf | Fault::ReadersSeeHalf)
    }

    fn clock_of_answer(&self, record: &Record, clock: Timestamp) -> Timestamp {
        if self.is(Fault::AnswersBringTheStamp) { record.version.locked_at } else { clock }
    }

    fn dies(&self, options: &PurgeOptions, record: &Record, clock: Timestamp) -> bool {
        let past_retention = record.expires_at <= clock;
        match self.fault {
            Fault::PurgeTakesLive => past_retention,
            Fault::PurgeTakesUnresolved => options.deletes(record, clock) || (record.is_stale(clock) && past_retention),
            Fault::PurgeTakesUnresolvedFailures => {
                options.deletes(record, clock) || (record.status() == Status::Failed && past_retention)
            }
            Fault::PurgeNeverDropsUnresolved => {
                options.clone().with_unresolved(UnresolvedRows::Keep).deletes(record, clock)
            }
            Fault::PurgeIgnoresGrace if options.unresolved() != UnresolvedRows::Keep => past_retention,
            Fault::PurgeIgnoresExpiry => record.status().is_settled() || options.deletes(record, clock),
            Fault::PurgeKeepsFailed => record.status() != Status::Failed && options.deletes(record, clock),
            Fault::PurgeHasAClockOfItsOwn => options.deletes(record, clock.saturating_add(Duration::from_millis(10))),
            _ => options.deletes(record, clock),
        }
    }
}

#[async_trait]
impl Store for BrokenStore {
    async fn insert(&self, claim: &Claim) -> Result<Inserted, Error> {
        self.lock_if(&[Fault::DroppedInsertKeepsTheLock, Fault::NeighboursConflict]).await?;
        if self.is(Fault::FirstClaimIsBusy) && !claim.was_asked_before() {
            return Ok(Inserted::Busy { retry_after: Duration::ZERO });
        }
        let identity = self.fault.filed(claim.identity());
        if self.is(Fault::InsertChecksThenActs) && !self.inner.rows().0.contains_key(&identity) {
            yield_now().await;
            let (mut rows, clock) = self.inner.rows();
            return Ok(self.make(&mut rows, clock, identity, claim));
        }
        let (mut rows, clock) = self.inner.rows();
        let Some(record) = rows.get_mut(&identity) else { return Ok(self.make(&mut rows, clock, identity, claim)) };
        let replaces = match self.fault {
            Fault::SecondClaimOverwrites => true,
            Fault::ExpiredIsAbsentToInsert => record.is_expired(clock),
            Fault::StaleIsAbsentToInsert => record.is_stale(clock) && record.expires_at <= clock,
            _ => false,
        };
        if replaces {
            return Ok(self.make(&mut rows, clock, identity, claim));
        }
        if self.is(Fault::BusyForEver) {
            return Ok(Inserted::Busy { retry_after: Duration::from_secs(1) });
        }
        if self.is(Fault::EveryClaimWins) {
            return Ok(Inserted::Won(claim.first_record(clock).version));
        }
        if self.is(Fault::SecondClaimExtendsRetention) {
            record.expires_at = record.expires_at.max(clock.saturating_add(claim.retention()));
        }
        let clock = self.clock_of_answer(record, clock);
        Ok(Inserted::Existing(Box::new(record.clone()), clock))
    }

    async fn swap(&self, identity: &Identity, expected: &Version, change: &Change) -> Result<Swapped, Error> {
        let identity = &self.fault.filed(identity);
        if self.is(Fault::SwapChecksThenActs) {
            let Loaded { record, clock } = self.inner.load(identity).await?;
            yield_now().await;
            let Some(record) = record else { return Ok(Swapped::Lost(None, clock)) };
            let Some(after) = change.apply(&record, expected) else { return Ok(Swapped::Lost(Some(record), clock)) };
            self.inner.rows().0.insert(identity.clone(), after);
            return Ok(Swapped::Applied);
        }
        let (before, after) = {
            let (mut rows, clock) = self.inner.rows();
            if self.is(Fault::SwapMakesRecords) && !rows.contains_key(identity) {
                rows.insert(identity.clone(), made_of_nothing(expected, change));
            }
            let Some(record) = rows.get_mut(identity) else { return Ok(Swapped::Lost(None, clock)) };
            let Some(after) = self.fault.apply(record, expected, change, clock) else {
                if self.is(Fault::RefusedSwapWrites) {
                    record.expires_at = record.expires_at.saturating_add(Duration::from_micros(1));
                }
                let clock = self.clock_of_answer(record, clock);
                let found = (!self.is(Fault::LostSwapHidesTheRecord)).then(|| Box::new(record.clone()));
                return Ok(Swapped::Lost(found, clock));
            };
            let after = self.fault.stored(after);
            let before = std::mem::replace(record, after.clone());
            if self.is(Fault::SwapHitsTheWholeScope) {
                rows.iter_mut()
                    .filter(|(other, _)| other.scope() == identity.scope())
                    .for_each(|(_, record)| record.lease = after.lease);
            }
            if self.writes_twice() {
                // The first of two writes: all but the version and the expiry.
                let half = Record { version: before.version, expires_at: before.expires_at, ..after.clone() };
                rows.insert(identity.clone(), half);
            }
            (before, after)
        };
        if self.writes_twice() && before != after {
            let mut second = SecondWrite { store: &self.inner, identity, after: None };
            if self.is(Fault::ReadersSeeHalf) {
                second.after = Some(after.clone());
            }
            for _ in 0..3 {
                yield_now().await;
            }
            second.after = Some(after);
        }
        Ok(Swapped::Applied)
    }

    async fn load(&self, identity: &Identity) -> Result<Loaded, Error> {
        let identity = &self.fault.filed(identity);
        self.lock_if(&[Fault::DroppedReadKeepsTheLock]).await?;
        let mut loaded = self.inner.load(identity).await?;
        match self.fault {
            Fault::LoadIsCached => {
                let mut cache = self.cache.lock().expect("nothing panics while it holds the cache");
                if let Some(record) = loaded.record.take() {
                    loaded.record = Some(cache.entry(identity.clone()).or_insert(record).clone());
                }
            }
            Fault::LoadHidesTheExpired => {
                loaded.record = loaded.record.filter(|record| !record.is_expired(loaded.clock));
            }
            Fault::LookingPurges => {
                self.inner.rows().0.retain(|_, record| !record.is_expired(loaded.clock));
            }
            _ => {}
        }
        Ok(loaded)
    }

    async fn purge(&self, options: &PurgeOptions) -> Result<Purged, Error> {
        self.lock_if(&[Fault::DroppedPurgeKeepsTheLock]).await?;
        if matches!(self.fault, Fault::PurgeFindsThenDeletes | Fault::PurgeCountsWhatItFound) {
            let (found, then): (Vec<(Identity, Record)>, Timestamp) = {
                let (rows, clock) = self.inner.rows();
                let dead = rows.iter().filter(|(_, record)| options.deletes(record, clock));
                let dead = dead.map(|(identity, record)| (identity.clone(), record.clone()));
                (dead.take(options.batch()).collect(), clock)
            };
            for _ in 0..3 {
                yield_now().await;
            }
            let (mut rows, clock) = self.inner.rows();
            let mut purged = Purged::default();
            for (identity, record) in found {
                if self.is(Fault::PurgeCountsWhatItFound) {
                    purged.count(&record, then);
                    // It does look again, so that it deletes no new life.
                    if rows.get(&identity).is_some_and(|now| options.deletes(now, clock)) {
                        rows.remove(&identity);
                    }
                } else if let Some(record) = rows.remove(&identity) {
                    purged.count(&record, clock);
                }
            }
            return Ok(purged);
        }
        let (mut rows, clock) = self.inner.rows();
        let batch = if self.is(Fault::PurgeIgnoresBatch) { usize::MAX } else { options.batch() };
        Ok(purge(&mut rows, clock, batch, |record| self.dies(options, record, clock)))
    }

    async fn stuck(&self, query: &StuckQuery) -> Result<StuckPage, Error> {
        self.lock_if(&[Fault::DroppedReadKeepsTheLock]).await?;
        let (rows, clock) = self.inner.rows();
        let asked = if self.is(Fault::StuckIgnoresStaleFor) {
            query.clone().with_stale_for(Duration::ZERO)
        } else {
            query.clone()
        };
        let listed = rows.iter().filter(|(_, record)| match self.fault {
            Fault::StuckListsLive => record.status() == Status::InProgress,
            Fault::StuckOmitsFailures => record.status() == Status::InProgress && asked.lists(record, clock),
            _ => asked.lists(record, clock),
        });
        let mut listed: Vec<Stuck> = listed.map(|(id, record)| Stuck::new(id.clone(), record)).collect();
        match self.fault {
            Fault::StuckIsInOrderOfNames => {
                let after = query.cursor().map(|cursor| cursor.identity.clone());
                listed.retain(|stuck| after.as_ref().is_none_or(|after| stuck.identity > *after));
                let more = listed.len() > query.limit();
                listed.truncate(query.limit());
                let next = if more { listed.last().map(Stuck::cursor) } else { None };
                Ok(StuckPage { records: listed, next })
            }
            Fault::StuckCursorIsTheTimeOnly => {
                let after = query.cursor().map(|cursor| cursor.locked_at);
                listed.retain(|stuck| after.is_none_or(|after| stuck.version.locked_at > after));
                Ok(StuckPage::from_listed(query, listed))
            }
            _ => Ok(StuckPage::from_listed(query, listed)),
        }
    }

    async fn stats(&self) -> Result<Stats, Error> {
        self.lock_if(&[Fault::DroppedReadKeepsTheLock]).await?;
        let mut stats = self.inner.stats().await?;
        if self.is(Fault::StatsTakeStaleForLive) {
            stats.live += std::mem::take(&mut stats.stale);
        }
        Ok(stats)
    }

    async fn erase(&self, scope: &Scope, which: Erase) -> Result<Erased, Error> {
        self.lock_if(&[Fault::DroppedErasureKeepsTheLock]).await?;
        let (mut rows, clock) = self.inner.rows();
        let name = scope.as_str();
        if self.is(Fault::EraseEverythingSparesLive) && which == Erase::Everything {
            let mut erased = Erased::default();
            rows.retain(|identity, record| {
                let goes = identity.scope() == scope && !record.is_live(clock);
                erased.deleted += u64::from(goes);
                !goes
            });
            return Ok(erased);
        }
        let which = if self.is(Fault::EraseSettledTakesAll) { Erase::Everything } else { which };
        Ok(erase(&mut rows, which, |other| match self.fault {
            Fault::EraseByPrefix => other.as_str().starts_with(name),
            Fault::EraseFoldsCase => other.as_str().eq_ignore_ascii_case(name),
            Fault::EraseByPattern => is_like(other.as_str().as_bytes(), name.as_bytes()),
            _ => other == scope,
        }))
    }
}

/// The second of two writes, which is made even if the future of the first is dropped.
struct SecondWrite<'a> {
    store: &'a ReferenceStore,
    identity: &'a Identity,
    after: Option<Record>,
}

impl Drop for SecondWrite<'_> {
    fn drop(&mut self) {
        if let Some(after) = self.after.take() {
            self.store.rows().0.insert(self.identity.clone(), after);
        }
    }
}

impl fmt::Debug for BrokenStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrokenStore").field("fault", &self.fault).finish_non_exhaustive()
    }
}

/// SQL's `LIKE`, byte by byte.
fn is_like(text: &[u8], pattern: &[u8]) -> bool {
    match (pattern, text) {
        ([], text) => text.is_empty(),
        ([b'%', rest @ ..], text) => (0..=text.len()).any(|from| is_like(&text[from..], rest)),
        ([b'_', rest @ ..], [_, text @ ..]) => is_like(text, rest),
        ([byte, rest @ ..], [first, text @ ..]) => byte == first && is_like(text, rest),
        (_, []) => false,
    }
}
