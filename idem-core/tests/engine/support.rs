//! An engine over a fault store over the reference store, whose clock moves with the runtime's.

use idem_core::conformance::{FaultPlan, FaultStore, ReferenceStore};
use idem_core::{
    Clock, Engine, EngineBuilder, Failure, Fingerprint, Identity, Key, Operation, Outcome, Policy, Record, Request,
    Response, Scope, Store, Takeover, Timestamp,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::time::Instant;

pub(crate) const LEASE: Duration = Duration::from_secs(3);
pub(crate) const MAX_RUN: Duration = Duration::from_secs(30);

/// A store's clock that moves with the runtime's, so that a paused test moves both.
#[derive(Debug)]
pub(crate) struct RuntimeClock(Instant);

impl RuntimeClock {
    #[expect(clippy::disallowed_methods, reason = "a store's clock")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }
}

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(1_700_000_000_000_000).saturating_add(self.0.elapsed())
    }
}

pub(crate) type Faulty = Arc<FaultStore<ReferenceStore>>;

pub(crate) struct Bench {
    pub(crate) engine: Engine,
    pub(crate) store: Faulty,
    /// How often a handler of [`Bench::charge`] ran.
    pub(crate) runs: Arc<AtomicU32>,
}

pub(crate) fn policy() -> Policy {
    Policy::builder()
        .with_lease(LEASE)
        .with_max_run(MAX_RUN)
        .with_statement_deadline(Duration::from_secs(1))
        .build()
        .unwrap()
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(FaultPlan::none(), |builder| builder)
    }

    pub(crate) fn failing(plan: FaultPlan) -> Self {
        Self::with(plan, |builder| builder)
    }

    pub(crate) fn with(plan: FaultPlan, configure: impl FnOnce(EngineBuilder) -> EngineBuilder) -> Self {
        let store = Self::store(plan);
        Self::over(Engine::builder(Arc::clone(&store)), store, configure)
    }

    /// Over a store that waits in every call, before and after, as one at the end of a line does.
    pub(crate) fn waiting() -> Self {
        let store = Self::store(FaultPlan::none());
        Self::over(Engine::builder(Waiting(Arc::clone(&store))), store, |builder| builder)
    }

    fn store(plan: FaultPlan) -> Faulty {
        Arc::new(FaultStore::new(ReferenceStore::with_clock(RuntimeClock::start()), plan))
    }

    fn over(builder: EngineBuilder, store: Faulty, configure: impl FnOnce(EngineBuilder) -> EngineBuilder) -> Self {
        let builder = builder.with_policy(policy()).without_sweeper();
        Self { engine: configure(builder).build().unwrap(), store, runs: Arc::default() }
    }

    /// Another process: an engine of its own over the same store, which does not fail for it.
    pub(crate) fn rival(&self) -> Engine {
        let store = Behind(Arc::clone(&self.store));
        Engine::builder(store).with_policy(policy()).without_sweeper().build().unwrap()
    }

    /// The record as it is, around all faults.
    pub(crate) async fn record(&self) -> Option<Record> {
        self.store.inner().load(&identity()).await.unwrap().record.map(|record| *record)
    }

    pub(crate) async fn is_live(&self) -> bool {
        let loaded = self.store.inner().load(&identity()).await.unwrap();
        loaded.record.is_some_and(|record| record.is_live(loaded.clock))
    }

    /// A request whose handler counts its runs and answers with the attempt's number.
    pub(crate) async fn charge(&self) -> Result<Outcome<Response, String>, idem_core::Error> {
        let runs = Arc::clone(&self.runs);
        self.engine.execute(request(), move |operation| counted(runs, operation)).await
    }

    pub(crate) fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }
}

pub(crate) async fn counted(runs: Arc<AtomicU32>, operation: Operation) -> Result<Response, Failure<String>> {
    runs.fetch_add(1, Ordering::SeqCst);
    Ok(answer(operation.attempt()))
}

pub(crate) fn answer(attempt: u32) -> Response {
    Response::new(201, format!("attempt {attempt}")).with_header("location", "/charges/1")
}

pub(crate) fn identity() -> Identity {
    Identity::new(Scope::new("acct_1").unwrap(), Key::new("key_1").unwrap())
}

pub(crate) fn fingerprint(body: &[u8]) -> idem_core::fingerprint::Candidates {
    Fingerprint::builder("POST /charges").json(body).finish().unwrap()
}

pub(crate) fn request() -> Request {
    request_with(Takeover::Resume)
}

pub(crate) fn request_with(takeover: Takeover) -> Request {
    let identity = identity();
    Request::new(identity.scope().clone(), identity.key().clone(), fingerprint(b"{\"amount\":1}"), takeover)
}

/// A store that waits in every call, before and after.
struct Waiting(Faulty);

impl Waiting {
    async fn slowly<T>(&self, call: impl Future<Output = T>) -> T {
        tokio::task::yield_now().await;
        let answer = call.await;
        tokio::task::yield_now().await;
        answer
    }
}

#[async_trait::async_trait]
#[deny(clippy::missing_trait_methods)]
impl Store for Waiting {
    async fn insert(&self, claim: &idem_core::Claim) -> Result<idem_core::store::Inserted, idem_core::Error> {
        self.slowly(self.0.insert(claim)).await
    }
    async fn swap(
        &self,
        identity: &Identity,
        expected: &idem_core::Version,
        change: &idem_core::machine::Change,
    ) -> Result<idem_core::store::Swapped, idem_core::Error> {
        self.slowly(self.0.swap(identity, expected, change)).await
    }
    async fn load(&self, identity: &Identity) -> Result<idem_core::store::Loaded, idem_core::Error> {
        self.slowly(self.0.load(identity)).await
    }
    async fn purge(
        &self,
        options: &idem_core::store::PurgeOptions,
    ) -> Result<idem_core::store::Purged, idem_core::Error> {
        self.slowly(self.0.purge(options)).await
    }
    async fn stuck(
        &self,
        query: &idem_core::store::StuckQuery,
    ) -> Result<idem_core::store::StuckPage, idem_core::Error> {
        self.slowly(self.0.stuck(query)).await
    }
    async fn stats(&self) -> Result<idem_core::store::Stats, idem_core::Error> {
        self.slowly(self.0.stats()).await
    }
    async fn erase(
        &self,
        scope: &Scope,
        which: idem_core::store::Erase,
    ) -> Result<idem_core::store::Erased, idem_core::Error> {
        self.slowly(self.0.erase(scope, which)).await
    }
}

/// The inside of a fault store, as a store of its own.
struct Behind(Faulty);

#[async_trait::async_trait]
#[deny(clippy::missing_trait_methods)]
impl Store for Behind {
    async fn insert(&self, claim: &idem_core::Claim) -> Result<idem_core::store::Inserted, idem_core::Error> {
        self.0.inner().insert(claim).await
    }
    async fn swap(
        &self,
        identity: &Identity,
        expected: &idem_core::Version,
        change: &idem_core::machine::Change,
    ) -> Result<idem_core::store::Swapped, idem_core::Error> {
        self.0.inner().swap(identity, expected, change).await
    }
    async fn load(&self, identity: &Identity) -> Result<idem_core::store::Loaded, idem_core::Error> {
        self.0.inner().load(identity).await
    }
    async fn purge(
        &self,
        options: &idem_core::store::PurgeOptions,
    ) -> Result<idem_core::store::Purged, idem_core::Error> {
        self.0.inner().purge(options).await
    }
    async fn stuck(
        &self,
        query: &idem_core::store::StuckQuery,
    ) -> Result<idem_core::store::StuckPage, idem_core::Error> {
        self.0.inner().stuck(query).await
    }
    async fn stats(&self) -> Result<idem_core::store::Stats, idem_core::Error> {
        self.0.inner().stats().await
    }
    async fn erase(
        &self,
        scope: &Scope,
        which: idem_core::store::Erase,
    ) -> Result<idem_core::store::Erased, idem_core::Error> {
        self.0.inner().erase(scope, which).await
    }
}
