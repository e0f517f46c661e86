//! The one place where these programs read a clock: to measure how long something took, and to bound it.

use std::time::Instant;

#[expect(clippy::disallowed_methods, reason = "elapsed time of a program run; nothing that idem decides depends on it")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
