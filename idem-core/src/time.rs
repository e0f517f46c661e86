//! Time as a value: [`Timestamp`], [`LeaseLength`] and the [`Clock`] that a store reads.
//!
//! The store's clock is the only clock. A [`Timestamp`] is always an instant that a store stamped or that was
//! computed from one; the instants of an application never travel. Between two answers of the store an owner
//! measures *durations* on its own monotonic clock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An instant on a store's clock, in whole microseconds since the Unix epoch.
///
/// Microseconds because that is what a `timestamptz` holds: a value survives the round trip unchanged.
/// Arithmetic saturates; a duration's part below a microsecond is dropped.
///
/// # Examples
///
/// ```
/// use idem_core::Timestamp;
/// use std::time::Duration;
///
/// let start = Timestamp::from_micros(1_000_000);
/// let end = start.saturating_add(Duration::from_millis(5));
/// assert_eq!(end.as_micros(), 1_005_000);
/// assert_eq!(end.saturating_duration_since(start), Duration::from_millis(5));
/// assert_eq!(start.saturating_duration_since(end), Duration::ZERO);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From microseconds since the Unix epoch; negative before it.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the Unix epoch.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// This instant moved forward, or the largest one that there is.
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(micros))
    }

    /// How long after `earlier` this is; zero if it is before.
    #[must_use]
    pub fn saturating_duration_since(self, earlier: Self) -> Duration {
        let micros = i128::from(self.0) - i128::from(earlier.0);
        Duration::from_micros(u64::try_from(micros.max(0)).unwrap_or(u64::MAX))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.0)
    }
}

/// How long an owner promises to stay away from its own deadline: whole milliseconds, counted from `locked_at`.
///
/// A value, never an option: zero means *stale at once* (an abandoned lease) and a lease without an end does not
/// exist. At most [`LeaseLength::MAX`], about 24.8 days, which is what a 32-bit `int` column holds. That a
/// *policy* asks for at least a second is [`Policy`](crate::Policy)'s rule; a store takes any length.
///
/// # Examples
///
/// ```
/// use idem_core::LeaseLength;
/// use std::time::Duration;
///
/// let lease = LeaseLength::from_duration(Duration::from_micros(1_500));
/// assert_eq!(lease.as_millis(), 1); // rounded down: never promise more than was asked for
/// assert!(LeaseLength::ZERO < lease);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseLength(u32);

impl LeaseLength {
    /// Stale at once.
    pub const ZERO: Self = Self(0);
    /// The longest lease that a record can hold: `2^31 - 1` milliseconds.
    pub const MAX: Self = Self(i32::MAX.unsigned_abs());

    /// From milliseconds, cut to [`LeaseLength::MAX`].
    #[must_use]
    pub const fn from_millis(millis: u32) -> Self {
        if millis > Self::MAX.0 { Self::MAX } else { Self(millis) }
    }

    /// From a duration, rounded down to a millisecond and cut to [`LeaseLength::MAX`].
    #[must_use]
    pub fn from_duration(duration: Duration) -> Self {
        Self::from_millis(u32::try_from(duration.as_millis()).unwrap_or(u32::MAX))
    }

    /// The length in milliseconds.
    #[must_use]
    pub const fn as_millis(self) -> u32 {
        self.0
    }

    /// The length as a duration.
    #[must_use]
    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.0 as u64)
    }

    /// The next longer length, or [`LeaseLength::MAX`].
    #[must_use]
    pub const fn next(self) -> Self {
        Self::from_millis(self.0.saturating_add(1))
    }
}

impl fmt::Debug for LeaseLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

/// The wall clock of an in-process store.
///
/// A database has its own; this trait is for stores that live in the process, so that a test can hand them a
/// [`ManualClock`].
pub trait Clock: Send + Sync + fmt::Debug {
    /// What time it is. May step backwards, as wall clocks do.
    fn now(&self) -> Timestamp;
}

/// The machine's wall clock. The only place in idem that reads it.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

#[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
fn wall_clock() -> SystemTime {
    SystemTime::now()
}

/// Bits that are others a nanosecond later. Nothing is decided by them, so it does not matter that the clock may step.
pub(crate) fn nanoseconds() -> u64 {
    wall_clock().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let micros = match wall_clock().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_micros()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |micros| -micros),
        };
        Timestamp::from_micros(micros)
    }
}

/// A clock that stands still until it is moved, backwards too. Clones share one time.
///
/// # Examples
///
/// ```
/// use idem_core::{Clock, ManualClock, Timestamp};
/// use std::time::Duration;
///
/// let clock = ManualClock::new(Timestamp::from_micros(0));
/// clock.advance(Duration::from_secs(90));
/// assert_eq!(clock.now().as_micros(), 90_000_000);
/// ```
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    /// A clock that shows `start`.
    #[must_use]
    pub fn new(start: Timestamp) -> Self {
        Self(Arc::new(AtomicI64::new(start.as_micros())))
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.set(self.now().saturating_add(by));
    }

    /// Sets the clock, also to an earlier time.
    pub fn set(&self, to: Timestamp) {
        self.0.store(to.as_micros(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_time_saturate() {
        let end = Timestamp::from_micros(i64::MAX);
        assert_eq!(end.saturating_add(Duration::MAX), end);
        assert_eq!(end.saturating_duration_since(Timestamp::from_micros(i64::MIN)), Duration::from_micros(u64::MAX));
        assert_eq!(LeaseLength::from_duration(Duration::MAX), LeaseLength::MAX);
        assert_eq!(LeaseLength::MAX.next(), LeaseLength::MAX);
        assert_eq!(LeaseLength::MAX.as_millis(), 2_147_483_647);
    }
}
