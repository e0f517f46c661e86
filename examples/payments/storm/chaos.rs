//! Kills and pauses server processes for as long as the clients are at work.

use super::LEASE;
use super::fleet::Fleet;
use crate::AnyError;
use crate::cli::StormArgs;
use crate::fault::rng;
use rand::RngExt;
use serde::Serialize;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// Long enough that every lease of a process is over when it wakes.
const PAUSE: Duration = LEASE.saturating_add(Duration::from_millis(500));

/// What is done to the processes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chaos {
    kill_every: Option<Duration>,
    pause_every: Option<Duration>,
    seed: u64,
}

/// What was done to them.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Struck {
    pub(crate) processes: u32,
    /// Processes that were killed with SIGKILL and started again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kills: Option<u32>,
    /// Processes that were stopped with SIGSTOP until every lease of theirs was over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pauses: Option<u32>,
}

impl Chaos {
    pub(crate) fn new(args: &StormArgs, seed: u64) -> Self {
        Self { kill_every: args.kill_every, pause_every: args.pause_every, seed }
    }

    /// Goes on until `over` changes, and leaves every process running.
    pub(crate) async fn rage(&self, fleet: &Fleet, over: &watch::Receiver<()>) -> Result<Struck, AnyError> {
        let kills = self.repeat("kill", self.kill_every, over, fleet.len(), |index| fleet.kill(index));
        let pauses = self.repeat("pause", self.pause_every, over, fleet.len(), |index| fleet.pause(index, PAUSE));
        let (kills, pauses) = tokio::try_join!(kills, pauses)?;
        Ok(Struck { processes: u32::try_from(fleet.len()).unwrap_or(u32::MAX), kills, pauses })
    }

    async fn repeat<F>(
        &self,
        what: &str,
        every: Option<Duration>,
        over: &watch::Receiver<()>,
        members: usize,
        strike: impl Fn(usize) -> F,
    ) -> Result<Option<u32>, AnyError>
    where
        F: Future<Output = Result<(), AnyError>>,
    {
        let Some(every) = every else { return Ok(None) };
        let (mut rng, mut over) = (rng(self.seed, what, "", 0), over.clone());
        let mut count = 0;
        while timeout(every, over.changed()).await.is_err() {
            strike(rng.random_range(0..members)).await?;
            count += 1;
        }
        Ok(Some(count))
    }
}
