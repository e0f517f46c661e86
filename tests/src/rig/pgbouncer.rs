//! PgBouncer in transaction mode in front of a PostgreSQL: the hard case for a client that keeps anything in its
//! session.
//!
//! Its program comes from `IDEM_TEST_PGBOUNCER_BIN`, else from `PATH` and the folders for daemons.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::Signal;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::daemon::Daemon;
use super::folder::{Ask, Folder};
use super::postgres::Postgres;
use super::{Error, must, process, url, user};

/// A pooler. Dropping it stops it.
#[derive(Debug)]
pub struct PgBouncer {
    server_url: String,
    admin: String,
    port: u16,
    daemon: Daemon,
}

/// How to start a pooler. Made by [`PgBouncer::options`].
#[derive(Clone, Debug)]
pub struct Options {
    server_url: String,
    users: Vec<(String, String)>,
    settings: Vec<(String, String)>,
}

impl PgBouncer {
    /// A pooler in front of a server, in transaction mode, for the server's superuser.
    ///
    /// # Panics
    ///
    /// If there is no program, or it does not start; the message says what to do.
    pub async fn start(server: &Postgres) -> Self {
        Self::options(server).start().await
    }

    /// A pooler for other users too, or with other settings.
    #[must_use]
    pub fn options(server: &Postgres) -> Options {
        let server_url = server.superuser_url().to_owned();
        Options { users: vec![url::credentials(&server_url)], server_url, settings: Vec::new() }
    }

    /// The maintenance database through the pooler.
    #[must_use]
    pub fn url(&self) -> String {
        url::with_address(&self.server_url, &self.address())
    }

    /// The URL of a database (or of another user of it) through the pooler.
    #[must_use]
    pub fn url_of(&self, database_url: &str) -> String {
        url::with_address(database_url, &self.address())
    }

    /// The `host:port` where it listens.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Gives a command to the admin console, `RECONNECT` or `SHOW POOLS` for example, and returns the rows of its
    /// answer.
    ///
    /// # Panics
    ///
    /// If the pooler refuses it.
    pub async fn admin(&self, command: &str) -> Vec<PgRow> {
        must(admin(self.port, &self.admin, command).await.map_err(Error::sql(format!("the pooler's {command}"))))
    }

    /// Stops it, cutting every connection. [`start_again`](Self::start_again) starts it.
    ///
    /// # Panics
    ///
    /// If it does not end.
    pub async fn stop(&self) {
        must(self.daemon.end(Signal::TERM).await);
    }

    /// SIGKILL.
    ///
    /// # Panics
    ///
    /// If it does not end.
    pub async fn crash(&self) {
        must(self.daemon.crash().await);
    }

    /// Starts it after [`stop`](Self::stop) or [`crash`](Self::crash), on the same port.
    ///
    /// # Panics
    ///
    /// If it is running, or does not start.
    pub async fn start_again(&self) {
        assert!(self.daemon.pid().is_none(), "the pooler is running");
        let ready = |_| lets_in(self.port, &self.admin);
        must(self.daemon.launch(ready).await);
    }

    /// SIGSTOP: every connection hangs.
    ///
    /// # Panics
    ///
    /// If it does not stand.
    pub async fn pause(&self) {
        must(self.daemon.pause().await);
    }

    /// Continues what [`pause`](Self::pause) stopped.
    pub fn resume(&self) {
        self.daemon.resume();
    }

    /// What it has logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.daemon.log()
    }
}

impl Options {
    /// Lets this user through as well, known to the server by this password. Every user of the server that a test
    /// connects as has to be named; the server's superuser is.
    #[must_use]
    pub fn user(mut self, name: &str, password: &str) -> Self {
        self.users.push((name.to_owned(), password.to_owned()));
        self
    }

    /// A line of the `[pgbouncer]` section. Defaults to `pool_mode = transaction`, 1000 clients and 20 server
    /// connections per user and database.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts the pooler.
    ///
    /// # Panics
    ///
    /// Where [`try_start`](Self::try_start) gives an error.
    pub async fn start(self) -> PgBouncer {
        must(self.try_start().await)
    }

    /// Starts the pooler.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] without a program, [`Error::Program`] with the end of its log if it does not start.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops and removes what it had started.
    pub async fn try_start(self) -> Result<PgBouncer, Error> {
        static NEXT: AtomicU32 = AtomicU32::new(0);

        let program = program()?;
        let user = user::unprivileged()?;
        let folder = Folder::new("bouncer", user.as_ref(), Ask::Terminate)?;
        let home = folder.path().to_owned();
        let settings = home.join("pgbouncer.ini");
        // Nobody else has an administrator of this name: whoever lets it in is the pooler that was started here.
        let admin_user = format!("idem_rig_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let daemon = Daemon::new(program, vec![settings.clone().into()], user, &home, folder);
        let configure = |port| self.configure(&home, &settings, port, &admin_user);
        let ready = |port, _| lets_in(port, &admin_user);
        let port = daemon.launch_somewhere(configure, ready).await?;
        Ok(PgBouncer { server_url: self.server_url, admin: admin_user, port, daemon })
    }

    fn configure(&self, home: &Path, settings: &Path, port: u16, admin: &str) -> Result<(), Error> {
        let server = url::address(&self.server_url, 5432);
        let (host, server_port) = server.rsplit_once(':').unwrap_or((&server, "5432"));
        let users = home.join("users");
        let mut lines = format!("[databases]\n* = host={host} port={server_port}\n[pgbouncer]\n");
        let own = [
            ("listen_addr", "127.0.0.1".to_owned()),
            ("listen_port", port.to_string()),
            ("unix_socket_dir", String::new()),
            ("auth_type", "trust".to_owned()),
            ("auth_file", users.display().to_string()),
            ("admin_users", admin.to_owned()),
            ("pool_mode", "transaction".to_owned()),
            ("max_client_conn", "1000".to_owned()),
            ("default_pool_size", "20".to_owned()),
            // What a driver may set, and every server connection has alike.
            ("ignore_startup_parameters", "extra_float_digits".to_owned()),
        ];
        let given = self.settings.iter().map(|(name, value)| (name.as_str(), value.clone()));
        for (name, value) in own.into_iter().chain(given) {
            lines.push_str(&format!("{name} = {value}\n"));
        }
        let quoted = |text: &str| text.replace('"', "\"\"");
        let known =
            self.users.iter().map(|(name, password)| format!("\"{}\" \"{}\"\n", quoted(name), quoted(password)));
        let known: String = known.chain([format!("\"{admin}\" \"\"\n")]).collect();
        fs::write(settings, lines).map_err(Error::io("writing pgbouncer.ini"))?;
        fs::write(users, known).map_err(Error::io("writing the pooler's list of users"))
    }
}

async fn lets_in(port: u16, user: &str) -> bool {
    admin(port, user, "SHOW VERSION").await.is_ok()
}

/// The console understands the simple protocol only.
async fn admin(port: u16, user: &str, command: &str) -> Result<Vec<PgRow>, sqlx::Error> {
    let mut console = PgConnection::connect(&format!("postgres://{user}@127.0.0.1:{port}/pgbouncer")).await?;
    sqlx::raw_sql(AssertSqlSafe(command)).fetch_all(&mut console).await
}

fn program() -> Result<PathBuf, Error> {
    let named = std::env::var_os("IDEM_TEST_PGBOUNCER_BIN").map(PathBuf::from);
    named.or_else(|| process::on_path("pgbouncer")).filter(|program| program.is_file()).ok_or_else(|| Error::Missing {
        what: "the program pgbouncer (looked for IDEM_TEST_PGBOUNCER_BIN, then on PATH)".to_owned(),
        help: "install it: on Debian `apt-get install pgbouncer`, with Homebrew `brew install pgbouncer`; or name it: \
               IDEM_TEST_PGBOUNCER_BIN=/folder/pgbouncer"
            .to_owned(),
    })
}
