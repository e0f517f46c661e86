//! What the tests of this folder share: names, requests, short leases, a database of a test's own.

use idem_core::{
    Begun, Claim, Engine, Fingerprint, Identity, Key, Lease, Policy, Record, Request, Response, Scope, Store, Takeover,
};
use idem_postgres::{PostgresConfig, PostgresStore};
use idem_tests::rig::postgres::{Database, Postgres, Version, shared};
use idem_tests::rig::proxy::Proxy;
use sqlx::AssertSqlSafe;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// A policy whose leases are short, so that a claim that nobody holds would show as a takeover within a test's time.
pub(crate) fn policy() -> Policy {
    let policy = Policy::builder().with_lease(LEASE).with_max_run(Duration::from_secs(60));
    policy.with_statement_deadline(Duration::from_secs(2)).build().unwrap()
}

/// The lease of [`policy`].
pub(crate) const LEASE: Duration = Duration::from_secs(3);

/// An engine without a sweeper, whose statements nobody would expect.
pub(crate) fn engine(store: &PostgresStore) -> Engine {
    Engine::builder(store.clone()).with_policy(policy()).without_sweeper().build().unwrap()
}

pub(crate) fn identity(key: &str) -> Identity {
    Identity::new(Scope::new("acct_1").unwrap(), Key::new(key).unwrap())
}

pub(crate) fn request(key: &str) -> Request {
    let identity = identity(key);
    let fingerprint = Fingerprint::builder("POST /charges").json(b"{\"amount\":1}").finish().unwrap();
    Request::new(identity.scope().clone(), identity.key().clone(), fingerprint, Takeover::Resume)
}

/// A claim for a test that talks to a store without an engine.
pub(crate) fn claim(key: &str) -> Claim {
    let fingerprint = Fingerprint::builder("POST /charges").json(b"{\"amount\":1}").finish().unwrap();
    Claim::under(&policy(), identity(key), fingerprint, Takeover::Resume)
}

pub(crate) fn answer(text: &str) -> Response {
    Response::new(201, text.to_owned()).with_header("location", "/charges/1")
}

/// The record of a key, as a store sees it that nobody disturbs.
pub(crate) async fn record(store: &PostgresStore, key: &str) -> Option<Record> {
    store.load(&identity(key)).await.unwrap().record.map(|record| *record)
}

pub(crate) async fn acquired(engine: &Engine, key: &str) -> Lease {
    match engine.begin(request(key)).await {
        Ok(Begun::Acquired(lease)) => lease,
        other => panic!("{key} was to be granted: {other:?}"),
    }
}

/// The time by which a test measures how long something took.
#[expect(clippy::disallowed_methods, reason = "real servers take real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// A database of a test's own, for tests that look at its connections, with one table.
pub(crate) struct Own {
    pub(crate) server: &'static Postgres,
    pub(crate) database: Database,
}

impl Own {
    pub(crate) async fn new() -> Self {
        let server = shared(Version::Any).await;
        let own = Self { server, database: server.database().await };
        PostgresStore::migrate(&own.config()).await.unwrap();
        own
    }

    pub(crate) fn config(&self) -> PostgresConfig {
        PostgresConfig::from_url(self.database.url()).unwrap()
    }

    /// The same through a proxy.
    pub(crate) fn config_by(&self, proxy: &Proxy) -> PostgresConfig {
        PostgresConfig::from_url(&proxy.url(self.database.url())).unwrap()
    }

    /// A counter of `pg_stat_database`. What a connection did is counted when it is closed, at the latest.
    pub(crate) async fn counted(&self, counter: &str) -> i64 {
        let mut client = self.server.client().await;
        let count = format!("SELECT {counter} FROM pg_stat_database WHERE datname = $1");
        sqlx::query_scalar(AssertSqlSafe(count)).bind(self.database.name()).fetch_one(&mut client).await.unwrap()
    }

    /// How many connections of idem's the database has that fulfil a condition on `pg_stat_activity`.
    pub(crate) async fn connections(&self, condition: &str) -> i64 {
        let query = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND application_name = 'idem' AND ({condition})"
        );
        let mut client = self.server.client().await;
        sqlx::query_scalar(AssertSqlSafe(query)).bind(self.database.name()).fetch_one(&mut client).await.unwrap()
    }
}

/// All results, or the first panic.
pub(crate) async fn all<T: 'static>(mut tasks: JoinSet<T>) -> Vec<T> {
    let mut results = Vec::new();
    while let Some(done) = tasks.join_next().await {
        match done {
            Ok(result) => results.push(result),
            Err(failed) => std::panic::resume_unwind(failed.into_panic()),
        }
    }
    results
}
