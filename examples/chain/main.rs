//! A charge from its request to its entry in a ledger, each hop in processes of its own:
//!
//! ```text
//!  client ──HTTP──▶ api ──one transaction──▶ PostgreSQL: charge, answer, outbox row
//!                                                 │
//!                          Redis Streams ◀──── relay
//!                                │
//!                            consumer ──one transaction──▶ PostgreSQL: inbox row, entry in the ledger
//! ```
//!
//! `cargo run --release --bin chain -- storm --seed 7` runs all of it, kills every process at random for a minute while
//! clients retry, and then counts: for every answer exactly one charge and one entry, and the same answer again.
//! `--naive` breaks one hop and shows what that costs.
//!
//! | file | holds |
//! |---|---|
//! | `cli.rs` | the command line |
//! | `tables.rs` | what is in the database beside idem's own tables |
//! | `api.rs` | the service |
//! | `relay.rs` | from the outbox to the stream |
//! | `consumer.rs` | from the stream to the ledger |
//! | `storm/` | the clients, the kills and the count |
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program: what it prints is its answer")]

mod api;
mod cli;
mod consumer;
mod relay;
#[path = "../payments/signal.rs"]
#[expect(dead_code, reason = "`payments` sends more signals than this program")]
mod signal;
mod storm;
mod tables;

use clap::Parser;
use cli::{Cli, Command};
use std::process::ExitCode;

type AnyError = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).init();
    let done = match Cli::parse().command {
        Command::Api(args) => api::serve(args).await.map(|()| true),
        Command::Relay(args) => relay::run(args).await.map(|()| true),
        Command::Consumer(args) => consumer::run(args).await.map(|()| true),
        Command::Storm(args) => storm::run(args).await,
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("chain: {error}");
            ExitCode::from(2)
        }
    }
}
