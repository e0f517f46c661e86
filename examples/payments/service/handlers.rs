//! What a charge and a refund do, step by step. Read [`charge`] first.

use super::problem::Problem;
use super::{Desk, Service, http};
use crate::fault::{Point, Struck};
use crate::provider::client::ProviderError;
use crate::provider::{Charge, Done, Kind, Order};
use axum::Json;
use axum::extract::{Path, Request as HttpRequest, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response as HttpResponse};
use idem_core::machine::Previous;
use idem_core::{Failure, Operation, Response};
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

pub(crate) async fn post_charge(State(service): State<Service>, request: HttpRequest) -> HttpResponse {
    match charge_of(&service, request).await {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    }
}

async fn charge_of(service: &Service, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let (parts, body) = http::read(request).await?;
    let request = http::request(&parts, &body, CHARGES, service.takeover)?;
    // What is wrong with the request itself is said before anything is claimed, and is not stored.
    let wanted = parse(&body)?;
    let tenant = request.identity().scope().as_str().to_owned();
    let desk = Arc::clone(&service.desk);
    let handler = move |operation| async move { charge(&desk, &tenant, wanted, operation).await };
    Ok(http::answer(&service.engine, request, handler).await)
}

/// Charges a card, once, however often it runs.
async fn charge(
    desk: &Desk,
    tenant: &str,
    wanted: ChargeRequest,
    operation: Operation,
) -> Result<Response, Failure<ProviderError>> {
    let _run = desk.charge_runs.begin(&wanted.order, Some(&operation));
    let fault = desk.faults.of(&wanted.order, operation.attempt());
    fault.strike(Point::BeforeEffect).await.map_err(struck)?;

    let ChargeRequest { order, amount, currency } = wanted;
    let order = Order { account: tenant.to_owned(), reference: order, amount, currency };
    let done = match finished_by_another(&operation, "charged") {
        Some(done) => done,
        None => {
            // From here on nobody may say that nothing happened without looking.
            operation.begin_effect("charge").await?;
            let key = operation.derived_key("charge");
            let charged = desk.provider.order(Kind::Charge, &order, Some(&key)).await;
            let done = charged.map_err(|error| failure(&operation, error))?;
            fault.strike(Point::AfterEffect).await.map_err(struck)?;
            // A takeover goes on from here and does not even ask the provider.
            operation.checkpoint("charged", done.id.clone()).await?;
            fault.strike(Point::AfterCheckpoint).await.map_err(struck)?;
            done
        }
    };
    let receipt = desk.receipt(&order.reference, operation.attempt()).await;
    fault.strike(Point::AtReceipt).await.map_err(struck)?;
    Ok(charged(&Charge { id: done.id, order, refunded: 0 }, &receipt))
}

pub(crate) async fn post_refund(State(service): State<Service>, request: HttpRequest) -> HttpResponse {
    match refund_of(&service, request).await {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    }
}

async fn refund_of(service: &Service, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let (parts, body) = http::read(request).await?;
    let request = http::request(&parts, &body, REFUNDS, service.takeover)?;
    let wanted: RefundRequest = parse(&body)?;
    let tenant = request.identity().scope().as_str().to_owned();
    let desk = Arc::clone(&service.desk);
    let handler = move |operation| async move { refund(&desk, &tenant, wanted, operation).await };
    Ok(http::answer(&service.engine, request, handler).await)
}

/// Pays a charge back, once.
async fn refund(
    desk: &Desk,
    tenant: &str,
    wanted: RefundRequest,
    operation: Operation,
) -> Result<Response, Failure<ProviderError>> {
    if desk.provider.find(tenant, &wanted.charge).await.map_err(Failure::NoEffect)?.is_none() {
        // An answer like any other: a retry gets it again.
        return Err(Failure::Final(
            Response::new(404, r#"{"error":"no_such_charge"}"#).with_header("content-type", JSON),
        ));
    }
    let _run = desk.refund_runs.begin(&wanted.charge, Some(&operation));
    let fault = desk.faults.of(&wanted.charge, operation.attempt());
    fault.strike(Point::BeforeEffect).await.map_err(struck)?;

    let done = match finished_by_another(&operation, "refunded") {
        Some(done) => done,
        None => {
            let order = Order {
                account: tenant.to_owned(),
                reference: wanted.charge.clone(),
                amount: wanted.amount,
                currency: wanted.currency.clone(),
            };
            operation.begin_effect("refund").await?;
            let key = operation.derived_key("refund");
            let refunded = desk.provider.order(Kind::Refund, &order, Some(&key)).await;
            let done = refunded.map_err(|error| failure(&operation, error))?;
            fault.strike(Point::AfterEffect).await.map_err(struck)?;
            operation.checkpoint("refunded", done.id.clone()).await?;
            fault.strike(Point::AfterCheckpoint).await.map_err(struck)?;
            done
        }
    };
    let receipt = desk.receipt(&wanted.charge, operation.attempt()).await;
    fault.strike(Point::AtReceipt).await.map_err(struck)?;
    Ok(refunded(&wanted.charge, wanted.amount, &done, &receipt))
}

pub(crate) async fn get_charge(
    State(desk): State<Arc<Desk>>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    let tenant = super::header::tenant(&headers)?;
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
fn failure(operation: &Operation, error: ProviderError) -> Failure<ProviderError> {
    match error {
        ProviderError::Declined => Failure::Final(declined()),
        ProviderError::Unknown => Failure::Unknown(error),
        // The provider speaks of this call. What an earlier owner's call did, if there may have been one, it does not say.
        ProviderError::NothingDone => match operation.previous() {
            Previous::Unknown { effect_begun: true } => Failure::Unknown(error),
            Previous::Unknown { effect_begun: false } | Previous::None | Previous::NoEffect => {
                Failure::VerifiedNoEffect(error)
            }
        },
    }
}

fn struck(struck: Struck) -> Failure<ProviderError> {
    match struck {
        Struck::BeforeEffect => Failure::NoEffect(ProviderError::NothingDone),
        Struck::AfterEffect => Failure::Final(receipt_failed()),
    }
}

pub(crate) fn parse<T: for<'de> Deserialize<'de>>(body: &[u8]) -> Result<T, Problem> {
    // serde_json's message may quote the body, so only its place is told.
    serde_json::from_slice(body).map_err(|error| {
        let detail = format!("the body is not what this route takes: line {}, column {}", error.line(), error.column());
        Problem::new(StatusCode::BAD_REQUEST, "body-malformed", detail)
    })
}

const JSON: &str = "application/json";

fn shown(charge: &Charge) -> Value {
    let Charge { id, order: Order { account: _, reference, amount, currency }, refunded } = charge;
    json!({ "id": id, "order": reference, "amount": amount, "currency": currency, "refunded": refunded })
}

pub(crate) fn charged(charge: &Charge, receipt: &str) -> Response {
    let mut body = shown(charge);
    body["receipt"] = receipt.into();
    Response::new(201, body.to_string())
        .with_header("content-type", JSON)
        .with_header("location", format!("{CHARGES}/{}", charge.id))
}

pub(crate) fn refunded(charge: &str, amount: u64, done: &Done, receipt: &str) -> Response {
    let body = json!({ "id": done.id, "charge": charge, "amount": amount, "receipt": receipt });
    Response::new(201, body.to_string()).with_header("content-type", JSON)
}

fn declined() -> Response {
    Response::new(402, r#"{"error":"card_declined"}"#).with_header("content-type", JSON)
}

fn receipt_failed() -> Response {
    Response::new(500, r#"{"error":"receipt_failed","detail":"the money moved, the receipt could not be made"}"#)
        .with_header("content-type", JSON)
}
