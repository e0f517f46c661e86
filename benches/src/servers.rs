//! The servers of a run, and what the machine is: [`Server`], [`redis`], [`machine`].

use idem_tests::rig::postgres::{Database, Postgres, Version};
use idem_tests::rig::redis::{Flavour, Redis};
use std::path::Path;
use std::sync::Arc;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// What every PostgreSQL of a run is set to: durable as it comes, with room for a log that is not written out in the
/// middle of a round.
const SETTINGS: [(&str, &str); 5] = [
    ("fsync", "on"),
    ("synchronous_commit", "on"),
    ("shared_buffers", "1GB"),
    ("max_wal_size", "8GB"),
    ("checkpoint_timeout", "30min"),
];
/// The most connections that pgbench opens, and some.
const CONNECTIONS: &str = "400";

/// The PostgreSQL of a run.
#[derive(Debug)]
pub enum Server {
    /// The rig's own, which goes with the value.
    Own(Postgres),
    /// Somebody else's.
    Given(String),
}

impl Server {
    /// The server at `url`, or one of the rig's own: PostgreSQL 18 if there is one.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub async fn find(url: Option<String>) -> Result<Self, Error> {
        if let Some(url) = url {
            return Ok(Self::Given(url));
        }
        let options = |version| {
            let options = Postgres::options().own().version(version).setting("max_connections", CONNECTIONS);
            SETTINGS.iter().fold(options, |options, (name, value)| options.setting(name, value))
        };
        match options(Version::Major(18)).try_start().await {
            Ok(server) => Ok(Self::Own(server)),
            Err(_) => Ok(Self::Own(options(Version::Any).try_start().await?)),
        }
    }

    /// An empty database, which is dropped with the value.
    pub async fn database(&self) -> Space {
        match self {
            Self::Own(server) => Space::Fresh(server.database().await),
            Self::Given(url) => Space::Given(url.clone()),
        }
    }

    /// Where its programs are, if that is known.
    #[must_use]
    pub fn programs(&self) -> Option<&Path> {
        match self {
            Self::Own(server) => Some(server.programs()),
            Self::Given(_) => None,
        }
    }

    fn says(&self) -> String {
        match self {
            Self::Own(server) => {
                let settings: Vec<_> = SETTINGS.iter().map(|(name, value)| format!("{name} = {value}")).collect();
                let version = server.version_num();
                format!("PostgreSQL {}.{}, {}", version / 10_000, version % 10_000, settings.join(", "))
            }
            Self::Given(_) => "PostgreSQL as given by --postgres".to_owned(),
        }
    }
}

/// Where tables are made.
#[derive(Debug)]
pub enum Space {
    /// A database that goes with the value.
    Fresh(Database),
    /// The given one.
    Given(String),
}

impl Space {
    /// How to reach it.
    #[must_use]
    pub fn url(&self) -> &str {
        match self {
            Self::Fresh(database) => database.url(),
            Self::Given(url) => url,
        }
    }
}

/// A Redis that appends to its file and never rewrites it, so that no rewriting takes a core from whoever is measured.
///
/// # Errors
///
/// If there is none.
pub async fn redis(fsync: &'static str) -> Result<Arc<Redis>, Error> {
    let settings = [("appendonly", "yes"), ("appendfsync", fsync), ("auto-aof-rewrite-percentage", "0")];
    Ok(Arc::new(Redis::own(Flavour::Redis, &settings).await?))
}

/// What a reader has to know about a run.
#[must_use]
pub fn machine(server: Option<&Server>) -> Vec<String> {
    let mut lines = crate::machine::facts();
    lines.extend(server.map(Server::says));
    lines
}
