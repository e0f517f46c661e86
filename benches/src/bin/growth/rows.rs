//! `growth rows`: throughput, latency and bytes over the number of rows.
//!
//! All tables are there at the same time, and are measured in turn. New keys are claimed twice: right after a
//! checkpoint, which is when a large table is at its worst, and once most of its pages have been written since then,
//! which is how it is most of the time.

use crate::Error;
use crate::body::{Bodies, Content};
use crate::fill::{Filled, fill};
use crate::report::{Bound, Chart, Report};
use crate::rounds::{Pace, medians};
use crate::server::{Client, Server};
use crate::table::{Sizes, Table};
use idem_benches::chart::{Axis, Line, number};
use idem_benches::load::{Load, Measured};
use idem_benches::median::median;
use idem_core::Policy;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A table of so few rows is made anew before new keys are claimed, for those are a great part of it.
const FEW: u64 = 200_000;
/// A table whose bodies take more bytes than this is not: that would take longer than it is measured, and few keys are added.
const SMALL: u64 = 2 << 30;
/// After a checkpoint a page goes to the log whole when it is first written. Keys at random write all pages of their
/// index, each of which has about 80: once a row has been added for so many, most pages have been written.
const ROWS_TO_SETTLE: u64 = 40;

#[derive(clap::Args, Serialize)]
pub(crate) struct Options {
    /// Tables to measure, each as rows x bytes of an answer's body.
    #[arg(long, value_delimiter = ',', default_values = [
        "10000x100", "1000000x100", "20000000x100", "10000x10000", "100000x10000", "1000x1000000",
    ])]
    sizes: Vec<Size>,
    /// What bodies are made of.
    #[arg(long, value_enum, default_value_t = Content::Random)]
    content: Content,
    /// Which part of the rows has expired.
    #[arg(long, default_value_t = 0.1)]
    expired: f64,
    /// How many callers at a time.
    #[arg(long, value_delimiter = ',', default_values_t = [64, 1])]
    callers: Vec<usize>,
    #[command(flatten)]
    pace: Pace,
}

#[derive(Serialize, Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    rows: u64,
    body: usize,
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (rows, body) = text.split_once('x').ok_or("it is written as ROWSxBYTES")?;
        let rows = rows.parse().map_err(|error| format!("{rows:?} rows: {error}"))?;
        let body = body.parse().map_err(|error| format!("{body:?} bytes: {error}"))?;
        Ok(Self { rows, body })
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.rows, self.body)
    }
}

impl Size {
    /// About how much of the disk such a table takes, with what is added while it is measured.
    fn bytes(self) -> u64 {
        self.rows * (900 + self.body as u64 * 11 / 10) + (1 << 30)
    }

    fn few(self) -> bool {
        self.rows <= FEW && self.rows * self.body as u64 <= SMALL
    }
}

#[derive(Serialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Operation {
    /// A claim of a new key, and its completion.
    Fresh,
    /// The same right after a checkpoint, when nearly every claim makes the log take a page of the index of keys.
    FreshAfterCheckpoint,
    /// A claim of a key that is completed.
    Replay,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fresh => "fresh",
            Self::FreshAfterCheckpoint => "fresh after a checkpoint",
            Self::Replay => "replay",
        })
    }
}

/// A table and what was measured of it.
#[derive(Serialize)]
struct Measurement {
    #[serde(flatten)]
    size: Size,
    bytes_per_row: BytesPerRow,
    lanes: Vec<Lane>,
}

#[derive(Serialize)]
struct BytesPerRow {
    heap: f64,
    toast: f64,
    indexes: BTreeMap<String, f64>,
    total: f64,
}

#[derive(Serialize)]
struct Lane {
    operation: Operation,
    callers: usize,
    medians: Measured,
    /// What the server logs for one operation; nothing for replays.
    log_bytes: Option<f64>,
    rounds: Vec<Measured>,
    log_rounds: Vec<f64>,
}

/// A table that is there.
struct Subject {
    size: Size,
    /// Its name in the schema.
    name: String,
    table: Table,
    filled: Filled,
    sizes: Sizes,
    lanes: Vec<Lane>,
}

pub(crate) async fn measure(server: &Server, options: &Options, report: &mut Report) -> Result<(), Error> {
    if !(0.0..1.0).contains(&options.expired) {
        return Err("--expired is a part of one, and some rows have to be left for replays".into());
    }
    let mut subjects = Vec::new();
    let mut sizes = options.sizes.clone();
    sizes.sort_by_key(|size| (size.body, size.rows));
    for (place, size) in sizes.into_iter().enumerate() {
        match server.lacks_room_for(size.bytes())? {
            Some(reason) => report.note(format!("{size} was left out: {reason}")),
            None => subjects.push(Subject::make(server, options, size, format!("rows_{place}")).await?),
        }
    }
    for _ in 0..options.pace.rounds {
        for subject in &mut subjects {
            subject.round(server, options).await?;
        }
    }
    eprint!("\r\x1b[K");
    let measurements: Vec<_> = subjects.into_iter().map(Subject::measurement).collect();
    show(&measurements, options, report);
    report.result("sizes", &measurements)
}

impl Subject {
    async fn make(server: &Server, options: &Options, size: Size, name: String) -> Result<Self, Error> {
        let bodies = Bodies::new(options.content, size.body);
        let table = Table::create(server, &name, bodies, Policy::default(), None).await?;
        let filled = fill(server, &table, size.rows, (size.rows as f64 * options.expired) as u64).await?;
        let sizes = table.sizes(&mut server.client().await?).await?;
        Ok(Self { size, name, table, filled, sizes, lanes: Vec::new() })
    }

    async fn round(&mut self, server: &Server, options: &Options) -> Result<(), Error> {
        let mut client = server.client().await?;
        for &callers in &options.callers {
            self.measure(&mut client, Operation::Replay, callers, options.pace).await?;
        }
        self.make_anew_if_few(server, options).await?;
        client.execute("CHECKPOINT").await?;
        for &callers in &options.callers {
            self.measure(&mut client, Operation::FreshAfterCheckpoint, callers, options.pace).await?;
        }
        self.make_anew_if_few(server, options).await?;
        self.settle(options).await;
        for &callers in &options.callers {
            self.measure(&mut client, Operation::Fresh, callers, options.pace).await?;
        }
        // As the next round finds it.
        self.make_anew_if_few(server, options).await
    }

    async fn make_anew_if_few(&mut self, server: &Server, options: &Options) -> Result<(), Error> {
        if self.size.few() {
            let (name, lanes) = (std::mem::take(&mut self.name), std::mem::take(&mut self.lanes));
            *self = Self { lanes, ..Self::make(server, options, self.size, name).await? };
        }
        Ok(())
    }

    /// Claims until most pages have been written since the checkpoint. Those of few rows are written in no time.
    async fn settle(&self, options: &Options) {
        let enough = self.table.completed() + self.size.rows / ROWS_TO_SETTLE;
        let second = Load { callers: options.callers[0], warm_up: Duration::ZERO, counted: Duration::from_secs(1) };
        while !self.size.few() && self.table.completed() < enough {
            self.table.drive_fresh(second).await;
        }
    }

    async fn measure(
        &mut self,
        client: &mut Client,
        operation: Operation,
        callers: usize,
        pace: Pace,
    ) -> Result<(), Error> {
        let known = self.lanes.iter().position(|lane| lane.operation == operation && lane.callers == callers);
        let place = known.unwrap_or_else(|| {
            let (medians, rounds, log_rounds) = (medians(&[]), Vec::new(), Vec::new());
            self.lanes.push(Lane { operation, callers, medians, log_bytes: None, rounds, log_rounds });
            self.lanes.len() - 1
        });
        let round = self.lanes[place].rounds.len() + 1;
        eprint!("\r\x1b[K{}: {operation}, {callers} at a time, round {round} of {}", self.size, pace.rounds);
        // What was just filled or settled is worth a vacuum of its own, which is the table's cost and not the operation's.
        client.until_nothing_is_vacuumed().await?;
        let (log, completed) = (client.log_position().await?, self.table.completed());
        let measured = match operation {
            Operation::Fresh | Operation::FreshAfterCheckpoint => self.table.drive_fresh(pace.load(callers)).await,
            Operation::Replay => self.table.drive_replays(pace.load(callers), self.filled.kept()).await,
        };
        let completed = self.table.completed() - completed;
        let log = client.log_position().await? - log;
        let lane = &mut self.lanes[place];
        lane.rounds.push(measured);
        lane.log_rounds.extend((completed > 0).then(|| log as f64 / completed as f64));
        Ok(())
    }

    fn measurement(self) -> Measurement {
        let rows = self.size.rows as f64;
        let each = |bytes: i64| bytes as f64 / rows;
        let bytes_per_row = BytesPerRow {
            heap: each(self.sizes.heap),
            toast: each(self.sizes.toast),
            indexes: self.sizes.indexes.iter().map(|(name, &bytes)| (name.clone(), each(bytes))).collect(),
            total: each(self.sizes.total()),
        };
        let lanes = self.lanes.into_iter().map(|mut lane| {
            lane.medians = medians(&lane.rounds);
            lane.log_bytes = Some(median(lane.log_rounds.iter().copied())).filter(|bytes| !bytes.is_nan());
            lane
        });
        Measurement { size: self.size, bytes_per_row, lanes: lanes.collect() }
    }
}

fn show(measurements: &[Measurement], options: &Options, report: &mut Report) {
    let mut rows = Vec::new();
    for Measurement { size, lanes, .. } in measurements {
        for lane in lanes {
            rows.push(vec![
                number(size.rows as f64),
                number(size.body as f64),
                lane.operation.to_string(),
                lane.callers.to_string(),
                number(lane.medians.per_second),
                number(lane.medians.p50_us),
                number(lane.medians.p99_us),
                lane.log_bytes.map_or_else(String::new, number),
            ]);
        }
    }
    let header = ["rows", "body bytes", "operation", "callers", "per second", "p50 us", "p99 us", "log bytes"];
    report.table("Operations, medians of the rounds; log bytes are of one operation", 0, &header, rows);

    let indexes: Vec<&str> = measurements
        .first()
        .map_or_else(Vec::new, |first| first.bytes_per_row.indexes.keys().map(String::as_str).collect());
    let header = [&["rows", "body bytes", "heap", "toast"][..], &indexes, &["total"]].concat();
    let rows = measurements.iter().map(|Measurement { size, bytes_per_row, .. }| {
        let mut row = vec![number(size.rows as f64), number(size.body as f64)];
        row.extend([bytes_per_row.heap, bytes_per_row.toast].map(number));
        row.extend(bytes_per_row.indexes.values().copied().map(number));
        row.push(number(bytes_per_row.total));
        row
    });
    report.table("Bytes a row, by where they are", 0, &header, rows.collect());

    let mut bodies: Vec<usize> = measurements.iter().map(|measurement| measurement.size.body).collect();
    bodies.sort_unstable();
    bodies.dedup();
    for body in bodies {
        let points = |operation, callers| -> Vec<(f64, Measured)> {
            let same = measurements.iter().filter(|one| one.size.body == body);
            same.filter_map(|one| Some((one.size.rows as f64, one.lane(operation, callers)?.medians))).collect()
        };
        let fresh = |operation| points(operation, options.callers[0]);
        let ratio = |operation| match fresh(operation)[..] {
            [(few, at_few), .., (many, at_many)] => Some((few, many, at_many.per_second / at_few.per_second)),
            _ => None,
        };
        let (Some((few, many, steady)), Some((_, _, after))) =
            (ratio(Operation::Fresh), ratio(Operation::FreshAfterCheckpoint))
        else {
            continue;
        };
        let bytes = number(body as f64);
        let claim =
            format!("answers of {bytes} bytes, fresh throughput at {} rows over that at {}", number(many), number(few));
        report.note(format!("{claim}, right after a checkpoint: {}", number(after)));
        report.verdict(claim, steady, Bound::AtLeast(0.7));

        let draw = |name: String, title: &str, up: &str, figure: fn(&Measured) -> f64| {
            let lanes = [Operation::Fresh, Operation::Replay]
                .into_iter()
                .flat_map(|operation| options.callers.iter().map(move |&callers| (operation, callers)));
            let lines = lanes.map(|(operation, callers)| {
                let points = points(operation, callers);
                let points = points.iter().map(|(rows, measured)| (*rows, figure(measured)));
                let plural = if callers == 1 { "" } else { "s" };
                Line::new(format!("{operation}, {callers} caller{plural}"), points)
            });
            let title = format!("{title} over rows, answers of {bytes} bytes");
            Chart {
                name,
                title,
                across: Axis::logarithmic("rows in the table"),
                up: Axis::logarithmic(up),
                lines: lines.collect(),
            }
        };
        let name = |what: &str| format!("rows-{what}-{body}");
        report.chart(draw(name("throughput"), "Throughput", "operations a second", |measured| measured.per_second));
        report.chart(draw(name("p99"), "99th percentile", "99th percentile (µs)", |measured| measured.p99_us));
    }
}

impl Measurement {
    fn lane(&self, operation: Operation, callers: usize) -> Option<&Lane> {
        self.lanes.iter().find(|lane| lane.operation == operation && lane.callers == callers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_read_as_it_is_written() {
        let size = Size { rows: 20_000_000, body: 100 };
        assert_eq!(size.to_string().parse(), Ok(size));
        for text in ["100", "x100", "1x", "1x1x1", "-1x1"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
