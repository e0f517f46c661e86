//! The processes of the chain: this program again, two of each kind.

use crate::AnyError;
use crate::cli::Naive;
use clap::ValueEnum as _;
use rand::RngExt as _;
use rand::rngs::StdRng;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// How many of each kind.
const OF_EACH: usize = 2;

pub(crate) struct Processes {
    program: PathBuf,
    members: Vec<Member>,
}

struct Member {
    arguments: Vec<String>,
    /// Where it serves, if it does.
    address: Option<SocketAddr>,
    child: Child,
}

impl Processes {
    pub(crate) async fn start(database_url: &str, redis_url: &str, naive: Option<Naive>) -> Result<Self, AnyError> {
        let program = std::env::current_exe()?;
        let mut members = Vec::new();
        for kind in ["api", "relay", "consumer"] {
            for _ in 0..OF_EACH {
                let mut arguments = vec![kind.to_owned(), "--until-stdin-closes".to_owned()];
                arguments.extend(["--database-url".to_owned(), database_url.to_owned()]);
                let address = if kind == "api" { Some(free_port()?) } else { None };
                match address {
                    Some(address) => arguments.extend(["--listen".to_owned(), address.to_string()]),
                    None => arguments.extend(["--redis-url".to_owned(), redis_url.to_owned()]),
                }
                if let Some(value) = naive.and_then(|naive| naive.to_possible_value()) {
                    arguments.extend(["--naive".to_owned(), value.get_name().to_owned()]);
                }
                let mut child = spawn(&program, &arguments)?;
                ready(&mut child).await?;
                members.push(Member { arguments, address, child });
            }
        }
        Ok(Self { program, members })
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.members.iter().filter_map(|member| member.address).collect()
    }

    /// Kills one of them, whatever it is at, and starts it again. Whether it is ready by the next kill is its own affair.
    pub(crate) async fn kill_one_of(&mut self, random: &mut StdRng) -> Result<(), AnyError> {
        let number = random.random_range(0..self.members.len());
        let member = &mut self.members[number];
        // SIGKILL, and the wait for its end: from here on it does nothing any more.
        member.child.kill().await?;
        member.child = spawn(&self.program, &member.arguments)?;
        Ok(())
    }

    pub(crate) async fn stop(self) {
        for mut member in self.members {
            // It is over either way.
            let _ = member.child.kill().await;
        }
    }
}

fn spawn(program: &PathBuf, arguments: &[String]) -> Result<Child, AnyError> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    Ok(command.spawn()?)
}

/// Waits for the line that says that it works.
async fn ready(child: &mut Child) -> Result<(), AnyError> {
    let stdout = child.stdout.as_mut().ok_or("its output is somebody else's")?;
    let mut line = String::new();
    if BufReader::new(stdout).read_line(&mut line).await? == 0 {
        return Err("a process ended before it worked".into());
    }
    Ok(())
}

fn free_port() -> Result<SocketAddr, AnyError> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
