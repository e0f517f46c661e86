//! The model: rows in a map, and what must come of every [`Command`].
//!
//! Written from the tables of `DESIGN.md`, sections 3 and 4, in plain words. It never calls `idem_core::machine`, which
//! is what it is compared with, and it says some things otherwise on purpose: a swap of ownership replaces a row if it
//! is *the row that was read*, all of it, where the library compares a status, a version and a lease and claims that
//! this is the same.

use crate::actor::Held;
use crate::command::{ACTORS, Command, Fault, Step, Terms, commands};
use crate::row::{Answer, ClaimNumber, HOUR, Micros, Place, Row, Status};
use proptest::prelude::*;
use proptest_state_machine::ReferenceStateMachine;
use std::collections::{BTreeMap, BTreeSet};

/// What the store holds, what every actor believes, and what the last command must have answered.
#[derive(Debug, Clone)]
pub struct Model {
    /// Whether the store's clock is the model's, to the microsecond. If not, only what is over and what is not is
    /// known.
    exact: bool,
    pub(crate) clock: Micros,
    /// A clock that never steps back: what owners measure with.
    pub(crate) uptime: Micros,
    pub(crate) rows: BTreeMap<Place, Row>,
    pub(crate) actors: [Actor; ACTORS],
    late: Vec<Write>,
    versions: BTreeSet<(Place, ClaimNumber, Micros)>,
    repeats_a_version: bool,
    claims: ClaimNumber,
    answer: Answer,
}

/// What an actor is about.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the fields say what they are")]
pub enum Actor {
    /// Nothing.
    Idle,
    /// It asked with a claim and was not answered.
    Asking(Claim),
    /// It read a row and will replace it.
    Deciding { claim: Claim, read: Row, becomes: Row },
    /// It believes that it owns a row.
    Owning(Held),
}

/// A claim by its number.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the fields say what they are")]
pub struct Claim {
    pub number: ClaimNumber,
    pub terms: Terms,
}

/// A write as it travels to the store.
#[derive(Debug, Clone)]
pub(crate) enum Write {
    Make(Claim),
    Replace { place: Place, read: Row, becomes: Row },
    Progress { place: Place, version: (ClaimNumber, Micros), lease_millis: u32, step: Step },
    Settle { place: Place, version: (ClaimNumber, Micros), ending: Ending, expires_at: Micros },
}

/// What a settlement leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Done(u8),
    Failed { clear: bool },
    Abandoned,
}

/// What the store says of a write that reached it.
pub(crate) enum Reply {
    Landed,
    Found(Option<Row>),
}

impl Model {
    /// An empty store. `exact` says whether its clock is the model's.
    #[must_use]
    pub fn new(exact: bool) -> Self {
        Self {
            exact,
            clock: 1_000 * HOUR,
            uptime: 0,
            rows: BTreeMap::new(),
            actors: std::array::from_fn(|_| Actor::Idle),
            late: Vec::new(),
            versions: BTreeSet::new(),
            repeats_a_version: false,
            claims: 0,
            answer: Answer::Nothing,
        }
    }

    /// Whether the store's clock is the model's.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.exact
    }

    /// The store's time.
    #[must_use]
    pub fn clock(&self) -> Micros {
        self.clock
    }

    /// What every actor is about.
    #[must_use]
    pub fn actors(&self) -> &[Actor] {
        &self.actors
    }

    /// The rows.
    #[must_use]
    pub fn rows(&self) -> &BTreeMap<Place, Row> {
        &self.rows
    }

    /// What the last command must have answered.
    #[must_use]
    pub fn answer(&self) -> &Answer {
        &self.answer
    }

    /// Whether there are writes under way.
    #[must_use]
    pub fn has_late_writes(&self) -> bool {
        !self.late.is_empty()
    }

    /// Whether some ownership ever began with the version of an earlier one.
    ///
    /// It takes a record that is deleted, and a claim that owned it before it knew and is asked with again in the same
    /// microsecond. The lists of commands go around that, since then a row *is* not always the row that was read.
    #[must_use]
    pub fn repeats_a_version(&self) -> bool {
        self.repeats_a_version
    }

    fn begins(&mut self, place: Place, owner: ClaimNumber, locked_at: Micros) {
        self.repeats_a_version |= !self.versions.insert((place, owner, locked_at));
    }

    /// Does what `command` says.
    pub fn step(&mut self, command: &Command) {
        if !self.exact {
            self.clock += 1;
        }
        self.answer = self.obey(command);
    }

    fn obey(&mut self, command: &Command) -> Answer {
        match *command {
            Command::Ask { actor, terms, fault } => {
                if !matches!(self.actors[actor], Actor::Idle) {
                    return Answer::Nothing;
                }
                self.claims += 1;
                self.ask(actor, Claim { number: self.claims, terms }, fault)
            }
            Command::AskAgain { actor, fault } => match self.actors[actor] {
                Actor::Asking(claim) | Actor::Deciding { claim, .. } => self.ask(actor, claim, fault),
                Actor::Idle | Actor::Owning(_) => Answer::Nothing,
            },
            Command::Take { actor, fault } => self.take(actor, fault),
            Command::Progress { actor, step, fault } => self.progress(actor, step, fault),
            Command::Settle { actor, how, floor, fault } => self.settle(actor, how, floor, fault),
            Command::Resolve { actor, fault } => self.resolve(actor, fault),
            Command::Die { actor } => {
                self.actors[actor] = Actor::Idle;
                Answer::Nothing
            }
            Command::Load(place) => Answer::Found(self.rows.get(&place).cloned()),
            Command::Purge { batch: _, unresolved_after } => self.purge(unresolved_after),
            Command::Erase { scope, everything } => self.erase(scope, everything),
            Command::Stuck { page: _ } => {
                let mut stuck: Vec<_> = self.rows.iter().filter(|(_, row)| row.stuck(self.clock)).collect();
                stuck.sort_by_key(|(place, row)| (row.locked_at, **place));
                Answer::Stuck(stuck.into_iter().map(|(place, _)| *place).collect())
            }
            Command::Stats => self.count(),
            Command::LandLate => {
                for write in std::mem::take(&mut self.late) {
                    self.land(&write);
                }
                Answer::Nothing
            }
            Command::MoveClock(by) => {
                self.clock += by;
                self.uptime += by.max(0);
                Answer::Nothing
            }
        }
    }

    /// Sends a write on its way, which may end before the store, behind it, or some time later.
    pub(crate) fn send(&mut self, write: Write, fault: Fault) -> Result<Reply, Answer> {
        match fault {
            Fault::None => return Ok(self.land(&write)),
            Fault::Refuse => return Err(Answer::NotApplied),
            Fault::LoseRequest => {}
            Fault::LoseReply => drop(self.land(&write)),
            Fault::LandLate => self.late.push(write),
        }
        Err(Answer::Unknown)
    }

    fn land(&mut self, write: &Write) -> Reply {
        let clock = self.clock;
        match write {
            Write::Make(claim) => {
                if let Some(there) = self.rows.get(&claim.terms.place) {
                    return Reply::Found(Some(there.clone()));
                }
                self.rows.insert(claim.terms.place, claim.first_row(clock));
                self.begins(claim.terms.place, claim.number, clock);
                Reply::Landed
            }
            Write::Replace { place, read, becomes } => {
                let there = self.rows.get_mut(place).filter(|there| *there == read);
                let Some(there) = there else { return self.found(*place) };
                *there = becomes.clone();
                self.begins(*place, becomes.owner, becomes.locked_at);
                Reply::Landed
            }
            Write::Progress { place, version, lease_millis, step } => {
                let there = self.owned(*place, *version).filter(|row| (1..*lease_millis).contains(&row.lease_millis));
                let Some(there) = there else { return self.found(*place) };
                there.lease_millis = *lease_millis;
                match step {
                    Step::Renew => {}
                    Step::BeginEffect => there.effect_begun = true,
                    Step::Checkpoint(phase) => there.phase = Some(*phase),
                }
                Reply::Landed
            }
            Write::Settle { place, version, ending, expires_at } => {
                let Some(there) = self.owned(*place, *version) else { return self.found(*place) };
                match ending {
                    Ending::Done(answer) => there.status = Status::Done(*answer),
                    Ending::Failed { clear } => {
                        there.status = Status::Failed;
                        there.effect_begun &= !clear;
                        there.unresolved = if *clear { 0 } else { there.unresolved };
                    }
                    Ending::Abandoned => there.lease_millis = 0,
                }
                if *ending != Ending::Abandoned {
                    there.expires_at = *expires_at;
                }
                Reply::Landed
            }
        }
    }

    /// The row at `place` if somebody works on it under `version`.
    fn owned(&mut self, place: Place, version: (ClaimNumber, Micros)) -> Option<&mut Row> {
        let row = self.rows.get_mut(&place)?;
        (row.status == Status::Working && (row.owner, row.locked_at) == version).then_some(row)
    }

    fn found(&self, place: Place) -> Reply {
        Reply::Found(self.rows.get(&place).cloned())
    }

    fn purge(&mut self, unresolved_after: Option<Micros>) -> Answer {
        let clock = self.clock;
        let (mut settled, mut unresolved) = (0, 0);
        self.rows.retain(|_, row| {
            let given_up = row.stuck(clock) && unresolved_after.is_some_and(|grace| row.expires_at + grace <= clock);
            settled += u64::from(row.expired(clock));
            unresolved += u64::from(given_up);
            !row.expired(clock) && !given_up
        });
        Answer::Purged(settled, unresolved)
    }

    fn erase(&mut self, scope: u8, everything: bool) -> Answer {
        let (mut erased, mut kept) = (0, 0);
        self.rows.retain(|place, row| {
            let here = place / 2 == scope;
            let goes = here && (everything || row.known());
            erased += u64::from(goes);
            kept += u64::from(here && !goes);
            !goes
        });
        Answer::Erased(erased, kept)
    }

    fn count(&self) -> Answer {
        let count = |which: &dyn Fn(&Row) -> bool| self.rows.values().filter(|row| which(row)).count() as u64;
        Answer::Counted([
            count(&|row| row.alive(self.clock)),
            count(&|row| row.stale(self.clock)),
            count(&|row| matches!(row.status, Status::Done(_))),
            count(&|row| row.status == Status::Failed),
            count(&|row| row.stuck(self.clock)),
            count(&|row| row.expired(self.clock)),
        ])
    }
}

/// Draws commands for a store whose clock the test moves.
#[derive(Debug)]
pub struct ExactClock;

/// Draws commands for a store whose clock runs by itself, such as a database's.
#[derive(Debug)]
pub struct OwnClock;

macro_rules! drawn_from_the_model {
    ($($name:ident is exact: $exact:literal),*) => {$(
        impl ReferenceStateMachine for $name {
            type State = Model;
            type Transition = Command;

            fn init_state() -> BoxedStrategy<Model> {
                Just(Model::new($exact)).boxed()
            }

            fn transitions(model: &Model) -> BoxedStrategy<Command> {
                commands(model)
            }

            fn preconditions(model: &Model, command: &Command) -> bool {
                !Self::apply(model.clone(), command).repeats_a_version()
            }

            fn apply(mut model: Model, command: &Command) -> Model {
                model.step(command);
                model
            }
        }
    )*};
}

drawn_from_the_model!(ExactClock is exact: true, OwnClock is exact: false);
