//! What a charge and a refund do, step by step. Read [`post_charge`] first.

use super::Desk;
use super::ended::Ended;
use super::problem::Problem;
use super::tenant::Tenant;
use crate::fault::Point;
use crate::provider::client::ProviderError;
use crate::provider::{Charge, Done, Kind, Order};
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::{Extension, Json};
use bytes::Bytes;
use idem_core::Operation;
use idem_core::machine::Previous;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) const CHARGES: &str = "/v1/charges";
pub(crate) const REFUNDS: &str = "/v1/refunds";

/// The body of `POST /v1/charges`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChargeRequest {
    pub(crate) order: String,
    pub(crate) amount: u64,
    pub(crate) currency: String,
}

/// The body of `POST /v1/refunds`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RefundRequest {
    pub(crate) charge: String,
    pub(crate) amount: u64,
    pub(crate) currency: String,
}

/// Charges a card, once, however often it runs.
pub(crate) async fn post_charge(
    State(desk): State<Arc<Desk>>,
    Extension(tenant): Extension<Tenant>,
    Extension(operation): Extension<Operation>,
    body: Bytes,
) -> Result<Response, Ended> {
    let wanted: ChargeRequest = parse(&body)?;
    let _run = desk.charge_runs.begin(&wanted.order, Some(&operation));
    let fault = desk.faults.of(&wanted.order, operation.attempt());
    fault.strike(Point::BeforeEffect).await?;

    let ChargeRequest { order, amount, currency } = wanted;
    let order = Order { account: tenant.as_str().to_owned(), reference: order, amount, currency };
    let done = match finished_by_another(&operation, "charged") {
        Some(done) => done,
        None => {
            // From here on nobody may say that nothing happened without looking.
            operation.begin_effect("charge").await?;
            let key = operation.derived_key("charge");
            let charged = desk.provider.order(Kind::Charge, &order, Some(&key)).await;
            let done = charged.map_err(|error| failure(&operation, error))?;
            fault.strike(Point::AfterEffect).await?;
            // A takeover goes on from here and does not even ask the provider.
            operation.checkpoint("charged", done.id.clone()).await?;
            fault.strike(Point::AfterCheckpoint).await?;
            done
        }
    };
    let receipt = desk.receipt(&order.reference, operation.attempt()).await;
    fault.strike(Point::AtReceipt).await?;
    Ok(charged(&Charge { id: done.id, order, refunded: 0 }, &receipt).map(Body::from))
}

/// Pays a charge back, once.
pub(crate) async fn post_refund(
    State(desk): State<Arc<Desk>>,
    Extension(tenant): Extension<Tenant>,
    Extension(operation): Extension<Operation>,
    body: Bytes,
) -> Result<Response, Ended> {
    let wanted: RefundRequest = parse(&body)?;
    if desk.provider.find(tenant.as_str(), &wanted.charge).await.map_err(Ended::NothingDone)?.is_none() {
        return Err(Ended::Answered(json_response(StatusCode::NOT_FOUND, r#"{"error":"no_such_charge"}"#)));
    }
    let _run = desk.refund_runs.begin(&wanted.charge, Some(&operation));
    let fault = desk.faults.of(&wanted.charge, operation.attempt());
    fault.strike(Point::BeforeEffect).await?;

    let done = match finished_by_another(&operation, "refunded") {
        Some(done) => done,
        None => {
            let order = Order {
                account: tenant.as_str().to_owned(),
                reference: wanted.charge.clone(),
                amount: wanted.amount,
                currency: wanted.currency.clone(),
            };
            operation.begin_effect("refund").await?;
            let key = operation.derived_key("refund");
            let refunded = desk.provider.order(Kind::Refund, &order, Some(&key)).await;
            let done = refunded.map_err(|error| failure(&operation, error))?;
            fault.strike(Point::AfterEffect).await?;
            operation.checkpoint("refunded", done.id.clone()).await?;
            fault.strike(Point::AfterCheckpoint).await?;
            done
        }
    };
    let receipt = desk.receipt(&wanted.charge, operation.attempt()).await;
    fault.strike(Point::AtReceipt).await?;
    Ok(refunded(&wanted.charge, wanted.amount, &done, &receipt).map(Body::from))
}

pub(crate) async fn get_charge(
    State(desk): State<Arc<Desk>>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    let tenant = Tenant::of(&headers)?;
    // The provider has the charges of every process. A replay never looks there.
    match desk.provider.find(tenant.as_str(), &id).await {
        Ok(Some(charge)) => Ok(Json(shown(&charge))),
        // Another tenant's does not exist.
        Ok(None) => Err(Problem::new(StatusCode::NOT_FOUND, "no-such-charge", "there is no such charge")),
        Err(_) => Err(Problem::new(StatusCode::BAD_GATEWAY, "provider-silent", "the card provider does not answer")),
    }
}

/// What an earlier owner got done before it was lost.
fn finished_by_another(operation: &Operation, name: &str) -> Option<Done> {
    let point = operation.recovery_point().filter(|point| point.name == name)?;
    Some(Done { id: String::from_utf8(point.data.to_vec()).ok()? })
}

/// What a failed call to the provider means for the key.
fn failure(operation: &Operation, error: ProviderError) -> Ended {
    match error {
        ProviderError::Declined => Ended::Answered(declined()),
        ProviderError::Unknown => Ended::Unknown(error),
        // The provider speaks of this call. What an earlier owner's call did, if there may have been one, it does not say.
        ProviderError::NothingDone => match operation.previous() {
            Previous::Unknown { effect_begun: true } => Ended::Unknown(error),
            Previous::Unknown { effect_begun: false } | Previous::None | Previous::NoEffect => {
                Ended::VerifiedNothingDone(error)
            }
        },
    }
}

pub(crate) fn parse<T: for<'de> Deserialize<'de>>(body: &[u8]) -> Result<T, Problem> {
    // serde_json's message may quote the body, so only its place is told.
    serde_json::from_slice(body).map_err(|error| {
        let detail = format!("the body is not what this route takes: line {}, column {}", error.line(), error.column());
        Problem::new(StatusCode::BAD_REQUEST, "body-malformed", detail)
    })
}

fn shown(charge: &Charge) -> Value {
    let Charge { id, order: Order { account: _, reference, amount, currency }, refunded } = charge;
    json!({ "id": id, "order": reference, "amount": amount, "currency": currency, "refunded": refunded })
}

pub(crate) fn charged(charge: &Charge, receipt: &str) -> axum::http::Response<Bytes> {
    let mut body = shown(charge);
    body["receipt"] = receipt.into();
    let mut response = json_response(StatusCode::CREATED, body.to_string());
    if let Ok(location) = HeaderValue::try_from(format!("{CHARGES}/{}", charge.id)) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

pub(crate) fn refunded(charge: &str, amount: u64, done: &Done, receipt: &str) -> axum::http::Response<Bytes> {
    let body = json!({ "id": done.id, "charge": charge, "amount": amount, "receipt": receipt });
    json_response(StatusCode::CREATED, body.to_string())
}

fn declined() -> axum::http::Response<Bytes> {
    json_response(StatusCode::PAYMENT_REQUIRED, r#"{"error":"card_declined"}"#)
}

pub(crate) fn receipt_failed() -> axum::http::Response<Bytes> {
    let body = r#"{"error":"receipt_failed","detail":"the money moved, the receipt could not be made"}"#;
    json_response(StatusCode::INTERNAL_SERVER_ERROR, body)
}

fn json_response(status: StatusCode, body: impl Into<Bytes>) -> axum::http::Response<Bytes> {
    let mut response = axum::http::Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
