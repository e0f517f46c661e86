//! However a test process ends, its servers end too, and nothing of them is left.
//!
//! The test process that ends is this very program, started again with [`MODE`] set to run [`victim`] alone.

use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use idem_tests::rig::pgbouncer::PgBouncer;
use idem_tests::rig::postgres::{Contents, Options, Postgres, Version, shared};
use idem_tests::rig::redis;
use idem_tests::rig::wait::until;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

const MODE: &str = "IDEM_RIG_VICTIM";
const SOON: Duration = Duration::from_secs(60);

/// Not a test but what the tests start: it has servers of every kind, says where they listen, and ends as it was told.
#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stdout, reason = "it talks to the test that started it")]
async fn victim() {
    let Ok(mode) = std::env::var(MODE) else { return };
    if let Some(disk) = mode.strip_prefix("start") {
        println!("\nready");
        if disk.is_empty() { Postgres::options().own() } else { on_a_disk() }.start().await;
        std::future::pending::<()>().await;
    }
    let common = shared(Version::Any).await;
    // With as much to remove as the machine allows.
    let own = match on_a_disk().start_if_allowed().await {
        Some(server) => server,
        None => Postgres::options().own().start().await,
    };
    let pooler = PgBouncer::start(&own).await;
    let cache = redis::shared().await;
    // Servers that were given to the tests live on.
    let mut mine = vec![own.address(), pooler.address()];
    mine.extend(common.is_own().then(|| common.address()));
    mine.extend(cache.is_own().then(|| cache.address()));
    let cluster = redis::Cluster::start(redis::Flavour::Any).await;
    mine.extend(cluster.nodes().iter().map(redis::Redis::address));
    println!("\nready {}", mine.join(" "));
    match mode.as_str() {
        "end" => {}
        "panic" => panic!("as it was told"),
        "paused" => {
            own.pause().await;
            pooler.pause().await;
            if cache.is_own() {
                cache.pause().await;
            }
            cluster.nodes()[1].pause().await;
            println!("paused");
            std::future::pending::<()>().await;
        }
        _ => std::future::pending().await,
    }
}

fn on_a_disk() -> Options {
    Postgres::options().small_disk(Contents::Data, 128 << 20)
}

struct Victim {
    child: Child,
    pid: u32,
    lines: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
    addresses: Vec<String>,
}

impl Victim {
    async fn start(mode: &str) -> Self {
        // Who starts the tests in the background of a script has Ctrl-C ignored, and so have they, and so would the victim.
        let mut command = std::process::Command::new("env");
        command.arg("--default-signal=INT").arg(std::env::current_exe().unwrap());
        command.args(["--exact", "life::victim", "--nocapture", "--test-threads=1"]);
        // A group of its own, as a shell gives to a job, so that a signal can be sent to all of it as Ctrl-C is.
        command.env(MODE, mode).process_group(0).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = tokio::process::Command::from(command).kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = loop {
            let line = lines.next_line().await.unwrap().expect("the victim gets ready");
            if let Some(said) = line.strip_prefix("ready") {
                break said.to_owned();
            }
        };
        let addresses = said.split_whitespace().map(str::to_owned).collect();
        Self { pid: child.id().unwrap(), child, lines, addresses }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let group = rustix::process::Pid::from_raw(self.pid.try_into().unwrap()).unwrap();
        rustix::process::kill_process_group(group, signal).unwrap();
    }

    fn folders(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(std::env::temp_dir().canonicalize().unwrap()).unwrap();
        let mine = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            name.starts_with("idem-") && name.split('-').nth(2) == Some(&self.pid.to_string())
        };
        entries.map(|entry| entry.unwrap().path()).filter(mine).collect()
    }

    /// Waits until the victim has ended, and then until nothing of it is left.
    async fn leaves_nothing(mut self) {
        tokio::time::timeout(SOON, self.child.wait()).await.expect("the victim ends").unwrap();
        let gone = until("everything is gone", SOON, || async {
            (self.folders().is_empty() && processes_below(self.pid).is_empty()).then_some(())
        });
        let left = || (self.folders(), processes_below(self.pid));
        if let Err(error) = gone.await {
            panic!("{error}: {:?}", left());
        }
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
        assert!(!mounts.contains(&format!("-{}-", self.pid)), "a disk is still mounted: {mounts}");
        for address in &self.addresses {
            assert!(TcpStream::connect(address).is_err(), "somebody still listens on {address}");
        }
    }
}

/// The processes that work in a folder of the victim's, also in one that was removed below them.
fn processes_below(pid: u32) -> Vec<PathBuf> {
    let mine = format!("-{pid}-");
    let works_there = |process: &Path| {
        let Ok(home) = std::fs::read_link(process.join("cwd")) else { return false };
        home.to_string_lossy().contains("/idem-") && home.to_string_lossy().contains(&mine)
    };
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    processes.filter(|process| works_there(process)).collect()
}

async fn ends_when(mode: &str, how: impl AsyncFnOnce(&mut Victim)) {
    let mut victim = Victim::start(mode).await;
    if mode != "end" && mode != "panic" {
        // Otherwise this test could not fail.
        assert_eq!(victim.folders().len(), victim.addresses.len());
        assert!(processes_below(victim.pid).len() > 5);
    }
    how(&mut victim).await;
    victim.leaves_nothing().await;
}

#[tokio::test]
async fn nothing_is_left_after_a_normal_end() {
    ends_when("end", async |_| {}).await;
}

#[tokio::test]
async fn nothing_is_left_after_a_panic() {
    ends_when("panic", async |_| {}).await;
}

#[tokio::test]
async fn nothing_is_left_after_an_interrupt() {
    ends_when("wait", async |victim| victim.signal(rustix::process::Signal::INT)).await;
}

#[tokio::test]
async fn nothing_is_left_after_a_kill() {
    ends_when("wait", async |victim| victim.signal(rustix::process::Signal::KILL)).await;
}

#[tokio::test]
async fn nothing_is_left_after_a_kill_while_the_servers_are_stopped() {
    ends_when("paused", async |victim| {
        while victim.lines.next_line().await.unwrap().expect("the victim goes on") != "paused" {}
        victim.signal(rustix::process::Signal::KILL);
    })
    .await;
}

#[tokio::test]
async fn nothing_is_left_after_a_kill_during_the_start() {
    // When the folder is there, when initdb is at work, when the postmaster is.
    killed_during("start", &["watchdog", "data/base", "data/postgresql.initdb.conf"]).await;
}

#[tokio::test]
async fn nothing_is_left_after_a_kill_during_the_start_on_a_disk_of_its_own() {
    if on_a_disk().start_if_allowed().await.is_some() {
        // When it is about to be mounted, or is, and as above.
        let signs = ["disk", "disk/data/base", "disk/data/postgresql.initdb.conf"];
        killed_during("start on a disk", &signs).await;
    }
}

async fn killed_during(mode: &str, signs: &[&str]) {
    for &sign in signs {
        let victim = Victim::start(mode).await;
        let there = || async { victim.folders().iter().any(|folder| folder.join(sign).exists()).then_some(()) };
        until(sign, SOON, there).await.unwrap();
        victim.signal(rustix::process::Signal::KILL);
        victim.leaves_nothing().await;
    }
}
