//! `peers`: the load of idem's benchmarks, driven against another library. `compare` starts it once for every
//! measurement.
//!
//! | file | holds |
//! |---|---|
//! | `cli.rs` | the command line |
//! | `idempotent.rs` | the calls, made with the crate `idempotent` |
//! | `http.rs` | a service behind the crate `axum-idempotent` |
//! | `sample.rs` | the operation |
//! | `../../src/load.rs`, `workload.rs` | the driver and what it asks for, which idem's side compiles, too |
#![expect(clippy::print_stdout, reason = "a command-line program: what it prints is its answer")]

mod cli;
mod http;
mod idempotent;
#[path = "../../src/load.rs"]
#[expect(unreachable_pub, reason = "on idem's side it is part of a library")]
mod load;
mod sample;
#[path = "../../src/workload.rs"]
#[expect(unreachable_pub, reason = "on idem's side it is part of a library")]
mod workload;

use clap::Parser;
use cli::{Cli, Command};

type AnyError = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), AnyError> {
    let measured = match Cli::parse().command {
        Command::IdempotentMemory(args) => idempotent::measure(idempotent::memory()?, args.workload, args.load()).await,
        Command::IdempotentRedis { url, args } => {
            idempotent::measure(idempotent::redis(url).await?, args.workload, args.load()).await
        }
        Command::AxumIdempotentServe => return http::serve().await,
    };
    println!("{}", serde_json::to_string(&measured)?);
    Ok(())
}
