//! What the engine adds to its store.
//!
//! Each group is a runtime and a store, each line one operation. Requests and answers are made before the clock runs, by
//! the task that uses them; handlers answer at once.
//!
//! * `a task`: the runtime alone: one task is spawned that does nothing, and waited for.
//! * `store, complete`: the bare store, by its trait: a claim is made and inserted, then swapped to completed.
//! * `begin and complete`, `execute`, `execute_inline`: the same, by the engine.
//! * `store, replay`: the bare store: a claim is made, its insert meets a completed record, and the machine decides.
//! * `replay`: the same, by `execute`.
//!
//! The engine's own part is a line less the one of its bare store. The `null` store does nothing at all, so there a line
//! is all engine: its tasks (two to begin and complete, one to execute), clocks, deadlines, permits.
//!
//! In a group without a number one task makes all calls. With `64 tasks` a figure is the time that all calls took over
//! their number: the more cores, the smaller. The runtime has as many workers as there are cores.
//!
//! `cargo bench -p idem-benches --bench engine`. Compare with another commit on the same machine: `-- --save-baseline
//! before` there, `-- --baseline before` here.

use criterion::{Criterion, criterion_group, criterion_main};
use idem_benches::null::NullStore;
use idem_benches::sample::{REQUEST, request, response};
use idem_core::fingerprint::Candidates;
use idem_core::machine::{Decision, Ownership, decide};
use idem_core::store::{Inserted, PurgeOptions, Swapped};
use idem_core::{
    Begun, Claim, Clock, Engine, Failure, Fingerprint, Outcome, Policy, Record, Recorded, Request, Response,
    Settlement, State, Store, SystemClock, Takeover, Timestamp,
};
use idem_memory::{MemoryConfig, MemoryStore};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::Barrier;

/// How many calls are made ready before the clock runs: as many for each of 64 tasks.
const BATCH: usize = 64 * 64;
/// The shortest retention that a policy may ask for by default.
const RETENTION: Duration = Duration::from_secs(900);

#[derive(Clone, Copy)]
enum Operation {
    Task,
    StoreComplete,
    BeginAndComplete,
    Execute,
    ExecuteInline,
    StoreReplay,
    Replay,
}

const OPERATIONS: [(&str, Operation); 7] = [
    ("a task", Operation::Task),
    ("store, complete", Operation::StoreComplete),
    ("begin and complete", Operation::BeginAndComplete),
    ("execute", Operation::Execute),
    ("execute_inline", Operation::ExecuteInline),
    ("store, replay", Operation::StoreReplay),
    ("replay", Operation::Replay),
];

/// The machine's clock, put forward to purge what a batch left: read at the same price.
#[derive(Clone, Debug, Default)]
struct Ahead(Arc<AtomicU64>);

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        SystemClock.now().saturating_add(Duration::from_secs(self.0.load(Ordering::Relaxed)))
    }
}

/// What one call needs, with nothing in it that another call shares.
struct Call {
    request: Request,
    fingerprint: Candidates,
    answer: Response,
}

impl Call {
    fn new(number: usize) -> Self {
        Self { request: request(format!("order-{number}")), fingerprint: fingerprint(), answer: response() }
    }

    /// The claim that the engine would make.
    fn claim(self) -> Claim {
        let claim = Claim::new(self.request.identity().clone(), self.fingerprint, Takeover::Resume);
        claim.with_retention(RETENTION)
    }
}

/// What all calls of a group share.
struct Rig {
    /// Its store grants every key.
    granting: Engine,
    /// Its store has an answer to every key of a batch.
    replaying: Engine,
    clock: Ahead,
}

fn engine(store: impl Store + 'static) -> Engine {
    let policy = Policy::builder().with_retention(RETENTION).with_replay_floor(RETENTION).build().expect("a policy");
    Engine::builder(store).with_policy(policy).without_sweeper().build().expect("inside a runtime")
}

fn fingerprint() -> Candidates {
    Fingerprint::builder("POST /v1/charges").json(REQUEST).finish().expect("a small body")
}

impl Rig {
    fn on_null() -> Self {
        let live = Call::new(0).claim().first_record(NullStore::CLOCK);
        let completed = Record { state: State::Completed(response()), ..live };
        Self {
            granting: engine(NullStore::default()),
            replaying: engine(NullStore::that_holds(completed)),
            clock: Ahead::default(),
        }
    }

    async fn on_memory() -> Self {
        let clock = Ahead::default();
        let rig = Self {
            granting: engine(MemoryStore::new(MemoryConfig::default().with_clock(Arc::new(clock.clone())))),
            replaying: engine(MemoryStore::default()),
            clock,
        };
        for number in 0..BATCH {
            let Call { request, answer, .. } = Call::new(number);
            let Ok(Begun::Acquired(lease)) = rig.replaying.begin(request).await else { unreachable!("it is new") };
            assert_eq!(lease.complete(answer).await.expect("it is stored"), Settlement::Recorded);
        }
        rig
    }

    async fn perform(&self, operation: Operation, call: Call) {
        match operation {
            Operation::Task => tokio::spawn(async { drop(call) }).await.expect("it does nothing"),
            Operation::StoreComplete => {
                let answer = call.answer.clone();
                let (store, claim) = (self.granting.store(), call.claim());
                let Ok(Inserted::Won(version)) = store.insert(&claim).await else { unreachable!("the key is new") };
                let owner = Ownership::new(claim.first_record(version.locked_at));
                let complete = owner.complete(answer, Duration::ZERO, RETENTION);
                let swapped = store.swap(claim.identity(), &version, &complete).await;
                assert!(matches!(swapped, Ok(Swapped::Applied)));
            }
            Operation::BeginAndComplete => {
                let begun = self.granting.begin(call.request).await;
                let Ok(Begun::Acquired(lease)) = begun else { unreachable!("the key is new") };
                assert!(matches!(lease.complete(call.answer).await, Ok(Settlement::Recorded)));
            }
            Operation::Execute => {
                let handler = |_| async { Ok::<_, Failure<Infallible>>(call.answer) };
                let executed = self.granting.execute(call.request, handler).await;
                assert!(matches!(executed, Ok(Outcome::Executed { recorded: Recorded::Yes, .. })));
            }
            Operation::ExecuteInline => {
                let handler = |_| async { Ok::<_, Failure<Infallible>>(call.answer) };
                let executed = self.granting.execute_inline(call.request, handler).await;
                assert!(matches!(executed, Ok(Outcome::Executed { recorded: Recorded::Yes, .. })));
            }
            Operation::StoreReplay => {
                let (store, claim) = (self.replaying.store(), call.claim());
                let inserted = store.insert(&claim).await;
                let Ok(Inserted::Existing(record, clock)) = inserted else { unreachable!("the key is known") };
                assert!(matches!(decide(&record, &claim, clock), Decision::Replay(_)));
            }
            Operation::Replay => {
                let handler = |_| async { unreachable!("the key is known") };
                let replayed = self.replaying.execute::<Infallible, _, _>(call.request, handler).await;
                assert!(matches!(replayed, Ok(Outcome::Replayed(_))));
            }
        }
    }

    /// Removes what a batch left, and leaves the tables as large as they are.
    async fn tidy_up(&self) {
        self.clock.0.fetch_add(2 * RETENTION.as_secs(), Ordering::Relaxed);
        self.granting.store().purge(&PurgeOptions::default().with_batch(BATCH)).await.expect("a purge does not fail");
    }
}

/// For how long `tasks` make `calls` in all: from the first that begins to the last that is done.
fn timed(runtime: &Runtime, tasks: usize, rig: &Arc<Rig>, operation: Operation, calls: u64) -> Duration {
    let mut spent = Duration::ZERO;
    let mut left = usize::try_from(calls).expect("it fits");
    while left > 0 {
        let batch = left.min(BATCH);
        left -= batch;
        spent += runtime.block_on(async {
            let all_made = Arc::new(Barrier::new(tasks));
            let share = |task| task * batch / tasks..(task + 1) * batch / tasks;
            let callers: Vec<_> = (0..tasks)
                .map(|task| {
                    let (rig, all_made, numbers) = (Arc::clone(rig), Arc::clone(&all_made), share(task));
                    tokio::spawn(async move {
                        let calls: Vec<_> = numbers.map(Call::new).collect();
                        all_made.wait().await;
                        let began = Instant::now();
                        for call in calls {
                            rig.perform(operation, call).await;
                        }
                        (began, Instant::now())
                    })
                })
                .collect();
            let mut spans = Vec::with_capacity(tasks);
            for caller in callers {
                spans.push(caller.await.expect("a call failed"));
            }
            rig.tidy_up().await;
            let first = spans.iter().map(|(began, _)| *began).min();
            let last = spans.iter().map(|(_, ended)| *ended).max();
            last.zip(first).map_or(Duration::ZERO, |(last, first)| last - first)
        });
    }
    spent
}

fn groups(criterion: &mut Criterion) {
    let one = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let many = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    for (name, runtime, tasks) in [("current_thread", &one, 1), ("multi_thread", &many, 1), ("64 tasks", &many, 64)] {
        let memory = runtime.block_on(Rig::on_memory());
        let null = runtime.block_on(async { Rig::on_null() });
        for (store, rig) in [("memory", memory), ("null", null)] {
            let rig = Arc::new(rig);
            let mut group = criterion.benchmark_group(format!("{name}, {store}"));
            for (line, operation) in OPERATIONS {
                group.bench_function(line, |bencher| {
                    bencher.iter_custom(|calls| timed(runtime, tasks, &rig, operation, calls));
                });
            }
            group.finish();
        }
    }
}

criterion_group!(benches, groups);
criterion_main!(benches);
