//! One server process in a folder of its own: started, watched, stopped, crashed, paused.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal};

use super::error::tail;
use super::folder::Folder;
use super::user::User;
use super::wait::{PATIENCE, until};
use super::{Error, port, process};

/// A server, running or not. Dropping it stops it and removes its folder.
#[derive(Debug)]
pub(super) struct Daemon {
    program: PathBuf,
    arguments: Vec<OsString>,
    user: Option<User>,
    /// The directory in which the server and its children work, and by which they are found.
    home: PathBuf,
    log: PathBuf,
    /// The first process, unless it was stopped.
    server: Mutex<Option<Child>>,
    folder: Folder,
}

impl Daemon {
    /// A server that is yet to be launched. It goes to `home` by itself, or else starts there: in `folder` or in its
    /// `data`.
    pub(super) fn new(
        program: PathBuf,
        arguments: Vec<OsString>,
        user: Option<User>,
        home: &Path,
        folder: Folder,
    ) -> Self {
        let (home, log) = (home.to_owned(), folder.path().join("log"));
        Self { program, arguments, user, home, log, server: Mutex::new(None), folder }
    }

    /// Launches it for the first time, on a free port, which is returned. `configure` is told the port before.
    pub(super) async fn launch_somewhere<F: Future<Output = bool>>(
        &self,
        mut configure: impl FnMut(u16) -> Result<(), Error>,
        mut ready: impl FnMut(u16, u32) -> F,
    ) -> Result<u16, Error> {
        // Somebody may take the port between the look and the start.
        let mut tries = 5;
        loop {
            let port = port::free()?;
            configure(port)?;
            match self.launch(|pid| ready(port, pid)).await {
                Ok(()) => return Ok(port),
                Err(_) if tries > 0 && self.log().to_lowercase().contains("in use") => tries -= 1,
                Err(error) => return Err(error),
            }
            fs::write(&self.log, "").map_err(Error::io("emptying the log"))?;
        }
    }

    /// Starts the process and waits until `ready` says so of the process of this number.
    pub(super) async fn launch<F: Future<Output = bool>>(&self, mut ready: impl FnMut(u32) -> F) -> Result<(), Error> {
        let log = File::options().create(true).append(true).open(&self.log);
        let log = log.map_err(Error::io(format!("opening {}", self.log.display())))?;
        let errors = log.try_clone().map_err(Error::io("opening the log twice"))?;
        let mut command = process::command(&self.program, self.user.as_ref(), self.folder.path());
        command.args(&self.arguments).stdin(Stdio::null()).stdout(log).stderr(errors);
        let child = command.spawn().map_err(Error::io(format!("running {}", self.program.display())))?;
        let pid = child.id();
        *self.server() = Some(child);

        let started = tokio::time::timeout(PATIENCE, async {
            loop {
                if let Some(Ok(Some(status))) = self.server().as_mut().map(Child::try_wait) {
                    return Err(status);
                }
                if ready(pid).await {
                    return Ok(());
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        let problem = match started.await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(status)) => {
                *self.server() = None;
                format!("ended with {status}")
            }
            Err(_) => format!("took no connections within {PATIENCE:?}"),
        };
        Err(Error::program(&self.program, problem, &tail(&self.log)))
    }

    /// Sends a signal that ends it, and waits until it and all its children are gone.
    pub(super) async fn end(&self, signal: Signal) -> Result<(), Error> {
        self.resume();
        let Some(first) = self.pid() else { return Ok(()) };
        process::signal(first, signal);
        let gone = || async {
            let reaped = match self.server().as_mut().map(Child::try_wait) {
                None | Some(Ok(Some(_))) => true,
                Some(_) => false,
            };
            (reaped && self.processes().is_empty()).then_some(())
        };
        until("the server ends", PATIENCE, gone).await?;
        *self.server() = None;
        Ok(())
    }

    /// Kills it and all its children at once, as a power cut would, though the kernel keeps what they wrote.
    pub(super) async fn crash(&self) -> Result<(), Error> {
        self.pause().await?;
        for pid in self.processes() {
            process::signal(pid, Signal::KILL);
        }
        self.end(Signal::KILL).await
    }

    /// Stops the first process before its children, so that it has no more of them after the look.
    pub(super) async fn pause(&self) -> Result<(), Error> {
        if let Some(first) = self.pid() {
            stop(first).await?;
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

    /// The first process, if it was started and not stopped.
    pub(super) fn pid(&self) -> Option<Pid> {
        let id = self.server().as_ref().map(Child::id)?;
        Pid::from_raw(id.try_into().ok()?)
    }

    /// The server and all its children.
    pub(super) fn processes(&self) -> Vec<Pid> {
        process::at_work_in(&self.home)
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

impl Drop for Daemon {
    /// Shows the log of a test that fails, then lets the watchdog stop the server and remove the folder.
    #[expect(clippy::print_stderr, reason = "the tests' harness captures it and shows it with the failure")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the end of the log of {} ---\n{}", self.program.display(), tail(&self.log));
        }
        self.folder.remove();
        // Stopped by the watchdog, and ours to bury.
        if let Some(child) = self.server().as_mut() {
            let _status = child.wait();
        }
    }
}

/// Stops one process and waits until it stands, or is gone.
pub(super) async fn stop(pid: Pid) -> Result<(), Error> {
    process::signal(pid, Signal::STOP);
    let stands = || async { matches!(process::state(pid), None | Some('T' | 'Z')).then_some(()) };
    until("a process stands", Duration::from_secs(10), stands).await
}
