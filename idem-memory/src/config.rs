//! What a store may hold and which clock it reads: [`MemoryConfig`].

use idem_core::{Clock, SystemClock};
use std::sync::Arc;

/// The options of a [`MemoryStore`](crate::MemoryStore).
///
/// # Examples
///
/// ```
/// use idem_memory::{MemoryConfig, MemoryStore};
///
/// let store = MemoryStore::new(MemoryConfig::default().with_max_records(10_000).with_max_bytes(64 << 20));
/// assert_eq!(store.records(), 0);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MemoryConfig {
    pub(crate) max_records: usize,
    pub(crate) max_bytes: usize,
    pub(crate) shards: usize,
    pub(crate) clock: Arc<dyn Clock>,
}

impl MemoryConfig {
    /// The most shards that a store has.
    pub const MAX_SHARDS: usize = 1 << 12;
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self { max_records: 1_000_000, max_bytes: 512 << 20, shards: 64, clock: Arc::new(SystemClock) }
    }
}

impl MemoryConfig {
    /// How many records the store holds at most, at least 1. Defaults to 1,000,000.
    ///
    /// A claim of a new key beyond that is refused, unless an expired record can be dropped for it. The limit is exact,
    /// however many threads claim at once.
    #[must_use]
    pub fn with_max_records(mut self, max_records: usize) -> Self {
        self.max_records = max_records.max(1);
        self
    }

    /// How many bytes of memory, by the store's own account, may be in use when a new key is claimed. Defaults to 512
    /// MiB.
    ///
    /// The account holds, for each record, its scope, key, fingerprint, response and recovery point; and for what
    /// surrounds them 768 bytes, and 128 for each field of the response. It counts the bytes of a value and not of a
    /// larger buffer that the value is a slice of. Only new keys are refused: a completion is accepted whatever its
    /// size, because the work that it reports is done, and refusing it would leave a key that cannot be answered. So the
    /// account may exceed the limit by what the owners at work complete with: bound that by bounding the response, and
    /// the number of handlers at work.
    #[must_use]
    pub fn with_max_bytes(mut self, max_bytes: usize) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// In how many parts, each with a mutex of its own, the records lie: rounded up to a power of two, 1 to
    /// [`MAX_SHARDS`](Self::MAX_SHARDS). Defaults to 64.
    ///
    /// More shards make it rarer that two threads wait for each other. A walk over all records ([`stats`], [`stuck`],
    /// [`erase`]) holds one mutex at a time, so that with more shards it also keeps others waiting for a shorter time.
    ///
    /// [`stats`]: idem_core::Store::stats
    /// [`stuck`]: idem_core::Store::stuck
    /// [`erase`]: idem_core::Store::erase
    #[must_use]
    pub fn with_shards(mut self, shards: usize) -> Self {
        self.shards = shards.clamp(1, Self::MAX_SHARDS).next_power_of_two();
        self
    }

    /// The clock that stamps and judges every record. Defaults to the machine's wall clock.
    ///
    /// It is read while a mutex of the store is held: it must return at once and must not call the store.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }
}
