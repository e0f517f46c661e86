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
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The state of one engine.
pub(super) struct Shared {
    pub(super) store: Arc<dyn Store>,
    pub(super) policy: Arc<Policy>,
    pub(super) limits: Limits,
    pub(super) tags: TagKey,
    pub(super) permits: Arc<Semaphore>,
    /// Every task that claims, or works under a lease.
    pub(super) tracker: TaskTracker,
    /// Cancelled when nothing is claimed any more.
    pub(super) draining: CancellationToken,
    /// Cancelled when what still runs is stopped.
    pub(super) stop: CancellationToken,
    /// How many ownerships a drain gave up.
    pub(super) given_up: AtomicU64,
    /// Leases in callers' hands.
    by_hand: Mutex<HashMap<Owner, Weak<Tenure>>>,
    by_hand_changed: Notify,
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
            by_hand_changed: Notify::new(),
        }
    }

    /// Remembers a lease that a caller holds, so that a drain can give it up.
    pub(super) fn remember(&self, tenure: &Arc<Tenure>) {
        self.by_hand().insert(tenure.granted().version.owner, Arc::downgrade(tenure));
    }

    pub(super) fn forget(&self, tenure: &Tenure) {
        if self.by_hand().remove(&tenure.granted().version.owner).is_some() {
            self.by_hand_changed.notify_waiters();
        }
    }

    /// Waits until every task is done and every lease in a caller's hands is finished.
    ///
    /// For a drain: nothing new begins any more.
    pub(super) async fn idle(&self) {
        // What still begins may end with a lease in its caller's hands.
        self.tracker.wait().await;
        loop {
            let changed = self.by_hand_changed.notified();
            if self.by_hand().is_empty() {
                break;
            }
            changed.await;
        }
        // What finishes those leases.
        self.tracker.wait().await;
    }

    /// Runs `task` in the background, as part of what a drain waits for. Without a runtime it is dropped, and the lease
    /// that it would have settled goes stale by itself.
    pub(super) fn spawn_if_possible(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            drop(self.tracker.spawn_on(task, &runtime));
        }
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
