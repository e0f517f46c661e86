//! The store: [`MemoryStore`].

use crate::config::MemoryConfig;
use crate::error::CapacityError;
use crate::name::NameRef;
use crate::room::Room;
use crate::shard::{Outcome, Shard};
use async_trait::async_trait;
use idem_core::machine::Change;
use idem_core::store::{
    Erase, Erased, Inserted, Loaded, PurgeOptions, Purged, Stats, Stuck, StuckPage, StuckQuery, Swapped, UnresolvedRows,
};
use idem_core::{Claim, Clock, Error, ErrorKind, Identity, Scope, Store, Timestamp, Version, WriteOutcome};
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The records of one process.
///
/// Share it as `Arc<MemoryStore>`, which is a [`Store`] as well. Dropping it forgets everything. `Debug` shows counts
/// only.
///
/// # Examples
///
/// ```
/// use idem_core::Store;
/// use idem_memory::MemoryStore;
/// use std::sync::Arc;
///
/// let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
/// ```
pub struct MemoryStore {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    room: Room,
    clock: Arc<dyn Clock>,
}

/// How many expired records one look at one shard drops at most to make room: some more than one, so that not every
/// claim at the limit has to look, and few, so that none of them is slow.
const DROPPED_AT_ONCE: usize = 16;

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new(config: MemoryConfig) -> Self {
        Self {
            shards: (0..config.shards).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            room: Room::new(config.max_records, config.max_bytes),
            clock: config.clock,
        }
    }

    /// How many records there are, expired ones included. Costs nothing.
    #[must_use]
    pub fn records(&self) -> usize {
        self.room.records()
    }

    /// How many bytes they take, as [`MemoryConfig::with_max_bytes`] counts. Costs nothing.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.room.bytes()
    }

    fn name<'a>(&self, identity: &'a Identity) -> NameRef<'a> {
        NameRef { hash: self.hasher.hash_one(identity), identity }
    }

    fn shard_of(&self, name: NameRef<'_>) -> MutexGuard<'_, Shard> {
        // Bits from the middle: a table takes its slot from the lowest bits and a tag from the highest seven, and those
        // must still differ between the records of one shard.
        let index = usize::try_from((name.hash >> 40) & 0xffff).unwrap_or_default() & (self.shards.len() - 1);
        lock(&self.shards[index])
    }

    /// Drops some expired records, wherever they are, and says whether there were any.
    ///
    /// Looks at each shard at most once, and stops at the first that had one.
    fn make_room(&self, clock: Timestamp) -> bool {
        self.shards.iter().any(|shard| {
            let mut shard = lock(shard);
            (0..DROPPED_AT_ONCE).take_while(|_| shard.remove_expired(clock, &self.room).is_some()).count() > 0
        })
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // A shard is changed only after everything that may panic (a caller's clock, a comparison, a copy) is behind, so a
    // panic under the mutex left the records as they were.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for MemoryStore {
    /// An empty store with the default options.
    fn default() -> Self {
        Self::new(MemoryConfig::default())
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("records", &self.records())
            .field("bytes", &self.bytes())
            .field("shards", &self.shards.len())
            .finish_non_exhaustive()
    }
}

/// Every future is ready at its first poll; no mutex is held when it returns.
#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Store for MemoryStore {
    /// # Errors
    ///
    /// Only [`ErrorKind::Capacity`], *not applied*, with a [`CapacityError`] as the source.
    async fn insert(&self, claim: &Claim) -> Result<Inserted, Error> {
        let name = self.name(claim.identity());
        loop {
            let (clock, refused) = {
                let mut shard = self.shard_of(name);
                // Read under the mutex: no record is stamped later than the clock that is returned with it.
                let clock = self.clock.now();
                if let Some(record) = shard.record(name) {
                    return Ok(Inserted::Existing(Box::new(record.clone()), clock));
                }
                let record = claim.first_record(clock);
                let version = record.version;
                match shard.insert(name, record, &self.room) {
                    Ok(()) => return Ok(Inserted::Won(version)),
                    Err(refused) => (clock, refused),
                }
            };
            // Each further round has dropped a record. The rival that took its room made a record of its own.
            if !self.make_room(clock) {
                return Err(full(refused));
            }
        }
    }

    /// Never refused for its size, and never an error.
    async fn swap(&self, identity: &Identity, expected: &Version, change: &Change) -> Result<Swapped, Error> {
        let name = self.name(identity);
        let mut shard = self.shard_of(name);
        Ok(match shard.swap(name, expected, change, &self.room) {
            Outcome::Applied => Swapped::Applied,
            Outcome::Refused(found) => Swapped::Lost(found.cloned().map(Box::new), self.clock.now()),
        })
    }

    async fn load(&self, identity: &Identity) -> Result<Loaded, Error> {
        let name = self.name(identity);
        let shard = self.shard_of(name);
        Ok(Loaded { record: shard.record(name).cloned().map(Box::new), clock: self.clock.now() })
    }

    /// Settled records go by expiry within a shard and cost what deleting them costs. With
    /// [`UnresolvedRows::DropAfter`] a call that has not filled its batch walks the shard as well.
    async fn purge(&self, options: &PurgeOptions) -> Result<Purged, Error> {
        let clock = self.clock.now();
        let mut purged = Purged::default();
        let left =
            |purged: &Purged| options.batch().saturating_sub(usize::try_from(purged.total()).unwrap_or(usize::MAX));
        for shard in &self.shards {
            if left(&purged) == 0 {
                break;
            }
            let mut shard = lock(shard);
            while left(&purged) > 0
                && let Some(record) = shard.remove_expired(clock, &self.room)
            {
                purged.count(&record, clock);
            }
            if options.unresolved() != UnresolvedRows::Keep {
                let limit = left(&purged);
                shard.remove_where(
                    limit,
                    &self.room,
                    |_, record| options.deletes(record, clock),
                    |record| purged.count(record, clock),
                );
            }
        }
        Ok(purged)
    }

    /// Walks all records, one shard after the other: a record that moves meanwhile is listed as it was or as it is.
    async fn stuck(&self, query: &StuckQuery) -> Result<StuckPage, Error> {
        let clock = self.clock.now();
        let mut listed = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            let found = shard.iter().filter(|(_, record)| query.lists(record, clock));
            listed.extend(found.map(|(identity, record)| Stuck::new(identity.clone(), record)));
        }
        Ok(StuckPage::from_listed(query, listed))
    }

    /// Walks all records, one shard after the other.
    async fn stats(&self) -> Result<Stats, Error> {
        let clock = self.clock.now();
        let mut stats = Stats::default();
        for shard in &self.shards {
            lock(shard).iter().for_each(|(_, record)| stats.count(record, clock));
        }
        Ok(stats)
    }

    /// Walks all records, one shard after the other. A claim of the scope that is made meanwhile may stay.
    async fn erase(&self, scope: &Scope, which: Erase) -> Result<Erased, Error> {
        let mut erased = Erased::default();
        for shard in &self.shards {
            let mut kept = 0;
            lock(shard).remove_where(
                usize::MAX,
                &self.room,
                |identity, record| {
                    let in_scope = identity.scope() == scope;
                    kept += u64::from(in_scope && !which.deletes(record));
                    in_scope && which.deletes(record)
                },
                |_| erased.deleted += 1,
            );
            erased.kept += kept;
        }
        Ok(erased)
    }
}

fn full(source: CapacityError) -> Error {
    Error::new(ErrorKind::Capacity, "insert", WriteOutcome::NotApplied).with_source(source)
}

#[cfg(test)]
mod tests;
