//! A fresh database per test, dropped with the value.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Sender, SyncSender};
use std::time::Duration;

use sqlx::{Connection, PgConnection};

use crate::rig::{Error, must, url};

/// An empty database that nobody else uses.
///
/// Dropping it drops the database, with whatever connections are left: in the background on a server of the rig's own, which goes away
/// anyway, and before `drop` returns on a server that was given, where nothing shall be left.
#[derive(Debug)]
pub struct Database {
    name: String,
    url: String,
    superuser_url: String,
    wait: bool,
}

impl Database {
    pub(super) async fn create(superuser_url: &str, wait: bool) -> Result<Self, Error> {
        static NEXT: AtomicU32 = AtomicU32::new(0);

        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("idem_test_{}_{number}", std::process::id());
        if wait {
            // Left by a process of the same number that was killed.
            super::execute(superuser_url, &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await?;
        }
        // From template0, to which nobody is connected.
        super::execute(superuser_url, &format!("CREATE DATABASE {name} TEMPLATE template0")).await?;
        let url = url::with_database(superuser_url, &name);
        Ok(Self { name, url, superuser_url: superuser_url.to_owned(), wait })
    }

    /// The URL, with the superuser as its user.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The name, which needs no quotes.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A connection of a test's own, beside those of what it tests.
    ///
    /// # Panics
    ///
    /// If there is none to be had.
    pub async fn client(&self) -> PgConnection {
        must(PgConnection::connect(&self.url).await.map_err(Error::sql("connecting to a test's database")))
    }

    /// Runs statements in the database.
    ///
    /// # Panics
    ///
    /// If the server refuses one.
    pub async fn execute(&self, sql: &str) {
        must(super::execute(&self.url, sql).await);
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (done, wait) = mpsc::sync_channel(1);
        let job = Job { superuser_url: self.superuser_url.clone(), name: self.name.clone(), done };
        if janitor().send(job).is_ok() && self.wait {
            let _late = wait.recv_timeout(PATIENCE);
        }
    }
}

/// How long one database may take to go.
const PATIENCE: Duration = Duration::from_secs(10);

struct Job {
    superuser_url: String,
    name: String,
    done: SyncSender<()>,
}

/// A thread with a runtime of its own: the one of the test ends with the test.
fn janitor() -> &'static Sender<Job> {
    static JANITOR: OnceLock<Sender<Job>> = OnceLock::new();
    JANITOR.get_or_init(|| {
        let (sender, jobs) = mpsc::channel::<Job>();
        std::thread::spawn(move || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
            for Job { superuser_url, name, done } in jobs {
                let sql = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
                // The server may be gone, or stopped, or paused: then so is the database, or its folder will be.
                let dropping = async { tokio::time::timeout(PATIENCE, super::execute(&superuser_url, &sql)).await };
                let _best_effort = runtime.block_on(dropping);
                let _nobody_waits = done.send(());
            }
        });
        sender
    })
}
