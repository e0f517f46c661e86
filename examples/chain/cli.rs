//! The command line.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::fmt;
use std::net::SocketAddr;

/// A charge from its request to its entry in a ledger, each hop in processes of its own.
#[derive(Debug, Parser)]
#[command(name = "chain")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve `POST /charges`.
    Api(ApiArgs),
    /// Publish what is in the outbox to a Redis stream.
    Relay(RelayArgs),
    /// Book what is in the stream.
    Consumer(RelayArgs),
    /// Run all of them, kill them at random while clients retry, and count what came of it.
    Storm(StormArgs),
}

/// Which hop is broken, as a control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Naive {
    /// The completion is written after the transaction of the charge, and the event after the completion.
    CompleteOutside,
    /// The consumer books what it gets.
    NoInbox,
}

#[derive(Args)]
pub(crate) struct ApiArgs {
    #[arg(long)]
    pub(crate) database_url: String,
    /// Where to listen.
    #[arg(long)]
    pub(crate) listen: SocketAddr,
    #[arg(long)]
    pub(crate) naive: Option<Naive>,
    /// End at once when the standard input does: whoever started this process is gone.
    #[arg(long, hide = true)]
    pub(crate) until_stdin_closes: bool,
}

#[derive(Args)]
pub(crate) struct RelayArgs {
    #[arg(long)]
    pub(crate) database_url: String,
    #[arg(long)]
    pub(crate) redis_url: String,
    #[arg(long)]
    pub(crate) naive: Option<Naive>,
    /// End at once when the standard input does: whoever started this process is gone.
    #[arg(long, hide = true)]
    pub(crate) until_stdin_closes: bool,
}

#[derive(Args)]
pub(crate) struct StormArgs {
    /// What is random: who is killed when, and what the clients ask for.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// For how many seconds processes are killed.
    #[arg(long, default_value_t = 60)]
    pub(crate) seconds: u64,
    /// How many clients there are.
    #[arg(long, default_value_t = 16)]
    pub(crate) clients: usize,
    /// Break a hop.
    #[arg(long)]
    pub(crate) naive: Option<Naive>,
    /// An empty PostgreSQL database, instead of a server of the storm's own.
    #[arg(long, requires = "redis_url")]
    pub(crate) database_url: Option<String>,
    /// A Redis whose file is written at every command (`appendfsync always`), instead of one of the storm's own.
    #[arg(long, requires = "database_url")]
    pub(crate) redis_url: Option<String>,
}

macro_rules! hides_urls {
    ($($arguments:ident),*) => {$(
        impl fmt::Debug for $arguments {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                // The URLs may hold passwords.
                f.debug_struct(stringify!($arguments)).field("naive", &self.naive).finish_non_exhaustive()
            }
        }
    )*};
}

hides_urls!(ApiArgs, RelayArgs, StormArgs);
