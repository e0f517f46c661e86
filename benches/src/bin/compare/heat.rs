//! Both sides of a comparison in one run, in turn: [`Heat`].

use crate::Error;
use crate::report::{Row, round};
use async_trait::async_trait;
use idem_benches::load::{Load, Measured};
use std::sync::Arc;
use std::time::Duration;

/// What is measured.
#[async_trait]
pub(crate) trait Side: Send + Sync {
    fn name(&self) -> String;

    /// Makes ready for one round, unmeasured.
    async fn prepare(&self) -> Result<(), Error>;

    async fn measure(&self, load: Load) -> Result<Measured, Error>;
}

/// Against how many callers of the other side ours are held.
pub(crate) enum At {
    /// As many as ours.
    TheSame,
    /// Whichever of these is fastest.
    TheBestOf(Vec<usize>),
}

pub(crate) struct Other {
    pub(crate) side: Arc<dyn Side>,
    pub(crate) at: At,
}

/// One workload on one side of ours and on others.
pub(crate) struct Heat {
    pub(crate) name: String,
    pub(crate) ours: Arc<dyn Side>,
    pub(crate) others: Vec<Other>,
    pub(crate) callers: Vec<usize>,
}

/// How long, and how often.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) rounds: usize,
    pub(crate) warm_up: Duration,
    pub(crate) counted: Duration,
}

/// A side at a number of callers, and what its rounds came to.
struct Lane {
    side: Arc<dyn Side>,
    callers: usize,
    rounds: Vec<Measured>,
}

impl Heat {
    /// Runs every side at every number of callers, one after the other, as many rounds as `pace` says.
    pub(crate) async fn run(&self, pace: Pace) -> Result<Vec<Row>, Error> {
        let lane = |side: &Arc<dyn Side>, callers| Lane { side: Arc::clone(side), callers, rounds: Vec::new() };
        let mut lanes = Vec::new();
        for &callers in &self.callers {
            lanes.push(lane(&self.ours, callers));
            let same = self.others.iter().filter(|other| matches!(other.at, At::TheSame));
            lanes.extend(same.map(|other| lane(&other.side, callers)));
        }
        for other in &self.others {
            if let At::TheBestOf(counts) = &other.at {
                lanes.extend(counts.iter().map(|&callers| lane(&other.side, callers)));
            }
        }
        let count = lanes.len();
        for number in 0..pace.rounds {
            // Each round starts elsewhere, so that nobody always comes after the same neighbour.
            lanes.rotate_left(if number == 0 { 0 } else { count / pace.rounds });
            for (done, lane) in lanes.iter_mut().enumerate() {
                let place = number * count + done + 1;
                eprint!("\r\x1b[K{}: {place} of {}, {}", self.name, count * pace.rounds, lane.side.name());
                lane.side.prepare().await?;
                let load = Load { callers: lane.callers, warm_up: pace.warm_up, counted: pace.counted };
                lane.rounds.push(lane.side.measure(load).await?);
            }
        }
        eprint!("\r\x1b[K");
        Ok(self.rows(&lanes))
    }

    fn rows(&self, lanes: &[Lane]) -> Vec<Row> {
        let find = |side: &Arc<dyn Side>, callers| {
            lanes.iter().find(|lane| Arc::ptr_eq(&lane.side, side) && lane.callers == callers)
        };
        let mut rows = Vec::new();
        for other in &self.others {
            for &callers in &self.callers {
                let theirs = match &other.at {
                    At::TheSame => find(&other.side, callers),
                    At::TheBestOf(counts) => counts
                        .iter()
                        .filter_map(|&callers| find(&other.side, callers))
                        .max_by(|one, two| median(one, per_second).total_cmp(&median(two, per_second))),
                };
                let (Some(ours), Some(theirs)) = (find(&self.ours, callers), theirs) else { continue };
                let (own, their) = (median(ours, per_second), median(theirs, per_second));
                rows.push(Row {
                    name: self.name.clone(),
                    against: theirs.side.name(),
                    callers,
                    other_callers: theirs.callers,
                    ours: round(own),
                    other: round(their),
                    ratio: round(own / their),
                    p50: round(median(ours, |measured| measured.p50_us)),
                    p99: round(median(ours, |measured| measured.p99_us)),
                    other_p50: round(median(theirs, |measured| measured.p50_us)),
                    other_p99: round(median(theirs, |measured| measured.p99_us)),
                    ours_rounds: ours.rounds.iter().map(|measured| round(measured.per_second)).collect(),
                    other_rounds: theirs.rounds.iter().map(|measured| round(measured.per_second)).collect(),
                });
            }
        }
        rows
    }
}

fn per_second(measured: &Measured) -> f64 {
    measured.per_second
}

fn median(lane: &Lane, figure: impl Fn(&Measured) -> f64) -> f64 {
    idem_benches::median::median(lane.rounds.iter().map(figure))
}
