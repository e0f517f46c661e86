//! One list of random commands, played on the model and on a store.
//!
//! `PROPTEST_CASES=10000 cargo test -p idem-tests --test model` plays more of them than the usual 256. A failure prints the shortest list
//! that it found and the seed that finds it again: `PROPTEST_RNG_SEED=<seed>`.

mod broken;

use idem_core::{ManualClock, Store, Timestamp};
use idem_memory::{MemoryConfig, MemoryStore};
use idem_tests::model::{ExactClock, OwnClock};
use idem_tests::row::{Micros, Place, Row};
use idem_tests::runner::Time;
use idem_tests::{Command, Model, Runner, invariants};
use proptest::test_runner::{Config, RngSeed, TestError, TestRunner};
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::marker::PhantomData;
use std::sync::Arc;

/// Makes the stores of a test.
trait MakeStore: 'static {
    fn make(clock: Option<ManualClock>) -> Arc<dyn Store>;
}

struct Memory;

impl MakeStore for Memory {
    fn make(clock: Option<ManualClock>) -> Arc<dyn Store> {
        let config = MemoryConfig::default().with_shards(2);
        Arc::new(MemoryStore::new(match clock {
            Some(clock) => config.with_clock(Arc::new(clock)),
            None => config,
        }))
    }
}

struct Play<Store, Machine>(PhantomData<(Store, Machine)>);

struct Stage {
    runtime: tokio::runtime::Runtime,
    runner: Runner,
    rows: (BTreeMap<Place, Row>, Micros),
    latest: Micros,
}

impl<S: MakeStore, M: ReferenceStateMachine<State = Model, Transition = Command>> StateMachineTest for Play<S, M> {
    type SystemUnderTest = Stage;
    type Reference = M;

    fn init_test(model: &Model) -> Stage {
        let clock = ManualClock::new(Timestamp::from_micros(model.clock()));
        let (store, time) = if model.is_exact() {
            (S::make(Some(clock.clone())), Time::Ours(clock))
        } else {
            (S::make(None), Time::Its)
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime starts");
        let runner = Runner::new(store, time);
        let rows = runtime.block_on(runner.rows());
        Stage { runtime, runner, latest: rows.1, rows }
    }

    fn apply(mut stage: Stage, model: &Model, command: Command) -> Stage {
        let answer = stage.runtime.block_on(stage.runner.step(&command));
        let (rows, clock) = stage.runtime.block_on(stage.runner.rows());
        let (before, before_clock) = &stage.rows;
        stage.latest = stage.latest.max(clock);
        invariants::Step {
            command: &command,
            answer: &answer,
            before: (before, *before_clock),
            after: (&rows, clock),
            latest: stage.latest,
        }
        .check();
        if model.is_exact() {
            assert_eq!(&answer, model.answer(), "answer to {command:?}");
            assert_eq!(&rows, model.rows(), "rows after {command:?}");
        } else {
            let expected = model.answer().clone().without_instants(model.clock());
            assert_eq!(answer.without_instants(clock), expected, "answer to {command:?}");
            assert_eq!(without_instants(&rows, clock), without_instants(model.rows(), model.clock()), "{command:?}");
        }
        stage.rows = (rows, clock);
        stage
    }
}

fn without_instants(rows: &BTreeMap<Place, Row>, clock: Micros) -> BTreeMap<Place, Row> {
    rows.iter().map(|(place, row)| (*place, row.clone().without_instants(clock))).collect()
}

/// Plays random lists of commands, and says what went wrong and by which seed it is found again.
fn play<S: MakeStore, M: ReferenceStateMachine<State = Model, Transition = Command>>(
    configure: impl FnOnce(Config) -> Config,
) -> Result<(), String> {
    let mut config = configure(Config { failure_persistence: None, ..Config::default() });
    let seed = match config.rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => RandomState::new().hash_one("seed"),
    };
    config.rng_seed = RngSeed::Fixed(seed);
    let mut runner = TestRunner::new(config.clone());
    runner
        .run(&M::sequential_strategy(1..80), |(model, commands, seen)| {
            Play::<S, M>::test_sequential(config.clone(), model, commands, seen);
            Ok(())
        })
        .map_err(|error| match error {
            TestError::Fail(why, (_, commands, _)) => format!("PROPTEST_RNG_SEED={seed}: {why}\n{commands:#?}"),
            TestError::Abort(why) => format!("PROPTEST_RNG_SEED={seed}: {why}"),
        })
}

#[test]
fn memory_does_what_the_model_does() {
    play::<Memory, ExactClock>(|config| config).unwrap_or_else(|failure| panic!("{failure}"));
}

/// As a store with a clock of its own is tested, such as a database.
#[test]
fn memory_on_its_own_clock_does_what_the_model_does() {
    play::<Memory, OwnClock>(|config| config).unwrap_or_else(|failure| panic!("{failure}"));
}
