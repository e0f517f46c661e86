//! Programs and their processes: starting as the right user, finding, signalling.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use super::user::User;

/// A command that runs in `folder` (by which the watchdog finds its process), as `user`, in a process group of its own
/// (so that Ctrl-C is for the test process alone), and unmoved by the PostgreSQL variables of whoever runs the tests.
pub(super) fn command(program: &Path, user: Option<&User>, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).process_group(0).env("LC_ALL", "C").env("HOME", folder);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PG") {
            command.env_remove(name);
        }
    }
    if let Some(user) = user {
        command.uid(user.uid).gid(user.gid);
    }
    command
}

/// Where a program of this name is, if it is on `PATH` or in the places for daemons that an ordinary user's `PATH`
/// lacks.
pub(super) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
}

/// The processes whose working directory is `folder`, such as a postmaster and all its children in their data
/// directory.
///
/// Reads `/proc`; elsewhere than on Linux there is none, and the answer is empty.
pub(super) fn at_work_in(folder: &Path) -> Vec<Pid> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    processes
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let pid = entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw)?;
            (fs::read_link(entry.path().join("cwd")).ok()? == folder).then_some(pid)
        })
        .collect()
}

/// Sends a signal. A process that is gone already has got what it was to get.
pub(super) fn signal(pid: Pid, signal: Signal) {
    let _gone = kill_process(pid, signal);
}

/// The letter by which the kernel calls the state of a process (`T` is stopped), or `None` if there is no such process.
pub(super) fn state(pid: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name stands in brackets and may hold anything, also brackets.
    stat.rsplit_once(") ")?.1.chars().next()
}
