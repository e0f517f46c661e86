//! How idem is asked: [`Idem`].

use crate::Error;
use crate::heat::Side;
use async_trait::async_trait;
use idem_benches::load::{Load, Measured, drive};
use idem_benches::sample::{request_of_bytes as request, response};
use idem_benches::workload::{Call, Workload, new_key};
use idem_core::{Begun, Engine, Failure, Outcome, Settlement};
use std::sync::{Arc, Mutex, PoisonError};
use uuid::Uuid;

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
        let (workload, run) = (self.workload, Uuid::new_v4());
        let call = move |turn| {
            let ready = ready.clone();
            async move {
                let engine = &ready.engine;
                match workload.call(run, turn) {
                    Call::Execute(key) => execute(engine, &key).await,
                    Call::Fresh(key) => fresh(engine, &key).await,
                    Call::Replay(number) => replay(engine, &ready.completed[number]).await,
                    Call::Shared(key) => shared(engine, &key).await,
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
