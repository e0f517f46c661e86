//! The command line.

use crate::load::Load;
use crate::workload::Workload;
use clap::{Args, Parser, Subcommand};
use std::num::{NonZeroU64, NonZeroUsize};
use std::time::Duration;

/// Drives one load against one other library and prints what came of it: one line of JSON.
#[derive(Parser)]
#[command(name = "peers")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// The crate `idempotent` with its store in memory.
    IdempotentMemory(LoadArgs),
    /// The crate `idempotent` with its store in Valkey or Redis.
    IdempotentRedis {
        /// The server, for example `redis://127.0.0.1:6379`. The keys of a run have a prefix of their own and stay for
        /// an hour.
        #[arg(long)]
        url: String,
        #[command(flatten)]
        args: LoadArgs,
    },
    /// A service behind the crate `axum-idempotent`, to be loaded over HTTP.
    ///
    /// Serves on a free port of 127.0.0.1, prints `listening on 127.0.0.1:PORT`, and runs until its standard input
    /// closes. `POST /charges` with the header `Idempotency-Key` charges.
    ///
    /// An answer is kept only for a request that carries a session. A client gets one from `POST /login`, which
    /// answers 204 with `Set-Cookie: session=ID; ...`, and sends `Cookie: session=ID` with every charge. Keys belong
    /// to their session. A session holds its answers in one map, and every write walks through all of it: give each
    /// caller a session of its own. Of more than 10,000 sessions some are dropped.
    ///
    /// A replayed answer carries `idempotency-replayed: true`.
    AxumIdempotentServe,
}

#[derive(Args)]
pub(crate) struct LoadArgs {
    /// What a call is.
    #[arg(long)]
    pub(crate) workload: Workload,
    /// How many callers there are, each making one call after the other.
    #[arg(long)]
    callers: NonZeroUsize,
    /// How long they call before anything is counted.
    #[arg(long)]
    warm_up_ms: u64,
    /// How long calls are counted that come back.
    #[arg(long)]
    counted_ms: NonZeroU64,
}

impl LoadArgs {
    /// What the driver wants to know.
    pub(crate) fn load(&self) -> Load {
        Load {
            callers: self.callers.get(),
            warm_up: Duration::from_millis(self.warm_up_ms),
            counted: Duration::from_millis(self.counted_ms.get()),
        }
    }
}
