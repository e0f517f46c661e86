//! `payments`: a small payments service behind idem, and the storm that tries to make it charge a card twice.
//!
//! Where to find what:
//!
//! | file | holds |
//! |---|---|
//! | `service/` | the service: its routes, its handlers, and how idem's outcomes become HTTP |
//! | `provider/` | the card provider with its ledger, and the client that the handlers call it with |
//! | `fault.rs` | which attempt fails how: a function of a seed, so that any process can tell |
//! | `signal.rs` | signals, received and sent |
//! | `storm/` | hostile clients and networks, and the checks of what they left |
//! | `naive/` | the broken code of the articles, for the storm's controls |
//! | `database.rs` | where the keys are kept: in this process or in PostgreSQL |
//! | `serve.rs` | `payments serve`: start, the two `curl` lines, the way to stop |
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program: what it prints is its answer")]

mod cli;
mod clock;
mod database;
mod fault;
mod naive;
mod provider;
mod serve;
mod service;
mod signal;
mod storm;

use clap::Parser;
use cli::{Cli, Command};
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

type AnyError = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    let Cli { command, serve } = Cli::parse();
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("error")))
        .with_writer(std::io::stderr)
        .init();
    let ended = match command.unwrap_or(Command::Serve(serve)) {
        Command::Serve(args) => serve::serve(args).await,
        Command::Provider(args) => serve::provider(args).await,
        Command::Storm(args) => storm::storm(args).await,
    };
    ended.unwrap_or_else(|error| {
        eprintln!("payments: {error}");
        ExitCode::from(2)
    })
}
