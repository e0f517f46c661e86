//! The statements that a careful team writes by hand, sent by the fastest client there is: [`Baseline`], [`Pgbench`].

use crate::Error;
use crate::heat::Side;
use crate::stores::run;
use async_trait::async_trait;
use idem_benches::load::{Load, Measured};
use idem_benches::workload::Workload;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::process::Command;

/// The hand-written table of `baseline/`.
#[derive(Clone)]
pub(crate) struct Baseline {
    pub(crate) url: String,
    workload: Workload,
}

impl Baseline {
    /// Makes the table for one workload. There is one in a database.
    pub(crate) async fn new(url: &str, workload: Workload) -> Result<Self, Error> {
        run(url, include_str!("../../../baseline/schema.sql")).await?;
        let baseline = Self { url: url.to_owned(), workload };
        baseline.fill().await?;
        Ok(baseline)
    }

    async fn fill(&self) -> Result<(), Error> {
        let rows = include_str!("../../../baseline/replay-seed.sql");
        if self.workload.completed_before() > 0 { run(&self.url, rows).await } else { Ok(()) }
    }

    /// Leaves only rows to replay.
    pub(crate) async fn empty(&self) -> Result<(), Error> {
        // A replay changes nothing.
        if self.workload != Workload::Replay {
            run(&self.url, "TRUNCATE idempotency_key").await?;
            self.fill().await?;
        }
        Ok(())
    }
}

pub(crate) struct Pgbench {
    program: PathBuf,
    baseline: Baseline,
    script: &'static str,
}

impl Pgbench {
    /// Runs `script` of `baseline/` with the `pgbench` in `programs`, or on the `PATH`.
    pub(crate) fn side(programs: Option<&Path>, baseline: &Baseline, script: &'static str) -> Arc<dyn Side> {
        let program = programs.map_or_else(|| "pgbench".into(), |programs| programs.join("pgbench"));
        Arc::new(Self { program, baseline: baseline.clone(), script })
    }
}

#[async_trait]
impl Side for Pgbench {
    fn name(&self) -> String {
        format!("pgbench, {}", self.script)
    }

    async fn prepare(&self) -> Result<(), Error> {
        self.baseline.empty().await
    }

    async fn measure(&self, load: Load) -> Result<Measured, Error> {
        let seconds = load.counted.as_secs_f64().ceil();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("baseline").join(self.script);
        let done = Command::new(&self.program)
            .args(["-n", "-M", "prepared", "-j", "2"])
            .args(["-c", &load.callers.to_string(), "-T", &seconds.to_string(), "-f"])
            .arg(script)
            .arg(&self.baseline.url)
            .output()
            .await?;
        let said = String::from_utf8_lossy(&done.stdout);
        let rate = said.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse::<f64>().ok());
        match rate {
            // It tells no quantiles.
            Some(per_second) if done.status.success() => {
                Ok(Measured { per_second, p50_us: f64::NAN, p99_us: f64::NAN })
            }
            _ => Err(format!("pgbench: {said}{}", String::from_utf8_lossy(&done.stderr)).into()),
        }
    }
}
