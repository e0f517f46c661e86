//! A fresh database per test, dropped with the value.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Sender, SyncSender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use sqlx::{Connection, PgConnection};

use crate::rig::{Error, must, url};

/// An empty database that nobody else uses.
///
/// Dropping it drops the database, with whatever connections are left. On a server that was given this is done when
/// `drop` returns. On a server of the rig's own, which goes away anyway, it is done later, in the background, for many
/// at a time: every `DROP DATABASE` is a checkpoint, for which the other tests would have to wait.
#[derive(Debug)]
pub struct Database {
    name: String,
    url: String,
    yard: Arc<Yard>,
}

/// The databases of one server that tests are done with.
#[derive(Debug)]
pub(super) struct Yard {
    superuser_url: String,
    /// How many may lie around, or `None` if `drop` is to wait until its database is gone.
    room: Option<usize>,
    dead: Mutex<Vec<String>>,
}

impl Yard {
    pub(super) fn new(superuser_url: &str, room: Option<usize>) -> Arc<Self> {
        Arc::new(Self { superuser_url: superuser_url.to_owned(), room, dead: Mutex::default() })
    }

    fn bury(&self, name: String) {
        let names = {
            let mut dead = self.dead.lock().unwrap_or_else(PoisonError::into_inner);
            dead.push(name);
            if self.room.is_some_and(|room| dead.len() <= room) {
                return;
            }
            std::mem::take(&mut *dead)
        };
        let (done, wait) = mpsc::sync_channel(1);
        let job = Job { superuser_url: self.superuser_url.clone(), names, done };
        if janitor().send(job).is_ok() && self.room.is_none() {
            let _late = wait.recv_timeout(PATIENCE);
        }
    }
}

impl Database {
    pub(super) async fn create(yard: &Arc<Yard>) -> Result<Self, Error> {
        static NEXT: AtomicU32 = AtomicU32::new(0);

        let url = &yard.superuser_url;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("idem_test_{}_{number}", std::process::id());
        if yard.room.is_none() {
            // Left by a process of the same number that was killed.
            super::execute(url, &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await?;
        }
        // From template0, to which nobody is connected.
        super::execute(url, &format!("CREATE DATABASE {name} TEMPLATE template0")).await?;
        Ok(Self { url: url::with_database(url, &name), name, yard: Arc::clone(yard) })
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
        self.yard.bury(std::mem::take(&mut self.name));
    }
}

/// How long one database may take to go.
const PATIENCE: Duration = Duration::from_secs(20);

struct Job {
    superuser_url: String,
    names: Vec<String>,
    done: SyncSender<()>,
}

/// A thread with a runtime of its own: the one of the test ends with the test.
fn janitor() -> &'static Sender<Job> {
    static JANITOR: OnceLock<Sender<Job>> = OnceLock::new();
    JANITOR.get_or_init(|| {
        let (sender, jobs) = mpsc::channel::<Job>();
        std::thread::spawn(move || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
            for Job { superuser_url, names, done } in jobs {
                for name in names {
                    let sql = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
                    // The server may be gone, or stopped, or paused: then so is the database, or its folder will be.
                    let dropping = async { tokio::time::timeout(PATIENCE, super::execute(&superuser_url, &sql)).await };
                    if runtime.block_on(dropping).is_err() {
                        break;
                    }
                }
                let _nobody_waits = done.send(());
            }
        });
        sender
    })
}
