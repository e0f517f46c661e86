//! The service: `POST /charges`, whose charge, answer and event are one transaction.

use crate::AnyError;
use crate::cli::{ApiArgs, Naive};
use crate::signal::end_with_parent;
use crate::tables::{TOPIC, Tables};
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response as HttpResponse};
use axum::routing::post;
use bytes::Bytes;
use idem_core::{Engine, Failure, Fingerprint, Key, Operation, Outcome, Policy, Request, Response, Scope, Takeover};
use idem_postgres::outbox::OutboxEvent;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use uuid::Uuid;

struct Service {
    engine: Engine,
    tables: Tables,
    naive: Option<Naive>,
}

#[derive(Deserialize)]
struct Charge {
    account: String,
    amount: i64,
}

pub(crate) async fn serve(args: ApiArgs) -> Result<(), AnyError> {
    if args.until_stdin_closes {
        end_with_parent()?;
    }
    let tables = Tables::open(&args.database_url).await?;
    // Short, so that somebody takes over soon: a charge is a few statements.
    let policy = Policy::builder().with_lease(Duration::from_secs(1)).with_max_run(Duration::from_secs(10)).build()?;
    let engine = Engine::builder(tables.store.clone()).with_policy(policy).build()?;
    let service = Arc::new(Service { engine, tables, naive: args.naive });
    let router = Router::new().route("/charges", post(charge)).with_state(service);
    let listener = TcpListener::bind(args.listen).await?;
    println!("listening on {}", listener.local_addr()?);
    Ok(axum::serve(listener, router).await?)
}

async fn charge(State(service): State<Arc<Service>>, headers: HeaderMap, body: Bytes) -> HttpResponse {
    let (charge, request) = match read(&headers, &body) {
        Ok(read) => read,
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    let event = request.identity().derived_key("charged");
    let key = request.identity().key().as_str().to_owned();
    let naive = service.naive;
    let outcome = {
        let (engine, service) = (service.engine.clone(), Arc::clone(&service));
        let (event, account) = (event.clone(), charge.account.clone());
        engine.execute(request, move |operation| service.run(operation, charge.amount, account, key, event)).await
    };
    match outcome {
        Ok(Outcome::Executed { response, .. }) => {
            if naive == Some(Naive::CompleteOutside) {
                // The answer is stored by now, and no retry comes past here again.
                let event = OutboxEvent::new(TOPIC, &charge.account, event, charge.amount.to_string());
                let appended = async {
                    let mut connection = service.tables.pool.acquire().await?;
                    Ok::<_, AnyError>(service.tables.outbox.append(&mut connection, &event).await?)
                };
                if appended.await.is_err() {
                    return StatusCode::SERVICE_UNAVAILABLE.into_response();
                }
            }
            answer(&response)
        }
        Ok(Outcome::Replayed(response) | Outcome::Fenced { response: Some(response) }) => answer(&response),
        Ok(Outcome::InProgress { .. } | Outcome::Fenced { response: None }) => StatusCode::CONFLICT.into_response(),
        Ok(Outcome::Mismatch { .. }) => StatusCode::UNPROCESSABLE_ENTITY.into_response(),
        Ok(Outcome::Abandoned { .. } | Outcome::Failed { .. } | Outcome::Panicked(_) | Outcome::Stopped { .. })
        | Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

impl Service {
    async fn run(
        self: Arc<Self>,
        operation: Operation,
        amount: i64,
        account: String,
        key: String,
        event: String,
    ) -> Result<Response, Failure<sqlx::Error>> {
        let id = Uuid::new_v4();
        let mut transaction = self.tables.pool.begin().await.map_err(Failure::NoEffect)?;
        sqlx::query("INSERT INTO charges VALUES ($1, $2, $3)")
            .bind(id)
            .bind(key)
            .bind(amount)
            .execute(&mut *transaction)
            .await
            .map_err(Failure::NoEffect)?;
        let response = Response::new(201, format!(r#"{{"id":"{id}"}}"#));
        if self.naive != Some(Naive::CompleteOutside) {
            let event = OutboxEvent::new(TOPIC, account, event, amount.to_string());
            self.tables.outbox.append(&mut transaction, &event).await.map_err(idem_core::NotCompleted::from)?;
            let completion = operation.completion(&response).await?;
            self.tables.store.complete_in(&mut transaction, &completion).await?;
        }
        // If it fails, nobody knows whether it was committed.
        transaction.commit().await.map_err(Failure::Unknown)?;
        Ok(response)
    }
}

fn read(headers: &HeaderMap, body: &Bytes) -> Result<(Charge, Request), AnyError> {
    let key = headers.get("idempotency-key").ok_or("a charge needs an Idempotency-Key")?.to_str()?;
    let charge: Charge = serde_json::from_slice(body)?;
    let fingerprint = Fingerprint::builder("POST /charges").json(body).finish()?;
    // Everything that an attempt does is in one transaction, so another one may always run.
    let request = Request::new(Scope::new(&charge.account)?, Key::new(key)?, fingerprint, Takeover::Resume);
    Ok((charge, request))
}

fn answer(response: &Response) -> HttpResponse {
    let status = response.code().and_then(|code| StatusCode::from_u16(code).ok());
    (status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), response.body().clone()).into_response()
}
