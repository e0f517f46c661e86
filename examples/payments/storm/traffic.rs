//! What arrives at a service in this process, and what it answers while somebody is there to be told.

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use idem_core::http::IDEMPOTENT_REPLAYED;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Requests that arrived at the service, and answers that left it.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Arrived {
    pub(crate) requests: u64,
    pub(crate) replays: u64,
    pub(crate) in_progress: u64,
    pub(crate) mismatches: u64,
    pub(crate) server_errors: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Traffic {
    requests: AtomicU64,
    replays: AtomicU64,
    in_progress: AtomicU64,
    mismatches: AtomicU64,
    server_errors: AtomicU64,
}

impl Traffic {
    pub(crate) fn counts(&self) -> Arrived {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Arrived {
            requests: count(&self.requests),
            replays: count(&self.replays),
            in_progress: count(&self.in_progress),
            mismatches: count(&self.mismatches),
            server_errors: count(&self.server_errors),
        }
    }

    /// `router`, counted.
    pub(crate) fn count(self: &Arc<Self>, router: Router) -> Router {
        let traffic = Arc::clone(self);
        router.layer(from_fn(move |request: Request, next: Next| {
            let traffic = Arc::clone(&traffic);
            async move {
                let add = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
                add(&traffic.requests);
                let response = next.run(request).await;
                match response.status().as_u16() {
                    _ if response.headers().contains_key(IDEMPOTENT_REPLAYED) => add(&traffic.replays),
                    409 => add(&traffic.in_progress),
                    422 => add(&traffic.mismatches),
                    500.. => add(&traffic.server_errors),
                    _ => 0,
                };
                response
            }
        }))
    }
}
