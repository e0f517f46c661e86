//! A temporary folder for one server, and the watchdog that stops what works in it and removes it.

use std::io::{Read, Write};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::Error;
use super::user::User;

const WATCHDOG: &str = include_str!("watchdog.sh");

/// Becomes the watchdog as soon as the folder is there. The script lies in the folder, so that a list of processes
/// stays readable.
const MAKE: &str = r#"umask 077 && mkdir "$1" && printf %s "$WATCHDOG" >"$1/watchdog" && exec sh "$1/watchdog" "$@""#;

/// A socket's path has to fit into 108 bytes, and the rig and the server add some of their own.
const LONGEST: usize = 50;

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
        static NEXT: AtomicU32 = AtomicU32::new(0);

        let parent = parent()?;
        let folder = loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("idem-{label}-{}-{number}", std::process::id()));
            // A process of this number may have left one before, in another container perhaps.
            if !path.exists() {
                break Self::watched(path, ask)?;
            }
        };
        if let Some(user) = user {
            let what = format!("giving {} to {}", folder.path.display(), user.name);
            chown(&folder.path, Some(user.uid), Some(user.gid)).map_err(Error::io(what))?;
        }
        Ok(folder)
    }

    /// The watchdog makes the folder itself: there is no moment at which one exists without the other.
    fn watched(path: PathBuf, ask: Ask) -> Result<Self, Error> {
        let signal = match ask {
            Ask::Quit => "QUIT",
            Ask::Terminate => "TERM",
        };
        let keep = if std::env::var_os("IDEM_TEST_KEEP").is_some() { "keep" } else { "" };
        let mut watchdog = Command::new("sh")
            .args(["-c", MAKE, "watchdog"])
            .arg(&path)
            .args([signal, keep])
            .env("WATCHDOG", WATCHDOG)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Whoever reads the output of the tests must not wait for the watchdog.
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(Error::io("starting sh as a watchdog"))?;
        let mut said = String::new();
        let what = format!("hearing from the watchdog of {}", path.display());
        let Some(mut output) = watchdog.stdout.take() else { unreachable!("it is piped") };
        output.read_to_string(&mut said).map_err(Error::io(what))?;
        if said.trim() != "ready" {
            let status = watchdog.wait().map_err(Error::io("waiting for the watchdog"))?;
            return Err(Error::program(Path::new("sh"), format!("could not make {} ({status})", path.display()), ""));
        }
        Ok(Self { path, watchdog })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Blocks until what works in the folder has ended and the folder is gone, which takes some tenths of a second.
    pub(super) fn remove(&mut self) {
        if let Some(mut pipe) = self.watchdog.stdin.take() {
            // If it is gone, so is what it watched, or nobody can help.
            let _gone = pipe.write_all(b"done\n");
        }
        let _status = self.watchdog.wait();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Where temporary things go, unless a socket there had too long a name.
fn parent() -> Result<PathBuf, Error> {
    let mut parent = std::env::temp_dir();
    if parent.as_os_str().len() > LONGEST {
        parent = PathBuf::from("/tmp");
    }
    parent.canonicalize().map_err(Error::io(format!("the temporary folder {}", parent.display())))
}
