//! `payments storm`: starts provider, service and proxy on real sockets, drives them as hostile clients and networks do, and checks what
//! they left.
//!
//! | file | holds |
//! |---|---|
//! | `plan.rs` | what every client does, as a function of the seed |
//! | `client.rs` | how a client asks, retries and listens |
//! | `proxy.rs` | a proxy that re-sends POSTs unseen |
//! | `operation.rs` | one operation from its first request to its last replay |
//! | `check.rs` | ledger, runs and answers against each other |
//! | `report.rs` | the last line |

mod check;
mod client;
mod operation;
mod plan;
mod proxy;
mod report;

use crate::AnyError;
use crate::cli::{StormArgs, Switch};
use crate::database::{self, Table};
use crate::fault::{FaultPlan, ProviderPlan};
use crate::naive::{self, UniqueViolations};
use crate::provider;
use crate::provider::client::Client as ProviderClient;
use crate::serve::{Server, Signal, engine, takeover};
use crate::service::{self, Desk, Service};
use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use client::{Client, Limits};
use operation::Past;
use plan::Weather;
use proxy::Proxy;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// The shortest lease that a policy allows.
const LEASE: Duration = Duration::from_secs(1);
/// How long after a lease an operation may still be unanswered.
const STEP: Duration = Duration::from_millis(500);
/// How long the service may take to stop at the end.
const DRAIN: Duration = Duration::from_secs(5);

pub(crate) async fn storm(args: StormArgs) -> Result<ExitCode, AnyError> {
    let interrupt = Signal::listen()?;
    let table = Table::of(&args.database);
    let ended = tokio::select! {
        ended = run(&args, table.as_ref()) => ended,
        () = interrupt.arrived() => Err("interrupted".into()),
    };
    // Everything that was started went with the future that held it.
    if let Some(table) = table {
        table.close().await?;
    }
    ended
}

async fn run(args: &StormArgs, table: Option<&Table>) -> Result<ExitCode, AnyError> {
    let seed = args.seed.unwrap_or_else(plan::fresh_seed);
    println!("storm of {} operations, {} at a time, seed {seed}", args.operations, args.concurrency);
    let began = crate::clock::now();

    let dedupe = args.provider_dedupe == Switch::On;
    let provider_plan = ProviderPlan::new(Some(seed), args.no_panics);
    let provider = Server::start_anywhere(provider::router(provider_plan, dedupe)).await?;
    let provider = ProviderClient::new(&provider.url())?;
    let desk = Arc::new(Desk::new(provider.clone(), FaultPlan::new(Some(seed), args.no_panics)));
    let store = database::store(&table.map(Table::args).unwrap_or_default()).await?;
    if store.stats().await?.total() > 0 {
        return Err("the table is not empty: name another, or none".into());
    }
    let engine = engine(Arc::clone(&store), LEASE)?;
    let violations = UniqueViolations::default();
    let router = match args.naive {
        Some(which) => naive::router(Arc::clone(&desk), which, violations.clone()),
        None => {
            let desk = Arc::clone(&desk);
            service::router(Service { engine: engine.clone(), desk, takeover: takeover(dedupe) })
        }
    };
    let traffic = Arc::new(Traffic::default());
    let service = Server::start_anywhere(counted(router, &traffic)).await?;
    let proxy = Proxy::new(service.address, seed);
    let proxy_server = Server::start_anywhere(proxy.router()).await?;

    let client = Arc::new(Client::new(service.address, proxy_server.address, limits(args))?);
    let weather = Weather { seed, key_per_attempt: args.key_per_attempt };
    let mut pasts = drive(&client, weather, args).await;
    println!("every client is done after {:.1?}; now each asks once more", began.elapsed());
    // Whoever has no answer yet waits until no lease can be in its way.
    if pasts.iter().any(|past| !past.is_acknowledged()) {
        tokio::time::sleep(LEASE + STEP).await;
    }
    pasts = ask_again(&client, pasts, args.concurrency).await;

    let drained = engine.drain(DRAIN).await;
    let evidence = check::Evidence {
        ledger: provider.ledger().await?,
        desk: &desk,
        pasts: &pasts,
        operations: args.operations,
        live_leases: store.stats().await?.live,
        settled: drained.settled,
    };
    let tally = check::tally(&evidence);
    let controls = report::Controls::of(args, violations.count());
    let network = report::Network { arrived: traffic.counts(), resent_unseen: proxy.resent() };
    let report = report::Report { seed, elapsed: began.elapsed(), tally: &tally, network, controls };
    let failed = report.failed_checks();
    println!("{}", if failed.is_empty() { "every check holds".to_owned() } else { format!("FAILED: {failed:?}") });
    println!("{}", report.line()?);
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Broken services never become right, and their clients must come to an end all the same.
fn limits(args: &StormArgs) -> Limits {
    let longest_pause = Duration::from_millis(50);
    if args.naive.is_some() || args.key_per_attempt {
        Limits { tries: 8, patience: Duration::from_secs(6), longest_pause }
    } else {
        Limits { tries: 1_000, patience: Duration::from_secs(30), longest_pause }
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

/// What arrived at the service, and what it answered while somebody was there to be told.
#[derive(Debug, Default)]
struct Traffic {
    requests: AtomicU64,
    replays: AtomicU64,
    in_progress: AtomicU64,
    mismatches: AtomicU64,
    server_errors: AtomicU64,
}

impl Traffic {
    fn counts(&self) -> report::Arrived {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        report::Arrived {
            requests: count(&self.requests),
            replays: count(&self.replays),
            in_progress: count(&self.in_progress),
            mismatches: count(&self.mismatches),
            server_errors: count(&self.server_errors),
        }
    }
}

fn counted(router: Router, traffic: &Arc<Traffic>) -> Router {
    let traffic = Arc::clone(traffic);
    router.layer(from_fn(move |request: Request, next: Next| {
        let traffic = Arc::clone(&traffic);
        async move {
            let add = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
            add(&traffic.requests);
            let response = next.run(request).await;
            match response.status().as_u16() {
                _ if response.headers().contains_key(service::http::REPLAYED) => add(&traffic.replays),
                409 => add(&traffic.in_progress),
                422 => add(&traffic.mismatches),
                500.. => add(&traffic.server_errors),
                _ => 0,
            };
            response
        }
    }))
}
