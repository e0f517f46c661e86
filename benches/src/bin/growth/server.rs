//! The server that holds the tables: [`Server`].

use crate::Error;
use idem_tests::rig::postgres::{Database, Postgres, Version};
use rustix::fs::{statfs, statvfs};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};
use std::time::{Duration, Instant};

/// How a server of ours is set: durable as it comes, with a cache that is small beside the tables, and a log that is
/// written out a few times in a run and not in every round.
const SETTINGS: [(&str, &str); 5] = [
    ("fsync", "on"),
    ("synchronous_commit", "on"),
    ("shared_buffers", "1GB"),
    ("max_wal_size", "4GB"),
    ("checkpoint_timeout", "30min"),
];
/// What the log may take of the disk, and some.
const ROOM_FOR_THE_LOG: u64 = 6 << 30;
/// What Linux calls a file system in memory.
const TMPFS: i64 = 0x0102_1994;

/// A server, and a database in it that belongs to this run.
pub(crate) struct Server {
    url: String,
    own: Option<Own>,
}

struct Own {
    // Dropped in this order.
    _database: Database,
    postgres: Postgres,
}

impl Server {
    /// The database at `url`, or one in a server of the rig's own: PostgreSQL 18 if there is one.
    pub(crate) async fn start(url: Option<&str>, settings: &[(String, String)]) -> Result<Self, Error> {
        if let Some(url) = url {
            if !settings.is_empty() {
                return Err("--setting is for a server of its own: set those of the other one by yourself".into());
            }
            return Ok(Self { url: url.to_owned(), own: None });
        }
        let options = |version| {
            let options = Postgres::options().own().version(version).dropped_databases(0);
            let options = SETTINGS.iter().fold(options, |options, (name, value)| options.setting(name, value));
            settings.iter().fold(options, |options, (name, value)| options.setting(name, value))
        };
        let postgres = match options(Version::Major(18)).try_start().await {
            Ok(postgres) => postgres,
            Err(_) => options(Version::Any).try_start().await?,
        };
        let folder = postgres.data_dir();
        if statfs(folder)?.f_type == TMPFS {
            let help = "set TMPDIR to a folder on a disk: in memory nothing is durable, and figures mean nothing";
            return Err(format!("{} is in memory; {help}", folder.display()).into());
        }
        let database = postgres.database().await;
        Ok(Self { url: database.url().to_owned(), own: Some(Own { _database: database, postgres }) })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) async fn client(&self) -> Result<Client, Error> {
        Ok(Client(PgConnection::connect(&self.url).await?))
    }

    /// Why a table of so many bytes has no room on the server's disk, if that is known.
    pub(crate) fn lacks_room_for(&self, bytes: u64) -> Result<Option<String>, Error> {
        let Some(own) = &self.own else { return Ok(None) };
        let disk = statvfs(own.postgres.data_dir())?;
        let (free, needed) = (disk.f_bavail * disk.f_frsize, bytes + ROOM_FOR_THE_LOG);
        let lacking = || format!("it takes {} GB with the log, and {} GB are free", needed >> 30, free >> 30);
        Ok((free < needed).then(lacking))
    }

    /// Whether whole pages go to the log. While a table is filled they need not: if the server crashes, the run is
    /// over. A checkpoint has to come before anything is measured.
    pub(crate) async fn log_whole_pages(&self, whole: bool) {
        match &self.own {
            Some(own) if whole => own.postgres.reset("full_page_writes").await,
            Some(own) => own.postgres.set("full_page_writes", "off").await,
            // Another's settings are left alone.
            None => {}
        }
    }

    /// What a reader has to know: the machine, the server, and how that is set.
    pub(crate) async fn facts(&self) -> Result<Vec<String>, Error> {
        let mut facts = idem_benches::machine::facts();
        let mut client = self.client().await?;
        let version = client.text("SHOW server_version").await?;
        let settings = client
            .text(
                "SELECT string_agg(name || ' = ' || current_setting(name), ', ' ORDER BY name) FROM pg_settings \
                 WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes', 'wal_compression', 'max_wal_size', \
                   'shared_buffers', 'checkpoint_timeout', 'autovacuum', 'default_toast_compression')",
            )
            .await?;
        facts.push(format!("PostgreSQL {version}, {settings}"));
        Ok(facts)
    }
}

/// A connection beside those of what is measured.
pub(crate) struct Client(PgConnection);

impl Client {
    pub(crate) async fn execute(&mut self, sql: &str) -> Result<(), Error> {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut self.0).await?;
        Ok(())
    }

    /// The only number of the only row.
    pub(crate) async fn number(&mut self, sql: &str) -> Result<i64, Error> {
        Ok(sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(&mut self.0).await?.try_get(0)?)
    }

    /// The only text of the only row.
    pub(crate) async fn text(&mut self, sql: &str) -> Result<String, Error> {
        Ok(sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(&mut self.0).await?.try_get(0)?)
    }

    pub(crate) fn connection(&mut self) -> &mut PgConnection {
        &mut self.0
    }

    /// Waits until autovacuum is at no table, for half an hour at most.
    pub(crate) async fn until_nothing_is_vacuumed(&mut self) -> Result<(), Error> {
        const WORKERS: &str = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'autovacuum worker'";
        let ends = Instant::now() + Duration::from_secs(1_800);
        while self.number(WORKERS).await? > 0 {
            if Instant::now() > ends {
                return Err("autovacuum goes on and on: nothing can be measured beside it".into());
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        Ok(())
    }

    /// Where the log ends, in bytes.
    pub(crate) async fn log_position(&mut self) -> Result<i64, Error> {
        self.number("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint").await
    }
}
