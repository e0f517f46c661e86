//! The broken code of the articles, in front of the same provider: the storm's controls.
//! Do not copy it.
//!
//! | file | what it gets wrong |
//! |---|---|
//! | `lookup.rs` | looks the key up, runs, stores the answer afterwards: two copies at once both find nothing |
//! | `for_update.rs` | locks a row that is not there, and claims in the transaction that the work is in |
//! | `one_transaction.rs` | claims with the right insert, in the transaction that the work is in, on PostgreSQL |
//!
//! None passes a derived key to the provider, as the articles' code does not. What they do right is done right: the
//! key is the tenant's, another request under it is refused with 422, and a stored answer is replayed verbatim.

mod for_update;
mod lookup;
mod one_transaction;

use crate::AnyError;
use crate::cli::Naive;
use crate::database::Table;
use crate::fault::{Point, Struck};
use crate::provider::client::ProviderError;
use crate::provider::{Charge, Kind, Order};
use crate::service::Desk;
use crate::service::handlers::{self, CHARGES, ChargeRequest, REFUNDS, RefundRequest};
use crate::service::problem::Problem;
use crate::service::tenant::Tenant;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response as HttpResponse};
use axum::routing::post;
use bytes::Bytes;
use for_update::ForUpdate;
use idem_core::http::IDEMPOTENT_REPLAYED;
use idem_tower::header;
use lookup::Lookup;
use one_transaction::OneTransaction;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// (tenant, key)
type Name = (String, String);

/// A stored answer, and what was asked.
#[derive(Debug, Clone)]
struct Row {
    request: (String, Bytes),
    answer: Answer,
}

#[derive(Debug, Clone)]
struct Answer {
    status: StatusCode,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
}

#[derive(Debug)]
enum Guard {
    Lookup(Lookup),
    ForUpdate(ForUpdate),
    OneTransaction(OneTransaction),
}

/// What only a control shows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    violations: AtomicU64,
    blocked: AtomicU64,
    longest_wait_ms: AtomicU64,
}

/// No insert takes so long that nobody is in the way of, for want of a connection or for a claim that is not committed.
const BLOCKED: Duration = Duration::from_millis(50);

impl Seen {
    /// How often the database reported a duplicate key to a client as an error of the server.
    pub(crate) fn violations(&self) -> u64 {
        self.0.violations.load(Ordering::Relaxed)
    }

    /// Requests that another one was in the way of, in the database.
    pub(crate) fn blocked(&self) -> u64 {
        self.0.blocked.load(Ordering::Relaxed)
    }

    /// The longest that one waited.
    pub(crate) fn longest_wait_ms(&self) -> u64 {
        self.0.longest_wait_ms.load(Ordering::Relaxed)
    }

    fn add_violation(&self) {
        self.0.violations.fetch_add(1, Ordering::Relaxed);
    }

    fn waited(&self, wait: Duration) {
        self.0.blocked.fetch_add(u64::from(wait >= BLOCKED), Ordering::Relaxed);
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.0.longest_wait_ms.fetch_max(wait_ms, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct NaiveService {
    desk: Arc<Desk>,
    guard: Guard,
}

/// The routes of the service, behind broken code.
pub(crate) async fn router(
    desk: Arc<Desk>,
    which: Naive,
    seen: &Seen,
    table: Option<&Table>,
) -> Result<Router, AnyError> {
    let guard = match which {
        Naive::Lookup => Guard::Lookup(Lookup::default()),
        Naive::ForUpdate => Guard::ForUpdate(ForUpdate::new(seen.clone())),
        Naive::OneTransaction => {
            let table = table.ok_or("this control needs a database")?;
            Guard::OneTransaction(OneTransaction::new(table, seen.clone()).await?)
        }
    };
    let reading = crate::service::reading(Arc::clone(&desk));
    Ok(Router::new()
        .route(CHARGES, post(answer))
        .route(REFUNDS, post(answer))
        .with_state(Arc::new(NaiveService { desk, guard }))
        .merge(reading))
}

async fn answer(
    State(service): State<Arc<NaiveService>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Result<HttpResponse, Problem> {
    let tenant = Tenant::of(&headers)?.as_str().to_owned();
    let refused = |detail| Problem::new(StatusCode::BAD_REQUEST, "key-refused", detail);
    let key = header::key(&headers).map_err(|error| refused(error.to_string()))?;
    let key = key.ok_or_else(|| refused("send an Idempotency-Key header".to_owned()))?;
    let name = (tenant.clone(), key.as_str().to_owned());
    let request = (uri.to_string(), body.clone());
    let work = perform(&service.desk, &tenant, uri.path(), &body);
    match &service.guard {
        Guard::Lookup(lookup) => lookup.run(name, request, work).await,
        Guard::ForUpdate(for_update) => for_update.run(name, request, work).await,
        Guard::OneTransaction(one_transaction) => one_transaction.run(name, request, work).await,
    }
}

impl Row {
    /// The stored answer, if it is one to this request.
    fn replay(&self, request: &(String, Bytes)) -> Result<HttpResponse, Problem> {
        if self.request != *request {
            let detail = "this Idempotency-Key belongs to another request";
            return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "key-reused", detail));
        }
        Ok(self.answer.response(true))
    }
}

impl Answer {
    fn response(&self, replayed: bool) -> HttpResponse {
        let mut response = (self.status, Body::from(self.body.clone())).into_response();
        for (name, value) in &self.headers {
            if let Ok(value) = value.parse() {
                response.headers_mut().insert(*name, value);
            }
        }
        if replayed {
            response.headers_mut().insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
        }
        response
    }
}

/// The same work as behind idem, with the same faults, and without anything that idem gives a handler.
async fn perform(desk: &Desk, tenant: &str, path: &str, body: &[u8]) -> Result<Answer, Problem> {
    let failed = |error: ProviderError| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", format!("{error}"));
    let struck = |struck: Struck| match struck {
        Struck::BeforeEffect => failed(ProviderError::NothingDone),
        Struck::AfterEffect => {
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", "the receipt could not be made")
        }
    };
    let account = tenant.to_owned();
    let (kind, order) = if path == CHARGES {
        let wanted: ChargeRequest = handlers::parse(body)?;
        (Kind::Charge, Order { account, reference: wanted.order, amount: wanted.amount, currency: wanted.currency })
    } else {
        let wanted: RefundRequest = handlers::parse(body)?;
        (Kind::Refund, Order { account, reference: wanted.charge, amount: wanted.amount, currency: wanted.currency })
    };
    let journal = match kind {
        Kind::Charge => &desk.charge_runs,
        Kind::Refund => &desk.refund_runs,
    };
    let run = journal.begin(&order.reference, None);
    let fault = desk.faults.of(&order.reference, run.number());
    fault.strike(Point::BeforeEffect).await.map_err(struck)?;
    let done = desk.provider.order(kind, &order, None).await.map_err(failed)?;
    for point in [Point::AfterEffect, Point::AfterCheckpoint, Point::AtReceipt] {
        fault.strike(point).await.map_err(struck)?;
    }
    let receipt = desk.receipt(&order.reference, run.number()).await;
    let answer = match kind {
        Kind::Charge => handlers::charged(&Charge { id: done.id, order, refunded: 0 }, &receipt),
        Kind::Refund => handlers::refunded(&order.reference, order.amount, &done, &receipt),
    };
    let header = |name: &'static str| Some((name, answer.headers().get(name)?.to_str().ok()?.to_owned()));
    let headers = ["content-type", "location"].into_iter().filter_map(header).collect();
    Ok(Answer { status: answer.status(), headers, body: answer.into_body() })
}
