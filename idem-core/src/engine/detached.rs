//! Work that goes on without whoever asked for it: [`detached`].

use crate::error::{Error, ErrorKind, WriteOutcome};
use futures_util::FutureExt;
use std::any::Any;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::Poll;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

/// Runs `task` to its end, in the caller's span, as part of what a drain waits for.
///
/// It begins in the caller's task. What need not wait for anything, because its store is in memory say, ends there; what
/// has to wait goes on in a task of its own. It comes in a box because a runtime moves a task about ten times until it is
/// done: one of 2 KB costs more to move than to allocate.
///
/// # Cancel safety
///
/// Dropped before the first poll, nothing happens. Dropped later, the task goes on.
pub(super) async fn detached<T: Send + 'static>(
    tracker: &TaskTracker,
    operation: &'static str,
    task: Pin<Box<impl Future<Output = Result<T, Error>> + Send + 'static>>,
) -> Result<T, Error> {
    let mut task = tracker.track_future(AssertUnwindSafe(task.in_current_span()).catch_unwind());
    let begun = poll_fn(|context| Poll::Ready(task.poll_unpin(context))).await;
    let ended = match begun {
        Poll::Ready(ended) => ended,
        // Its first poll there replaces the caller's waker.
        Poll::Pending => match tokio::spawn(task).await {
            Ok(ended) => ended,
            // The runtime's end.
            Err(stopped) => return Err(internal(operation).with_source(stopped)),
        },
    };
    // A handler's panic is caught where it runs; this is the engine's own.
    ended.unwrap_or_else(|panic| Err(internal(operation).with_source(said(&*panic))))
}

fn internal(operation: &'static str) -> Error {
    Error::new(ErrorKind::Internal, operation, WriteOutcome::Unknown)
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    format!("panicked: {}", text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio::task::yield_now;

    #[tokio::test]
    async fn what_does_not_wait_stays_in_the_callers_task() {
        let tracker = TaskTracker::new();
        let callers = tokio::spawn(async move {
            let ready = detached(&tracker, "test", Box::pin(async { Ok(tokio::task::id()) })).await.unwrap();
            let waits = async {
                yield_now().await;
                Ok(tokio::task::id())
            };
            (tokio::task::id(), ready, detached(&tracker, "test", Box::pin(waits)).await.unwrap())
        });
        let (callers, ready, waited) = callers.await.unwrap();
        assert_eq!(callers, ready);
        assert_ne!(callers, waited);
    }

    #[tokio::test]
    async fn what_began_is_finished_without_its_caller() {
        let (tracker, done) = (TaskTracker::new(), Arc::new(AtomicBool::new(false)));
        let begun = Arc::clone(&done);
        let task = async move {
            yield_now().await;
            begun.store(true, Ordering::SeqCst);
            Ok(())
        };
        let mut caller = Box::pin(detached(&tracker, "test", Box::pin(task)));
        assert!(futures_util::poll!(caller.as_mut()).is_pending());
        drop(caller);
        tracker.close();
        // It counts as work until it is done.
        tracker.wait().await;
        assert!(done.load(Ordering::SeqCst));
    }

    #[tokio::test]
    async fn a_panic_is_an_error_wherever_it_happens() {
        let tracker = TaskTracker::new();
        for waits in [false, true] {
            let task = async move {
                if waits {
                    yield_now().await;
                }
                if tokio::task::try_id().is_none() { Ok(()) } else { panic!("a store's own") }
            };
            let caller = tokio::spawn({
                let tracker = tracker.clone();
                async move { detached(&tracker, "test", Box::pin(task)).await }
            });
            let error = caller.await.unwrap().unwrap_err();
            assert_eq!((error.kind(), error.write_outcome()), (ErrorKind::Internal, WriteOutcome::Unknown));
            assert!(std::error::Error::source(&error).unwrap().to_string().contains("a store's own"));
        }
        assert!(tracker.is_empty());
    }
}
