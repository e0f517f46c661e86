//! Clients that claim and complete while a test breaks the server, and what must be true of what they were told.

use crate::support::{all, answer, record, request};
use idem_core::{Begun, Engine, Error, ErrorKind, Policy, Settlement, State};
use idem_postgres::PostgresStore;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::task::{JoinHandle, JoinSet};

/// What the clients were told.
#[derive(Default)]
pub(crate) struct Told {
    /// Key and attempt of every grant.
    pub(crate) grants: Vec<(String, u32)>,
    pub(crate) completed: Vec<String>,
    pub(crate) errors: Vec<Error>,
}

/// Clients under way.
pub(crate) struct Load {
    told: Arc<Mutex<Told>>,
    stop: Arc<AtomicBool>,
    clients: JoinHandle<()>,
}

impl Load {
    /// Two engines with a pool each, and eight clients that ask both for the same keys.
    pub(crate) fn start(stores: [PostgresStore; 2]) -> Self {
        let (told, stop) = (Arc::new(Mutex::new(Told::default())), Arc::new(AtomicBool::new(false)));
        // Longer than a server is down: nobody takes over, so that a second grant would be a wrong one.
        let policy =
            Policy::builder().with_lease(Duration::from_secs(60)).with_statement_deadline(Duration::from_secs(2));
        let policy = policy.build().unwrap();
        let engines =
            stores.map(|store| Engine::builder(store).with_policy(policy.clone()).without_sweeper().build().unwrap());
        let next = Arc::new(AtomicU64::new(0));
        let mut clients = JoinSet::new();
        for client in 0..8 {
            let client = Client {
                engine: engines[client % 2].clone(),
                next: Arc::clone(&next),
                told: Arc::clone(&told),
                stop: Arc::clone(&stop),
            };
            clients.spawn(client.work());
        }
        let clients = tokio::spawn(async move { drop(all(clients).await) });
        Self { told, stop, clients }
    }

    pub(crate) fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap()
    }

    pub(crate) async fn stop(self) -> Told {
        self.stop.store(true, Ordering::SeqCst);
        if let Err(failed) = self.clients.await {
            std::panic::resume_unwind(failed.into_panic());
        }
        std::mem::take(&mut self.told.lock().unwrap())
    }
}

struct Client {
    engine: Engine,
    next: Arc<AtomicU64>,
    told: Arc<Mutex<Told>>,
    stop: Arc<AtomicBool>,
}

impl Client {
    async fn work(self) {
        while !self.stop.load(Ordering::SeqCst) {
            // Each number is drawn twice, as a rule by clients of both engines.
            let key = format!("load_{}", self.next.fetch_add(1, Ordering::SeqCst) / 2);
            match self.engine.begin(request(&key)).await {
                Ok(Begun::Acquired(lease)) => {
                    self.told().grants.push((key.clone(), lease.attempt()));
                    match lease.complete(answer(&key)).await {
                        Ok(Settlement::Recorded) => self.told().completed.push(key),
                        Ok(fenced) => panic!("{key}: nobody takes over within the lease: {fenced:?}"),
                        Err(error) => self.told().errors.push(error),
                    }
                }
                Ok(Begun::Replayed(response)) => assert_eq!(response, answer(&key)),
                Ok(Begun::InProgress { .. }) => {}
                Ok(other) => panic!("{key}: {other:?}"),
                Err(error) => self.told().errors.push(error),
            }
        }
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap()
    }
}

impl Told {
    /// No wrong grants, only typed errors, and nothing lost that was acknowledged.
    pub(crate) async fn verify(&self, direct: &PostgresStore) {
        let mut granted = HashSet::new();
        for grant in &self.grants {
            assert!(granted.insert(grant), "{grant:?} was granted twice");
            assert_eq!(grant.1, 1, "{grant:?}: nobody takes over within the lease");
            assert!(record(direct, &grant.0).await.is_some(), "{grant:?} was granted and is not there");
        }
        for key in &self.completed {
            assert_eq!(record(direct, key).await.unwrap().state, State::Completed(answer(key)), "{key}");
        }
        for error in &self.errors {
            assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout), "{error:?}");
        }
    }
}
