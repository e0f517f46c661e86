//! Deletes dead records in the background: [`Sweeper`].

use crate::engine::now;
use crate::store::{PurgeOptions, Purged, Store};
use backon::{BackoffBuilder, ConstantBuilder};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{debug, warn};

/// How a [`Sweeper`] works.
#[derive(Debug, Clone)]
pub struct SweeperOptions {
    interval: Duration,
    purge: PurgeOptions,
    batch_deadline: Duration,
    rest: u32,
    warn_after: Duration,
}

impl Default for SweeperOptions {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(30),
            purge: PurgeOptions::default(),
            batch_deadline: Duration::from_secs(30),
            rest: 9,
            warn_after: Duration::from_secs(3600),
        }
    }
}

impl SweeperOptions {
    /// How long to pause between sweeps; each pause is up to twice as long by chance, so that processes do not sweep in
    /// step. Defaults to 30 s.
    #[must_use]
    pub fn with_interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// What one batch deletes. Defaults to [`PurgeOptions::default`]: settled records, 1,000 at a time.
    #[must_use]
    pub fn with_purge(mut self, purge: PurgeOptions) -> Self {
        self.purge = purge;
        self
    }

    /// How long one batch may take. Defaults to 30 s.
    #[must_use]
    pub fn with_batch_deadline(mut self, batch_deadline: Duration) -> Self {
        self.batch_deadline = batch_deadline;
        self
    }

    /// For how many times as long as a batch took it rests before the next one, so that live traffic comes first. Zero
    /// is as fast as the store can. Defaults to 9: a tenth of the time is spent purging while there is a backlog, so that
    /// purging does not show in the 99th percentile of what goes on beside it.
    #[must_use]
    pub fn with_rest(mut self, times: u32) -> Self {
        self.rest = times;
        self
    }

    /// From which age on an expired record that is still there is worth a warning: the sweeper does not keep up.
    /// Defaults to one hour.
    #[must_use]
    pub fn with_warn_after(mut self, warn_after: Duration) -> Self {
        self.warn_after = warn_after;
        self
    }
}

/// A background task that purges a store in batches until it has caught up, pauses, and begins again.
///
/// An [`Engine`](crate::Engine) has one unless it is turned off. Dropping a sweeper stops it after the batch that is
/// under way.
///
/// # Examples
///
/// ```
/// # use idem_core::conformance::ReferenceStore;
/// use idem_core::{Sweeper, SweeperOptions};
/// use std::sync::Arc;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let store = ReferenceStore::default();
/// let sweeper = Sweeper::spawn(Arc::new(store), SweeperOptions::default());
/// sweeper.stop().await;
/// # }
/// ```
#[must_use = "a sweeper stops when it is dropped"]
pub struct Sweeper {
    task: JoinHandle<()>,
    stop: DropGuard,
}

impl Sweeper {
    /// Starts sweeping `store`.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub fn spawn(store: Arc<dyn Store>, options: SweeperOptions) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(sweep_for_ever(store, options, stop.clone()));
        Self { task, stop: stop.drop_guard() }
    }

    /// Stops after the batch that is under way.
    ///
    /// # Cancel safety
    ///
    /// Dropped half-way, the sweeper stops all the same.
    pub async fn stop(self) {
        drop(self.stop);
        // The task does nothing but sweep; if it panicked there is nothing left to stop.
        let _ = self.task.await;
    }
}

impl fmt::Debug for Sweeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sweeper").field("stopped", &self.task.is_finished()).finish()
    }
}

async fn sweep_for_ever(store: Arc<dyn Store>, options: SweeperOptions, stop: CancellationToken) {
    let pauses = ConstantBuilder::default().with_delay(options.interval).with_jitter().without_max_times().build();
    for pause in pauses {
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(pause) => {}
        }
        sweep(&*store, &options, &stop).await;
    }
}

/// Purges until a batch is not full.
async fn sweep(store: &dyn Store, options: &SweeperOptions, stop: &CancellationToken) {
    let mut total = Purged::default();
    while !stop.is_cancelled() {
        let began = now();
        match timeout(options.batch_deadline, store.purge(&options.purge)).await {
            Ok(Ok(purged)) => {
                total.add(&purged);
                if purged.total() < options.purge.batch() as u64 {
                    break;
                }
            }
            Ok(Err(error)) => {
                warn!(target: "idem", kind = ?error.kind(), "dead records could not be purged");
                break;
            }
            Err(_) => {
                warn!(target: "idem", deadline = ?options.batch_deadline, "a purge took too long: make its batch smaller");
                break;
            }
        }
        // Live traffic comes first.
        let rest = now().saturating_duration_since(began).saturating_mul(options.rest);
        tokio::select! {
            () = stop.cancelled() => {}
            () = sleep(rest) => {}
        }
    }
    if let Some(oldest) = total.oldest_expired.filter(|oldest| *oldest > options.warn_after) {
        warn!(target: "idem", ?oldest, "the sweeper does not keep up: records are purged long after they expired");
    }
    if total.total() > 0 {
        debug!(target: "idem", settled = total.settled, unresolved = total.unresolved, "purged dead records");
    }
}
