//! A card provider: an HTTP server of its own with a ledger, latency, failures and idempotency keys, and the client that the
//! payments service calls it with.
//!
//! `POST /charges` and `POST /refunds` take an [`Order`], with an optional `Idempotency-Key`. `GET /charges/{id}` shows a charge as it stands
//! now, `GET /ledger` what arrived and what was done. An amount above [`CARD_LIMIT`] is declined.

pub(crate) mod client;
pub(crate) mod ledger;

use crate::fault::{ProviderFault, ProviderPlan};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use ledger::{Answer, Arrival, Ledger};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, PoisonError};

/// What a card pays at most.
pub(crate) const CARD_LIMIT: u64 = 1_000_000;

/// What the provider is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    /// Whose money it is.
    pub(crate) account: String,
    /// What the merchant calls it: an order for a charge, a charge for a refund.
    pub(crate) reference: String,
    pub(crate) amount: u64,
    pub(crate) currency: String,
}

/// What the provider did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) id: String,
}

/// A charge as it stands now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Charge {
    pub(crate) id: String,
    #[serde(flatten)]
    pub(crate) order: Order,
    pub(crate) refunded: u64,
}

/// The two things that a provider does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Charge,
    Refund,
}

#[derive(Debug)]
struct Provider {
    ledger: Mutex<Ledger>,
    plan: ProviderPlan,
    dedupe: bool,
}

/// The provider's routes.
pub(crate) fn router(plan: ProviderPlan, dedupe: bool) -> Router {
    let provider = Arc::new(Provider { ledger: Mutex::default(), plan, dedupe });
    Router::new()
        .route("/charges", post(charge))
        .route("/charges/{id}", get(find))
        .route("/refunds", post(refund))
        .route("/ledger", get(read))
        .with_state(provider)
}

async fn charge(State(provider): State<Arc<Provider>>, headers: HeaderMap, Json(order): Json<Order>) -> Response {
    provider.take(Kind::Charge, &headers, order).await
}

async fn refund(State(provider): State<Arc<Provider>>, headers: HeaderMap, Json(order): Json<Order>) -> Response {
    provider.take(Kind::Refund, &headers, order).await
}

async fn find(State(provider): State<Arc<Provider>>, Path(id): Path<String>) -> Response {
    match provider.ledger().charge(&id) {
        Some(charge) => Json(charge).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn read(State(provider): State<Arc<Provider>>) -> Response {
    Json(provider.ledger().report()).into_response()
}

impl Provider {
    fn ledger(&self) -> std::sync::MutexGuard<'_, Ledger> {
        // An entry is whole or not there: see `Ledger::arrive`.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides, and does it, in the instant of the arrival: a client that hangs up afterwards changes nothing. Then takes its time.
    async fn take(&self, kind: Kind, headers: &HeaderMap, order: Order) -> Response {
        let key = headers.get("idempotency-key").filter(|_| self.dedupe).map(|key| key.as_bytes().to_vec());
        let (fault, latency, answer) = {
            let mut ledger = self.ledger();
            let arrival = ledger.next_arrival(kind, &order.reference);
            let fault = self.plan.of(&order.reference, arrival);
            let latency = self.plan.latency(&order.reference, arrival);
            let refused = fault == ProviderFault::Refuse;
            let answer = ledger.arrive(Arrival { kind, order, key, refused });
            (fault, latency, answer)
        };
        tokio::time::sleep(latency).await;
        if fault == ProviderFault::HangUp {
            // Ends this connection, and only this one, without an answer.
            std::panic::resume_unwind(Box::new("the provider hangs up"));
        }
        match answer {
            Answer::Done(done) => (StatusCode::CREATED, Json(done)).into_response(),
            Answer::Refused => (StatusCode::SERVICE_UNAVAILABLE, "nothing was done").into_response(),
            Answer::Declined => (StatusCode::PAYMENT_REQUIRED, "card declined").into_response(),
            Answer::OtherOrder => (StatusCode::CONFLICT, "this key belongs to another order").into_response(),
        }
    }
}
