//! What a large table of idem-postgres costs, and whether it stays as it is.
//!
//! `cargo run --release -p idem-benches --bin growth -- rows --json rows.json --svg .`, on a machine that does nothing
//! else. It starts PostgreSQL 18 (`scripts/postgres 18` fetches it; else whichever there is) with its data in the
//! folder for temporary files, which has to be on a disk: `TMPDIR` names another one.
//!
//! | sub-command | what it answers |
//! |---|---|
//! | `rows` | how fast claims, completions and replays are over the number of rows, and how many bytes a row takes |
//! | `purge` | how fast expired rows go, and what claims beside that notice of it |
//! | `soak` | whether table and latency stay as they are, over a long time at a steady rate |
//! | `schema` | what each choice of the schema costs, beside its alternatives |
//!
//! A run that shows that something does not hold ends with status 1, after its figures.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program: what it prints is its answer")]

mod body;
mod fill;
mod purge;
mod report;
mod rounds;
mod rows;
mod schema;
mod server;
mod soak;
mod table;
mod traffic;

use clap::{Parser, Subcommand};
use report::Report;
use serde::Serialize;
use server::Server;
use std::path::PathBuf;
use std::process::ExitCode;

pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

#[derive(Parser)]
#[command(about = "Measures what a large table costs", version)]
struct Options {
    #[command(subcommand)]
    command: Command,
    /// Where the figures go, as JSON.
    #[arg(long, value_name = "FILE", global = true)]
    json: Option<PathBuf>,
    /// A folder for charts.
    #[arg(long, value_name = "DIR", global = true)]
    svg: Option<PathBuf>,
    /// A database that is there and belongs to nobody else, as a superuser, instead of a server of its own.
    #[arg(long, value_name = "URL", global = true)]
    postgres: Option<String>,
    /// A line of postgresql.conf for the server of its own; may be repeated.
    #[arg(long = "setting", value_name = "NAME=VALUE", global = true, value_parser = setting)]
    settings: Vec<(String, String)>,
}

#[derive(Subcommand, Serialize)]
#[serde(rename_all = "snake_case")]
enum Command {
    /// Throughput, latency and bytes over the number of rows.
    Rows(rows::Options),
    /// Purging expired rows beside paced claims.
    Purge(purge::Options),
    /// A steady rate for a long time.
    Soak(soak::Options),
    /// The schema's choices and their alternatives, in turn.
    Schema(schema::Options),
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    match measure(&options).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("growth: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether everything holds that was to be shown.
async fn measure(options: &Options) -> Result<bool, Error> {
    if cfg!(debug_assertions) {
        eprintln!("growth: this is not a release build; its figures mean nothing");
    }
    // Better now than in an hour.
    if let Some(folder) = &options.svg {
        std::fs::create_dir_all(folder)?;
    }
    if let Some(file) = &options.json {
        std::fs::File::create(file)?;
    }
    let server = Server::start(options.postgres.as_deref(), &options.settings).await?;
    let mut facts = server.facts().await?;
    facts.extend(options.settings.iter().map(|(name, value)| format!("{name} = {value}, as asked for")));
    let mut report = Report::new(&options.command, facts);
    for line in report.machine() {
        println!("{line}");
    }
    match &options.command {
        Command::Rows(options) => rows::measure(&server, options, &mut report).await?,
        Command::Purge(options) => purge::measure(&server, options, &mut report).await?,
        Command::Soak(options) => soak::measure(&server, options, &mut report).await?,
        Command::Schema(options) => schema::measure(&server, options, &mut report).await?,
    }
    print!("{report}");
    if let Some(file) = &options.json {
        report.write(file)?;
    }
    if let Some(folder) = &options.svg {
        report.draw(folder)?;
    }
    Ok(report.holds())
}

fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("it is written as name=value")?;
    Ok((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every sub-command on a few rows: that it runs and what it writes, not what it measures.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_sub_command_runs() {
        let folder = std::env::temp_dir().join(format!("idem-growth-{}", std::process::id()));
        let cases = [
            ("sizes", "rows --sizes 300x100,600x100,20x9000 --callers 4,1 --rounds 1 --seconds 0.2 --warm-up 0"),
            ("purges", "purge --rows 3000 --expired 2000 --batches 10 --rests 9 --seconds 0.2"),
            ("samples", "soak --minutes 0.1 --every 1 --retention 2 --per-second 50 --callers 2"),
            (
                "fillfactor",
                "schema --parts fillfactor --rounds 1 --seconds 0.1 --warm-up 0 --fillfactors 100,50 --bodies 100",
            ),
            ("storage", "schema --parts storage --rounds 1 --seconds 0.1 --warm-up 0 --large-bodies 300000"),
            ("stuck", "schema --parts stuck --rounds 1 --seconds 0.1 --warm-up 0 --rows 1000"),
        ];
        for (result, command) in cases {
            let file = folder.join(format!("{result}.json"));
            let arguments = std::iter::once("growth").chain(command.split(' '));
            let mut options = Options::try_parse_from(arguments).unwrap();
            (options.svg, options.json) = (Some(folder.clone()), Some(file.clone()));
            measure(&options).await.unwrap();
            let written: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
            let figures = written["results"][result].as_array().unwrap();
            assert!(!figures.is_empty(), "{command}: {written}");
        }
        for chart in ["rows-throughput-100", "rows-p99-100", "soak-size", "soak-latency"] {
            assert!(folder.join(chart).with_extension("svg").is_file(), "{chart}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_setting_has_a_name_and_a_value() {
        assert_eq!(setting("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert!(setting("a").is_err());
    }
}
