//! `payments storm`: starts provider, service and proxy on real sockets, drives them as hostile clients and networks do, and checks what
//! they left. `README.md` says what is counted.
//!
//! | file | holds |
//! |---|---|
//! | `plan.rs` | what every client does, as a function of the seed |
//! | `client.rs` | how a client asks, retries and listens |
//! | `proxy.rs` | a proxy that re-sends POSTs unseen |
//! | `operation.rs` | one operation from its first request to its last replay |
//! | `here.rs` | the service in this process |
//! | `fleet.rs` | the service in several processes of its own |
//! | `chaos.rs` | kills and pauses them |
//! | `roster.rs` | where the service is |
//! | `traffic.rs` | what arrives at a service in this process |
//! | `witness.rs` | what is known of the runs of the handlers |
//! | `check.rs` | ledger, runs and answers against each other |
//! | `report.rs` | the last line |

mod chaos;
mod check;
mod client;
mod fleet;
mod here;
mod operation;
mod plan;
mod proxy;
mod report;
mod roster;
mod traffic;
mod witness;

use crate::AnyError;
use crate::cli::{StormArgs, Switch};
use crate::database::{self, Table};
use crate::fault::ProviderPlan;
use crate::naive::Seen;
use crate::provider;
use crate::provider::client::Client as ProviderClient;
use crate::serve::Server;
use crate::signal::Interrupt;
use chaos::Chaos;
use client::{Client, Limits};
use fleet::Fleet;
use here::Here;
use operation::Past;
use plan::Weather;
use proxy::Proxy;
use roster::Roster;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use witness::Witness;

/// The shortest lease that a policy allows.
const LEASE: Duration = Duration::from_secs(1);
/// How long after a lease an operation may still be unanswered.
const STEP: Duration = Duration::from_millis(500);
/// How long the service may take to stop at the end.
const DRAIN: Duration = Duration::from_secs(5);

pub(crate) async fn storm(args: StormArgs) -> Result<ExitCode, AnyError> {
    let interrupt = Interrupt::listen()?;
    args.check()?;
    let table = Table::of(&args.database);
    let ended = tokio::select! {
        ended = run(&args, table.as_ref()) => ended,
        () = interrupt.arrived() => Err("interrupted".into()),
    };
    // Everything that was started went with the future that held it.
    let closed = match table {
        Some(table) => table.close().await,
        None => Ok(()),
    };
    // What went wrong first is the reason for the rest.
    ended.and_then(|code| closed.map(|()| code))
}

/// The service under test.
#[derive(Debug)]
enum Site<'a> {
    Here(Here),
    Fleet(Fleet, &'a Table),
}

async fn run(args: &StormArgs, table: Option<&Table>) -> Result<ExitCode, AnyError> {
    let seed = args.seed.unwrap_or_else(plan::fresh_seed);
    println!("storm of {} operations, {} at a time, seed {seed}", args.operations, args.concurrency);
    let began = crate::clock::now();

    let store = database::store(&table.map(Table::args).unwrap_or_default()).await?;
    if store.stats().await?.total() > 0 {
        return Err("the table is not empty: name another, or none".into());
    }
    let provider_plan = ProviderPlan::new(Some(seed), args.no_panics);
    let provider = provider::router(provider_plan, args.provider_dedupe == Switch::On);
    let provider_url = Server::start_anywhere(provider).await?.url();
    let provider = ProviderClient::new(&provider_url)?;
    let (site, roster) = match table {
        Some(table) if args.processes > 0 => {
            let fleet = Fleet::start(args, seed, &provider_url, table).await?;
            let roster = Arc::clone(fleet.roster());
            (Site::Fleet(fleet, table), roster)
        }
        table => {
            let here = Here::start(args, seed, &provider, Arc::clone(&store), table).await?;
            let roster = Arc::new(Roster::new(vec![here.address()]));
            (Site::Here(here), roster)
        }
    };
    let proxy = Proxy::new(Arc::clone(&roster), seed);
    let proxy_server = Server::start_anywhere(proxy.router()).await?;

    let client = Arc::new(Client::new(roster, proxy_server.address, limits(args))?);
    let weather = Weather { seed, key_per_attempt: args.key_per_attempt };
    let (mut pasts, struck) = match &site {
        Site::Here(_) => (drive(&client, weather, args).await, None),
        Site::Fleet(fleet, _) => {
            let chaos = Chaos::new(args, seed);
            let (over, until) = watch::channel(());
            let driven = async {
                let pasts = drive(&client, weather, args).await;
                over.send_replace(());
                Ok(pasts)
            };
            let (pasts, struck) = tokio::try_join!(driven, chaos.rage(fleet, &until))?;
            (pasts, Some(struck))
        }
    };
    println!("every client is done after {:.1?}; now each asks once more", began.elapsed());
    // Whoever has no answer yet waits until no lease can be in its way.
    if pasts.iter().any(|past| !past.is_acknowledged()) {
        tokio::time::sleep(LEASE + STEP).await;
    }
    pasts = ask_again(&client, pasts, args.concurrency).await;

    let (settled, arrived, witness, seen) = match &site {
        Site::Here(here) => {
            let settled = here.stop().await;
            (settled, Some(here.traffic.counts()), Witness::of_journals(&here.desk), here.seen.clone())
        }
        Site::Fleet(fleet, table) => {
            let settled = fleet.stop().await?;
            (settled, None, Witness::of_rows(table.rows().await?, &pasts), Seen::default())
        }
    };
    let evidence = check::Evidence {
        ledger: provider.ledger().await?,
        witness: &witness,
        pasts: &pasts,
        operations: args.operations,
        live_leases: store.stats().await?.live,
        settled,
    };
    let tally = check::tally(&evidence);
    let controls = report::Controls::of(args, seen);
    let network = report::Network { arrived, resent_unseen: proxy.resent() };
    let report = report::Report { seed, elapsed: began.elapsed(), tally: &tally, network, struck, controls };
    let failed = report.failed_checks();
    println!("{}", if failed.is_empty() { "every check holds".to_owned() } else { format!("FAILED: {failed:?}") });
    println!("{}", report.line()?);
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Broken services never become right, and their clients must come to an end all the same.
fn limits(args: &StormArgs) -> Limits {
    let longest_pause = Duration::from_millis(50);
    let cached = args.database.redis_url.is_some();
    if args.naive.is_some() || args.key_per_attempt {
        Limits { tries: 8, patience: Duration::from_secs(6), longest_pause, cached }
    } else {
        Limits { tries: 1_000, patience: Duration::from_secs(30), longest_pause, cached }
    }
}

/// Runs every operation, some at a time.
async fn drive(client: &Arc<Client>, weather: Weather, args: &StormArgs) -> Vec<Past> {
    let mut at_work = JoinSet::new();
    let mut pasts = Vec::new();
    for index in 0..args.operations {
        if at_work.len() >= args.concurrency as usize {
            collect(&mut at_work, &mut pasts).await;
        }
        at_work.spawn(operation::run(Arc::clone(client), weather, index));
        if index > 0 && index.is_multiple_of(500) {
            println!("{index} operations begun");
        }
    }
    while !at_work.is_empty() {
        collect(&mut at_work, &mut pasts).await;
    }
    pasts
}

async fn ask_again(client: &Arc<Client>, pasts: Vec<Past>, concurrency: u32) -> Vec<Past> {
    let mut at_work = JoinSet::new();
    let mut done = Vec::new();
    for past in pasts {
        if at_work.len() >= concurrency as usize {
            collect(&mut at_work, &mut done).await;
        }
        at_work.spawn(operation::ask_again(Arc::clone(client), past));
    }
    while !at_work.is_empty() {
        collect(&mut at_work, &mut done).await;
    }
    done
}

/// Takes the next one that is done. A client that panicked is missing afterwards, and so counted as lost.
async fn collect(at_work: &mut JoinSet<Past>, pasts: &mut Vec<Past>) {
    match at_work.join_next().await {
        Some(Ok(past)) => pasts.push(past),
        Some(Err(stopped)) => println!("a client failed: {stopped}"),
        None => {}
    }
}
