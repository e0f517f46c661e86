//! The model's counterpart: a store, its runner, and the comparison after every command.

use crate::row::{Micros, Place, Row};
use crate::runner::Time;
use crate::{Answer, Command, Model, Runner, invariants};
use idem_core::{ManualClock, Store, Timestamp};
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestError, TestRunner};
use proptest_state_machine::ReferenceStateMachine;
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Makes an empty store: on this clock, or on its own.
pub type MakeStore<'a> = &'a (dyn Fn(Option<ManualClock>) -> Arc<dyn Store> + 'a);

/// A store on which commands are played.
pub struct Stage {
    runtime: tokio::runtime::Runtime,
    runner: Runner,
    rows: (BTreeMap<Place, Row>, Micros),
    latest: Micros,
}

impl Stage {
    /// An empty store beside `model`. Everything runs on a runtime of the stage's own.
    ///
    /// # Panics
    ///
    /// If the store cannot be read.
    #[must_use]
    pub fn new(make: MakeStore<'_>, model: &Model) -> Self {
        let clock = ManualClock::new(Timestamp::from_micros(model.clock()));
        let runner = if model.is_exact() {
            Runner::new(make(Some(clock.clone())), Time::Ours(clock))
        } else {
            Runner::new(make(None), Time::Its)
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
        let rows = runtime.block_on(runner.rows());
        Self { runtime, runner, latest: rows.1, rows }
    }

    /// Plays a command that `model` has played, and compares.
    ///
    /// # Panics
    ///
    /// If store and model part, or a step breaks an invariant.
    pub fn play(&mut self, model: &Model, command: &Command) {
        let answer = self.runtime.block_on(self.runner.step(command));
        let (rows, clock) = self.runtime.block_on(self.runner.rows());
        self.latest = self.latest.max(clock);
        let (before, before_clock) = &self.rows;
        invariants::Step {
            command,
            answer: &answer,
            before: (before, *before_clock),
            after: (&rows, clock),
            latest: self.latest,
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
        self.rows = (rows, clock);
    }

    /// Plays a command without a model.
    ///
    /// # Panics
    ///
    /// If the store fails when it was not made to.
    pub fn play_alone(&mut self, command: &Command) -> (Answer, BTreeMap<Place, Row>) {
        let answer = self.runtime.block_on(self.runner.step(command));
        (answer, self.runtime.block_on(self.runner.rows()).0)
    }
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stage").field("runner", &self.runner).finish_non_exhaustive()
    }
}

fn without_instants(rows: &BTreeMap<Place, Row>, clock: Micros) -> BTreeMap<Place, Row> {
    rows.iter().map(|(place, row)| (*place, row.clone().without_instants(clock))).collect()
}

/// Plays random lists of commands on stores that `make` makes, and says what went wrong and by which seed it is found
/// again.
///
/// `cases` is how many lists; the environment's `PROPTEST_CASES` overrules it.
///
/// # Errors
///
/// The shortest list that was found, with its seed.
pub fn play<M>(make: MakeStore<'_>, cases: u32) -> Result<(), String>
where
    M: ReferenceStateMachine<State = Model, Transition = Command>,
{
    play_from::<M>(seed(), make, cases)
}

/// The seed that `PROPTEST_RNG_SEED` names, or a random one.
#[must_use]
pub fn seed() -> u64 {
    match Config::default().rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => RandomState::new().hash_one("seed"),
    }
}

/// As [`play`], with the lists of one seed: whatever `make` makes, they are the same.
///
/// # Errors
///
/// The shortest list that was found, with its seed.
pub fn play_from<M>(seed: u64, make: MakeStore<'_>, cases: u32) -> Result<(), String>
where
    M: ReferenceStateMachine<State = Model, Transition = Command>,
{
    let mut config = Config { failure_persistence: None, rng_seed: RngSeed::Fixed(seed), ..Config::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    TestRunner::new(config)
        .run(&M::sequential_strategy(1..80), |(model, commands, _)| {
            let played = catch_unwind(AssertUnwindSafe(|| play_list(make, model, &commands)));
            played.map_err(|panic| TestCaseError::fail(text_of(&*panic)))
        })
        .map_err(|error| match error {
            TestError::Fail(why, (_, commands, _)) => format!("PROPTEST_RNG_SEED={seed}: {why}\n{commands:#?}"),
            TestError::Abort(why) => format!("PROPTEST_RNG_SEED={seed}: {why}"),
        })
}

/// Plays one list on a fresh store.
///
/// # Panics
///
/// If store and model part.
pub fn play_list(make: MakeStore<'_>, mut model: Model, commands: &[Command]) {
    let mut stage = Stage::new(make, &model);
    for command in commands {
        model.step(command);
        stage.play(&model, command);
    }
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}
