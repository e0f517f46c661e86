//! `worker URL KEY`: a process that owns a key and does one step at a time, as it is told, so that a test can end it exactly between two
//! of them. It reads a command per line and answers each with a line; it ends when its standard input does.
//!
//! | told | does | says |
//! |---|---|---|
//! | `claim` | [`Engine::begin`] | `acquired ATTEMPT PREVIOUS POINT=DATA`, `busy`, `replayed BODY` |
//! | `begin_effect` | the mark | `ok`, `interrupted ..` |
//! | `checkpoint POINT DATA` | the recovery point | `ok`, `interrupted ..` |
//! | `charge` | an arrival at the ledger, with the derived key | `ok` |
//! | `complete BODY` | settles | `recorded`, `fenced BODY` |
//! | `run BODY` | [`Engine::execute`], which renews: mark, recovery point, charge | `charged` |
//! | `go` | lets the handler of `run` return | nothing, or what comes of `run`, whenever that is: `executed`, `fenced BODY` |

#![expect(clippy::print_stdout, reason = "how it speaks to the test")]

use idem_core::{
    Begun, Engine, Failure, Fingerprint, Interrupted, Key, Lease, Outcome, Policy, Request, Response, Scope,
    Settlement, Takeover,
};
use idem_postgres::{PostgresConfig, PostgresStore};
use sqlx::{Connection, PgConnection};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tokio::sync::Notify;

type AnyError = Box<dyn std::error::Error + Send + Sync>;

struct Worker {
    engine: Engine,
    request: Request,
    url: String,
    lease: Option<Lease>,
    go: Arc<Notify>,
}

#[tokio::main]
async fn main() -> Result<(), AnyError> {
    let mut arguments = std::env::args().skip(1);
    let mut argument = || arguments.next().ok_or("worker URL KEY");
    let (url, key) = (argument()?, argument()?);
    let config = PostgresConfig::from_url(&url)?;
    // As a service does that is started many times at once.
    PostgresStore::migrate(&config).await?;
    let store = PostgresStore::connect(config).await?;
    let policy = Policy::builder().with_lease(Duration::from_secs(1)).build()?;
    let engine = Engine::builder(store).with_policy(policy).without_sweeper().build()?;
    let fingerprint = Fingerprint::builder("POST /charges").json(br#"{"amount":1000}"#).finish()?;
    let request = Request::new(Scope::new("acct_1")?, Key::new(key)?, fingerprint, Takeover::Resume);
    let mut worker = Worker { engine, request, url, lease: None, go: Arc::default() };
    println!("ready");
    let mut commands = BufReader::new(stdin()).lines();
    while let Some(command) = commands.next_line().await? {
        if let Some(said) = worker.obey(&command).await? {
            println!("{said}");
        }
    }
    // The runtime would wait for a read of the standard input that never ends.
    std::process::exit(0);
}

impl Worker {
    async fn obey(&mut self, command: &str) -> Result<Option<String>, AnyError> {
        let (command, rest) = command.split_once(' ').unwrap_or((command, ""));
        let lease = || self.lease.as_ref().ok_or("no lease");
        let said = match command {
            "claim" => self.claim().await?,
            "begin_effect" => progress(lease()?.begin_effect("charge").await),
            "checkpoint" => {
                let (point, data) = rest.split_once(' ').ok_or("checkpoint POINT DATA")?;
                progress(lease()?.checkpoint(point, data.to_owned()).await)
            }
            "charge" => {
                charge(&self.url, &lease()?.derived_key("charge")).await?;
                "ok".to_owned()
            }
            "complete" => {
                let lease = self.lease.take().ok_or("no lease")?;
                match lease.complete(Response::new(201, rest.to_owned())).await? {
                    Settlement::Recorded => "recorded".to_owned(),
                    Settlement::Fenced { response } => format!("fenced {}", body(response.as_ref())),
                }
            }
            "run" => {
                self.run(rest.to_owned());
                return Ok(None);
            }
            "go" => {
                self.go.notify_one();
                return Ok(None);
            }
            other => return Err(format!("unknown command {other}").into()),
        };
        Ok(Some(said))
    }

    async fn claim(&mut self) -> Result<String, AnyError> {
        Ok(match self.engine.begin(self.request.clone()).await? {
            Begun::Acquired(lease) => {
                let point = lease.recovery_point();
                let point = point.map(|point| format!("{}={}", point.name, String::from_utf8_lossy(&point.data)));
                let said =
                    format!("acquired {} {:?} {}", lease.attempt(), lease.previous(), point.as_deref().unwrap_or("-"));
                self.lease = Some(lease);
                said
            }
            Begun::InProgress { .. } => "busy".to_owned(),
            Begun::Replayed(response) => format!("replayed {}", body(Some(&response))),
            other => format!("{other:?}"),
        })
    }

    fn run(&self, answer: String) {
        let (engine, request, url, go) =
            (self.engine.clone(), self.request.clone(), self.url.clone(), Arc::clone(&self.go));
        let handler = move |operation: idem_core::Operation| async move {
            operation.begin_effect("charge").await?;
            operation.checkpoint("charging", "1000").await?;
            charge(&url, &operation.derived_key("charge")).await.map_err(Failure::Unknown)?;
            println!("charged");
            go.notified().await;
            Ok(Response::new(201, answer))
        };
        tokio::spawn(async move {
            match engine.execute(request, handler).await {
                Ok(Outcome::Executed { .. }) => println!("executed"),
                Ok(Outcome::Fenced { response }) => println!("fenced {}", body(response.as_ref())),
                other => println!("{other:?}"),
            }
        });
    }
}

/// The provider: it counts arrivals and charges once for each key.
async fn charge(url: &str, derived_key: &str) -> Result<(), AnyError> {
    let mut connection = PgConnection::connect(url).await?;
    let arrive = "INSERT INTO ledger (derived_key, arrivals) VALUES ($1, 1) \
                  ON CONFLICT (derived_key) DO UPDATE SET arrivals = ledger.arrivals + 1";
    sqlx::query(arrive).bind(derived_key).execute(&mut connection).await?;
    Ok(connection.close().await?)
}

fn progress(made: Result<(), Interrupted>) -> String {
    made.map_or_else(|interrupted| format!("interrupted {interrupted:?}"), |()| "ok".to_owned())
}

fn body(response: Option<&Response>) -> String {
    response.map_or_else(|| "-".to_owned(), |response| String::from_utf8_lossy(response.body()).into_owned())
}
