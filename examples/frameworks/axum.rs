//! idem around the routes of an axum service: `cargo run --bin with-axum`, then paste the lines that it prints.
//!
//! `POST /charges` needs an `Idempotency-Key`, `POST /notes` honours one. The answers are kept in this process; to
//! share them among many, give the engine `PostgresStore::connect(PostgresConfig::from_url(url)?).await?` of
//! `idem-postgres`.
#![expect(clippy::print_stdout, reason = "a command-line program: what it prints is its answer")]

use axum::extract::Json;
use axum::http::{HeaderValue, StatusCode, header, request::Parts};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Router};
use idem_core::{Engine, Operation, Scope, Takeover};
use idem_memory::MemoryStore;
use idem_tower::{IdempotencyLayer, KeyRule, Meaning, Problem, ScopeError};
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;
use tokio::net::TcpListener;
use uuid::Uuid;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::builder(MemoryStore::default()).build()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let json = "-H 'Authorization: Bearer alice' -H 'Content-Type: application/json'";
    println!("Charge a card. Send the same again: the second answer is a replay, down to the last byte.");
    println!(r#"curl -i {url}/charges -H 'Idempotency-Key: order-7' {json} -d '{{"bank":"blue","amount":1000}}'"#);
    println!("The bank is closed: nothing has happened, so the same key runs again.");
    println!(r#"curl -i {url}/charges -H 'Idempotency-Key: order-8' {json} -d '{{"bank":"red","amount":1000}}'"#);
    println!("Without a key a charge is refused, and a note is not.");
    println!(r#"curl -i {url}/charges {json} -d '{{"bank":"blue","amount":1000}}'"#);
    println!("curl -i {url}/notes {json} -d '\"milk\"'");

    let stop = async { drop(tokio::signal::ctrl_c().await) };
    axum::serve(listener, router(&engine)).with_graceful_shutdown(stop).await?;
    // What clients have hung up on still runs, and its answer has to be stored.
    engine.drain(Duration::from_secs(10)).await;
    Ok(())
}

fn router(engine: &Engine) -> Router {
    // If a process dies in the middle of a charge, the retry may run: the bank recognises the derived key.
    let required = IdempotencyLayer::new(engine.clone(), scope, Takeover::Resume);
    let optional = required.clone().with_key_rule(|_| KeyRule::Optional);
    Router::new()
        .route("/charges", post(create_charge).layer(required))
        .route("/notes", post(create_note).layer(optional))
}

/// Whose key it is. A real service asks its authentication for the account, see [`idem_tower::ScopeOf`].
fn scope(head: &Parts) -> Result<Scope, ScopeError> {
    let credential = head.headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
    match credential {
        Some(b"Bearer alice") => Ok(Scope::new("account-of-alice")?),
        _ => Err(ScopeError::unauthorized("send `Authorization: Bearer alice`")),
    }
}

#[derive(Deserialize)]
struct Charge {
    bank: String,
    amount: u64,
}

async fn create_charge(
    Extension(operation): Extension<Operation>,
    Json(charge): Json<Charge>,
) -> Result<Response, Problem> {
    let Some(bank) = Bank::connect(&charge.bank).await else {
        return Ok(
            (StatusCode::SERVICE_UNAVAILABLE, Extension(Meaning::NoEffect), "the bank is closed\n").into_response()
        );
    };
    // From here on nobody can say that nothing has happened.
    operation.begin_effect("charge").await?;
    let id = bank.charge(charge.amount, &operation.derived_key("charge")).await;
    let location = [(header::LOCATION, format!("/charges/{id}"))];
    Ok((StatusCode::CREATED, location, Json(json!({ "id": id, "amount": charge.amount }))).into_response())
}

async fn create_note(Json(note): Json<String>) -> Response {
    (StatusCode::CREATED, format!("note {}: {note}\n", Uuid::new_v4())).into_response()
}

/// A stand-in for a client of the bank.
struct Bank;

impl Bank {
    async fn connect(name: &str) -> Option<Self> {
        (name == "blue").then_some(Self)
    }

    /// A new charge for a new key.
    async fn charge(&self, _amount: u64, _key: &str) -> String {
        format!("ch_{}", Uuid::new_v4().simple())
    }
}
