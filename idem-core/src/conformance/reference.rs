//! The contract as the shortest program that keeps it: [`ReferenceStore`].

use crate::claim::Claim;
use crate::error::Error;
use crate::key::{Identity, Scope};
use crate::machine::Change;
use crate::record::{Record, Version};
use crate::store::{
    Erase, Erased, Inserted, Loaded, PurgeOptions, Purged, Stats, Store, Stuck, StuckPage, StuckQuery, Swapped,
};
use crate::time::{Clock, SystemClock, Timestamp};
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

/// A map behind one lock, for tests: every answer is the one that the contract's own functions give.
///
/// It has no bound and forgets nothing by itself; `idem-memory` is the store for one process. The suite is green on it,
/// the [broken stores](super::BrokenStore) are made out of it, and a model test can compare another store with it.
///
/// # Examples
///
/// ```
/// use idem_core::conformance::ReferenceStore;
/// use idem_core::{Claim, Fingerprint, Identity, Key, ManualClock, Scope, Store, Takeover, Timestamp};
/// use idem_core::store::Inserted;
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let clock = ManualClock::new(Timestamp::from_micros(1_000_000));
/// let store = ReferenceStore::with_clock(clock.clone());
/// let identity = Identity::new(Scope::new("acct_1")?, Key::new("k")?);
/// let fingerprint = Fingerprint::builder("POST /charges").bytes(b"100").finish()?;
/// let claim = Claim::new(identity, fingerprint, Takeover::Resume);
///
/// let Inserted::Won(version) = store.insert(&claim).await? else { panic!("the store was empty") };
/// assert_eq!(version.locked_at.as_micros(), 1_000_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ReferenceStore {
    clock: Arc<dyn Clock>,
    rows: Mutex<Rows>,
}

pub(super) type Rows = BTreeMap<Identity, Record>;

impl ReferenceStore {
    /// An empty store that stamps with `clock`.
    #[must_use]
    pub fn with_clock(clock: impl Clock + 'static) -> Self {
        Self { clock: Arc::new(clock), rows: Mutex::default() }
    }

    /// The rows, and the time. The clock is read under the lock, so that stamps are in the order of the writes.
    pub(super) fn rows(&self) -> (MutexGuard<'_, Rows>, Timestamp) {
        let rows = self.rows.lock().expect("nothing panics while it holds the rows");
        let clock = self.clock.now();
        (rows, clock)
    }
}

impl Default for ReferenceStore {
    /// An empty store on the [`SystemClock`].
    fn default() -> Self {
        Self::with_clock(SystemClock)
    }
}

impl fmt::Debug for ReferenceStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReferenceStore").field("clock", &self.clock).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for ReferenceStore {
    async fn insert(&self, claim: &Claim) -> Result<Inserted, Error> {
        let (mut rows, clock) = self.rows();
        if let Some(record) = rows.get(claim.identity()) {
            return Ok(Inserted::Existing(Box::new(record.clone()), clock));
        }
        let record = claim.first_record(clock);
        let version = record.version;
        rows.insert(claim.identity().clone(), record);
        Ok(Inserted::Won(version))
    }

    async fn swap(&self, identity: &Identity, expected: &Version, change: &Change) -> Result<Swapped, Error> {
        let (mut rows, clock) = self.rows();
        let Some(record) = rows.get_mut(identity) else { return Ok(Swapped::Lost(None, clock)) };
        match change.apply(record, expected) {
            Some(after) => {
                *record = after;
                Ok(Swapped::Applied)
            }
            None => Ok(Swapped::Lost(Some(Box::new(record.clone())), clock)),
        }
    }

    async fn load(&self, identity: &Identity) -> Result<Loaded, Error> {
        let (rows, clock) = self.rows();
        Ok(Loaded { record: rows.get(identity).cloned().map(Box::new), clock })
    }

    async fn purge(&self, options: &PurgeOptions) -> Result<Purged, Error> {
        let (mut rows, clock) = self.rows();
        Ok(purge(&mut rows, clock, options.batch(), |record| options.deletes(record, clock)))
    }

    async fn stuck(&self, query: &StuckQuery) -> Result<StuckPage, Error> {
        let (rows, clock) = self.rows();
        let listed = rows.iter().filter(|(_, record)| query.lists(record, clock));
        let listed = listed.map(|(identity, record)| Stuck::new(identity.clone(), record)).collect();
        Ok(StuckPage::from_listed(query, listed))
    }

    async fn stats(&self) -> Result<Stats, Error> {
        let (rows, clock) = self.rows();
        let mut stats = Stats::default();
        rows.values().for_each(|record| stats.count(record, clock));
        Ok(stats)
    }

    async fn erase(&self, scope: &Scope, which: Erase) -> Result<Erased, Error> {
        let (mut rows, _) = self.rows();
        Ok(erase(&mut rows, which, |other| other == scope))
    }
}

pub(super) fn purge(rows: &mut Rows, clock: Timestamp, batch: usize, dead: impl Fn(&Record) -> bool) -> Purged {
    let mut purged = Purged::default();
    rows.retain(|_, record| {
        let keep = purged.total() >= batch as u64 || !dead(record);
        if !keep {
            purged.count(record, clock);
        }
        keep
    });
    purged
}

pub(super) fn erase(rows: &mut Rows, which: Erase, meant: impl Fn(&Scope) -> bool) -> Erased {
    let mut erased = Erased::default();
    rows.retain(|identity, record| {
        if !meant(identity.scope()) {
            return true;
        }
        let keep = !which.deletes(record);
        *(if keep { &mut erased.kept } else { &mut erased.deleted }) += 1;
        keep
    });
    erased
}
