//! Where the answers are kept: in memory, or in a database of a test's own.

use idem_core::{Engine, EngineBuilder, Policy, Store, Takeover};
use idem_memory::MemoryStore;
use idem_postgres::{PostgresConfig, PostgresStore};
use idem_tests::rig::postgres::{Database, Version, shared};
use idem_tests::rig::proxy::Proxy;
use idem_tower::{Global, IdempotencyLayer};
use std::sync::Arc;
use std::time::Duration;

/// Runs each of the named tests in memory and on PostgreSQL.
macro_rules! on_every_store {
    ($($test:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test] async fn $test() { super::$test($crate::stores::Stored::in_memory()).await; })+
        }
        mod postgres {
            $(#[tokio::test] async fn $test() { super::$test($crate::stores::Stored::in_postgres().await).await; })+
        }
    };
}
pub(crate) use on_every_store;

/// A store, and what must live as long as it.
pub(crate) struct Stored {
    pub(crate) store: Arc<dyn Store>,
    _database: Option<Database>,
}

impl Stored {
    pub(crate) fn new(store: impl Store + 'static) -> Self {
        Self { store: Arc::new(store), _database: None }
    }

    pub(crate) fn in_memory() -> Self {
        Self::new(MemoryStore::default())
    }

    pub(crate) async fn in_postgres() -> Self {
        let database = database().await;
        let config = PostgresConfig::from_url(database.url()).unwrap();
        let store = PostgresStore::connect(config).await.unwrap();
        Self { store: Arc::new(store), _database: Some(database) }
    }

    /// PostgreSQL, with something in between that can be told to refuse.
    pub(crate) async fn behind_a_proxy() -> (Self, Proxy) {
        let database = database().await;
        let proxy = Proxy::start(&shared(Version::Any).await.address()).await;
        let config = PostgresConfig::from_url(&proxy.url(database.url())).unwrap();
        let store = PostgresStore::connect(config).await.unwrap();
        (Self { store: Arc::new(store), _database: Some(database) }, proxy)
    }

    /// An engine to be, with leases so long that a test which waits for one fails.
    pub(crate) fn engine(&self) -> EngineBuilder {
        let policy = Policy::builder().with_lease(Duration::from_secs(600)).build().unwrap();
        Engine::builder(Arc::clone(&self.store)).with_policy(policy).without_sweeper()
    }

    pub(crate) fn layer(&self) -> IdempotencyLayer {
        layer(self.engine())
    }
}

/// The layer of most tests: one scope, and a takeover runs again.
pub(crate) fn layer(engine: EngineBuilder) -> IdempotencyLayer {
    IdempotencyLayer::new(engine.build().unwrap(), Global, Takeover::Resume)
}

async fn database() -> Database {
    let database = shared(Version::Any).await.database().await;
    PostgresStore::migrate(&PostgresConfig::from_url(database.url()).unwrap()).await.unwrap();
    database
}
