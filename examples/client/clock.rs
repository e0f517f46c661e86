//! The one place where this program reads clocks.

use std::time::{Instant, SystemTime};

/// To measure how long this run has taken.
#[expect(clippy::disallowed_methods, reason = "elapsed time of a program run")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// To tell a key's age across runs, and to read dates of servers.
#[expect(clippy::disallowed_methods, reason = "the age of a kept key outlives the process, and its monotonic clock")]
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}
