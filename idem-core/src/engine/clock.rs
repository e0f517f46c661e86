//! The owner's own clock: monotonic, for durations only.

use crate::record::Record;
use crate::time::{LeaseLength, Timestamp};
use std::time::Duration;

pub(crate) use tokio::time::Instant;

/// The only place of the engine that reads a clock. Tokio's, so that a paused runtime moves it.
#[expect(clippy::disallowed_methods, reason = "the engine's one monotonic clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Ties an ownership's `locked_at` to the owner's own clock.
///
/// The store stamped its clock somewhere between `sent` and `received`, when `locked_at` was `age` ago. Deadlines count
/// from the earlier end, proposals from the later one: both err towards promising too little.
#[derive(Debug, Clone, Copy)]
pub(super) struct Anchor {
    sent: Instant,
    received: Instant,
    age: Duration,
}

impl Anchor {
    /// For an ownership that begins with the clock that came with this exchange.
    pub(super) fn fresh(sent: Instant, received: Instant) -> Self {
        Self { sent, received, age: Duration::ZERO }
    }

    /// For a record that was read in this exchange together with the store's `clock`.
    pub(super) fn of(record: &Record, clock: Timestamp, sent: Instant, received: Instant) -> Self {
        Self { sent, received, age: clock.saturating_duration_since(record.version.locked_at) }
    }

    /// For how long the ownership has lasted, at the most that the owner can be sure of.
    pub(super) fn elapsed(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.received).saturating_add(self.age)
    }

    /// When the owner must stop under `lease`.
    pub(super) fn deadline(&self, lease: LeaseLength) -> Instant {
        self.sent + lease.as_duration().saturating_sub(self.age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_owner_errs_towards_stopping_early_and_promising_less() {
        let sent = now();
        tokio::time::advance(Duration::from_secs(2)).await;
        let anchor = Anchor::fresh(sent, now());
        tokio::time::advance(Duration::from_secs(3)).await;
        // The lease began between 3 and 5 seconds ago.
        assert_eq!(anchor.elapsed(now()), Duration::from_secs(3));
        let left = anchor.deadline(LeaseLength::from_millis(10_000)) - now();
        assert_eq!(left, Duration::from_secs(5));
    }
}
