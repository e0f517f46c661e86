//! What can be done to a server that the rig started.

use rustix::process::{Pid, Signal};
use sqlx::AssertSqlSafe;

use super::disk::Disk;
use super::{Error, Postgres, must};
use crate::rig::daemon::{self, Daemon};
use crate::rig::process;

/// All of these panic if the server is not [`own`](Postgres::is_own), or does not do as it is told within a minute.
impl Postgres {
    /// Stops the server cleanly (open connections are cut) and starts it again, on the same port with the same data.
    pub async fn restart(&self) {
        let cluster = must(self.cluster("restarting"));
        must(cluster.daemon().end(Signal::INT).await);
        must(cluster.launch().await);
    }

    /// Stops the server cleanly: open connections are cut, what is committed is written.
    /// [`start_again`](Self::start_again) starts it.
    pub async fn stop(&self) {
        must(self.daemon("stopping").end(Signal::INT).await);
    }

    /// `pg_ctl stop -m immediate`: every process leaves without cleaning up, and the next start has to recover from the
    /// log.
    pub async fn stop_immediate(&self) {
        must(self.daemon("stopping").end(Signal::QUIT).await);
    }

    /// SIGKILL for the postmaster and all its children, all of them stopped before so that none sees another die.
    pub async fn crash(&self) {
        must(self.daemon("crashing").crash().await);
    }

    /// Starts the server after [`stop`](Self::stop), [`stop_immediate`](Self::stop_immediate) or
    /// [`crash`](Self::crash), and waits until it takes connections.
    pub async fn start_again(&self) {
        let cluster = must(self.cluster("starting"));
        assert!(cluster.daemon().pid().is_none(), "the server is running");
        must(cluster.launch().await);
    }

    /// SIGSTOP for the postmaster and all its children: connections are accepted (by the kernel) and never answered.
    pub async fn pause(&self) {
        must(self.daemon("pausing").pause().await);
    }

    /// Continues what [`pause`](Self::pause) stopped.
    pub fn resume(&self) {
        self.daemon("resuming").resume();
    }

    /// Takes what is left of the server's [small disk](super::Options::small_disk), to the last byte.
    pub fn fill_disk(&self) {
        must(self.disk().fill());
    }

    /// Gives back what [`fill_disk`](Self::fill_disk) took.
    pub fn free_disk(&self) {
        must(self.disk().free());
    }

    /// The process numbers of the connections to `database`, as `pg_stat_activity` shows them; not the one that asks.
    pub async fn backends(&self, database: &str) -> Vec<i32> {
        let mut client = self.client().await;
        let query = "SELECT pid FROM pg_stat_activity WHERE datname = $1 AND pid <> pg_backend_pid() ORDER BY pid";
        let rows = sqlx::query_scalar(query).bind(database).fetch_all(&mut client).await;
        must(rows.map_err(Error::sql("listing connections")))
    }

    /// Ends all connections to `database` by `pg_terminate_backend`, and says how many there were. Works on a given
    /// server too.
    pub async fn terminate_backends(&self, database: &str) -> u64 {
        self.terminate_where(&format!("datname = '{}'", database.replace('\'', "''"))).await
    }

    /// Ends the connections that match a condition on `pg_stat_activity`, `application_name = 'idem'` for example.
    pub async fn terminate_where(&self, condition: &str) -> u64 {
        let query = format!(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
             WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND ({condition})"
        );
        let mut client = self.client().await;
        let count: Result<i64, _> = sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&mut client).await;
        must(count.map_err(Error::sql("ending connections"))).unsigned_abs()
    }

    /// SIGKILL for one backend. The postmaster then restarts all of them and recovers, as after a crash.
    pub fn kill_backend(&self, backend: i32) {
        process::signal(self.own_process(backend), Signal::KILL);
    }

    /// SIGSTOP for one backend: its connection hangs, the others go on.
    pub async fn pause_backend(&self, backend: i32) {
        must(daemon::stop(self.own_process(backend)).await);
    }

    /// Continues what [`pause_backend`](Self::pause_backend) stopped.
    pub fn resume_backend(&self, backend: i32) {
        process::signal(self.own_process(backend), Signal::CONT);
    }

    /// The process of this number, if it is one of this server: a test with a wrong number shall not hit a stranger.
    fn own_process(&self, backend: i32) -> Pid {
        let processes = self.daemon("signalling a backend").processes();
        let found = processes.into_iter().find(|pid| pid.as_raw_nonzero().get() == backend);
        found.unwrap_or_else(|| panic!("no process {backend} belongs to this server"))
    }

    fn disk(&self) -> &Disk {
        let Some(disk) = must(self.cluster("filling its disk")).disk() else {
            panic!("the server was started without a small disk");
        };
        disk
    }

    fn daemon(&self, operation: &'static str) -> &Daemon {
        must(self.cluster(operation)).daemon()
    }
}
