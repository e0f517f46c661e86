//! The model's counterpart: a store, its runner, and the comparison after every command.

use idem_core::{ManualClock, Store, Timestamp};
use idem_memory::{MemoryConfig, MemoryStore};
use idem_tests::row::{Micros, Place, Row};
use idem_tests::runner::Time;
use idem_tests::{Command, Model, Runner, invariants};
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

/// Makes an empty store: on this clock, or on its own.
pub(crate) type MakeStore<'a> = &'a (dyn Fn(Option<ManualClock>) -> Arc<dyn Store> + 'a);

pub(crate) fn memory(clock: Option<ManualClock>) -> Arc<dyn Store> {
    let config = MemoryConfig::default().with_shards(2);
    Arc::new(MemoryStore::new(match clock {
        Some(clock) => config.with_clock(Arc::new(clock)),
        None => config,
    }))
}

/// A store on which commands are played.
pub(crate) struct Stage {
    runtime: tokio::runtime::Runtime,
    runner: Runner,
    rows: (BTreeMap<Place, Row>, Micros),
    latest: Micros,
}

impl Stage {
    pub(crate) fn new(make: MakeStore<'_>, model: &Model) -> Self {
        let clock = ManualClock::new(Timestamp::from_micros(model.clock()));
        let runner = if model.is_exact() {
            Runner::new(make(Some(clock.clone())), Time::Ours(clock))
        } else {
            Runner::new(make(None), Time::Its)
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime starts");
        let rows = runtime.block_on(runner.rows());
        Self { runtime, runner, latest: rows.1, rows }
    }

    /// Plays a command that `model` has played, and compares.
    pub(crate) fn play(&mut self, model: &Model, command: &Command) {
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
    pub(crate) fn play_alone(&mut self, command: &Command) -> (idem_tests::Answer, BTreeMap<Place, Row>) {
        let answer = self.runtime.block_on(self.runner.step(command));
        (answer, self.runtime.block_on(self.runner.rows()).0)
    }
}

fn without_instants(rows: &BTreeMap<Place, Row>, clock: Micros) -> BTreeMap<Place, Row> {
    rows.iter().map(|(place, row)| (*place, row.clone().without_instants(clock))).collect()
}

/// The memory store as `proptest-state-machine` drives it.
pub(crate) struct OnMemory<Machine>(PhantomData<Machine>);

impl<M: ReferenceStateMachine<State = Model, Transition = Command>> StateMachineTest for OnMemory<M> {
    type SystemUnderTest = Stage;
    type Reference = M;

    fn init_test(model: &Model) -> Stage {
        Stage::new(&memory, model)
    }

    fn apply(mut stage: Stage, model: &Model, command: Command) -> Stage {
        stage.play(model, &command);
        stage
    }
}
