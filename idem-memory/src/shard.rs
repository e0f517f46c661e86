//! A part of the records, with those that can expire in order: [`Shard`].

use crate::name::{BuildAlreadyHashed, Name, NameRef, Named};
use crate::room::{Room, fixed_size, payload_size};
use idem_core::machine::Change;
use idem_core::{Identity, Record, Timestamp, Version};
use std::collections::{BTreeSet, HashMap};

/// The records of one part, behind one mutex.
///
/// `settled` holds exactly the resolved rows, by expiry: what a purge deletes is at its front, and finding that costs
/// as much as deleting it. A claim does not touch it, a completion adds to it.
#[derive(Default)]
pub(crate) struct Shard {
    /// Boxed, so that a table that is half empty, or grows, does not cost as much as its rows.
    rows: HashMap<Name, Box<Row>, BuildAlreadyHashed>,
    settled: BTreeSet<(Timestamp, Name)>,
}

struct Row {
    record: Record,
    /// What the account holds for this row: names, fingerprint and overhead, and all the rest.
    fixed: usize,
    payload: usize,
}

/// What became of a swap.
pub(crate) enum Outcome<'a> {
    Applied,
    Refused(Option<&'a Record>),
}

impl Shard {
    pub(crate) fn record(&self, name: NameRef<'_>) -> Option<&Record> {
        self.rows.get(&name as &dyn Named).map(|row| &row.record)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Identity, &Record)> {
        self.rows.iter().map(|(name, row)| (name.identity(), &row.record))
    }

    /// Puts in a record, for which there must be none under its name, if there is room for it.
    pub(crate) fn insert(
        &mut self,
        name: NameRef<'_>,
        record: Record,
        room: &Room,
    ) -> Result<(), crate::CapacityError> {
        let (fixed, payload) = (fixed_size(name.identity, &record), payload_size(&record));
        room.reserve(fixed + payload)?;
        self.rows.insert(name.to_name(), Box::new(Row { record, fixed, payload }));
        Ok(())
    }

    pub(crate) fn swap(&mut self, name: NameRef<'_>, expected: &Version, change: &Change, room: &Room) -> Outcome<'_> {
        let key: &dyn Named = &name;
        let Some(row) = self.rows.get_mut(key) else { return Outcome::Refused(None) };
        let Some(after) = change.apply(&row.record, expected) else {
            return Outcome::Refused(self.record(name));
        };
        let before = row.fixed + row.payload;
        if matches!(change, Change::AsNew { .. }) {
            row.fixed = fixed_size(name.identity, &after);
        }
        row.payload = payload_size(&after);
        room.resize(before, row.fixed + row.payload);
        let was_at = position(&row.record);
        let is_at = position(&after);
        row.record = after;
        if was_at != is_at {
            self.move_in_order(key, was_at, is_at);
        }
        Outcome::Applied
    }

    fn move_in_order(&mut self, key: &dyn Named, was_at: Option<Timestamp>, is_at: Option<Timestamp>) {
        // The table's own name, so that its text is kept once, whoever the caller's belongs to.
        let Some((name, _)) = self.rows.get_key_value(key) else { return };
        if let Some(expires_at) = was_at {
            self.settled.remove(&(expires_at, name.clone()));
        }
        if let Some(expires_at) = is_at {
            self.settled.insert((expires_at, name.clone()));
        }
    }

    /// Takes out the settled record that expired first, if it has expired by `clock`.
    pub(crate) fn remove_expired(&mut self, clock: Timestamp, room: &Room) -> Option<Record> {
        let (expires_at, _) = self.settled.first()?;
        if *expires_at > clock {
            return None;
        }
        let (_, name) = self.settled.pop_first()?;
        let row = self.rows.remove(&name)?;
        room.release(row.fixed + row.payload);
        Some(row.record)
    }

    /// Takes out at most `limit` records for which `dead` holds, and hands each to `removed`. Walks all records.
    pub(crate) fn remove_where(
        &mut self,
        limit: usize,
        room: &Room,
        mut dead: impl FnMut(&Identity, &Record) -> bool,
        mut removed: impl FnMut(&Record),
    ) {
        let dying = self.rows.extract_if(|name, row| dead(name.identity(), &row.record));
        for (name, row) in dying.take(limit) {
            if let Some(expires_at) = position(&row.record) {
                self.settled.remove(&(expires_at, name));
            }
            room.release(row.fixed + row.payload);
            removed(&row.record);
        }
    }

    /// Whether what is kept twice agrees: for tests.
    #[cfg(test)]
    pub(crate) fn check(&self) -> (usize, usize) {
        let settled: BTreeSet<_> = self
            .rows
            .iter()
            .filter_map(|(name, row)| position(&row.record).map(|expires_at| (expires_at, name.clone())))
            .collect();
        assert!(settled == self.settled, "the order of expiry holds the settled rows");
        for (name, row) in &self.rows {
            assert_eq!((row.fixed, row.payload), (fixed_size(name.identity(), &row.record), payload_size(&row.record)));
        }
        (self.rows.len(), self.rows.values().map(|row| row.fixed + row.payload).sum())
    }
}

/// Where a record stands in the order of expiry: unresolved ones do not expire.
fn position(record: &Record) -> Option<Timestamp> {
    record.is_resolved().then_some(record.expires_at)
}
