//! A temporary folder for one server, and the watchdog that stops what works in it and removes it.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::Error;
use super::user::User;

const WATCHDOG: &str = include_str!("watchdog.sh");

/// A socket's path has to fit into 108 bytes, and the server adds some of its own.
const LONGEST: usize = 70;

/// How the watchdog asks a server to end now.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ask {
    /// PostgreSQL's immediate shutdown.
    Quit,
    /// What every other daemon understands.
    Terminate,
}

/// A folder that exists as long as this value and this process do.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// Holds the only write end of the pipe that the watchdog reads. It closes on exec, so that no server inherits it.
    watchdog: Child,
}

impl Folder {
    /// Makes a folder that belongs to `user` alone, and its watchdog.
    pub(super) fn new(label: &str, user: Option<&User>, ask: Ask) -> Result<Self, Error> {
        let path = make(label)?;
        if let Some(user) = user {
            let what = || format!("giving {} to {}", path.display(), user.name);
            chown(&path, Some(user.uid), Some(user.gid)).map_err(Error::io(what()))?;
        }
        let signal = match ask {
            Ask::Quit => "QUIT",
            Ask::Terminate => "TERM",
        };
        let keep = if std::env::var_os("IDEM_TEST_KEEP").is_some() { "keep" } else { "" };
        let script = path.join("watchdog");
        fs::write(&script, WATCHDOG).map_err(Error::io(format!("writing {}", script.display())))?;
        let watchdog = Command::new("sh")
            .args([&script, &path])
            .args([signal, keep])
            // Whoever reads the output of the tests must not wait for the watchdog.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(Error::io("starting sh as a watchdog"))?;
        Ok(Self { path, watchdog })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Blocks until what works in the folder has ended and the folder is gone, which takes some tenths of a second.
    pub(super) fn remove(&mut self) {
        drop(self.watchdog.stdin.take());
        let _status = self.watchdog.wait();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.remove();
    }
}

fn make(label: &str) -> Result<PathBuf, Error> {
    static NEXT: AtomicU32 = AtomicU32::new(0);

    let mut parent = std::env::temp_dir();
    if parent.as_os_str().len() > LONGEST - 30 {
        parent = PathBuf::from("/tmp");
    }
    let parent = parent.canonicalize().map_err(Error::io(format!("the temporary folder {}", parent.display())))?;
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("idem-{label}-{}-{number}", std::process::id()));
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            // A process of this number lived before, in another container perhaps.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Error::Io { what: format!("making {}", path.display()), error }),
        }
    }
}
