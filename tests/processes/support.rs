//! Workers: started, told, killed and stopped; and the row and the ledger that they leave.

use idem_core::{Identity, Key, Scope};
use idem_postgres::{PostgresConfig, PostgresStore};
use idem_tests::rig::postgres::{Database, Version, shared};
use idem_tests::rig::wait::{PATIENCE, until};
use rustix::process::{Pid, Signal, kill_process};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// The lease of every worker, in microseconds.
pub(crate) const LEASE_US: i64 = 1_000_000;

/// A database with the table of idem and the provider's ledger.
pub(crate) struct Stage {
    database: Database,
}

/// What stands in the row of a key, and when it was read, by the database's clock and in microseconds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) clock: i64,
    pub(crate) lease_until: i64,
    pub(crate) locked_at: i64,
    pub(crate) status: String,
    pub(crate) attempt: i32,
    pub(crate) unresolved: i32,
    pub(crate) effect_begun: bool,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        let database = shared(Version::Any).await.database().await;
        let config = PostgresConfig::from_url(database.url()).unwrap();
        PostgresStore::migrate(&config).await.unwrap();
        database.execute("CREATE TABLE ledger (derived_key text PRIMARY KEY, arrivals int NOT NULL)").await;
        Self { database }
    }

    /// A database in which nobody has made anything.
    pub(crate) async fn empty() -> Self {
        Self { database: shared(Version::Any).await.database().await }
    }

    /// Where it is, for a worker that starts beside others.
    pub(crate) fn url(&self) -> &str {
        self.database.url()
    }

    /// A worker for this key, ready.
    pub(crate) async fn worker(&self, key: &str) -> Worker {
        Worker::start(self.database.url(), key).await
    }

    pub(crate) async fn client(&self) -> PgConnection {
        self.database.client().await
    }

    pub(crate) async fn row(&self, key: &str) -> Row {
        let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS clock, \
                   (extract(epoch FROM locked_at) * 1000000)::bigint + lease_ms * 1000::bigint AS lease_until, \
                   (extract(epoch FROM locked_at) * 1000000)::bigint AS locked_at, \
                   status, attempt, unresolved, effect_begun FROM idem.records WHERE key = $1";
        let row: PgRow = sqlx::query(sql).bind(key).fetch_one(&mut self.client().await).await.unwrap();
        Row {
            clock: row.get("clock"),
            lease_until: row.get("lease_until"),
            locked_at: row.get("locked_at"),
            status: row.get("status"),
            attempt: row.get("attempt"),
            unresolved: row.get("unresolved"),
            effect_begun: row.get("effect_begun"),
        }
    }

    /// Every column of the row, as one text.
    pub(crate) async fn whole_row(&self, key: &str) -> String {
        let sql = "SELECT records::text FROM idem.records WHERE key = $1";
        sqlx::query_scalar(sql).bind(key).fetch_one(&mut self.client().await).await.unwrap()
    }

    /// How often the provider was asked to charge for this key.
    pub(crate) async fn arrivals(&self, key: &str) -> Vec<i32> {
        let identity = Identity::new(Scope::new("acct_1").unwrap(), Key::new(key).unwrap());
        let sql = "SELECT arrivals FROM ledger WHERE derived_key = $1";
        let derived_key = identity.derived_key("charge");
        sqlx::query_scalar(sql).bind(derived_key).fetch_all(&mut self.client().await).await.unwrap()
    }

    /// All keys that the provider has charged for.
    pub(crate) async fn charges(&self) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM ledger").fetch_one(&mut self.client().await).await.unwrap()
    }

    /// Claims again and again until the key is the worker's. Nobody gets it before the lease is over by the database's clock, and
    /// nobody is refused it after.
    pub(crate) async fn take_over(&self, key: &str, worker: &mut Worker) -> String {
        let worker = tokio::sync::Mutex::new(worker);
        let claim = || async {
            let before = self.row(key).await;
            let said = worker.lock().await.tell("claim").await;
            if said == "busy" {
                assert!(before.clock < before.lease_until, "the lease was over and the key not free: {before:?}");
                return None;
            }
            let after = self.row(key).await;
            assert!(after.locked_at >= before.lease_until, "{after:?} overtook {before:?}");
            Some(said)
        };
        until("the takeover", PATIENCE, claim).await.unwrap()
    }
}

/// A process that does as it is told. Dropped, it is killed.
pub(crate) struct Worker {
    child: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    pub(crate) async fn start(url: &str, key: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_idem-test-worker"));
        command.args([url, key]).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        // If the test is killed while it is stopped, the kernel wakes it, and it sees the end of its standard input.
        command.process_group(0);
        let mut child = command.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut worker = Self { child, stdin, stdout: BufReader::new(stdout).lines() };
        assert_eq!(worker.hear().await, "ready");
        worker
    }

    /// Its next line.
    pub(crate) async fn hear(&mut self) -> String {
        let line = timeout(PATIENCE, self.stdout.next_line()).await.expect("it says something in time");
        line.unwrap().expect("it lives")
    }

    /// Gives it a command.
    pub(crate) async fn order(&mut self, command: &str) {
        self.stdin.write_all(format!("{command}\n").as_bytes()).await.unwrap();
    }

    /// Gives it a command and waits for its answer.
    pub(crate) async fn tell(&mut self, command: &str) -> String {
        self.order(command).await;
        self.hear().await
    }

    /// Gives it commands that must succeed.
    pub(crate) async fn succeed(&mut self, commands: &[&str]) {
        for command in commands {
            assert_eq!(self.tell(command).await, "ok", "{command}");
        }
    }

    /// SIGKILL, and its end.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().unwrap().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}
