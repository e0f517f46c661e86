//! Calls to the store, each with an end.

use super::clock::Instant;
use crate::error::{Error, ErrorKind, WriteOutcome};
use backon::{BackoffBuilder, ExponentialBuilder};
use std::future::Future;
use std::iter;
use std::time::Duration;
use tokio::time::timeout_at;

/// Runs one call to the store until `deadline`. A call that was cut off has an unknown outcome.
pub(super) async fn until<T>(
    deadline: Instant,
    operation: &'static str,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    match timeout_at(deadline, call).await {
        Ok(answer) => answer,
        Err(_) => Err(Error::new(ErrorKind::Timeout, operation, WriteOutcome::Unknown)),
    }
}

/// Whether the same call may be sent again at once: the store was not reached, did not answer, or lost the answer.
pub(super) fn worth_repeating(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout)
}

/// Pauses between repetitions: 10 ms, doubling to 1 s, each up to twice as long by chance.
pub(super) fn pauses() -> impl Iterator<Item = Duration> {
    const PAUSES: ExponentialBuilder = ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(10))
        .with_max_delay(Duration::from_secs(1))
        .with_jitter()
        .without_max_times();
    // Hardly a call ever pauses: what the pauses come from is made for the first of them, and in a box.
    let mut pauses = None;
    iter::from_fn(move || pauses.get_or_insert_with(|| Box::new(PAUSES.build())).next())
}
