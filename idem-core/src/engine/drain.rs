//! How an engine stops: [`Engine::drain`].

use super::Engine;
use super::clock::now;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::timeout_at;

/// What a drain came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drained {
    /// Operations that were still running at the deadline and were given up: their outcome is unknown, and a retry
    /// takes over at once.
    pub given_up: u64,
    /// Whether every operation was settled when the drain returned. If not, the store did not answer in time, and what
    /// is left goes stale by itself.
    pub settled: bool,
}

impl Engine {
    /// Stops claiming, waits up to `patience` for what is running, gives up the rest, and stops the sweeper.
    ///
    /// New requests are answered with [`ErrorKind::Draining`](crate::ErrorKind::Draining) from the first moment. What
    /// still runs after `patience` is stopped at its next await point and abandoned, leases in callers' hands too, for
    /// which it takes one statement deadline more at the most. Draining twice is harmless.
    ///
    /// # Cancel safety
    ///
    /// Dropped half-way, nothing is claimed any more; call it again to go on.
    pub async fn drain(&self, patience: Duration) -> Drained {
        let shared = &self.shared;
        shared.draining.cancel();
        shared.tracker.close();
        let done = timeout_at(now() + patience, shared.idle()).await.is_ok();
        if !done {
            shared.stop.cancel();
            for tenure in shared.held_by_hand() {
                shared.given_up.fetch_add(1, Ordering::Relaxed);
                shared.forget(&tenure);
                shared.spawn_if_possible(async move { drop(tenure.abandon().await) });
            }
        }
        let grace = now() + 2 * shared.policy.statement_deadline();
        let settled = done || timeout_at(grace, shared.tracker.wait()).await.is_ok();
        if let Some(sweeper) = self.take_sweeper() {
            sweeper.stop().await;
        }
        Drained { given_up: shared.given_up.load(Ordering::Relaxed), settled }
    }
}
