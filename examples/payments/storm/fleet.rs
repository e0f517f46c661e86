//! Real server processes on one database: this program again, as `payments serve`. None outlives the storm: a storm that ends in
//! whatever way kills them, and if it is killed itself they end with it: see `end_with_parent`.

use super::roster::Roster;
use super::{DRAIN, LEASE};
use crate::AnyError;
use crate::cli::{StormArgs, Switch};
use crate::database::Table;
use crate::signal::{Signal, send};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

/// How long a process may take to start, on a slow and busy machine.
const START: Duration = Duration::from_secs(30);
/// How long a process may take to stop.
const STOP: Duration = Duration::from_secs(30);

/// Several processes that serve.
#[derive(Debug)]
pub(crate) struct Fleet {
    recipe: Recipe,
    members: Vec<Mutex<Member>>,
    roster: Arc<Roster>,
}

/// How each of them is started.
#[derive(Debug)]
struct Recipe {
    program: PathBuf,
    arguments: Vec<String>,
}

#[derive(Debug)]
struct Member {
    child: Child,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Fleet {
    /// Starts as many processes as `args` want, all at once.
    pub(crate) async fn start(args: &StormArgs, seed: u64, provider: &str, table: &Table) -> Result<Self, AnyError> {
        let recipe = Recipe::new(args, seed, provider, table)?;
        let started: Result<Vec<_>, _> = (0..args.processes).map(|_| recipe.spawn()).collect();
        let (mut members, mut addresses) = (Vec::new(), Vec::new());
        for mut member in started? {
            addresses.push(member.address().await?);
            members.push(Mutex::new(member));
        }
        Ok(Self { recipe, members, roster: Arc::new(Roster::new(addresses)) })
    }

    pub(crate) fn roster(&self) -> &Arc<Roster> {
        &self.roster
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Kills the `index`-th process, whatever it is at, and starts it again.
    pub(crate) async fn kill(&self, index: usize) -> Result<(), AnyError> {
        let mut member = self.members[index].lock().await;
        // SIGKILL, and the wait for its end: from here on it does nothing any more.
        member.child.kill().await?;
        *member = self.recipe.spawn()?;
        let address = member.address().await?;
        self.roster.replace(index, address);
        Ok(())
    }

    /// Stops the `index`-th process for this long and lets it go on as if nothing had been.
    pub(crate) async fn pause(&self, index: usize, pause: Duration) -> Result<(), AnyError> {
        let member = self.members[index].lock().await;
        send(&member.child, Signal::Stop)?;
        sleep(pause).await;
        send(&member.child, Signal::Continue)?;
        Ok(())
    }

    /// Stops every process in order, and says whether each of them settled all that it had begun.
    pub(crate) async fn stop(&self) -> Result<bool, AnyError> {
        for member in &self.members {
            send(&member.lock().await.child, Signal::Terminate)?;
        }
        let mut settled = true;
        for member in &self.members {
            settled &= member.lock().await.end().await?;
        }
        Ok(settled)
    }
}

impl Recipe {
    fn new(args: &StormArgs, seed: u64, provider: &str, table: &Table) -> Result<Self, AnyError> {
        let database = table.args();
        let dedupe = if args.provider_dedupe == Switch::On { "on" } else { "off" };
        let mut arguments: Vec<_> = ["serve", "--until-stdin-closes", "--listen", "127.0.0.1:0", "--provider-url"]
            .into_iter()
            .chain([provider, "--provider-dedupe", dedupe])
            .map(str::to_owned)
            .collect();
        arguments.extend([format!("--fault-seed={seed}"), format!("--lease-ms={}", LEASE.as_millis())]);
        arguments.push(format!("--drain-ms={}", DRAIN.as_millis()));
        arguments.extend(database.database_url.map(|url| format!("--database-url={url}")));
        arguments.extend(database.table.map(|name| format!("--table={name}")));
        arguments.extend(database.redis_url.map(|url| format!("--redis-url={url}")));
        if args.no_panics {
            arguments.push("--no-panics".to_owned());
        }
        Ok(Self { program: std::env::current_exe()?, arguments })
    }

    fn spawn(&self) -> Result<Member, AnyError> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        // Ctrl-C is for the storm.
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command.spawn()?;
        let stdout = child.stdout.take().ok_or("a process without a standard output")?;
        Ok(Member { child, stdout: BufReader::new(stdout).lines() })
    }
}

impl Member {
    /// Where it listens, as soon as it does.
    async fn address(&mut self) -> Result<SocketAddr, AnyError> {
        let said = async {
            while let Some(line) = self.stdout.next_line().await? {
                if let Some(rest) = line.strip_prefix("payments on http://") {
                    return Ok::<_, AnyError>(rest.split(',').next().unwrap_or_default().parse()?);
                }
            }
            Err("a server process ended before it served".into())
        };
        timeout(START, said).await.map_err(|_| "a server process does not start")?
    }

    /// Waits for its end. The last line that it prints says how it ended.
    async fn end(&mut self) -> Result<bool, AnyError> {
        let said = async {
            let mut last = String::new();
            while let Some(line) = self.stdout.next_line().await? {
                last = line;
            }
            let succeeded = self.child.wait().await?.success();
            let end: serde_json::Value = serde_json::from_str(&last)?;
            Ok::<_, AnyError>(succeeded && end["settled"] == true)
        };
        timeout(STOP, said).await.map_err(|_| "a server process does not stop")?
    }
}
