//! The command line. Without a command, `payments` serves.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// A payments service that can be retried without charging twice.
#[derive(Debug, Parser)]
#[command(name = "payments", args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve until Ctrl-C or SIGTERM, with a card provider in the same process (the default).
    Serve(ServeArgs),
    /// Run only the card provider.
    Provider(ProviderArgs),
    /// Drive the service as hostile clients and networks do, and check the provider's ledger and every answer.
    Storm(StormArgs),
}

/// Where the keys are kept.
#[derive(Clone, Default, Args)]
pub(crate) struct DatabaseArgs {
    /// Keep the keys in this PostgreSQL database, for example `postgres://user:password@localhost/payments`, instead of in this
    /// process. Several processes may use one.
    #[arg(long)]
    pub(crate) database_url: Option<String>,
    /// The table in the schema `idem`, which is made if it is not there. Serving, it is `records`; a storm makes one of its own and drops it.
    #[arg(long, requires = "database_url")]
    pub(crate) table: Option<String>,
    /// Answer retries of what still runs from this Redis or Valkey, for example `redis://localhost/`. It may be down,
    /// and it may be lost: that costs statements, and no more.
    #[arg(long, requires = "database_url")]
    pub(crate) redis_url: Option<String>,
}

impl fmt::Debug for DatabaseArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URLs may hold passwords.
        f.debug_struct("DatabaseArgs").field("table", &self.table).finish_non_exhaustive()
    }
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Where to listen. If the port is taken, a free one is chosen, and printed.
    #[arg(long, default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,
    /// Use this card provider instead of one in this process, for example `http://127.0.0.1:8090`.
    #[arg(long)]
    pub(crate) provider_url: Option<String>,
    /// Whether the card provider in this process honours idempotency keys. Without, nothing is taken over once a charge
    /// may have begun. Say it of an external provider, too.
    #[arg(long, value_enum, default_value = "on")]
    pub(crate) provider_dedupe: Switch,
    /// Fail, panic and hang as this seed says (see `storm`). The same seed gives the same faults in any process.
    #[arg(long)]
    pub(crate) fault_seed: Option<u64>,
    /// Of the faults of the seed, none that leaves an outcome unknown.
    #[arg(long, requires = "fault_seed")]
    pub(crate) no_panics: bool,
    /// The lease of a running operation, in milliseconds, at least 1000.
    #[arg(long, default_value_t = 10_000)]
    pub(crate) lease_ms: u64,
    /// How long a stop waits for running operations before it gives them up, in milliseconds.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(..=600_000))]
    pub(crate) drain_ms: u64,
    /// End at once when the standard input does: whoever started this process is gone.
    #[arg(long, hide = true)]
    pub(crate) until_stdin_closes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ProviderArgs {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:8090")]
    pub(crate) listen: SocketAddr,
    /// Whether it honours idempotency keys.
    #[arg(long, value_enum, default_value = "on")]
    pub(crate) dedupe: Switch,
    /// Refuse and hang up as this seed says. Without, it only takes its time.
    #[arg(long)]
    pub(crate) fault_seed: Option<u64>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct StormArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,
    /// Serve in this many processes on the database, instead of in this one.
    #[arg(long, default_value_t = 0, requires = "database_url", conflicts_with_all = ["naive", "key_per_attempt"], value_parser = clap::value_parser!(u32).range(..=16))]
    pub(crate) processes: u32,
    /// Kill one of them with SIGKILL this often, for example `1s`, and start it again.
    #[arg(long, requires = "processes", value_parser = interval)]
    pub(crate) kill_every: Option<Duration>,
    /// Stop one of them with SIGSTOP this often, until its leases are over, and let it go on.
    #[arg(long, requires = "processes", value_parser = interval)]
    pub(crate) pause_every: Option<Duration>,
    /// How many charges the clients want.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) operations: u32,
    /// How many of them are under way at a time.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4_096))]
    pub(crate) concurrency: u32,
    /// Everything random comes from it. Defaults to a random one, which is printed.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Whether the card provider honours idempotency keys. Without, nothing that leaves a charge in doubt may be run
    /// again, so combine it with --no-panics.
    #[arg(long, value_enum, default_value = "on")]
    pub(crate) provider_dedupe: Switch,
    /// No fault that leaves an outcome unknown: no panic, no hang, no lost reply of the provider.
    #[arg(long)]
    pub(crate) no_panics: bool,
    /// A control: the broken code of the articles instead of idem.
    #[arg(long, value_enum)]
    pub(crate) naive: Option<Naive>,
    /// A control: clients that make a new key for each try.
    #[arg(long, conflicts_with = "naive")]
    pub(crate) key_per_attempt: bool,
}

impl StormArgs {
    /// What the options say one by one is said by them; this is what no combination of them can be.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if (self.kill_every.is_some() || self.pause_every.is_some()) && self.provider_dedupe == Switch::Off {
            return Err(
                "a killed process leaves unknown outcomes, which nobody may run again if the provider does not \
                 honour our keys: leave --provider-dedupe on",
            );
        }
        if self.naive == Some(Naive::OneTransaction) && self.database.database_url.is_none() {
            return Err(
                "--naive one-transaction is about the transactions of PostgreSQL: name one with --database-url",
            );
        }
        Ok(())
    }
}

/// Not so often that nothing else happens.
fn interval(text: &str) -> Result<Duration, String> {
    let interval = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if interval < Duration::from_millis(50) { Err("at least 50ms".into()) } else { Ok(interval) }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Naive {
    /// Look the key up, run, store the answer afterwards.
    Lookup,
    /// SELECT FOR UPDATE, then insert, run and commit in one transaction.
    ForUpdate,
    /// Claim, run, store the answer and commit in one transaction, on PostgreSQL.
    OneTransaction,
}
