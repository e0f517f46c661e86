//! What all tasks of one engine share.

use super::tenure::Tenure;
use crate::policy::Policy;
use crate::record::Owner;
use crate::store::Store;
use crate::tag::TagKey;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The state of one engine.
pub(super) struct Shared {
    pub(super) store: Arc<dyn Store>,
    pub(super) policy: Arc<Policy>,
    pub(super) limits: Limits,
    pub(super) tags: TagKey,
    pub(super) permits: Arc<Semaphore>,
    /// Every task that works under a lease, and every lease in a caller's hands.
    pub(super) tracker: TaskTracker,
    /// Cancelled when nothing is claimed any more.
    pub(super) draining: CancellationToken,
    /// Cancelled when what still runs is stopped.
    pub(super) stop: CancellationToken,
    /// How many ownerships a drain gave up.
    pub(super) given_up: AtomicU64,
    by_hand: Mutex<HashMap<Owner, Weak<Tenure>>>,
}

/// Sizes in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) response: usize,
    pub(super) recovery_data: usize,
}

impl Shared {
    pub(super) fn new(
        store: Arc<dyn Store>,
        policy: Policy,
        limits: Limits,
        tags: TagKey,
        max_in_flight: usize,
    ) -> Self {
        Self {
            store,
            policy: Arc::new(policy),
            limits,
            tags,
            permits: Arc::new(Semaphore::new(max_in_flight)),
            tracker: TaskTracker::new(),
            draining: CancellationToken::new(),
            stop: CancellationToken::new(),
            given_up: AtomicU64::new(0),
            by_hand: Mutex::default(),
        }
    }

    /// Remembers a lease that a caller holds, so that a drain can give it up.
    pub(super) fn remember(&self, tenure: &Arc<Tenure>) {
        self.by_hand().insert(tenure.granted().version.owner, Arc::downgrade(tenure));
    }

    pub(super) fn forget(&self, tenure: &Tenure) {
        self.by_hand().remove(&tenure.granted().version.owner);
    }

    /// The leases that callers hold.
    pub(super) fn held_by_hand(&self) -> Vec<Arc<Tenure>> {
        self.by_hand().values().filter_map(Weak::upgrade).collect()
    }

    fn by_hand(&self) -> std::sync::MutexGuard<'_, HashMap<Owner, Weak<Tenure>>> {
        // Nothing panics while it is held; a map of weak references is valid whatever happened.
        self.by_hand.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("policy", &self.policy).field("limits", &self.limits).finish_non_exhaustive()
    }
}
