//! One table of records, the engine over it, and what it takes on disk: [`Table`].

use crate::Error;
use crate::body::Bodies;
use crate::server::{Client, Server};
use idem_benches::load::{Load, Measured, drive};
use idem_benches::sample::REQUEST;
use idem_core::{
    Begun, Engine, Fingerprint, Key, Policy, Request, Response, Scope, Settlement, SweeperOptions, Takeover,
};
use idem_postgres::{PostgresConfig, PostgresStore};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use sqlx::{AssertSqlSafe, Row as _};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// How many accounts the keys belong to.
pub(crate) const SCOPES: u64 = 1_000;

/// A table, and an engine over it. Clones share both.
#[derive(Clone)]
pub(crate) struct Table {
    /// As statements name it.
    name: String,
    store: PostgresStore,
    engine: Engine,
    bodies: Bodies,
    /// How many operations were completed.
    completed: Arc<AtomicU64>,
}

impl Table {
    /// A new and empty one, instead of what had the name before. Without options nothing sweeps it.
    pub(crate) async fn create(
        server: &Server,
        name: &str,
        bodies: Bodies,
        policy: Policy,
        sweeper: Option<SweeperOptions>,
    ) -> Result<Self, Error> {
        let mut client = server.client().await?;
        client.execute(&format!("DROP TABLE IF EXISTS idem.{name}, idem.{name}_meta")).await?;
        let config = PostgresConfig::from_url(server.url())?.with_table(name)?;
        PostgresStore::migrate(&config).await?;
        let store = PostgresStore::connect(config).await?;
        let builder = Engine::builder(store.clone()).with_policy(policy);
        let builder = match sweeper {
            Some(options) => builder.with_sweeper(options),
            None => builder.without_sweeper(),
        };
        let (name, engine) = (format!("idem.{name}"), builder.build()?);
        Ok(Self { name, store, engine, bodies, completed: Arc::default() })
    }

    pub(crate) async fn drop(self, server: &Server) -> Result<(), Error> {
        let Self { name, .. } = self;
        server.client().await?.execute(&format!("DROP TABLE {name}, {name}_meta")).await
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn store(&self) -> &PostgresStore {
        &self.store
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn bodies(&self) -> &Bodies {
        &self.bodies
    }

    pub(crate) fn completed(&self) -> u64 {
        self.completed.load(Ordering::Relaxed)
    }

    /// Claims a new key and completes it.
    async fn fresh(&self) {
        self.fresh_timed().await;
    }

    /// The same; how long the claim took, and the completion.
    pub(crate) async fn fresh_timed(&self) -> (Duration, Duration) {
        let request = request(&scope(rand::random_range(0..SCOPES)), &Uuid::new_v4().to_string());
        let response = response(&self.bodies);
        let began = Instant::now();
        let Begun::Acquired(lease) = self.engine.begin(request).await.expect("a claim") else {
            panic!("a new key is granted");
        };
        let claimed = Instant::now();
        assert_eq!(lease.complete(response).await.expect("a completion"), Settlement::Recorded);
        let completed = Instant::now();
        self.completed.fetch_add(1, Ordering::Relaxed);
        (claimed - began, completed - claimed)
    }

    /// Asks for one of the rows that it was filled with.
    async fn replay(&self, among: Range<u64>) {
        let number = rand::random_range(among);
        let request = request(&scope(number), &key(number));
        let Begun::Replayed(response) = self.engine.begin(request).await.expect("a claim") else {
            panic!("row {number} is there");
        };
        assert_eq!(response.body().len(), self.bodies.length());
    }

    /// A load of [`fresh`](Self::fresh).
    pub(crate) async fn drive_fresh(&self, load: Load) -> Measured {
        let table = self.clone();
        let call = move |_| {
            let table = table.clone();
            async move { table.fresh().await }
        };
        drive(load, call).await
    }

    /// A load of [`replay`](Self::replay).
    pub(crate) async fn drive_replays(&self, load: Load, among: Range<u64>) -> Measured {
        let table = self.clone();
        let call = move |_| {
            let (table, among) = (table.clone(), among.clone());
            async move { table.replay(among).await }
        };
        drive(load, call).await
    }

    pub(crate) async fn sizes(&self, client: &mut Client) -> Result<Sizes, Error> {
        let name = &self.name;
        let (_, short) = name.split_once('.').expect("a schema");
        let heap = client.number(&format!("SELECT pg_relation_size('{name}')")).await?;
        let toast = format!(
            "SELECT coalesce(pg_total_relation_size(nullif(reltoastrelid, 0)), 0) FROM pg_class \
             WHERE oid = '{name}'::regclass"
        );
        let toast = client.number(&toast).await?;
        let indexes = format!(
            "SELECT c.relname, pg_relation_size(c.oid) FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid \
             WHERE i.indrelid = '{name}'::regclass"
        );
        let indexes = sqlx::raw_sql(AssertSqlSafe(indexes)).fetch_all(client.connection()).await?;
        let mut sizes = Sizes { heap, toast, indexes: BTreeMap::new() };
        for row in indexes {
            let (index, bytes): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
            let index = index.strip_prefix(short).unwrap_or(&index).trim_start_matches('_').to_owned();
            sizes.indexes.insert(index, bytes);
        }
        Ok(sizes)
    }

    pub(crate) async fn rows(&self, client: &mut Client) -> Result<i64, Error> {
        client.number(&format!("SELECT count(*) FROM {}", self.name)).await
    }

    /// Of all completions, how many were HOT: the part of one. Waits until the server has counted them all.
    pub(crate) async fn hot_share(&self, client: &mut Client) -> Result<f64, Error> {
        let count = |what: &str| format!("SELECT pg_stat_get_tuples_{what}('{}'::regclass)", self.name);
        let completed = i64::try_from(self.completed())?;
        let ends = Instant::now() + Duration::from_secs(30);
        // A session that is idle reports after ten seconds.
        let mut updated = client.number(&count("updated")).await?;
        while updated < completed && Instant::now() < ends {
            tokio::time::sleep(Duration::from_millis(200)).await;
            updated = client.number(&count("updated")).await?;
        }
        Ok(client.number(&count("hot_updated")).await? as f64 / updated as f64)
    }
}

/// The scope of a row of this number.
pub(crate) fn scope(number: u64) -> String {
    format!("acct_{}", number % SCOPES)
}

/// The key of a row of this number, which looks like a random UUID. `fill.rs` says the same in SQL.
pub(crate) fn key(number: u64) -> String {
    let digest = Sha256::digest(number.to_be_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    Uuid::from_bytes(bytes).to_string()
}

/// The request under a key, as an application makes it for every call.
pub(crate) fn request(scope: &str, key: &str) -> Request {
    let fingerprint = Fingerprint::builder("POST /v1/charges").json(REQUEST).finish().expect("a small body");
    let (scope, key) = (Scope::new(scope).expect("a scope"), Key::new(key).expect("a key"));
    Request::new(scope, key, fingerprint, Takeover::Resume)
}

/// An answer.
pub(crate) fn response(bodies: &Bodies) -> Response {
    Response::new(201, bodies.any()).with_header("content-type", "application/json")
}

/// What a table takes on disk, in bytes.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sizes {
    pub(crate) heap: i64,
    /// With its index.
    pub(crate) toast: i64,
    /// By name, without the table's.
    pub(crate) indexes: BTreeMap<String, i64>,
}

impl Sizes {
    pub(crate) fn all_indexes(&self) -> i64 {
        self.indexes.values().sum()
    }

    pub(crate) fn total(&self) -> i64 {
        self.heap + self.toast + self.all_indexes()
    }
}
