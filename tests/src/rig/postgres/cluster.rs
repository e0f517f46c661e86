//! A throwaway cluster: made by `initdb`, and what is particular about running a postmaster.

use std::fmt::Write as _;
use std::fs;
use std::future::ready;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::disk::{Contents, Disk};
use super::programs::Programs;
use crate::rig::daemon::Daemon;
use crate::rig::folder::{Ask, Folder};
use crate::rig::user::{self, User};
use crate::rig::{Error, process};

/// Members of this role log in with a password; everybody else is trusted.
pub(super) const PASSWORD_ROLE: &str = "idem_password";

#[derive(Debug)]
pub(super) struct Cluster {
    programs: PathBuf,
    data: PathBuf,
    port: u16,
    disk: Option<Disk>,
    daemon: Daemon,
}

impl Cluster {
    /// Makes a cluster and starts it.
    pub(super) async fn start(
        programs: Programs,
        settings: &[(String, String)],
        small_disk: Option<(Contents, u64)>,
    ) -> Result<Self, Error> {
        let user = user::unprivileged()?;
        let folder = Folder::new("pg", user.as_ref(), Ask::Quit)?;
        let programs = reachable(programs.folder, user.as_ref(), &folder).await?;
        let (mut data, mut log, mut disk) = (folder.path().join("data"), None, None);
        if let Some((contents, bytes)) = small_disk {
            let mounted = Disk::mount(folder.path(), user.as_ref(), bytes)?;
            // The other one stays in the folder, so that only this one can run out of space.
            let home = |part| if part == contents { mounted.path() } else { folder.path() };
            (data, log) = (home(Contents::Data).join("data"), Some(home(Contents::Log).join("wal")));
            disk = Some(mounted);
        }
        init(&programs, user.as_ref(), folder.path(), &data, log.as_deref()).await?;

        let arguments = vec!["-D".into(), data.clone().into()];
        let daemon = Daemon::new(programs.join("postgres"), arguments, user, &data, folder);
        let configure = |port| configure(&data, daemon.folder(), port, settings);
        let port = daemon.launch_somewhere(configure, |_, pid| ready(says_ready(&data, pid))).await?;
        let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
        super::execute(&url, &format!("CREATE ROLE {PASSWORD_ROLE}")).await?;
        Ok(Self { programs, data, port, disk, daemon })
    }

    /// Starts the postmaster again and waits until it takes connections.
    pub(super) async fn launch(&self) -> Result<(), Error> {
        self.daemon.launch(|pid| ready(says_ready(&self.data, pid))).await
    }

    pub(super) fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn data(&self) -> &Path {
        &self.data
    }

    pub(super) fn disk(&self) -> Option<&Disk> {
        self.disk.as_ref()
    }

    pub(super) fn programs(&self) -> &Path {
        &self.programs
    }
}

/// The log goes into `data`, or to where it is put.
async fn init(
    programs: &Path,
    user: Option<&User>,
    folder: &Path,
    data: &Path,
    log: Option<&Path>,
) -> Result<(), Error> {
    let initdb = programs.join("initdb");
    let mut command = tokio::process::Command::from(process::command(&initdb, user, folder));
    command.arg("--pgdata").arg(data);
    command.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale"]);
    if let Some(log) = log {
        // Small segments, so that a small log has some.
        command.arg("--waldir").arg(log).arg("--wal-segsize=1");
    }
    command.stdin(Stdio::null()).kill_on_drop(true);
    let done = command.output().await.map_err(Error::io(format!("running {}", initdb.display())))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        return Err(Error::program(&initdb, format!("ended with {}", done.status), &said));
    }
    let access = format!(
        "local all all trust\n\
         host all +{PASSWORD_ROLE} all scram-sha-256\n\
         host all all all trust\n\
         host replication all all trust\n"
    );
    fs::write(data.join("pg_hba.conf"), access).map_err(Error::io("writing pg_hba.conf"))
}

/// In the file, not on the command line: what stands there cannot be changed by `ALTER SYSTEM`.
fn configure(data: &Path, sockets: &Path, port: u16, given: &[(String, String)]) -> Result<(), Error> {
    let (ours, theirs) = (data.join("postgresql.conf"), data.join("postgresql.initdb.conf"));
    if !theirs.exists() {
        fs::rename(&ours, &theirs).map_err(Error::io("keeping the settings of initdb"))?;
    }
    let own = [
        ("listen_addresses", "127.0.0.1".to_owned()),
        ("port", port.to_string()),
        ("unix_socket_directories", sockets.display().to_string()),
        ("max_connections", "200".to_owned()),
        ("log_line_prefix", "%m [%p] %a %d ".to_owned()),
    ];
    let given = given.iter().map(|(name, value)| (name.as_str(), value.clone()));
    let mut lines = String::from("include 'postgresql.initdb.conf'\n");
    for (name, value) in own.into_iter().chain(given) {
        let _ = writeln!(lines, "{name} = '{}'", value.replace('\'', "''"));
    }
    fs::write(&ours, lines).map_err(Error::io("writing postgresql.conf"))
}

/// The postmaster writes `ready` into the eighth line of its file. A file that an earlier one left holds another
/// number.
fn says_ready(data: &Path, pid: u32) -> bool {
    let Ok(file) = fs::read_to_string(data.join("postmaster.pid")) else { return false };
    let mut lines = file.lines();
    let same = lines.next().is_some_and(|line| line.trim() == pid.to_string());
    same && lines.nth(6).is_some_and(|line| line.trim() == "ready")
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
