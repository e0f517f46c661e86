//! How much is in use and how much may be: [`Room`].

use crate::error::{CapacityError, Limit};
use idem_core::{Identity, Record, State};
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a record takes beside the bytes that are counted one by one: its fields, its slots in the table and in the
/// order of expiry, and the headers of its allocations. Rounded up from about 650.
pub(crate) const OVERHEAD: usize = 768;

/// The same for each header and trailer field of a response. Rounded up: a field is 56 bytes and has an allocation for
/// its name, and up to half of a list's room is free.
pub(crate) const FIELD_OVERHEAD: usize = 128;

/// The account of all shards together.
///
/// Room is reserved before a record is put in and given back after it was taken out, so that the account is never below
/// what the shards hold. No memory is published through these counters, so relaxed operations are enough: each is exact
/// by itself.
pub(crate) struct Room {
    records: AtomicUsize,
    bytes: AtomicUsize,
    max_records: usize,
    max_bytes: usize,
}

impl Room {
    pub(crate) fn new(max_records: usize, max_bytes: usize) -> Self {
        Self { records: AtomicUsize::new(0), bytes: AtomicUsize::new(0), max_records, max_bytes }
    }

    pub(crate) fn records(&self) -> usize {
        self.records.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Takes room for one record of `bytes`, or nothing.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<(), CapacityError> {
        add_within(&self.records, 1, self.max_records)
            .ok_or_else(|| CapacityError::new(Limit::Records, self.max_records))?;
        if add_within(&self.bytes, bytes, self.max_bytes).is_none() {
            self.records.fetch_sub(1, Ordering::Relaxed);
            return Err(CapacityError::new(Limit::Bytes, self.max_bytes));
        }
        Ok(())
    }

    /// Accounts for a record that changed its size. Never refused: see
    /// [`MemoryConfig::with_max_bytes`](crate::MemoryConfig::with_max_bytes).
    pub(crate) fn resize(&self, before: usize, after: usize) {
        if after >= before {
            self.bytes.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.bytes.fetch_sub(before - after, Ordering::Relaxed);
        }
    }

    /// Gives back the room of one record of `bytes`.
    pub(crate) fn release(&self, bytes: usize) {
        self.records.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

fn add_within(counter: &AtomicUsize, more: usize, limit: usize) -> Option<usize> {
    counter
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| used.checked_add(more).filter(|sum| *sum <= limit))
        .ok()
}

/// The part of a record's size that stays the same until a new life: names, fingerprint and overhead.
pub(crate) fn fixed_size(identity: &Identity, record: &Record) -> usize {
    OVERHEAD + identity.scope().as_str().len() + identity.key().as_str().len() + record.fingerprint.as_bytes().len()
}

/// The part of a record's size that swaps change: response and recovery point.
pub(crate) fn payload_size(record: &Record) -> usize {
    let response = match &record.state {
        State::Completed(response) => {
            let fields = response.headers().count() + response.trailers().count();
            response.size() + fields * FIELD_OVERHEAD + response.seal_key_id().map_or(0, str::len)
        }
        State::InProgress | State::Failed => 0,
    };
    response + record.recovery_point.as_ref().map_or(0, |point| point.name.len() + point.data.len())
}
