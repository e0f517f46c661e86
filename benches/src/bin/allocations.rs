//! What an operation allocates: `cargo run --release -p idem-benches --bin allocations`.
//!
//! For each operation the number of allocations (one that grows counts again), the bytes that were asked for in all, and
//! the most that were held at a time, beside what was there before. Requests and responses are made beforehand and have
//! lines of their own. A figure is the median of 101 calls, one after the other, on a runtime of one thread, so it is
//! the same in every run; that now and then a table grows is in the last line only: what a store in memory holds for
//! one completed record, names, fingerprint and response included.
//!
//! The allocator counts what is asked for. What the system's allocator adds to each block is not in it.

#![expect(clippy::print_stdout, reason = "a command-line program: what it prints is its answer")]

use clap::Parser;
use idem_benches::null::NullStore;
use idem_benches::sample::{REQUEST, request, response};
use idem_core::fingerprint::Candidates;
use idem_core::machine::Ownership;
use idem_core::store::Inserted;
use idem_core::{Begun, Claim, Engine, Failure, Fingerprint, Record, Response, State, Store, Takeover};
use idem_memory::MemoryStore;
use serde::Serialize;
use std::convert::Infallible;
use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

type AnyError = Box<dyn std::error::Error>;

/// How many calls the median is of.
const CALLS: usize = 101;
/// How many completed records the store in memory holds.
const RECORDS: usize = 10_000;

/// Counts the allocations of an operation.
#[derive(Parser)]
struct Cli {
    /// Writes the figures into this file, too.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report {
    operations: Vec<Line>,
    retained: Retained,
}

#[derive(Serialize)]
struct Line {
    operation: &'static str,
    store: Option<&'static str>,
    allocations: u64,
    bytes: u64,
    peak: u64,
}

#[derive(Serialize)]
struct Retained {
    records: usize,
    /// For each.
    bytes: usize,
    /// For each, by the store's own account.
    accounted: usize,
}

fn key(kind: &str, number: usize) -> String {
    format!("{kind}-{number:08}")
}

/// The medians of many calls. What `call` does before it gives its future is not counted.
async fn count<F: Future>(operation: &'static str, store: Option<&'static str>, call: impl Fn(usize) -> F) -> Line {
    let mut counted = [const { Vec::new() }; 3];
    for number in 0..CALLS {
        let call = call(number);
        let profiler = dhat::Profiler::builder().testing().build();
        let outcome = call.await;
        let stats = dhat::HeapStats::get();
        drop(profiler);
        drop(outcome);
        for (list, value) in counted.iter_mut().zip([stats.total_blocks, stats.total_bytes, stats.max_bytes as u64]) {
            list.push(value);
        }
    }
    let [allocations, bytes, peak] = counted.map(|mut list| {
        list.sort_unstable();
        list[CALLS / 2]
    });
    Line { operation, store, allocations, bytes, peak }
}

fn fingerprint() -> Candidates {
    Fingerprint::builder("POST /v1/charges").json(REQUEST).finish().expect("a small body")
}

/// What comes before a call: the same for every store.
async fn beforehand() -> Vec<Line> {
    let whole = |number| {
        let key = key("request", number);
        async { request(key) }
    };
    vec![
        count("fingerprint", None, |_| async { fingerprint() }).await,
        count("request, with names and fingerprint", None, whole).await,
        count("response", None, |_| async { response() }).await,
    ]
}

fn claim(key: String) -> Claim {
    Claim::new(request(key).identity().clone(), fingerprint(), Takeover::Resume)
}

/// Engines over one kind of store; in memory it is one engine.
struct Engines {
    store: &'static str,
    /// Grants every new key.
    granting: Engine,
    /// Has the answers to the first keys named `done`.
    replaying: Engine,
    /// Somebody works on the first keys named `busy`.
    waiting: Engine,
}

fn engine(store: impl Store + 'static) -> Engine {
    Engine::builder(store).without_sweeper().build().expect("inside a runtime")
}

async fn answer(response: Response) -> Result<Response, Failure<Infallible>> {
    Ok(response)
}

async fn never() -> Result<Response, Failure<Infallible>> {
    unreachable!("the key is known")
}

impl Engines {
    fn on_null() -> Self {
        let live = claim(key("null", 0)).first_record(NullStore::CLOCK);
        let completed = Record { state: State::Completed(response()), ..live.clone() };
        Self {
            store: "null",
            granting: engine(NullStore::default()),
            replaying: engine(NullStore::that_holds(completed)),
            waiting: engine(NullStore::that_holds(live)),
        }
    }

    /// Over a store in memory that holds [`RECORDS`] completed records, with what they take.
    async fn on_memory() -> Result<(Self, Retained), AnyError> {
        let store = MemoryStore::default();
        let profiler = dhat::Profiler::builder().testing().build();
        for number in 0..RECORDS {
            let claim = claim(key("done", number));
            let Inserted::Won(version) = store.insert(&claim).await? else { unreachable!("the key is new") };
            let owner = Ownership::new(claim.first_record(version.locked_at));
            let complete = owner.complete(response(), Duration::ZERO, Duration::ZERO);
            store.swap(claim.identity(), &version, &complete).await?;
        }
        let held = dhat::HeapStats::get().curr_bytes;
        drop(profiler);
        let (bytes, accounted) = (held / RECORDS, store.bytes() / RECORDS);
        let engine = engine(store);
        let engines = Self { store: "memory", granting: engine.clone(), replaying: engine.clone(), waiting: engine };
        Ok((engines, Retained { records: RECORDS, bytes, accounted }))
    }

    /// Counts all operations.
    async fn operations(&self) -> Vec<Line> {
        let store = Some(self.store);
        let response = response();
        let begin_and_complete = |number| {
            let (request, response) = (request(key("begin", number)), response.clone());
            async {
                let begun = self.granting.begin(request).await;
                let Ok(Begun::Acquired(lease)) = begun else { unreachable!("the key is new") };
                lease.complete(response).await
            }
        };
        let execute = |number| {
            let response = response.clone();
            self.granting.execute(request(key("execute", number)), |_| answer(response))
        };
        let inline = |number| {
            let response = response.clone();
            self.granting.execute_inline(request(key("inline", number)), |_| answer(response))
        };
        let replay = |number| self.replaying.execute(request(key("done", number)), |_| never());
        let wait = |number| self.waiting.execute(request(key("busy", number)), |_| never());
        let mut busy = Vec::new();
        for number in 0..CALLS {
            busy.push(self.granting.begin(request(key("busy", number))).await);
        }
        vec![
            count("begin and complete", store, begin_and_complete).await,
            count("execute", store, execute).await,
            count("execute_inline", store, inline).await,
            count("replay", store, replay).await,
            count("in progress", store, wait).await,
        ]
    }
}

fn print(report: &Report) {
    println!("{:<38} {:<8} {:>12} {:>8} {:>8}", "operation", "store", "allocations", "bytes", "peak");
    for Line { operation, store, allocations, bytes, peak } in &report.operations {
        println!("{operation:<38} {:<8} {allocations:>12} {bytes:>8} {peak:>8}", store.unwrap_or("-"));
    }
    let Retained { records, bytes, accounted } = &report.retained;
    println!("\nOne of {records} completed records in memory takes {bytes} bytes; by the store's account {accounted}.");
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), AnyError> {
    let cli = Cli::parse();
    let (memory, retained) = Engines::on_memory().await?;
    let mut operations = beforehand().await;
    operations.extend(Engines::on_null().operations().await);
    operations.extend(memory.operations().await);
    let report = Report { operations, retained };
    print(&report);
    if let Some(path) = cli.json {
        serde_json::to_writer_pretty(File::create(path)?, &report)?;
    }
    Ok(())
}
