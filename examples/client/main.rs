//! `client`: pays one order at a running `payments`, once, whatever happens on the way.
//!
//!     cargo run --release --bin payments
//!     cargo run --release --bin client -- --order order-1 --amount 1000
//!
//! Kill it, cut its network, or run it again: the card is charged once, and the answer is the same. `keep.rs` has the
//! part that makes that true, the key that is kept before the first attempt.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program: what it prints is its answer")]

mod clock;
mod keep;

use clap::Parser;
use idem_core::client::{Attempt, Next, NoRetry, OperationKey, Progress, RetryRules};
use idem_core::http::{IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED};
use keep::Kept;
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// Charges a card for one order, once. The exit status is 0 if it was charged, 1 if it was refused, 2 if nobody knows
/// yet: then run it again.
#[derive(Debug, Parser)]
#[command(name = "client")]
struct Args {
    /// Where `payments` serves.
    #[arg(long, default_value = "http://127.0.0.1:8080")]
    service: String,
    /// What is paid for: letters, digits, `-` and `_`. One order is one operation.
    #[arg(long, value_parser = keep::order)]
    order: String,
    /// How much.
    #[arg(long)]
    amount: u64,
    /// In which currency.
    #[arg(long, default_value = "usd")]
    currency: String,
    /// The folder in which the key of each order is kept: what the table of orders is to a real client.
    #[arg(long, default_value = "idem-client-keys")]
    keys: PathBuf,
    /// How long to wait for one answer.
    #[arg(long, default_value = "5s", value_parser = humantime::parse_duration)]
    timeout: Duration,
    /// How long to go on trying.
    #[arg(long, default_value = "2m", value_parser = humantime::parse_duration)]
    budget: Duration,
}

/// An answer that came whole.
struct Answer {
    status: u16,
    body: Vec<u8>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match pay(&Args::parse()).await {
        Ok((reason, Some(answer))) if !reason.is_open() => {
            println!("{}", String::from_utf8_lossy(&answer.body));
            eprintln!("{}: {reason}", answer.status);
            ExitCode::from(u8::from(!(200..300).contains(&answer.status)))
        }
        Ok((reason, _)) => {
            eprintln!("client: {reason}");
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("client: {error}");
            ExitCode::from(2)
        }
    }
}

/// Sends the charge until there is nothing left to try.
async fn pay(args: &Args) -> Result<(NoRetry, Option<Answer>), AnyError> {
    let rules = RetryRules::default().with_budget(args.budget).with_max_attempts(u32::MAX);
    // The rules are to decide alone: an HTTP client that retries by itself does so without being counted.
    let http = reqwest::Client::builder().timeout(args.timeout).retry(reqwest::retry::never()).build()?;
    let url = format!("{}/v1/charges", args.service);
    // Every attempt sends the same bytes: the key belongs to this request and to no other.
    let body = json!({ "order": args.order, "amount": args.amount, "currency": args.currency }).to_string();

    let kept = Kept::of(&args.keys, &args.order)?;
    if !rules.may_send(kept.age()) {
        return Ok((NoRetry::KeyForgotten, None));
    }
    let began = clock::now();
    let mut attempts = 0;
    loop {
        let (attempt, answer) = send(&http, &url, &kept.key, body.clone()).await;
        attempts += 1;
        let progress = Progress::new(attempts, began.elapsed()).with_key_age(kept.age());
        match rules.next(&attempt, progress) {
            Next::Retry { after } => {
                let came = answer.map_or_else(|| "no answer".to_owned(), |answer| answer.status.to_string());
                eprintln!("attempt {attempts}: {came}; the same again in {after:?}");
                tokio::time::sleep(after).await;
            }
            Next::Stop { reason } => return Ok((reason, answer)),
        }
    }
}

/// One attempt, as the rules want to know it, and as it is shown in the end.
async fn send(http: &reqwest::Client, url: &str, key: &OperationKey, body: String) -> (Attempt, Option<Answer>) {
    let request = http.post(url).header(IDEMPOTENCY_KEY, key.to_string());
    let Ok(response) = request.header(CONTENT_TYPE, "application/json").body(body).send().await else {
        return (Attempt::unanswered(), None);
    };
    let status = response.status().as_u16();
    let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
    let mut attempt = Attempt::answered(status).with_replayed(header(IDEMPOTENT_REPLAYED) == Some("true"));
    if let Some(value) = header(RETRY_AFTER.as_str()) {
        attempt = attempt.with_retry_after(value, clock::wall());
    }
    let is_problem = header(CONTENT_TYPE.as_str()).is_some_and(|kind| kind.starts_with("application/problem+json"));
    // An answer that breaks off is none.
    let Ok(body) = response.bytes().await else { return (Attempt::unanswered(), None) };
    if is_problem
        && let Ok(problem) = serde_json::from_slice::<Value>(&body)
        && let Some(uri) = problem["type"].as_str()
    {
        attempt = attempt.with_problem_type(uri);
    }
    (attempt, Some(Answer { status, body: body.to_vec() }))
}
