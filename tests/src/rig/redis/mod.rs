//! Redis or Valkey for the tests: a server, or a [cluster](Cluster) of three.
//!
//! It comes from `IDEM_TEST_REDIS_URL`, a server that is there already; else from a program on this machine:
//! `IDEM_TEST_REDIS_BIN`, `redis-server` or `valkey-server` on `PATH`, or `target/valkey/*/valkey-server`, where
//! `scripts/valkey` puts one.

mod cluster;

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;

use super::daemon::Daemon;
use super::folder::{Ask, Folder};
use super::{Error, must, process, url, user};

pub use cluster::Cluster;

/// A server that nobody asks to persist anything. Dropping it stops it, unless it was given.
#[derive(Debug)]
pub struct Redis {
    url: String,
    daemon: Option<Daemon>,
}

/// Which program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flavour {
    /// Whatever the machine offers first.
    #[default]
    Any,
    /// `redis-server`.
    Redis,
    /// `valkey-server`.
    Valkey,
}

/// The one server that the tests of this process share. The first call starts it; it ends with the process.
///
/// # Panics
///
/// If there is none and none can be started; the message says what to install.
pub async fn shared() -> &'static Redis {
    static SHARED: OnceCell<Result<Redis, Error>> = OnceCell::const_new();
    match SHARED.get_or_init(|| Redis::try_start(Flavour::Any)).await {
        Ok(server) => server,
        Err(error) => panic!("{error}"),
    }
}

impl Redis {
    /// A server of the machine's choice.
    ///
    /// # Panics
    ///
    /// If there is none and none can be started; the message says what to install.
    pub async fn start() -> Self {
        must(Self::try_start(Flavour::Any).await)
    }

    /// A server of this flavour; for [`Flavour::Any`] the one of `IDEM_TEST_REDIS_URL`, if that is set.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] without a program, [`Error::Program`] with the end of its log if it does not start.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops and removes what it had started.
    pub async fn try_start(flavour: Flavour) -> Result<Self, Error> {
        match std::env::var("IDEM_TEST_REDIS_URL") {
            Ok(url) if flavour == Flavour::Any => Ok(Self { url, daemon: None }),
            _ => Self::own(flavour, &[]).await,
        }
    }

    /// A server of the rig's own, which may be stopped, paused and killed, with settings such as `("maxmemory",
    /// "1mb")`.
    ///
    /// # Errors
    ///
    /// As [`try_start`](Self::try_start).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops and removes what it had started.
    pub async fn own(flavour: Flavour, settings: &[(&str, &str)]) -> Result<Self, Error> {
        Self::launch(flavour, settings, || Ok(String::new())).await
    }

    /// As [`own`](Self::own), with lines that are made anew for each port that is tried.
    async fn launch(
        flavour: Flavour,
        settings: &[(&str, &str)],
        more: impl Fn() -> Result<String, Error>,
    ) -> Result<Self, Error> {
        let program = program(flavour)?;
        let user = user::unprivileged()?;
        let folder = Folder::new("redis", user.as_ref(), Ask::Terminate)?;
        let home = folder.path().to_owned();
        let file = home.join("redis.conf");
        let daemon = Daemon::new(program, vec![file.clone().into()], user, &home, folder);
        let configure = |port: u16| {
            let mut lines = format!("bind 127.0.0.1\nport {port}\ndir {}\nsave \"\"\nappendonly no\n", home.display());
            lines.extend(settings.iter().map(|(name, value)| format!("{name} \"{value}\"\n")));
            lines.push_str(&more()?);
            std::fs::write(&file, lines).map_err(Error::io("writing redis.conf"))
        };
        let port = daemon.launch_somewhere(configure, answers).await?;
        Ok(Self { url: format!("redis://127.0.0.1:{port}/"), daemon: Some(daemon) })
    }

    /// Where a client connects.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The `host:port` where it listens, for a proxy to connect to.
    #[must_use]
    pub fn address(&self) -> String {
        url::address(&self.url, 6379)
    }

    /// The folder in which it works, unless it was given: what it writes is there.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        self.daemon.as_ref().map(Daemon::folder)
    }

    /// Whether the rig started this server, so that it may be stopped, paused and killed.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.daemon.is_some()
    }

    /// Gives one command on a connection of its own and returns the answer: a text, a number, or an error, as they
    /// stand on the wire (`+OK`, `:1`, `-ERR ...`), the content of a bulk string, or `None` for nil. Not for commands
    /// that answer with a list.
    ///
    /// # Panics
    ///
    /// If there is no answer, or a list.
    pub async fn command(&self, words: &[&str]) -> Option<String> {
        let what = format!("the command {words:?}");
        must(command(&self.address(), words).await.map_err(Error::io(what)))
    }

    /// SIGTERM. [`start_again`](Self::start_again) starts it, empty.
    ///
    /// # Panics
    ///
    /// If the server was given, or does not end.
    pub async fn stop(&self) {
        must(must(self.daemon("stopping")).end(Signal::TERM).await);
    }

    /// SIGKILL.
    ///
    /// # Panics
    ///
    /// If the server was given, or does not end.
    pub async fn crash(&self) {
        must(must(self.daemon("crashing")).crash().await);
    }

    /// Starts it after [`stop`](Self::stop) or [`crash`](Self::crash), on the same port, empty.
    ///
    /// # Panics
    ///
    /// If the server was given, is running, or does not start.
    pub async fn start_again(&self) {
        let daemon = must(self.daemon("starting"));
        assert!(daemon.pid().is_none(), "the server is running");
        let address = self.address();
        must(daemon.launch(|pid| is_process(&address, pid)).await);
    }

    /// SIGSTOP: every connection hangs.
    ///
    /// # Panics
    ///
    /// If the server was given, or does not stand.
    pub async fn pause(&self) {
        must(must(self.daemon("pausing")).pause().await);
    }

    /// Continues what [`pause`](Self::pause) stopped.
    ///
    /// # Panics
    ///
    /// If the server was given.
    pub fn resume(&self) {
        must(self.daemon("resuming")).resume();
    }

    fn daemon(&self, operation: &'static str) -> Result<&Daemon, Error> {
        self.daemon.as_ref().ok_or(Error::NotOurs { operation, server: "named by IDEM_TEST_REDIS_URL" })
    }
}

async fn answers(port: u16, pid: u32) -> bool {
    is_process(&format!("127.0.0.1:{port}"), pid).await
}

/// Whether the server there is the process that was started, and not a stranger on its port.
async fn is_process(address: &str, pid: u32) -> bool {
    let said = command(address, &["INFO", "server"]).await.ok().flatten().unwrap_or_default();
    said.lines().any(|line| line == format!("process_id:{pid}"))
}

async fn command(address: &str, words: &[&str]) -> std::io::Result<Option<String>> {
    const PATIENCE: Duration = Duration::from_secs(30);

    let exchange = async {
        let mut stream = BufReader::new(TcpStream::connect(address).await?);
        let mut request = format!("*{}\r\n", words.len());
        request.extend(words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())));
        stream.write_all(request.as_bytes()).await?;

        let mut line = String::new();
        stream.read_line(&mut line).await?;
        let line = line.trim_end();
        match line.as_bytes().first() {
            Some(b'+' | b'-' | b':') => Ok(Some(line.to_owned())),
            Some(b'$') if line == "$-1" => Ok(None),
            Some(b'$') => {
                let length = line[1..].parse().map_err(std::io::Error::other)?;
                let mut content = vec![0; length];
                stream.read_exact(&mut content).await?;
                Ok(Some(String::from_utf8_lossy(&content).into_owned()))
            }
            _ => Err(std::io::Error::other(format!("not an answer that the rig reads: {line:?}"))),
        }
    };
    tokio::time::timeout(PATIENCE, exchange).await?
}

fn program(flavour: Flavour) -> Result<PathBuf, Error> {
    let names: &[&str] = match flavour {
        Flavour::Any => &["redis-server", "valkey-server"],
        Flavour::Redis => &["redis-server"],
        Flavour::Valkey => &["valkey-server"],
    };
    let fits = |program: &PathBuf| {
        let name = program.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        program.is_file() && (flavour == Flavour::Any || names.contains(&name))
    };
    let named = std::env::var_os("IDEM_TEST_REDIS_BIN").map(PathBuf::from).into_iter();
    let installed = names.iter().filter_map(|name| process::on_path(name));
    let found = named.chain(installed).chain(unpacked()).find(fits);
    found.ok_or_else(|| Error::Missing {
        what: format!(
            "the program {} (looked for IDEM_TEST_REDIS_BIN, then on PATH, then in target/valkey)",
            names.join(" or ")
        ),
        help: "any one of these helps:\n\
               * install it: on Debian `apt-get install redis-server`, with Homebrew `brew install redis`\n\
               * unpack Valkey into target/: `scripts/valkey`\n\
               * name a running server: IDEM_TEST_REDIS_URL=redis://127.0.0.1:6379/"
            .to_owned(),
    })
}

/// Where `scripts/valkey` unpacks.
fn unpacked() -> Vec<PathBuf> {
    let parent = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/valkey");
    let Ok(entries) = std::fs::read_dir(parent) else { return Vec::new() };
    entries.filter_map(|entry| Some(entry.ok()?.path().join("valkey-server"))).collect()
}
