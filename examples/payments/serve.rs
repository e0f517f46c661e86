//! `payments serve` and `payments provider`: start, say how to use it, and stop without leaving a key behind.

use crate::AnyError;
use crate::cli::{ProviderArgs, ServeArgs, Switch};
use crate::database;
use crate::fault::{FaultPlan, ProviderPlan};
use crate::provider;
use crate::provider::client::Client;
use crate::service::{self, Desk, Service};
use crate::signal::{self, Interrupt};
use axum::Router;
use idem_core::{Engine, Policy, Store, Takeover};
use serde_json::json;
use std::future::pending;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use uuid::Uuid;

/// How long connections get to finish once every operation is settled.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A server in this process, on a socket of its own.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    stop: tokio::sync::oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Server {
    /// Serves `router` on `listener`.
    pub(crate) fn start(listener: TcpListener, router: Router) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let serve = axum::serve(listener, router).with_graceful_shutdown(async move {
            // Dropped without a word it goes on serving.
            if stopped.await.is_err() {
                pending::<()>().await;
            }
        });
        let task = tokio::spawn(async move {
            // It ends when it is told to, and retries what fails meanwhile.
            let _ = serve.await;
        });
        Ok(Self { address, stop, task })
    }

    /// Serves `router` on a free port of the loopback interface.
    pub(crate) async fn start_anywhere(router: Router) -> std::io::Result<Self> {
        Self::start(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?, router)
    }

    /// Where it is.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Accepts nothing any more and closes every connection once its last answer is out.
    fn stop(self) -> JoinHandle<()> {
        // If nobody listens, it has ended by itself.
        let _ = self.stop.send(());
        self.task
    }
}

pub(crate) async fn serve(args: ServeArgs) -> Result<ExitCode, AnyError> {
    let signal = Interrupt::listen()?;
    if args.until_stdin_closes {
        signal::end_with_parent()?;
    }
    let dedupe = args.provider_dedupe == Switch::On;
    let provider_url = match args.provider_url {
        Some(url) => url,
        None => Server::start_anywhere(provider::router(ProviderPlan::new(args.fault_seed, args.no_panics), dedupe))
            .await?
            .url(),
    };
    let store = database::store(&args.database).await?;
    let service = Service {
        engine: engine(Arc::clone(&store), Duration::from_millis(args.lease_ms))?,
        desk: Arc::new(Desk::new(Client::new(&provider_url)?, FaultPlan::new(args.fault_seed, args.no_panics))),
        takeover: takeover(dedupe),
    };
    let server = Server::start(bind(args.listen).await?, service::router(service.clone()))?;
    println!("payments on {}, card provider on {provider_url}", server.url());
    println!("This charges a card:\n\n{}\n", curl(&server.url(), first_body));
    println!("This is the same request, so it is answered from the store, with `idempotent-replayed: true`:\n");
    println!("{}\n", curl(&server.url(), second_body));

    signal.arrived().await;
    // Both at once: whoever is connected hears how its operation ended, and nobody new gets in.
    let connections = server.stop();
    let drained = service.engine.drain(Duration::from_millis(args.drain_ms)).await;
    let closed = timeout(LAST_WORDS, connections).await.is_ok();
    let stats = store.stats().await?;
    let end = json!({
        "given_up": drained.given_up,
        "settled": drained.settled,
        "live_leases": stats.live,
        "unknown_outcomes": stats.stale,
        "completed": stats.completed,
        "connections_closed": closed,
    });
    println!("{end}");
    // In a database there may be leases of other processes.
    let clean = if args.database.database_url.is_some() { drained.settled } else { stats.live == 0 };
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub(crate) async fn provider(args: ProviderArgs) -> Result<ExitCode, AnyError> {
    let signal = Interrupt::listen()?;
    let router = provider::router(ProviderPlan::new(args.fault_seed, false), args.dedupe == Switch::On);
    let server = Server::start(bind(args.listen).await?, router)?;
    println!("card provider on {}, its ledger at {}/ledger", server.url(), server.url());
    signal.arrived().await;
    // What is still connected then is closed by the end of the process.
    let _ = timeout(LAST_WORDS, server.stop()).await;
    Ok(ExitCode::SUCCESS)
}

/// The engine of a service whose handlers take a second at most.
pub(crate) fn engine(store: Arc<dyn Store>, lease: Duration) -> Result<Engine, AnyError> {
    let policy = Policy::builder().with_lease(lease).with_max_run(lease * 2).with_max_attempts(10).build()?;
    Ok(Engine::builder(store).with_policy(policy).build()?)
}

/// What may be run again after an owner was lost: without a provider that knows our keys, nothing that may have begun.
pub(crate) fn takeover(provider_dedupes: bool) -> Takeover {
    if provider_dedupes { Takeover::Resume } else { Takeover::OnlyBeforeEffect }
}

async fn bind(wanted: SocketAddr) -> Result<TcpListener, AnyError> {
    match TcpListener::bind(wanted).await {
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            let free = TcpListener::bind((wanted.ip(), 0)).await?;
            println!("{wanted} is taken, so this is on a free port (choose one with --listen)");
            Ok(free)
        }
        bound => Ok(bound?),
    }
}

fn first_body(order: &str) -> String {
    format!(r#"{{"order":"{order}","amount":1000,"currency":"usd"}}"#)
}

/// The same JSON value in other words.
fn second_body(order: &str) -> String {
    format!(r#"{{"currency": "usd", "amount": 1000, "order": "{order}"}}"#)
}

/// A command that a person can paste. The key is of this run, so that it is new to the provider, too.
fn curl(url: &str, body: impl Fn(&str) -> String) -> String {
    static KEY: std::sync::OnceLock<Uuid> = std::sync::OnceLock::new();
    let key = KEY.get_or_init(Uuid::new_v4);
    let body = body(&format!("order-{}", &key.simple().to_string()[..8]));
    format!("curl -i {url}/v1/charges -H 'Idempotency-Key: {key}' -H 'Content-Type: application/json' -d '{body}'")
}
