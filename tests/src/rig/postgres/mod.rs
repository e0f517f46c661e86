//! PostgreSQL for the tests: a real server, a fresh database per test, and what can be done to a server.
//!
//! ```no_run
//! # use idem_tests::rig::postgres::{self, Postgres, Version};
//! # async fn test() {
//! // Most tests: one server per test process, one database per test.
//! let database = postgres::shared(Version::Any).await.database().await;
//! let url = database.url();
//!
//! // Tests that break the server: one of their own.
//! let server = Postgres::options().own().setting("wal_level", "logical").start().await;
//! server.stop_immediate().await;
//! server.start_again().await;
//! # }
//! ```
//!
//! Where a server comes from, in this order:
//!
//! 1. `IDEM_TEST_POSTGRES_URL`, a server that is there already. Databases are made and dropped in it, and nothing else.
//! 2. Programs on this machine: the folder `IDEM_TEST_POSTGRES_BIN_18` (for version 18) or `IDEM_TEST_POSTGRES_BIN`,
//!    else the newest `/usr/lib/postgresql/*/bin`, else what `pg_config` or `PATH` name, else `target/postgres/*/bin`,
//!    where `scripts/postgres` puts other versions. The rig makes a throwaway cluster with them.
//! 3. With the feature `containers`, a container engine, for the tests that leave their server alone.
//! 4. An error that says what to install.
//!
//! | file | holds |
//! |---|---|
//! | `options.rs` | which server a test wants, and the order of the sources |
//! | `programs.rs` | finding the programs of a version |
//! | `cluster.rs` | a throwaway cluster: made, configured, started |
//! | `container.rs` | a server in a container |
//! | `disk.rs` | a small disk, which a test can fill |
//! | `faults.rs` | restart, crash, pause, kill, a full disk |
//! | `database.rs` | a fresh database per test |
//! | `shared.rs` | one server per test process |

mod cluster;
#[cfg(feature = "containers")]
mod container;
mod database;
mod disk;
mod faults;
mod options;
mod programs;
mod shared;

use std::path::Path;
use std::sync::Arc;

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use self::cluster::Cluster;
pub use self::database::Database;
use self::database::Yard;
pub use self::disk::Contents;
pub use self::options::{Options, Version};
pub use self::shared::shared;
use super::{Error, must, url};

/// A PostgreSQL server: one that the rig started, or one that it was given.
///
/// Dropping it stops a server that the rig started and removes all that it stored, which blocks for some tenths of a
/// second.
#[derive(Debug)]
pub struct Postgres {
    source: Source,
    superuser_url: String,
    version_num: u32,
    yard: Arc<Yard>,
}

#[derive(Debug)]
enum Source {
    Given,
    Own(Box<Cluster>),
    #[cfg(feature = "containers")]
    #[expect(dead_code, reason = "it is held, and removed with the server")]
    Container(Box<container::Container>),
}

impl Postgres {
    /// A server of any version, used by nobody else in this process.
    ///
    /// # Panics
    ///
    /// If there is none and none can be started; the message says what to install.
    pub async fn start() -> Self {
        Self::options().start().await
    }

    /// Which server, if not just any.
    #[must_use]
    pub fn options() -> Options {
        Options::default()
    }

    async fn given(superuser_url: String) -> Result<Self, Error> {
        let what = "connecting to the server of IDEM_TEST_POSTGRES_URL";
        let version_num = version_num(&superuser_url).await.map_err(Error::sql(what))?;
        let yard = Yard::new(&superuser_url, None);
        Ok(Self { source: Source::Given, superuser_url, version_num, yard })
    }

    async fn own(cluster: Cluster, room: usize) -> Result<Self, Error> {
        let superuser_url = format!("postgres://postgres@127.0.0.1:{}/postgres", cluster.port());
        let version_num = version_num(&superuser_url).await.map_err(Error::sql("the first connection"))?;
        let yard = Yard::new(&superuser_url, Some(room));
        Ok(Self { source: Source::Own(Box::new(cluster)), superuser_url, version_num, yard })
    }

    /// The maintenance database, as the role that made it: a superuser, unless the server was given and its URL names
    /// another.
    #[must_use]
    pub fn superuser_url(&self) -> &str {
        &self.superuser_url
    }

    /// The same as [`superuser_url`](Self::superuser_url): there is nothing of a test's own before it has a
    /// [`database`](Self::database).
    #[must_use]
    pub fn url(&self) -> &str {
        &self.superuser_url
    }

    /// The URL of one of the server's databases.
    #[must_use]
    pub fn url_for(&self, database: &str) -> String {
        url::with_database(&self.superuser_url, database)
    }

    /// The `host:port` where the server listens, for a proxy to connect to.
    #[must_use]
    pub fn address(&self) -> String {
        url::address(&self.superuser_url, 5432)
    }

    /// The version as PostgreSQL counts: 15.18 is 150018.
    #[must_use]
    pub fn version_num(&self) -> u32 {
        self.version_num
    }

    /// The major version: 15 of 15.18.
    #[must_use]
    pub fn major(&self) -> u32 {
        self.version_num / 10_000
    }

    /// Whether the rig started this server, so that it may be stopped, paused and killed.
    #[must_use]
    pub fn is_own(&self) -> bool {
        matches!(self.source, Source::Own(_))
    }

    /// The data directory.
    ///
    /// # Panics
    ///
    /// If the server is not [`own`](Self::is_own).
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        must(self.cluster("reading the data directory")).data()
    }

    /// The folder of the server's programs, for `pg_basebackup` and its like.
    ///
    /// # Panics
    ///
    /// If the server is not [`own`](Self::is_own).
    #[must_use]
    pub fn programs(&self) -> &Path {
        must(self.cluster("running its programs")).programs()
    }

    /// The folder that holds the server's Unix socket.
    ///
    /// # Panics
    ///
    /// If the server is not [`own`](Self::is_own).
    #[must_use]
    pub fn socket_dir(&self) -> &Path {
        must(self.cluster("its socket")).daemon().folder()
    }

    /// What the server has logged so far; empty for a server that was given.
    #[must_use]
    pub fn log(&self) -> String {
        self.cluster("reading its log").map(|cluster| cluster.daemon().log()).unwrap_or_default()
    }

    /// A fresh and empty database, which is dropped with the value.
    ///
    /// # Panics
    ///
    /// If the server makes none.
    pub async fn database(&self) -> Database {
        must(Database::create(&self.yard).await)
    }

    /// A connection to the maintenance database as superuser.
    ///
    /// # Panics
    ///
    /// If there is none to be had.
    pub async fn client(&self) -> PgConnection {
        must(PgConnection::connect(&self.superuser_url).await.map_err(Error::sql("connecting as superuser")))
    }

    /// Runs statements as superuser in the maintenance database.
    ///
    /// # Panics
    ///
    /// If the server refuses one.
    pub async fn execute(&self, sql: &str) {
        must(execute(&self.superuser_url, sql).await);
    }

    /// Makes a role that may log in with this password and no other way, unlike the superuser, whom an own server
    /// trusts. Its name is known to the whole server: tests that share one draw their own.
    ///
    /// Returns its URL for `database`.
    ///
    /// # Panics
    ///
    /// If the server refuses.
    pub async fn role(&self, name: &str, password: &str, database: &str) -> String {
        let group = if self.is_own() { format!(" IN ROLE {}", cluster::PASSWORD_ROLE) } else { String::new() };
        self.execute(&format!("CREATE ROLE \"{name}\" LOGIN PASSWORD '{password}'{group}")).await;
        format!("postgres://{name}:{password}@{}/{database}", self.address())
    }

    /// Changes a setting for the whole server from now on, as far as it can be changed without a restart; with one,
    /// call [`restart`](Self::restart) afterwards.
    ///
    /// # Panics
    ///
    /// If the server is not [`own`](Self::is_own), or refuses.
    pub async fn set(&self, setting: &str, value: &str) {
        must(self.cluster("changing a setting"));
        self.execute(&format!("ALTER SYSTEM SET {setting} = '{}'", value.replace('\'', "''"))).await;
        self.execute("SELECT pg_reload_conf()").await;
    }

    /// Undoes [`set`](Self::set).
    ///
    /// # Panics
    ///
    /// If the server is not [`own`](Self::is_own), or refuses.
    pub async fn reset(&self, setting: &str) {
        must(self.cluster("changing a setting"));
        self.execute(&format!("ALTER SYSTEM RESET {setting}")).await;
        self.execute("SELECT pg_reload_conf()").await;
    }

    fn cluster(&self, operation: &'static str) -> Result<&Cluster, Error> {
        match &self.source {
            Source::Own(cluster) => Ok(cluster),
            #[cfg(feature = "containers")]
            Source::Container(_) => Err(Error::NotOurs { operation, server: "in a container" }),
            Source::Given => Err(Error::NotOurs { operation, server: "named by IDEM_TEST_POSTGRES_URL" }),
        }
    }
}

async fn execute(url: &str, sql: &str) -> Result<(), Error> {
    let during = || format!("running {sql:?}");
    let mut connection = PgConnection::connect(url).await.map_err(Error::sql(during()))?;
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.map_err(Error::sql(during()))?;
    connection.close().await.map_err(Error::sql(during()))
}

async fn version_num(url: &str) -> Result<u32, sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    let number: i32 =
        sqlx::query_scalar("SELECT current_setting('server_version_num')::int").fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(number.unsigned_abs())
}
