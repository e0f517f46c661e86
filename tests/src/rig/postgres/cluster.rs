//! A throwaway cluster: made by `initdb`, started, stopped, and gone with its folder.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal};

use super::programs::Programs;
use crate::rig::error::tail;
use crate::rig::folder::{Ask, Folder};
use crate::rig::user::{self, User};
use crate::rig::wait::{PATIENCE, until};
use crate::rig::{Error, port, process};

/// Members of this role log in with a password; everybody else is trusted.
pub(super) const PASSWORD_ROLE: &str = "idem_password";

#[derive(Debug)]
pub(super) struct Cluster {
    programs: PathBuf,
    user: Option<User>,
    data: PathBuf,
    log: PathBuf,
    port: u16,
    /// The postmaster, unless it was stopped.
    server: Mutex<Option<Child>>,
    /// Last, so that it is dropped last.
    folder: Folder,
}

impl Cluster {
    /// Makes a cluster and starts it.
    pub(super) async fn start(programs: Programs, settings: &[(String, String)]) -> Result<Self, Error> {
        let user = user::unprivileged()?;
        let folder = Folder::new("pg", user.as_ref(), Ask::Quit)?;
        let programs = reachable(programs.folder, user.as_ref(), &folder).await?;
        let (data, log) = (folder.path().join("data"), folder.path().join("log"));
        let mut cluster = Self { programs, user, data, log, port: 0, server: Mutex::new(None), folder };
        cluster.init().await?;

        // Somebody may take the port between the look and the start.
        let mut tries = 5;
        loop {
            cluster.port = port::free()?;
            cluster.configure(settings)?;
            match cluster.launch().await {
                Ok(()) => break,
                Err(_) if tries > 0 && cluster.log().contains("Address already in use") => tries -= 1,
                Err(error) => return Err(error),
            }
            fs::write(&cluster.log, "").map_err(Error::io("emptying the log"))?;
        }
        let url = format!("postgres://postgres@127.0.0.1:{}/postgres", cluster.port);
        super::execute(&url, &format!("CREATE ROLE {PASSWORD_ROLE}")).await?;
        Ok(cluster)
    }

    async fn init(&self) -> Result<(), Error> {
        let initdb = self.programs.join("initdb");
        let mut command =
            tokio::process::Command::from(process::command(&initdb, self.user.as_ref(), self.folder.path()));
        command.arg("--pgdata").arg(&self.data);
        command.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
        let done = command.output().await.map_err(Error::io(format!("running {}", initdb.display())))?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr);
            return Err(Error::program(&initdb, format!("ended with {}", done.status), &said));
        }
        let hba = format!(
            "local all all trust\nhost all +{PASSWORD_ROLE} all scram-sha-256\nhost all all all trust\nhost replication all all trust\n"
        );
        fs::write(self.data.join("pg_hba.conf"), hba).map_err(Error::io("writing pg_hba.conf"))
    }

    fn configure(&self, settings: &[(String, String)]) -> Result<(), Error> {
        let mut lines = String::from("include 'postgresql.base.conf'\n");
        let socket = self.folder.path().display().to_string();
        let port = self.port.to_string();
        let own = [
            ("listen_addresses", "127.0.0.1"),
            ("port", &port),
            ("unix_socket_directories", &socket),
            ("max_connections", "200"),
            ("log_line_prefix", "%m [%p] %a %d "),
        ];
        let given = settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in own.into_iter().chain(given) {
            let _ = writeln!(lines, "{name} = '{}'", value.replace('\'', "''"));
        }
        let (ours, theirs) = (self.data.join("postgresql.conf"), self.data.join("postgresql.base.conf"));
        if !theirs.exists() {
            fs::rename(&ours, &theirs).map_err(Error::io("keeping the settings of initdb"))?;
        }
        fs::write(&ours, lines).map_err(Error::io("writing postgresql.conf"))
    }

    /// Starts the postmaster and waits until it takes connections.
    pub(super) async fn launch(&self) -> Result<(), Error> {
        let postgres = self.programs.join("postgres");
        let log = File::options().create(true).append(true).open(&self.log);
        let log = log.map_err(Error::io(format!("opening {}", self.log.display())))?;
        let errors = log.try_clone().map_err(Error::io("opening the log twice"))?;
        let mut command = process::command(&postgres, self.user.as_ref(), self.folder.path());
        command.arg("-D").arg(&self.data).stdin(Stdio::null()).stdout(log).stderr(errors);
        let child = command.spawn().map_err(Error::io(format!("running {}", postgres.display())))?;
        let pid = child.id();
        *self.server() = Some(child);

        let ended = until("the server takes connections", PATIENCE, || async {
            if let Some(Ok(Some(status))) = self.server().as_mut().map(Child::try_wait) {
                return Some(Err(status));
            }
            self.says_ready(pid).then_some(Ok(()))
        });
        match ended.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(status)) => {
                *self.server() = None;
                Err(Error::program(&postgres, format!("ended with {status}"), &tail(&self.log)))
            }
            Err(late) => Err(Error::program(&postgres, late.to_string(), &tail(&self.log))),
        }
    }

    /// The postmaster writes `ready` into the eighth line of its file. A file that an earlier postmaster left holds another number.
    fn says_ready(&self, pid: u32) -> bool {
        let Ok(file) = fs::read_to_string(self.data.join("postmaster.pid")) else { return false };
        let mut lines = file.lines();
        let same = lines.next().is_some_and(|line| line.trim() == pid.to_string());
        same && lines.nth(6).is_some_and(|line| line.trim() == "ready")
    }

    /// Sends a signal that ends the postmaster, and waits until it and all its children are gone.
    pub(super) async fn end(&self, signal: Signal) -> Result<(), Error> {
        self.resume();
        let Some(postmaster) = self.postmaster() else { return Ok(()) };
        process::signal(postmaster, signal);
        let gone = || async {
            let reaped = match self.server().as_mut().map(Child::try_wait) {
                None | Some(Ok(Some(_))) => true,
                Some(_) => false,
            };
            (reaped && process::at_work_in(&self.data).is_empty()).then_some(())
        };
        until("the server ends", PATIENCE, gone).await?;
        *self.server() = None;
        Ok(())
    }

    /// Kills the postmaster and all its children at once, as a power cut would, though the kernel keeps what they wrote.
    pub(super) async fn crash(&self) -> Result<(), Error> {
        self.pause().await?;
        for pid in self.processes() {
            process::signal(pid, Signal::KILL);
        }
        self.end(Signal::KILL).await
    }

    /// Stops the postmaster first, so that it has no more children after the look at them.
    pub(super) async fn pause(&self) -> Result<(), Error> {
        if let Some(postmaster) = self.postmaster() {
            stop(postmaster).await?;
        }
        for child in self.processes() {
            stop(child).await?;
        }
        Ok(())
    }

    pub(super) fn resume(&self) {
        for pid in self.processes() {
            process::signal(pid, Signal::CONT);
        }
    }

    pub(super) fn postmaster(&self) -> Option<Pid> {
        let id = self.server().as_ref().map(Child::id)?;
        Pid::from_raw(id.try_into().ok()?)
    }

    /// The postmaster and all its children.
    pub(super) fn processes(&self) -> Vec<Pid> {
        process::at_work_in(&self.data)
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn data(&self) -> &Path {
        &self.data
    }

    pub(super) fn programs(&self) -> &Path {
        &self.programs
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn log(&self) -> String {
        fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    fn server(&self) -> MutexGuard<'_, Option<Child>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Cluster {
    /// Shows the log of a test that fails. The folder, dropped next, stops the server.
    #[expect(clippy::print_stderr, reason = "the tests' harness captures it and shows it with the failure")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the end of the server's log ---\n{}", tail(&self.log));
        }
    }
}

/// Stops one process and waits until it stands, or is gone.
pub(super) async fn stop(pid: Pid) -> Result<(), Error> {
    process::signal(pid, Signal::STOP);
    let stands = || async { matches!(process::state(pid), None | Some('T' | 'Z')).then_some(()) };
    until("a process stands", Duration::from_secs(10), stands).await
}

/// The programs where `user` can run them: where they are, or else (below `/root`, say) a copy in the cluster's folder.
async fn reachable(programs: PathBuf, user: Option<&User>, folder: &Folder) -> Result<PathBuf, Error> {
    let postgres = programs.join("postgres");
    let mut probe = process::command(&postgres, user, folder.path());
    match probe.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status() {
        Ok(status) if status.success() => return Ok(programs),
        Err(error) if error.kind() != std::io::ErrorKind::PermissionDenied => {
            return Err(Error::Io { what: format!("running {}", postgres.display()), error });
        }
        Ok(_) | Err(_) => {}
    }
    let whole = programs.parent().unwrap_or(&programs);
    let copy = folder.path().join("programs");
    let mut cp = tokio::process::Command::new("cp");
    let done = cp.arg("-RL").arg(whole).arg(&copy).kill_on_drop(true).output().await;
    let done = done.map_err(Error::io("running cp"))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        let message = format!("copying {} for a user without privileges failed", whole.display());
        return Err(Error::program(Path::new("cp"), message, &said));
    }
    Ok(copy.join("bin"))
}
