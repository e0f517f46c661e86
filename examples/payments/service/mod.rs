//! The payments service: `POST /v1/charges`, `POST /v1/refunds`, `GET /v1/charges/{id}`, `GET /healthz`.
//!
//! | file | holds |
//! |---|---|
//! | `handlers.rs` | what a charge and a refund do, step by step, under idem |
//! | `ended.rs` | how a handler ends early, and what that means for the key |
//! | `tenant.rs` | authentication, in front of idem, and the scope that follows from it |
//! | `problem.rs` | what the service itself has to say against a request |
//! | `journal.rs` | every run of a handler, for the storm's checks |

pub(crate) mod ended;
pub(crate) mod handlers;
pub(crate) mod journal;
pub(crate) mod problem;
pub(crate) mod tenant;

use crate::fault::FaultPlan;
use crate::provider::client::Client;
use axum::Router;
use axum::extract::State;
use axum::middleware::from_fn;
use axum::routing::{get, post};
use idem_core::{Engine, Takeover};
use idem_tower::IdempotencyLayer;
use journal::Journal;
use std::sync::Arc;
use uuid::Uuid;

/// What every handler needs, whatever it is protected by.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) provider: Client,
    pub(crate) faults: FaultPlan,
    pub(crate) charge_runs: Journal,
    pub(crate) refund_runs: Journal,
}

impl Desk {
    pub(crate) fn new(provider: Client, faults: FaultPlan) -> Self {
        Self { provider, faults, charge_runs: Journal::default(), refund_runs: Journal::default() }
    }

    /// A new one for each run that gets to its answer, in whatever process: a second run could not answer with the same bytes.
    pub(crate) async fn receipt(&self, order: &str, attempt: u32) -> String {
        tokio::time::sleep(self.faults.receipt_time(order, attempt)).await;
        format!("rcpt_{}", Uuid::new_v4().simple())
    }
}

/// The service behind idem. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) engine: Engine,
    pub(crate) desk: Arc<Desk>,
    /// What may be run again after an owner was lost: it depends on whether the provider honours the keys derived from ours.
    pub(crate) takeover: Takeover,
}

/// The service's routes: whoever is let in meets idem, and behind it the handlers.
pub(crate) fn router(service: Service) -> Router {
    let Service { engine, desk, takeover } = service;
    let idempotency = IdempotencyLayer::new(engine, tenant::scope, takeover);
    Router::new()
        .route(handlers::CHARGES, post(handlers::post_charge))
        .route(handlers::REFUNDS, post(handlers::post_refund))
        .with_state(Arc::clone(&desk))
        .layer(idempotency)
        .layer(from_fn(tenant::authenticate))
        .merge(reading(desk))
}

/// The routes that change nothing.
pub(crate) fn reading(desk: Arc<Desk>) -> Router {
    Router::new()
        .route("/v1/charges/{id}", get(handlers::get_charge))
        .route("/healthz", get(async |State(_): State<Arc<Desk>>| "ok\n"))
        .fallback(problem::no_such_route)
        .method_not_allowed_fallback(problem::no_such_method)
        .with_state(desk)
}
