//! A small disk for a part of a server: a file system in memory, which a test can fill and free again.
//!
//! The watchdog takes it away with the folder that it is in.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::rig::Error;
use crate::rig::user::User;

/// What of a server lies on its small disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Tables, indexes and everything else but the log: when it is full, the server refuses what would make them grow.
    Data,
    /// The write-ahead log: when it is full, the server goes down.
    Log,
}

/// A disk that is mounted.
#[derive(Debug)]
pub(super) struct Disk {
    path: PathBuf,
}

impl Disk {
    /// Mounts one of this size in `folder`. It belongs to `user`.
    pub(super) fn mount(folder: &Path, user: Option<&User>, bytes: u64) -> Result<Self, Error> {
        let path = folder.join("disk");
        fs::create_dir(&path).map_err(Error::io(format!("making {}", path.display())))?;
        let owner = user.map(|user| format!(",uid={},gid={}", user.uid, user.gid)).unwrap_or_default();
        let what = format!("mounting a file system of {bytes} bytes at {}", path.display());
        match mount(&path, &format!("size={bytes},mode=0700{owner}")) {
            Ok(()) => Ok(Self { path }),
            // A security module that forbids it to root says so with another number than the kernel.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let help = "run as root with the capability CAP_SYS_ADMIN, in a container with `--privileged`";
                Err(Error::Forbidden { what, error, help: help.to_owned() })
            }
            Err(error) => Err(Error::Io { what, error }),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes until the disk is full. The server can take what it frees meanwhile.
    pub(super) fn fill(&self) -> Result<(), Error> {
        let ballast = File::options().create(true).append(true).open(self.ballast());
        let mut ballast = ballast.map_err(Error::io("opening the ballast"))?;
        loop {
            match ballast.write(&[0; 1 << 16]) {
                Ok(_) => {}
                Err(full) if full.kind() == io::ErrorKind::StorageFull => return Ok(()),
                Err(error) => return Err(Error::Io { what: "writing the ballast".to_owned(), error }),
            }
        }
    }

    pub(super) fn free(&self) -> Result<(), Error> {
        fs::remove_file(self.ballast()).map_err(Error::io("removing the ballast"))
    }

    fn ballast(&self) -> PathBuf {
        self.path.join("ballast")
    }
}

#[cfg(target_os = "linux")]
fn mount(path: &Path, options: &str) -> io::Result<()> {
    use rustix::mount::MountFlags;

    let options = std::ffi::CString::new(options)?;
    let flags = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC;
    Ok(rustix::mount::mount("idem", path, "tmpfs", flags, options.as_c_str())?)
}

#[cfg(not(target_os = "linux"))]
fn mount(_path: &Path, _options: &str) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "only done on Linux"))
}
