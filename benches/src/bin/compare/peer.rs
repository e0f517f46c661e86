//! Other people's libraries, each in a process of its own: [`Peers`].

use crate::Error;
use crate::heat::Side;
use async_trait::async_trait;
use idem_benches::load::{Load, Measured};
use idem_benches::workload::Workload;
use idem_tests::rig::redis::Redis;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// The program of `benches/peers`.
#[derive(Clone)]
pub(crate) struct Peers {
    program: PathBuf,
}

/// The `idempotent` crate, over its own memory or over Redis.
pub(crate) struct Idempotent {
    peers: Peers,
    workload: Workload,
    redis: Option<(Arc<Redis>, &'static str)>,
}

impl Peers {
    /// Builds it, which takes a minute the first time.
    pub(crate) async fn build() -> Result<Self, Error> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
        let done = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--release", "--locked", "--ignore-rust-version", "--target-dir"])
            .arg(folder.join("target"))
            .current_dir(&folder)
            .status()
            .await?;
        if !done.success() {
            return Err("the peers do not build".into());
        }
        Ok(Self { program: folder.join("target/release/peers") })
    }

    pub(crate) fn idempotent(&self, workload: Workload, redis: Option<(&Arc<Redis>, &'static str)>) -> Arc<dyn Side> {
        let redis = redis.map(|(redis, fsync)| (Arc::clone(redis), fsync));
        Arc::new(Idempotent { peers: self.clone(), workload, redis })
    }

    /// Starts the HTTP service over `axum-idempotent`; its address.
    pub(crate) async fn axum_idempotent(&self) -> Result<Service, Error> {
        Service::start(Command::new(&self.program).arg("axum-idempotent-serve")).await
    }
}

#[async_trait]
impl Side for Idempotent {
    fn name(&self) -> String {
        match &self.redis {
            None => "idempotent 2.0.0, memory".to_owned(),
            Some((_, fsync)) => format!("idempotent 2.0.0, Redis {fsync}"),
        }
    }

    async fn prepare(&self) -> Result<(), Error> {
        if let Some((redis, _)) = &self.redis {
            redis.command(&["FLUSHALL"]).await;
        }
        Ok(())
    }

    async fn measure(&self, load: Load) -> Result<Measured, Error> {
        let mut command = Command::new(&self.peers.program);
        match &self.redis {
            None => command.arg("idempotent-memory"),
            Some((redis, _)) => command.args(["idempotent-redis", "--url", redis.url()]),
        };
        command.args(["--workload", &self.workload.to_string(), "--callers", &load.callers.to_string()]);
        command.args(["--warm-up-ms", &load.warm_up.as_millis().to_string()]);
        command.args(["--counted-ms", &load.counted.as_millis().to_string()]);
        let done = command.stderr(Stdio::inherit()).output().await?;
        if !done.status.success() {
            return Err(format!("{command:?} ended with {}", done.status).into());
        }
        Ok(serde_json::from_slice(&done.stdout)?)
    }
}

/// An HTTP service in a process of its own, which ends with this value.
pub(crate) struct Service {
    pub(crate) address: String,
    _child: Child,
}

impl Service {
    pub(crate) async fn start(command: &mut Command) -> Result<Self, Error> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let output = child.stdout.take().ok_or("its output is piped")?;
        let mut lines = BufReader::new(output).lines();
        let line = lines.next_line().await?.ok_or("the service ended")?;
        let address = line.strip_prefix("listening on ").ok_or("the service says where it listens")?.to_owned();
        Ok(Self { address, _child: child })
    }
}
