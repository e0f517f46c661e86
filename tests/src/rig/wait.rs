//! Polling with a deadline. A test that sleeps and hopes is either slow or wrong; this is neither.

use std::time::Duration;

use super::Error;

/// How long servers get to start, to stop, or to notice something, on a slow and busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

const STEP: Duration = Duration::from_millis(10);

/// Asks `probe` every 10 ms until it answers with a value.
///
/// # Errors
///
/// [`Error::Late`] if there was none within `limit`. A probe that is still thinking then is dropped.
///
/// # Cancel safety
///
/// Dropping the future drops the probe that is running, and nothing else.
pub async fn until<T, F>(what: &str, limit: Duration, mut probe: impl FnMut() -> F) -> Result<T, Error>
where
    // Not an async closure: no compiler could tell that the futures of all who call this can be sent to other threads.
    F: Future<Output = Option<T>>,
{
    let polled = tokio::time::timeout(limit, async {
        loop {
            if let Some(value) = probe().await {
                return value;
            }
            tokio::time::sleep(STEP).await;
        }
    });
    polled.await.map_err(|_| Error::Late { what: what.to_owned(), limit })
}
