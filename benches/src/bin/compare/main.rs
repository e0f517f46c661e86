//! Both sides of every comparison in one run, in turn: one table, and one JSON file.
//!
//! `cargo run --release -p idem-benches --bin compare -- --json compare.json`, on a machine that does nothing else.
//! It starts the servers that it needs: PostgreSQL 18 (`scripts/postgres 18` fetches it; else whichever there is), and
//! Redis. `docs/speed.md` says what the figures mean.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program: what it prints is its answer")]

mod by_hand;
mod heat;
mod http;
mod idem;
mod peer;
mod pgbench;
mod report;
mod stores;

use by_hand::ByHand;
use clap::{Parser, Subcommand};
use heat::{At, Heat, Other, Pace};
use http::Http;
use idem::Idem;
use idem_benches::servers::{self, Server};
use idem_benches::workload::Workload;
use peer::Peers;
use pgbench::{Baseline, Pgbench};
use report::{Report, Row};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use stores::{Memory, Postgres};

pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

/// Client counts of pgbench, the best of which counts.
const CLIENTS: [usize; 6] = [1, 8, 16, 32, 64, 256];

#[derive(Parser)]
#[command(about = "Measures idem and others, in turn", version)]
struct Options {
    #[command(subcommand)]
    command: Option<Command>,
    /// Where the figures go, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// A folder for charts, as SVG.
    #[arg(long, value_name = "FOLDER")]
    svg: Option<PathBuf>,
    /// How many callers at a time.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64, 256, 1024])]
    callers: Vec<usize>,
    /// How often each side is measured.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// How long a round counts, in milliseconds.
    #[arg(long, default_value = "1500", value_parser = milliseconds)]
    counted: Duration,
    /// How long a round runs before it counts, in milliseconds.
    #[arg(long, default_value = "500", value_parser = milliseconds)]
    warm_up: Duration,
    /// Only these workloads.
    #[arg(long, value_delimiter = ',')]
    workloads: Vec<Workload>,
    /// Only these stores: postgres, memory, http.
    #[arg(long, value_delimiter = ',', default_values = ["postgres", "memory", "http"])]
    stores: Vec<String>,
    /// Only sides whose name contains this.
    #[arg(long, default_value = "")]
    against: String,
    /// A PostgreSQL that is there, and an empty database in it, instead of a server of its own.
    #[arg(long, value_name = "URL")]
    postgres: Option<String>,
}

#[derive(Subcommand)]
enum Command {
    /// Serves charges behind idem's layer until its standard input ends.
    #[command(hide = true)]
    Serve,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let done = match options.command {
        Some(Command::Serve) => http::serve().await,
        None => compare(&options).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compare: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn compare(options: &Options) -> Result<(), Error> {
    if cfg!(debug_assertions) {
        eprintln!("compare: this is not a release build; its figures mean nothing");
    }
    // Better now than in half an hour.
    if let Some(folder) = &options.svg {
        std::fs::create_dir_all(folder)?;
    }
    if let Some(file) = &options.json {
        std::fs::File::create(file)?;
    }
    let peers = Peers::build().await?;
    let mut rows = Vec::new();
    let mut server = None;
    if options.measures("postgres") {
        let server = server.insert(Server::find(options.postgres.clone()).await?);
        postgres(options, server, &peers, &mut rows).await?;
    }
    if options.measures("memory") {
        memory(options, &peers, &mut rows).await?;
    }
    if options.measures("http") {
        over_http(options, &peers, &mut rows).await?;
    }
    let report = Report { machine: servers::machine(server.as_ref()), rows };
    for line in &report.machine {
        println!("{line}");
    }
    println!("{}", report.table());
    if let Some(path) = &options.json {
        report.write(path)?;
    }
    if let Some(folder) = &options.svg {
        report.draw(folder)?;
    }
    Ok(())
}

impl Options {
    fn measures(&self, store: &str) -> bool {
        self.stores.iter().any(|name| name == store)
    }

    fn wants(&self, workload: Workload) -> bool {
        self.workloads.is_empty() || self.workloads.contains(&workload)
    }

    async fn run(&self, mut heat: Heat, rows: &mut Vec<Row>) -> Result<(), Error> {
        heat.others.retain(|other| other.side.name().contains(&self.against));
        let pace = Pace { rounds: self.rounds.into(), warm_up: self.warm_up, counted: self.counted };
        if !heat.others.is_empty() {
            rows.extend(heat.run(pace).await?);
        }
        Ok(())
    }
}

async fn postgres(options: &Options, server: &Server, peers: &Peers, rows: &mut Vec<Row>) -> Result<(), Error> {
    let (everysec, always) = (servers::redis("everysec").await?, servers::redis("always").await?);
    let workloads = [Workload::Fresh, Workload::Replay, Workload::ConflictStorm, Workload::Mixed];
    for workload in workloads.into_iter().filter(|&workload| options.wants(workload)) {
        let space = server.database().await;
        let url = space.url();
        let baseline = Baseline::new(url, workload).await?;
        let same = |side| Other { side, at: At::TheSame };
        let single = Postgres::new(url, "single", Some(1)).await?;
        let mut others = vec![
            same(Idem::side("one statement per call", workload, single)),
            same(ByHand::side(&baseline, workload)),
            same(peers.idempotent(workload, Some((&everysec, "everysec")))),
            same(peers.idempotent(workload, Some((&always, "always")))),
        ];
        let script = match workload {
            Workload::Fresh => Some("articles.sql"),
            Workload::Replay => Some("replay.sql"),
            Workload::Execute | Workload::ConflictStorm | Workload::Mixed => None,
        };
        if let Some(script) = script {
            let side = Pgbench::side(server.programs(), &baseline, script);
            others.push(Other { side, at: At::TheBestOf(CLIENTS.to_vec()) });
        }
        let ours = Idem::side("idem", workload, Postgres::new(url, "together", None).await?);
        let heat = Heat { name: format!("postgres {workload}"), ours, others, callers: options.callers.clone() };
        options.run(heat, rows).await?;
    }
    Ok(())
}

async fn memory(options: &Options, peers: &Peers, rows: &mut Vec<Row>) -> Result<(), Error> {
    let workloads = [Workload::Execute, Workload::Fresh, Workload::Replay, Workload::ConflictStorm, Workload::Mixed];
    for workload in workloads.into_iter().filter(|&workload| options.wants(workload)) {
        let ours = Idem::side("idem", workload, Memory);
        let others = vec![Other { side: peers.idempotent(workload, None), at: At::TheSame }];
        let heat = Heat { name: format!("memory {workload}"), ours, others, callers: options.callers.clone() };
        options.run(heat, rows).await?;
    }
    Ok(())
}

async fn over_http(options: &Options, peers: &Peers, rows: &mut Vec<Row>) -> Result<(), Error> {
    for workload in [Workload::Fresh, Workload::Replay].into_iter().filter(|&workload| options.wants(workload)) {
        let ours = Http::ours(workload).await?;
        let theirs = Http::axum_idempotent(peers.axum_idempotent().await?, workload).await?;
        let others = vec![Other { side: theirs, at: At::TheSame }];
        let heat = Heat { name: format!("http {workload}"), ours, others, callers: options.callers.clone() };
        options.run(heat, rows).await?;
    }
    Ok(())
}

/// The lengths that a command line gives in milliseconds.
fn milliseconds(text: &str) -> Result<Duration, std::num::ParseIntError> {
    text.parse().map(Duration::from_millis)
}
