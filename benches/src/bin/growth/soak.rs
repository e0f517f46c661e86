//! `growth soak`: whether table and latency stay as they are, over a long time at a steady rate.

use crate::Error;
use crate::body::{Bodies, Content};
use crate::report::{Bound, Chart, Report};
use crate::server::{Client, Server};
use crate::table::Table;
use crate::traffic::{Lap, Paced};
use idem_benches::chart::{Axis, Line, number};
use idem_benches::median::median;
use idem_core::{Policy, SweeperOptions};
use serde::Serialize;
use std::time::{Duration, Instant};

#[derive(clap::Args, Serialize)]
pub(crate) struct Options {
    /// For how long, in minutes.
    #[arg(long, default_value_t = 15.0)]
    minutes: f64,
    /// How many operations start in a second.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..))]
    per_second: u32,
    /// How many callers make them.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    callers: u32,
    /// How long a row is kept, in seconds, at least 2.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(2..))]
    retention: u64,
    /// Bytes of an answer's body.
    #[arg(long, default_value_t = 100)]
    body: usize,
    /// How far apart samples are, in seconds.
    #[arg(long, default_value_t = 10.0)]
    every: f64,
}

#[derive(Serialize, Clone, Debug)]
struct Sample {
    /// Since the beginning.
    seconds: f64,
    /// As the server estimates.
    rows: i64,
    dead_rows: i64,
    heap_bytes: i64,
    index_bytes: i64,
    toast_bytes: i64,
    /// Of the updates since the sample before, the part that were HOT.
    hot: f64,
    vacuums: i64,
    #[serde(flatten)]
    lap: Lap,
}

/// The server's counts so far.
#[derive(Clone, Copy, Default)]
struct Counts {
    rows: i64,
    dead: i64,
    updated: i64,
    hot: i64,
    vacuums: i64,
}

pub(crate) async fn measure(server: &Server, options: &Options, report: &mut Report) -> Result<(), Error> {
    let retention = Duration::from_secs(options.retention);
    let policy = Policy::builder()
        .with_lease(Duration::from_secs(options.retention.min(10)))
        .with_max_run(retention)
        .with_retention(retention)
        .with_replay_floor(Duration::ZERO);
    let bodies = Bodies::new(Content::Random, options.body);
    let sweeper = SweeperOptions::default();
    let table = Table::create(server, "soak", bodies, policy.build()?, Some(sweeper)).await?;
    let mut client = server.client().await?;

    let (began, every) = (Instant::now(), Duration::from_secs_f64(options.every));
    let count = (options.minutes * 60.0 / options.every) as u32;
    if count < 3 {
        return Err("thirds of the time are compared: it takes three samples at least".into());
    }
    let mut traffic = Paced::start(&table, options.callers, options.per_second);
    let (mut samples, mut counted) = (Vec::new(), Counts::default());
    for sample in 1..=count {
        tokio::time::sleep_until((began + every * sample).into()).await;
        let (lap, counts, sizes) = (traffic.lap(), counts(&mut client, &table).await?, table.sizes(&mut client).await?);
        samples.push(Sample {
            seconds: began.elapsed().as_secs_f64(),
            rows: counts.rows,
            dead_rows: counts.dead,
            heap_bytes: sizes.heap,
            index_bytes: sizes.all_indexes(),
            toast_bytes: sizes.toast,
            hot: (counts.hot - counted.hot) as f64 / (counts.updated - counted.updated).max(1) as f64,
            vacuums: counts.vacuums,
            lap,
        });
        counted = counts;
        let (all, p99) = (number(megabytes(sizes.total())), number(lap.claims.p99_us));
        let at = number(began.elapsed().as_secs_f64() / 60.0);
        eprint!("\r\x1b[K{at} of {} minutes: {all} MB, claims' p99 {p99} us", options.minutes);
    }
    traffic.stop().await;
    table.engine().drain(Duration::from_secs(5)).await;
    eprint!("\r\x1b[K");
    show(&samples, options, report);
    report.result("samples", &samples)
}

async fn counts(client: &mut Client, table: &Table) -> Result<Counts, Error> {
    let mut of = async |count: &str| {
        let sql = format!("SELECT pg_stat_get_{count}('{}'::regclass)", table.name());
        client.number(&sql).await
    };
    Ok(Counts {
        rows: of("live_tuples").await?,
        dead: of("dead_tuples").await?,
        updated: of("tuples_updated").await?,
        hot: of("tuples_hot_updated").await?,
        vacuums: of("autovacuum_count").await?,
    })
}

fn megabytes(bytes: i64) -> f64 {
    bytes as f64 / 1e6
}

fn show(samples: &[Sample], options: &Options, report: &mut Report) {
    let total = |sample: &Sample| megabytes(sample.heap_bytes + sample.index_bytes + sample.toast_bytes);
    let p99 = |sample: &Sample| sample.lap.claims.p99_us;
    // Twelve lines or so.
    let step = samples.len().div_ceil(12);
    let lines = samples.iter().skip(step - 1).step_by(step);
    let rows = lines.map(|sample| {
        let figures = [
            sample.seconds / 60.0,
            sample.rows as f64,
            sample.dead_rows as f64,
            megabytes(sample.heap_bytes),
            megabytes(sample.index_bytes),
            megabytes(sample.toast_bytes),
            sample.hot,
            sample.lap.per_second,
            sample.lap.claims.p50_us,
            sample.lap.claims.p99_us,
        ];
        figures.map(number).into()
    });
    let header =
        ["minutes", "rows", "dead", "heap MB", "indexes MB", "toast MB", "HOT", "per second", "p50 us", "p99 us"];
    report.table("Samples, some of them", 0, &header, rows.collect());

    let third = samples.len() / 3;
    let [middle, last] = [&samples[third..2 * third], &samples[samples.len() - third..]];
    let ratio = |figure: &dyn Fn(&Sample) -> f64| median(last.iter().map(figure)) / median(middle.iter().map(figure));
    report.verdict(
        "size in the last third of the time over that in the middle third",
        ratio(&total),
        Bound::AtMost(1.1),
    );
    report.verdict("p99 of a claim in the last third over that in the middle third", ratio(&p99), Bound::AtMost(1.25));
    let achieved = samples.iter().map(|sample| sample.lap.per_second).sum::<f64>() / samples.len() as f64;
    report.verdict(
        "operations a second over those asked for",
        achieved / f64::from(options.per_second),
        Bound::AtLeast(0.99),
    );

    let line = |name: &str, figure: &dyn Fn(&Sample) -> f64| {
        Line::new(name, samples.iter().map(|sample| (sample.seconds / 60.0, figure(sample))))
    };
    let rate = number(f64::from(options.per_second));
    report.chart(Chart {
        name: "soak-size".to_owned(),
        title: format!("Size at {rate} operations a second, each kept for {} s", options.retention),
        across: Axis::linear("minutes"),
        up: Axis::linear("size (MB)"),
        lines: vec![
            line("all", &total),
            line("heap", &|sample| megabytes(sample.heap_bytes)),
            line("indexes", &|sample| megabytes(sample.index_bytes)),
        ],
    });
    report.chart(Chart {
        name: "soak-latency".to_owned(),
        title: format!("Claims at {rate} operations a second"),
        across: Axis::linear("minutes"),
        up: Axis::logarithmic("time of a claim (µs)"),
        lines: vec![line("median", &|sample| sample.lap.claims.p50_us), line("99th percentile", &p99)],
    });
}
