//! `growth purge`: how fast expired rows go, and what claims beside that notice of it.

use crate::Error;
use crate::body::{Bodies, Content};
use crate::fill::fill;
use crate::report::{Bound, Report};
use crate::server::{Client, Server};
use crate::table::Table;
use crate::traffic::{Lap, Paced};
use idem_benches::chart::number;
use idem_benches::median::median;
use idem_core::store::PurgeOptions;
use idem_core::{Policy, Store as _, Sweeper, SweeperOptions};
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(clap::Args, Serialize)]
pub(crate) struct Options {
    /// How many rows the table has.
    #[arg(long, default_value_t = 20_000_000)]
    rows: u64,
    /// How many of them have expired.
    #[arg(long, default_value_t = 2_000_000)]
    expired: u64,
    /// Bytes of an answer's body.
    #[arg(long, default_value_t = 100)]
    body: usize,
    /// How many rows a batch deletes.
    #[arg(long, value_delimiter = ',', default_values_t = [50, 500, 1_000, 5_000])]
    batches: Vec<usize>,
    /// For how many times as long as a batch took the purge rests after it.
    #[arg(long, value_delimiter = ',', default_values_t = [0, 1, 9])]
    rests: Vec<u32>,
    /// How often each pair of a batch and a rest is tried.
    #[arg(long, default_value_t = 1)]
    rounds: u32,
    /// How long each is tried, in seconds, and how long claims are alone before it.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// How many callers claim and complete beside it.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    callers: u32,
    /// How many operations they make in a second, all together.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    per_second: u32,
}

/// How a purge works.
#[derive(Serialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum How {
    /// Batches, each followed by a rest.
    Batches { batch: usize, rest: u32 },
    /// A sweeper as it comes.
    Sweeper,
}

#[derive(Serialize, Clone, Copy, Debug)]
struct Phase {
    how: How,
    purged: u64,
    seconds: f64,
    per_second: f64,
    /// Claims before it, while nothing is purged.
    idle: Lap,
    /// Claims beside it.
    beside: Lap,
}

/// All phases of a kind.
#[derive(Serialize)]
struct Summary {
    how: How,
    per_second: f64,
    idle_p50_us: f64,
    idle_p99_us: f64,
    beside_p50_us: f64,
    beside_p99_us: f64,
    /// The 99th percentile beside it over that of idle claims in the whole run.
    ratio: f64,
    phases: Vec<Phase>,
}

pub(crate) async fn measure(server: &Server, options: &Options, report: &mut Report) -> Result<(), Error> {
    if let Some(reason) = server.lacks_room_for(options.rows * (900 + options.body as u64))? {
        return Err(format!("there is no room for {} rows: {reason}", options.rows).into());
    }
    let bodies = Bodies::new(Content::Random, options.body);
    let table = Table::create(server, "purge", bodies, Policy::default(), None).await?;
    fill(server, &table, options.rows, options.expired.min(options.rows)).await?;
    let batches = options.batches.iter().copied();
    let pairs = batches.flat_map(|batch| options.rests.iter().map(move |&rest| How::Batches { batch, rest }));
    let hows: Vec<How> = pairs.chain([How::Sweeper]).collect();

    let mut traffic = Paced::start(&table, options.callers, options.per_second);
    let seconds = Duration::from_secs_f64(options.seconds);
    // The first calls connect and plan.
    tokio::time::sleep(seconds).await;
    let (mut phases, mut client) = (Vec::new(), server.client().await?);
    for round in 0..options.rounds {
        for &how in &hows {
            eprint!("\r\x1b[Kround {} of {}: {how:?}", round + 1, options.rounds);
            let before = expired(&mut client, &table).await?;
            traffic.lap();
            tokio::time::sleep(seconds).await;
            let idle = traffic.lap();
            let took = how.purge(&table, seconds).await?;
            let beside = traffic.lap();
            let after = expired(&mut client, &table).await?;
            let purged = before - after;
            if after == 0 {
                report.note(format!("{how:?} of round {} found nothing left; take more --expired", round + 1));
            } else {
                let took = took.as_secs_f64();
                phases.push(Phase { how, purged, seconds: took, per_second: purged as f64 / took, idle, beside });
            }
        }
    }
    traffic.stop().await;
    eprint!("\r\x1b[K");

    // One of all calms, for the sake of more than a few claims in its last hundredth.
    let idle = median(phases.iter().map(|phase| phase.idle.claims.p99_us));
    let summaries: Vec<Summary> = hows.into_iter().filter_map(|how| summary(how, &phases, idle)).collect();
    show(&summaries, report);
    report.result("purges", &summaries)
}

impl How {
    /// Purges for so long, or until nothing is left; in what time.
    async fn purge(self, table: &Table, most: Duration) -> Result<Duration, Error> {
        let began = Instant::now();
        match self {
            Self::Batches { batch, rest } => {
                let options = PurgeOptions::default().with_batch(batch);
                while began.elapsed() < most {
                    let batch_began = Instant::now();
                    if table.store().purge(&options).await?.total() < batch as u64 {
                        break;
                    }
                    tokio::time::sleep(batch_began.elapsed() * rest).await;
                }
            }
            Self::Sweeper => {
                // As it comes, but for the pause before it begins.
                let options = SweeperOptions::default().with_interval(Duration::from_millis(1));
                let sweeper = Sweeper::spawn(Arc::new(table.store().clone()), options);
                tokio::time::sleep(most).await;
                sweeper.stop().await;
            }
        }
        Ok(began.elapsed())
    }
}

/// How many rows are left to purge.
async fn expired(client: &mut Client, table: &Table) -> Result<u64, Error> {
    let count = format!("SELECT count(*) FROM {} WHERE expires_at <= now()", table.name());
    Ok(client.number(&count).await?.try_into()?)
}

fn summary(how: How, phases: &[Phase], idle_p99_us: f64) -> Option<Summary> {
    let phases: Vec<Phase> = phases.iter().filter(|phase| phase.how == how).copied().collect();
    let of = |figure: fn(&Phase) -> f64| median(phases.iter().map(figure));
    Some(Summary {
        how,
        per_second: of(|phase| phase.per_second),
        idle_p50_us: of(|phase| phase.idle.claims.p50_us),
        idle_p99_us: of(|phase| phase.idle.claims.p99_us),
        beside_p50_us: of(|phase| phase.beside.claims.p50_us),
        beside_p99_us: of(|phase| phase.beside.claims.p99_us),
        ratio: of(|phase| phase.beside.claims.p99_us) / idle_p99_us,
        phases,
    })
    .filter(|summary| !summary.phases.is_empty())
}

fn show(summaries: &[Summary], report: &mut Report) {
    const WANTED: f64 = 50_000.0;
    const TOLERATED: f64 = 2.0;
    let rows = summaries.iter().map(|summary| {
        let (batch, rest) = match summary.how {
            How::Batches { batch, rest } => (batch.to_string(), rest.to_string()),
            How::Sweeper => ("sweeper".to_owned(), "default".to_owned()),
        };
        let figures = [
            summary.per_second,
            summary.idle_p50_us,
            summary.beside_p50_us,
            summary.idle_p99_us,
            summary.beside_p99_us,
            summary.ratio,
        ];
        [batch, rest].into_iter().chain(figures.map(number)).collect()
    });
    let header = ["batch", "rest", "rows a second", "p50 us", "beside", "p99 us", "beside", "ratio"];
    report.table("Purges, and claims before and beside them", 0, &header, rows.collect());

    let best = |fits: &dyn Fn(&Summary) -> bool| {
        let rates = summaries.iter().filter(|summary| fits(summary)).map(|summary| summary.per_second);
        rates.fold(0.0, f64::max)
    };
    report.verdict("rows purged in a second, at best", best(&|_| true), Bound::AtLeast(WANTED));
    let claim = format!("rows purged in a second while the p99 of a claim is at most {TOLERATED} times its idle one");
    report.verdict(claim, best(&|summary| summary.ratio <= TOLERATED), Bound::AtLeast(WANTED));
    if let Some(sweeper) = summaries.iter().find(|summary| summary.how == How::Sweeper) {
        let claim = "p99 of a claim beside a sweeper as it comes, over its idle one";
        report.verdict(claim, sweeper.ratio, Bound::AtMost(TOLERATED));
    }
}
