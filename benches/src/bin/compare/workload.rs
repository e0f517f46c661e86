//! What the callers ask for, and how idem is asked: [`Workload`], [`Idem`].

use crate::Error;
use crate::heat::Side;
use async_trait::async_trait;
use clap::ValueEnum;
use idem_benches::load::{Load, Measured, Turn, drive};
use idem_benches::sample::{request, response};
use idem_core::{Begun, Engine, Failure, Outcome, Settlement};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use uuid::Uuid;

/// What one call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// Runs a handler that answers at once, under a new key.
    Execute,
    /// Claims a new key and completes it, by hand.
    Fresh,
    /// Asks for a key that was completed before.
    Replay,
    /// Sixteen callers ask for the same new key: one runs, the others are told so or get its answer.
    ConflictStorm,
    /// Of ten calls six are new, three are replays, and one shares its key with a neighbour.
    Mixed,
}

/// How many callers share a key in a storm.
pub(crate) const STORM: usize = 16;

/// What a workload's call does this time.
pub(crate) enum Step {
    Execute,
    Fresh,
    /// The number of the key that was completed before.
    Replay(usize),
    /// The name of the key that others ask for, too.
    Shared(String),
}

impl Workload {
    /// How many keys are completed before the load.
    pub(crate) fn completed_before(self) -> usize {
        match self {
            Self::Replay => 10_000,
            Self::Mixed => 1_000,
            Self::Execute | Self::Fresh | Self::ConflictStorm => 0,
        }
    }

    pub(crate) fn step(self, run: &str, turn: Turn) -> Step {
        let Turn { caller, number } = turn;
        // Neighbouring calls ask for keys that lie far apart.
        let before = || (caller * 7_919 + number as usize * 104_729) % self.completed_before();
        match self {
            Self::Execute => Step::Execute,
            Self::Fresh => Step::Fresh,
            Self::Replay => Step::Replay(before()),
            Self::ConflictStorm => Step::Shared(format!("{run}-{}-{number}", caller / STORM)),
            Self::Mixed => match number % 10 {
                0..6 => Step::Fresh,
                6..9 => Step::Replay(before()),
                _ => Step::Shared(format!("{run}-{}-{number}", caller / 2)),
            },
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Execute => "execute",
            Self::Fresh => "fresh",
            Self::Replay => "replay",
            Self::ConflictStorm => "conflict-storm",
            Self::Mixed => "mixed",
        })
    }
}

/// Makes an engine over an empty store.
#[async_trait]
pub(crate) trait Emptied: Send + Sync {
    async fn engine(&self) -> Result<Engine, Error>;
}

/// idem under a workload.
pub(crate) struct Idem<E> {
    name: String,
    emptied: E,
    workload: Workload,
    ready: Mutex<Option<Ready>>,
}

/// An engine, and the keys that were completed in its store.
#[derive(Clone)]
struct Ready {
    engine: Engine,
    completed: Arc<[String]>,
}

impl<E: Emptied> Idem<E> {
    pub(crate) fn side(name: impl Into<String>, workload: Workload, emptied: E) -> Arc<dyn Side>
    where
        E: 'static,
    {
        Arc::new(Self { name: name.into(), emptied, workload, ready: Mutex::new(None) })
    }

    fn ready(&self) -> std::sync::MutexGuard<'_, Option<Ready>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl<E: Emptied> Side for Idem<E> {
    fn name(&self) -> String {
        self.name.clone()
    }

    async fn prepare(&self) -> Result<(), Error> {
        // What was completed once stays: a replay changes nothing.
        if self.workload == Workload::Replay && self.ready().is_some() {
            return Ok(());
        }
        *self.ready() = None;
        let engine = self.emptied.engine().await?;
        let completed: Arc<[String]> = (0..self.workload.completed_before()).map(|_| new_key()).collect();
        let mut tasks = tokio::task::JoinSet::new();
        for first in 0..64 {
            let (engine, completed) = (engine.clone(), Arc::clone(&completed));
            tasks.spawn(async move {
                for key in completed.iter().skip(first).step_by(64) {
                    fresh(&engine, key).await;
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done?;
        }
        *self.ready() = Some(Ready { engine, completed });
        Ok(())
    }

    async fn measure(&self, load: Load) -> Result<Measured, Error> {
        let ready = self.ready().clone().ok_or("not prepared")?;
        let (workload, run) = (self.workload, Arc::<str>::from(new_key()));
        let call = move |turn| {
            let (ready, run) = (ready.clone(), Arc::clone(&run));
            async move {
                let engine = &ready.engine;
                match workload.step(&run, turn) {
                    Step::Execute => execute(engine, &new_key()).await,
                    Step::Fresh => fresh(engine, &new_key()).await,
                    Step::Replay(number) => replay(engine, &ready.completed[number]).await,
                    Step::Shared(key) => shared(engine, &key).await,
                }
            }
        };
        Ok(drive(load, call).await)
    }
}

/// The settings of every engine that is measured: room for all callers, and no sweeper.
pub(crate) fn engine(store: impl idem_core::Store + 'static) -> Result<Engine, Error> {
    Ok(Engine::builder(store).with_max_in_flight(4_096).without_sweeper().build()?)
}

pub(crate) fn new_key() -> String {
    Uuid::new_v4().to_string()
}

async fn execute(engine: &Engine, key: &str) {
    let handler = |_| async { Ok::<_, Failure<std::convert::Infallible>>(response()) };
    let outcome = engine.execute(request(key), handler).await;
    assert!(matches!(outcome, Ok(Outcome::Executed { .. })), "{outcome:?}");
}

async fn fresh(engine: &Engine, key: &str) {
    match engine.begin(request(key)).await {
        Ok(Begun::Acquired(lease)) => {
            let settled = lease.complete(response()).await;
            assert!(matches!(settled, Ok(Settlement::Recorded)), "{settled:?}");
        }
        other => panic!("a new key: {other:?}"),
    }
}

async fn replay(engine: &Engine, key: &str) {
    let begun = engine.begin(request(key)).await;
    assert!(matches!(begun, Ok(Begun::Replayed(_))), "{begun:?}");
}

async fn shared(engine: &Engine, key: &str) {
    match engine.begin(request(key)).await {
        Ok(Begun::Acquired(lease)) => {
            let settled = lease.complete(response()).await;
            assert!(matches!(settled, Ok(Settlement::Recorded)), "{settled:?}");
        }
        Ok(Begun::Replayed(_) | Begun::InProgress { .. }) => {}
        other => panic!("a shared key: {other:?}"),
    }
}

/// The lengths that a command line gives in milliseconds.
pub(crate) fn milliseconds(text: &str) -> Result<Duration, std::num::ParseIntError> {
    text.parse().map(Duration::from_millis)
}
