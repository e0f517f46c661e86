//! `growth schema`: what each choice of the schema costs, beside its alternatives, on tables that differ in just that.

use crate::Error;
use crate::body::{Bodies, Content};
use crate::fill::{Filled, fill};
use crate::report::Report;
use crate::rounds::{Pace, medians};
use crate::server::{Client, Server};
use crate::table::{Sizes, Table, key};
use crate::traffic::{Recorder, Times};
use idem_benches::chart::number;
use idem_benches::load::{Measured, drive};
use idem_benches::median::median;
use idem_core::store::PurgeOptions;
use idem_core::{Policy, Store as _};
use serde::Serialize;
use sqlx::AssertSqlSafe;
use std::time::{Duration, Instant};

#[derive(clap::Args, Serialize)]
pub(crate) struct Options {
    /// Which choices.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Part::Fillfactor, Part::Storage, Part::Stuck])]
    parts: Vec<Part>,
    /// How many callers claim and complete at a time, where bodies are small.
    #[arg(long, default_value_t = 64)]
    callers: usize,
    /// Fill factors.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 90, 80, 70, 50])]
    fillfactors: Vec<u32>,
    /// Bytes of an answer's body, for fill factors.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1_000])]
    bodies: Vec<usize>,
    /// Bytes of an answer's body, for ways to store it.
    #[arg(long, value_delimiter = ',', default_values_t = [10_000, 1_000_000])]
    large_bodies: Vec<usize>,
    /// How many callers claim and complete at a time, where bodies are large.
    #[arg(long, default_value_t = 4)]
    large_callers: usize,
    /// How many rows there are among which some are stuck.
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    #[command(flatten)]
    pace: Pace,
}

#[derive(clap::ValueEnum, Serialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Part {
    /// How full inserts make a page.
    Fillfactor,
    /// Where large bodies go, and how they are compressed.
    Storage,
    /// How stuck rows are found.
    Stuck,
}

pub(crate) async fn measure(server: &Server, options: &Options, report: &mut Report) -> Result<(), Error> {
    for part in &options.parts {
        match part {
            Part::Fillfactor => fillfactors(server, options, report).await?,
            Part::Storage => storages(server, options, report).await?,
            Part::Stuck => stuck(server, options, report).await?,
        }
    }
    Ok(())
}

/// A table that differs from the others in one choice, and what was measured of it.
struct Variant {
    table: Table,
    rounds: Vec<Measured>,
    log_rounds: Vec<f64>,
}

impl Variant {
    /// A table, changed by statements in which `TABLE_NAME` stands for its name.
    async fn make(server: &Server, name: &str, bodies: Bodies, change: &str) -> Result<Self, Error> {
        let table = Table::create(server, name, bodies, Policy::default(), None).await?;
        server.client().await?.execute(&change.replace("TABLE_NAME", table.name())).await?;
        Ok(Self { table, rounds: Vec::new(), log_rounds: Vec::new() })
    }

    /// One round of claims and completions.
    async fn round(&mut self, client: &mut Client, callers: usize, pace: Pace) -> Result<(), Error> {
        let (log, completed) = (client.log_position().await?, self.table.completed());
        self.rounds.push(self.table.drive_fresh(pace.load(callers)).await);
        let (log, completed) = (client.log_position().await? - log, self.table.completed() - completed);
        self.log_rounds.push(log as f64 / completed as f64);
        Ok(())
    }

    fn log_bytes(&self) -> f64 {
        median(self.log_rounds.iter().copied())
    }
}

#[derive(Serialize)]
struct FillfactorFigures {
    fillfactor: u32,
    body: usize,
    medians: Measured,
    hot: f64,
    log_bytes: f64,
    heap_bytes_per_row: f64,
    total_bytes_per_row: f64,
    rounds: Vec<Measured>,
}

async fn fillfactors(server: &Server, options: &Options, report: &mut Report) -> Result<(), Error> {
    let mut client = server.client().await?;
    let mut variants = Vec::new();
    for &body in &options.bodies {
        for &fillfactor in &options.fillfactors {
            let (name, bodies) = (format!("fill_{fillfactor}_{body}"), Bodies::new(Content::Random, body));
            let change = format!("ALTER TABLE TABLE_NAME SET (fillfactor = {fillfactor})");
            variants.push((fillfactor, Variant::make(server, &name, bodies, &change).await?));
        }
    }
    for round in 0..options.pace.rounds {
        for (fillfactor, variant) in &mut variants {
            eprint!("\r\x1b[Kround {} of {}: fill factor {fillfactor}", round + 1, options.pace.rounds);
            variant.round(&mut client, options.callers, options.pace).await?;
        }
    }
    eprint!("\r\x1b[K");
    let mut figures = Vec::new();
    for (fillfactor, variant) in variants {
        let rows = variant.table.rows(&mut client).await? as f64;
        let sizes = variant.table.sizes(&mut client).await?;
        figures.push(FillfactorFigures {
            fillfactor,
            body: variant.table.bodies().length(),
            medians: medians(&variant.rounds),
            hot: variant.table.hot_share(&mut client).await?,
            log_bytes: variant.log_bytes(),
            heap_bytes_per_row: sizes.heap as f64 / rows,
            total_bytes_per_row: sizes.total() as f64 / rows,
            rounds: variant.rounds,
        });
        variant.table.drop(server).await?;
    }
    let rows = figures.iter().map(|one| {
        let Measured { per_second, p50_us, p99_us } = one.medians;
        let figures = [one.body as f64, f64::from(one.fillfactor), per_second, p50_us, p99_us, one.hot, one.log_bytes];
        let sizes = [one.heap_bytes_per_row, one.total_bytes_per_row];
        figures.into_iter().chain(sizes).map(number).collect()
    });
    let header =
        ["body bytes", "fill factor", "per second", "p50 us", "p99 us", "HOT", "log bytes", "heap bytes", "all bytes"];
    report.table("Claims and completions over the fill factor; bytes are of one row", 0, &header, rows.collect());
    report.result("fillfactor", &figures)
}

#[derive(Serialize)]
struct StorageFigures {
    storage: &'static str,
    content: Content,
    body: usize,
    /// Heap and TOAST.
    bytes_per_row: f64,
    per_second: f64,
    claims: Vec<Times>,
    completions: Vec<Times>,
    completion_p50_us: f64,
    completion_p99_us: f64,
    log_bytes: f64,
    replays_medians: Measured,
    replays: Vec<Measured>,
}

/// A way to store bodies, and what was measured of it.
struct Stored {
    storage: &'static str,
    content: Content,
    variant: Variant,
    filled: Filled,
    sizes: Sizes,
    claims: Vec<Times>,
    completions: Vec<Times>,
    replays: Vec<Measured>,
}

async fn storages(server: &Server, options: &Options, report: &mut Report) -> Result<(), Error> {
    const WAYS: [(&str, &str); 5] = [
        ("EXTERNAL", "SET STORAGE EXTERNAL"),
        ("EXTENDED pglz", "SET COMPRESSION pglz"),
        ("EXTENDED lz4", "SET COMPRESSION lz4"),
        ("MAIN pglz", "SET STORAGE MAIN, ALTER response_body SET COMPRESSION pglz"),
        ("MAIN lz4", "SET STORAGE MAIN, ALTER response_body SET COMPRESSION lz4"),
    ];
    let mut client = server.client().await?;
    let mut ways = Vec::new();
    for &body in &options.large_bodies {
        for content in [Content::Json, Content::Random] {
            for (storage, change) in WAYS {
                let (name, bodies) = (format!("stored_{}", ways.len()), Bodies::new(content, body));
                let change = format!("ALTER TABLE TABLE_NAME ALTER response_body {change}");
                let variant = match Variant::make(server, &name, bodies, &change).await {
                    Ok(variant) => variant,
                    Err(error) => {
                        report.note(format!("{storage} was left out: {error}"));
                        continue;
                    }
                };
                // Some ten megabytes, and rows enough to fill pages.
                let filled = fill(server, &variant.table, (10_000_000 / body as u64).max(50), 0).await?;
                let sizes = variant.table.sizes(&mut client).await?;
                let (claims, completions, replays) = (Vec::new(), Vec::new(), Vec::new());
                ways.push(Stored { storage, content, variant, filled, sizes, claims, completions, replays });
            }
        }
    }
    for round in 0..options.pace.rounds {
        for (place, way) in ways.iter_mut().enumerate() {
            eprint!("\r\x1b[Kround {} of {}: {}, table {place}", round + 1, options.pace.rounds, way.storage);
            way.round(&mut client, options.large_callers, options.pace).await?;
        }
    }
    eprint!("\r\x1b[K");
    let mut figures = Vec::new();
    for way in ways {
        figures.push(StorageFigures {
            storage: way.storage,
            content: way.content,
            body: way.variant.table.bodies().length(),
            bytes_per_row: (way.sizes.heap + way.sizes.toast) as f64 / way.filled.rows as f64,
            per_second: medians(&way.variant.rounds).per_second,
            completion_p50_us: median(way.completions.iter().map(|times| times.p50_us)),
            completion_p99_us: median(way.completions.iter().map(|times| times.p99_us)),
            log_bytes: way.variant.log_bytes(),
            replays_medians: medians(&way.replays),
            claims: way.claims,
            completions: way.completions,
            replays: way.replays,
        });
        way.variant.table.drop(server).await?;
    }
    let rows = figures.iter().map(|one| {
        let names = [number(one.body as f64), format!("{:?}", one.content).to_lowercase(), one.storage.to_owned()];
        let completions = [one.per_second, one.completion_p50_us, one.completion_p99_us, one.log_bytes];
        let replays = [one.replays_medians.per_second, one.replays_medians.p50_us, one.replays_medians.p99_us];
        let figures = [one.bytes_per_row].into_iter().chain(completions).chain(replays);
        names.into_iter().chain(figures.map(number)).collect()
    });
    let header = [
        "body bytes",
        "content",
        "storage",
        "row bytes",
        "fresh/s",
        "completion p50 us",
        "p99 us",
        "log bytes",
        "replays/s",
        "p50 us",
        "p99 us",
    ];
    report.table("Ways to store bodies; log bytes are of one claim and completion", 3, &header, rows.collect());
    report.result("storage", &figures)
}

impl Stored {
    async fn round(&mut self, client: &mut Client, callers: usize, pace: Pace) -> Result<(), Error> {
        let load = pace.load(callers);
        self.replays.push(self.variant.table.drive_replays(load, self.filled.kept()).await);

        let (log, completed) = (client.log_position().await?, self.variant.table.completed());
        let (table, claims, completions) = (self.variant.table.clone(), Recorder::new(), Recorder::new());
        let counted_from = Instant::now() + Duration::from_secs_f64(pace.warm_up);
        let fresh = {
            let (claims, completions) = (claims.clone(), completions.clone());
            move |_| {
                let (table, claims, completions) = (table.clone(), claims.clone(), completions.clone());
                async move {
                    let (claim, completion) = table.fresh_timed().await;
                    if Instant::now() >= counted_from {
                        claims.record(claim);
                        completions.record(completion);
                    }
                }
            }
        };
        self.variant.rounds.push(drive(load, fresh).await);
        self.claims.push(claims.take());
        self.completions.push(completions.take());
        let (log, completed) = (client.log_position().await? - log, self.variant.table.completed() - completed);
        self.variant.log_rounds.push(log as f64 / completed as f64);
        Ok(())
    }
}

/// Whether a row's outcome is known for good, and whether nobody works on one that is not: as `sql.rs` of
/// idem-postgres says it.
const RESOLVED: &str = "(status = 'completed' OR (status = 'failed' AND unresolved = 0 AND NOT effect_begun))";
const STUCK: &str = "((status = 'in_progress' AND (lease_ms = 0 \
      OR locked_at + lease_ms * interval '1 millisecond' <= statement_timestamp())) \
    OR (status = 'failed' AND (unresolved > 0 OR effect_begun)))";
/// How many rows are stuck.
const STUCK_ROWS: u64 = 20;
/// How many rows a page of stuck ones has, and one more.
const PAGE: &str = "101";

#[derive(Serialize)]
struct StuckFigures {
    way: &'static str,
    medians: Measured,
    hot: f64,
    log_bytes: f64,
    /// Of the filled table.
    index_bytes_per_row: f64,
    /// How long a page of stuck rows takes to find, in milliseconds, when nothing went on for a while.
    calm_ms: f64,
    /// The same right after the rounds.
    busy_ms: f64,
    rounds: Vec<Measured>,
}

/// A way to find stuck rows.
struct Way {
    name: &'static str,
    variant: Variant,
    query: String,
    sizes: Sizes,
    calm_ms: f64,
}

async fn stuck(server: &Server, options: &Options, report: &mut Report) -> Result<(), Error> {
    const WALK: &str = "marks and a walk";
    let without = "DROP INDEX TABLE_NAME_suspect_idx; ";
    let ways = [
        (WALK, String::new()),
        (
            "an index of rows in progress",
            format!(
                "{without} DROP INDEX TABLE_NAME_locked_at_idx; \
                 CREATE INDEX ON TABLE_NAME (locked_at, scope, key) WHERE NOT {RESOLVED}"
            ),
        ),
        ("an index of all rows", without.to_owned()),
        ("no index", format!("{without} DROP INDEX TABLE_NAME_locked_at_idx")),
    ];
    let mut client = server.client().await?;
    let mut subjects = Vec::new();
    for (place, (name, change)) in ways.into_iter().enumerate() {
        let bodies = Bodies::new(Content::Random, 100);
        let variant = Variant::make(server, &format!("stuck_{place}"), bodies, &change).await?;
        let (table, records) = (&variant.table, variant.table.name());
        let Filled { rows, .. } = fill(server, table, options.rows, 0).await?;
        let sizes = table.sizes(&mut client).await?;
        let stuck: Vec<String> =
            (0..STUCK_ROWS).map(|number| format!("'{}'", key(number * rows / STUCK_ROWS))).collect();
        client
            .execute(&format!(
                "UPDATE {records} SET status = 'in_progress', lease_ms = 0, response_code = NULL, \
                   response_head = NULL, response_body = NULL WHERE key IN ({})",
                stuck.join(", ")
            ))
            .await?;
        client.execute(&format!("VACUUM (ANALYZE) {records}")).await?;
        let query = if name == WALK {
            walk(&mut client, table, report).await?;
            let statements = table.store().statements();
            let (_, sql) = statements.iter().find(|(name, _)| *name == "stuck").ok_or("the statement is there")?;
            let sql = sql.replace("$5", "NULL::text").replace("$4", "NULL::text").replace("$3", "NULL");
            sql.replace("$2", PAGE).replace("$1", "0")
        } else {
            format!(
                "SELECT scope, key FROM {records} WHERE NOT {RESOLVED} AND {STUCK} \
                 ORDER BY locked_at, scope, key LIMIT {PAGE}"
            )
        };
        let calm_ms = find(&mut client, &query).await?;
        subjects.push(Way { name, variant, query, sizes, calm_ms });
    }
    for round in 0..options.pace.rounds {
        for way in &mut subjects {
            eprint!("\r\x1b[Kround {} of {}: {}", round + 1, options.pace.rounds, way.name);
            way.variant.round(&mut client, options.callers, options.pace).await?;
        }
    }
    eprint!("\r\x1b[K");
    let mut figures = Vec::new();
    for way in subjects {
        let busy_ms = find(&mut client, &way.query).await?;
        figures.push(StuckFigures {
            way: way.name,
            medians: medians(&way.variant.rounds),
            hot: way.variant.table.hot_share(&mut client).await?,
            log_bytes: way.variant.log_bytes(),
            index_bytes_per_row: way.sizes.all_indexes() as f64 / options.rows as f64,
            calm_ms: way.calm_ms,
            busy_ms,
            rounds: way.variant.rounds,
        });
        way.variant.table.drop(server).await?;
    }
    let rows = figures.iter().map(|one| {
        let Measured { per_second, p50_us, p99_us } = one.medians;
        let figures = [per_second, p50_us, p99_us, one.hot, one.log_bytes, one.index_bytes_per_row];
        let figures = figures.into_iter().chain([one.calm_ms, one.busy_ms]);
        [one.way.to_owned()].into_iter().chain(figures.map(number)).collect()
    });
    let header = ["way", "fresh/s", "p50 us", "p99 us", "HOT", "log bytes", "index bytes", "stuck ms", "after load"];
    let title = format!("Ways to find {STUCK_ROWS} stuck rows among {}", number(options.rows as f64));
    report.table(&title, 1, &header, rows.collect());
    report.result("stuck", &figures)
}

/// Lets the walk pass all rows.
async fn walk(client: &mut Client, table: &Table, report: &mut Report) -> Result<(), Error> {
    let behind = format!(
        "SELECT count(*) FROM {}_meta WHERE walked_until < statement_timestamp() - interval '3 minutes'",
        table.name()
    );
    let began = Instant::now();
    while client.number(&behind).await? > 0 {
        table.store().purge(&PurgeOptions::default()).await?;
    }
    let (rows, took) = (table.rows(client).await?, began.elapsed());
    let each = took.as_secs_f64() * 1e6 / rows as f64;
    report.note(format!("the walk passed {rows} rows in {took:.1?}, {} us each", number(each)));
    Ok(())
}

/// How long it takes to find the stuck rows, in milliseconds: the median of some times.
async fn find(client: &mut Client, query: &str) -> Result<f64, Error> {
    let mut took = Vec::new();
    for _ in 0..11 {
        let began = Instant::now();
        let rows = sqlx::query(AssertSqlSafe(query)).fetch_all(client.connection()).await?;
        took.push(began.elapsed().as_secs_f64() * 1e3);
        if rows.len() as u64 != STUCK_ROWS {
            return Err(format!("{} stuck rows were found by {query}", rows.len()).into());
        }
    }
    Ok(median(took))
}
