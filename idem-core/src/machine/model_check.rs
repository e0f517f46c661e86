//! Every interleaving of a few owners with the real machine: claims, effects, settlements, lost and late messages,
//! crashes, a clock that steps back, expiry and purge.
//!
//! The model drives [`decide`], [`Change::apply`] and [`Ownership`] themselves, not a copy of them. What it adds is a
//! store that may lose a request, lose a reply or let a write land later, and owners that work by the rules of the
//! engine. Each [`Rule`] can be undone, and then a counterexample must turn up: a model that cannot fail proves
//! nothing.

use super::ownership::{ProgressVerdict, SettlementVerdict};
use super::{Change, Decision, Ownership, decide, reconcile};
use crate::claim::Claim;
use crate::fingerprint::{Candidates, Fingerprint};
use crate::key::{Identity, Key, Scope};
use crate::policy::Takeover;
use crate::record::{Owner, Record, Version};
use crate::response::Response;
use crate::time::{LeaseLength, Timestamp};
use stateright::{Checker, Model, Property};
use std::time::Duration;
use uuid::Uuid;

/// A rule that can be undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// Settling compares the owner too, not only `locked_at`.
    SettlingComparesOwner,
    /// Settling compares `locked_at` at all, not only the key.
    SettlingComparesVersion,
    /// A rival compares the lease as it was read.
    RivalComparesLease,
    /// A rival compares the status as it was read.
    RivalComparesStatus,
    /// `locked_at` grows by a microsecond at least.
    LockedAtGrows,
    /// After a settlement of unknown outcome a rival's row proves nothing.
    UnknownIsNotFenced,
    /// `NoEffect` is refused after `begin_effect`.
    NoEffectIsRefused,
    /// An owner marks an effect before it makes it.
    EffectIsMarkedFirst,
    /// A row in progress does not expire.
    UnresolvedDoesNotExpire,
    /// Nor does a failed one whose past is unknown.
    UnknownPastDoesNotExpire,
    /// An owner stops at its own deadline.
    OwnerStopsAtDeadline,
}

/// What the world is like.
#[derive(Debug, Clone)]
struct Rules {
    /// One policy for each owner.
    takeovers: &'static [Takeover],
    /// Which of them is no owner but a reconciler: it takes over what is stuck, whatever its policy, does nothing, and
    /// settles by what it sees.
    reconciler: Option<usize>,
    undone: Option<Rule>,
    last_tick: u8,
    steps_back: u8,
    /// How many messages may get lost or delayed in all.
    faults: u8,
    /// How long a settled record is kept, in ticks.
    retention: u64,
}

const TICK: Duration = Duration::from_millis(1);
const LEASE: Duration = Duration::from_millis(2);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    clock: u8,
    /// The owners' monotonic time, which never steps back.
    elapsed: u8,
    steps_back: u8,
    faults: u8,
    record: Option<Record>,
    owners: Vec<Actor>,
    /// Writes whose sender does not wait any more.
    late: Vec<(usize, Write)>,
    /// A new life begins with an insert or an expiry. Per life: effects made, and who completed it.
    lives: Vec<Life>,
    violation: Option<&'static str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Life {
    effects: u8,
    completed_by: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Write {
    Insert,
    Swap(Version, Change),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Actor {
    /// Asks by insert.
    Asks,
    /// Looks after something was lost.
    Looks,
    /// Has seen a row, at that clock and that time of its own.
    Saw(Record, u8, u8),
    Holds(Hold),
    /// Repeats a settlement until it knows.
    Settles {
        hold: Hold,
        change: Change,
        look: bool,
    },
    /// Repeats a mark until it knows.
    Marks {
        hold: Hold,
        change: Change,
    },
    Done,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Hold {
    ownership: Ownership,
    /// Microseconds of its own time when `locked_at` was.
    began: i64,
    life: usize,
    marked: bool,
    acted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Reply {
    Arrives,
    RequestLost,
    AnswerLost,
    LandsLate,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Step {
    Tick,
    ClockStepsBack,
    Land(usize),
    Purge,
    Ask(usize, Reply),
    Look(usize),
    Decide(usize, Reply),
    Mark(usize, Reply),
    Effect(usize),
    Complete(usize, Reply),
    Fail(usize, Reply),
    Abandon(usize, Reply),
    Crash(usize),
}

impl Rules {
    fn undone(&self, rule: Rule) -> bool {
        self.undone == Some(rule)
    }

    fn claim(&self, owner: usize) -> Claim {
        Claim::new(identity(), fingerprint(), self.takeovers[owner])
            .with_owner(Owner::from_uuid(Uuid::from_u128(owner as u128 + 1)))
            .with_lease(LeaseLength::from_duration(LEASE))
            .with_retention(TICK * u32::try_from(self.retention).unwrap())
    }

    /// What a write does at the store.
    fn land(&self, world: &mut World, owner: usize, write: &Write) -> bool {
        match write {
            Write::Insert if world.record.is_some() => false,
            Write::Insert => {
                world.record = Some(self.claim(owner).first_record(world.now()));
                world.lives.push(Life::default());
                true
            }
            Write::Swap(expected, change) => self.land_swap(world, owner, *expected, change.clone()),
        }
    }

    fn land_swap(&self, world: &mut World, owner: usize, mut expected: Version, mut change: Change) -> bool {
        let Some(before) = world.record.clone() else { return false };
        let settling = matches!(change, Change::Complete { .. } | Change::Fail { .. } | Change::Abandon);
        if settling && self.undone(Rule::SettlingComparesOwner) {
            expected.owner = before.version.owner;
        }
        if settling && self.undone(Rule::SettlingComparesVersion) {
            expected = before.version;
        }
        match &mut change {
            Change::Retry { read_lease, next }
            | Change::Relock { read_lease, next }
            | Change::Takeover { read_lease, next, .. }
            | Change::AsNew { read_lease, next, .. } => {
                if self.undone(Rule::RivalComparesLease) {
                    *read_lease = before.lease;
                }
                if self.undone(Rule::LockedAtGrows) {
                    next.version.locked_at = world.now();
                }
            }
            _ => {}
        }
        if let Change::Takeover { from, .. } = &mut change
            && self.undone(Rule::RivalComparesStatus)
        {
            *from = before.status();
        }
        let after = match change.apply(&before, &expected) {
            Some(after) => after,
            // The table refuses a takeover of a completed row by itself; undoing the comparison means to do it all the
            // same.
            None if self.undone(Rule::RivalComparesStatus) && before.version == expected => {
                let Change::Takeover { next, .. } = &change else { return false };
                Record { state: crate::State::InProgress, version: next.version, lease: next.lease, ..before.clone() }
            }
            None => return false,
        };
        let life = world.lives.len() - 1;
        if before.version != after.version && before.version.locked_at >= after.version.locked_at {
            world.violation = Some("the fencing token did not grow");
        }
        if matches!(change, Change::AsNew { .. }) {
            if before.status() == crate::Status::Failed && before.has_unknown_past() {
                world.violation = Some("what may have happened expired");
            }
            world.lives.push(Life::default());
        } else if before.status() == crate::Status::Completed {
            world.violation = Some("a completed record changed");
        }
        if matches!(change, Change::Complete { .. }) {
            if world.lives[life].completed_by.replace(owner).is_some() {
                world.violation = Some("a life was completed twice");
            }
            if before.version.owner != self.claim(owner).owner() {
                world.violation = Some("a late owner's completion was accepted");
            }
        }
        world.record = Some(after);
        true
    }

    /// Sends a write. `Ok` is the store's answer; `Err` is not knowing.
    fn send(&self, world: &mut World, owner: usize, write: Write, reply: Reply) -> Result<bool, ()> {
        if reply != Reply::Arrives {
            world.faults -= 1;
        }
        match reply {
            Reply::Arrives => Ok(self.land(world, owner, &write)),
            Reply::RequestLost => Err(()),
            Reply::AnswerLost => {
                self.land(world, owner, &write);
                Err(())
            }
            Reply::LandsLate => {
                world.late.push((owner, write));
                Err(())
            }
        }
    }

    fn grant(&self, world: &World, record: Record, age_at: (u8, u8)) -> Actor {
        let (clock, elapsed) = age_at;
        let age = at(clock).saturating_duration_since(record.version.locked_at);
        let began = i64::from(elapsed) * 1_000 - i64::try_from(age.as_micros()).unwrap();
        let hold =
            Hold { ownership: Ownership::new(record), began, life: world.lives.len() - 1, marked: false, acted: false };
        if hold.is_over(world) { Actor::Looks } else { Actor::Holds(hold) }
    }

    fn decide(
        &self,
        world: &mut World,
        owner: usize,
        (record, clock, elapsed): (Record, u8, u8),
        reply: Reply,
    ) -> Actor {
        if self.reconciler == Some(owner) {
            return self.reconcile(world, owner, (record, clock, elapsed), reply);
        }
        let forget = self.undone(Rule::UnknownPastDoesNotExpire) && record.status() == crate::Status::Failed;
        let known = Record { unresolved: 0, effect_begun: false, ..record.clone() };
        let mut decision = decide(if forget { &known } else { &record }, &self.claim(owner), at(clock));
        if self.undone(Rule::UnresolvedDoesNotExpire) && record.is_stale(at(clock)) && record.expires_at <= at(clock) {
            // Expired as new, whatever the policy says.
            let version = Version {
                locked_at: record.version.locked_at.saturating_add(Duration::from_micros(1)).max(at(clock)),
                owner: self.claim(owner).owner(),
            };
            if world.record.as_ref() == Some(&record) {
                world.record = Some(Record {
                    version,
                    lease: LeaseLength::from_duration(LEASE),
                    effect_begun: false,
                    unresolved: 0,
                    ..record
                });
                return self.grant(world, world.record.clone().unwrap(), (clock, elapsed));
            }
            decision = Decision::InProgress { since: at(clock), retry_after: TICK };
        }
        match decision {
            Decision::Acquired => self.grant(world, record, (clock, elapsed)),
            Decision::Swap { expected, change } => {
                self.take(world, owner, (record, clock, elapsed), (expected, change), reply)
            }
            Decision::Mismatch { .. } | Decision::UnknownFingerprint => unreachable!("one fingerprint"),
            Decision::Replay(_) | Decision::InProgress { .. } | Decision::Abandoned { .. } => Actor::Done,
        }
    }

    fn reconcile(
        &self,
        world: &mut World,
        owner: usize,
        (record, clock, elapsed): (Record, u8, u8),
        reply: Reply,
    ) -> Actor {
        let claim = self.claim(owner);
        if record.version.owner == claim.owner() && record.is_live(at(clock)) {
            return self.grant(world, record, (clock, elapsed));
        }
        let Some((expected, change)) = reconcile(&record, &claim, at(clock)) else { return Actor::Done };
        self.take(world, owner, (record, clock, elapsed), (expected, change), reply)
    }

    /// Sends the swap that makes the record, as it was seen, this owner's.
    fn take(
        &self,
        world: &mut World,
        owner: usize,
        (record, clock, elapsed): (Record, u8, u8),
        (expected, change): (Version, Change),
        reply: Reply,
    ) -> Actor {
        match self.send(world, owner, Write::Swap(expected, change.clone()), reply) {
            Ok(true) => {
                let mut after = change.apply(&record, &expected).unwrap_or_else(|| record.clone());
                if let Some(stored) = &world.record {
                    // Only where a rule is undone does the store hold something else than the owner proposed.
                    after = stored.clone();
                }
                self.grant(world, after, (clock, elapsed))
            }
            Ok(false) | Err(()) => Actor::Looks,
        }
    }

    /// An owner that looked, or got "lost" as an answer, concludes what became of its settlement.
    fn conclude(&self, world: &mut World, owner: usize, hold: Hold, change: Change) -> Actor {
        let completes = matches!(change, Change::Complete { .. });
        match hold.ownership.judge_settlement(&change, world.record.as_ref()) {
            SettlementVerdict::Applied => self.told_recorded(world, owner, &hold, completes),
            SettlementVerdict::SendAgain => Actor::Settles { hold, change, look: false },
            SettlementVerdict::Adopt(record) => {
                let mut hold = hold;
                hold.ownership.adopt(record);
                Actor::Settles { hold, change, look: false }
            }
            SettlementVerdict::Fenced(_) => {
                if completes && world.lives[hold.life].completed_by == Some(owner) {
                    world.violation = Some("an owner was told that it is fenced, but its completion is recorded");
                }
                Actor::Done
            }
            SettlementVerdict::Unknown => Actor::Done,
        }
    }

    fn told_recorded(&self, world: &mut World, owner: usize, hold: &Hold, completes: bool) -> Actor {
        if completes && world.lives[hold.life].completed_by != Some(owner) {
            world.violation = Some("an owner was told that its completion is recorded, but it is not");
        }
        Actor::Done
    }

    fn settle(&self, world: &mut World, owner: usize, mut hold: Hold, change: Change, reply: Reply) -> Actor {
        let write = Write::Swap(hold.ownership.version(), change.clone());
        match self.send(world, owner, write, reply) {
            Ok(true) => {
                let completes = matches!(change, Change::Complete { .. });
                self.told_recorded(world, owner, &hold, completes)
            }
            Ok(false) => self.conclude(world, owner, hold, change),
            Err(()) => {
                if !self.undone(Rule::UnknownIsNotFenced) {
                    hold.ownership.settlement_became_unknown();
                }
                Actor::Settles { hold, change, look: true }
            }
        }
    }

    fn mark(&self, world: &mut World, owner: usize, mut hold: Hold, reply: Reply) -> Actor {
        let change = hold.ownership.begin_effect(hold.elapsed(world), LEASE);
        let write = Write::Swap(hold.ownership.version(), change.clone());
        match self.send(world, owner, write, reply) {
            Ok(true) => {
                hold.ownership.landed(&change);
                hold.marked = true;
                Actor::Holds(hold)
            }
            Ok(false) => judge_mark(world, hold, &change),
            Err(()) => Actor::Marks { hold, change },
        }
    }
}

fn judge_mark(world: &World, mut hold: Hold, change: &Change) -> Actor {
    match hold.ownership.judge_progress(change, world.record.as_ref()) {
        ProgressVerdict::Applied => {
            hold.ownership.landed(change);
            hold.marked = true;
            Actor::Holds(hold)
        }
        ProgressVerdict::SendAgain => Actor::Holds(hold),
        ProgressVerdict::Adopt(record) => {
            let age = world.now().saturating_duration_since(record.version.locked_at);
            hold.began = i64::from(world.elapsed) * 1_000 - i64::try_from(age.as_micros()).unwrap();
            hold.ownership.adopt(record);
            Actor::Holds(hold)
        }
        ProgressVerdict::Fenced(_) => Actor::Done,
    }
}

impl Hold {
    fn elapsed(&self, world: &World) -> Duration {
        Duration::from_micros(u64::try_from(i64::from(world.elapsed) * 1_000 - self.began).unwrap_or(0))
    }

    fn is_over(&self, world: &World) -> bool {
        self.elapsed(world) >= self.ownership.record().lease.as_duration()
    }
}

impl World {
    fn now(&self) -> Timestamp {
        at(self.clock)
    }
}

fn at(clock: u8) -> Timestamp {
    Timestamp::from_micros(i64::from(clock) * 1_000)
}

fn identity() -> Identity {
    Identity::new(Scope::new("s").unwrap(), Key::new("k").unwrap())
}

fn fingerprint() -> Candidates {
    Fingerprint::builder("POST /charges").finish().unwrap()
}

impl Model for Rules {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            clock: 1,
            elapsed: 1,
            steps_back: self.steps_back,
            faults: self.faults,
            record: None,
            owners: (0..self.takeovers.len())
                .map(|owner| if self.reconciler == Some(owner) { Actor::Looks } else { Actor::Asks })
                .collect(),
            late: vec![],
            lives: vec![],
            violation: None,
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        if world.violation.is_some() {
            return;
        }
        if world.elapsed < self.last_tick {
            steps.push(Step::Tick);
        }
        if world.steps_back > 0 && world.clock > 0 {
            steps.push(Step::ClockStepsBack);
        }
        if world.record.as_ref().is_some_and(|record| record.is_expired(world.now())) {
            steps.push(Step::Purge);
        }
        steps.extend((0..world.late.len()).map(Step::Land));
        let replies: &[Reply] = if world.faults > 0 {
            &[Reply::Arrives, Reply::RequestLost, Reply::AnswerLost, Reply::LandsLate]
        } else {
            &[Reply::Arrives]
        };
        for (owner, actor) in world.owners.iter().enumerate() {
            let mut each =
                |step: fn(usize, Reply) -> Step| steps.extend(replies.iter().map(|reply| step(owner, *reply)));
            match actor {
                Actor::Asks => each(Step::Ask),
                Actor::Looks | Actor::Settles { look: true, .. } | Actor::Marks { .. } => steps.push(Step::Look(owner)),
                Actor::Saw(..) => each(Step::Decide),
                Actor::Settles { change: Change::Complete { .. }, .. } => each(Step::Complete),
                Actor::Settles { change: Change::Fail { .. }, .. } => each(Step::Fail),
                Actor::Settles { .. } => each(Step::Abandon),
                Actor::Holds(hold) => {
                    let over = hold.is_over(world) && !self.undone(Rule::OwnerStopsAtDeadline);
                    let skip_mark = self.undone(Rule::EffectIsMarkedFirst);
                    let reconciles = self.reconciler == Some(owner);
                    if !hold.marked && !over && !skip_mark && !reconciles {
                        each(Step::Mark);
                    }
                    if hold.acted || reconciles && world.lives[hold.life].effects > 0 {
                        each(Step::Complete);
                    }
                    // Who verifies sees the truth of this moment; who does not is refused if anything may have
                    // happened.
                    let verified = world.lives[hold.life].effects == 0;
                    let allowed = hold.ownership.fail(verified, Duration::ZERO, Duration::ZERO).is_ok();
                    if allowed || self.undone(Rule::NoEffectIsRefused) {
                        each(Step::Fail);
                    }
                    each(Step::Abandon);
                    if (hold.marked || skip_mark) && !hold.acted && !over && !reconciles {
                        steps.push(Step::Effect(owner));
                    }
                    steps.push(Step::Crash(owner));
                }
                Actor::Done => {}
            }
        }
    }

    fn next_state(&self, before: &World, step: Step) -> Option<World> {
        let mut world = before.clone();
        let owner = match step {
            Step::Tick => {
                world.clock += 1;
                world.elapsed += 1;
                return Some(world);
            }
            Step::ClockStepsBack => {
                world.clock -= 1;
                world.steps_back -= 1;
                return Some(world);
            }
            Step::Land(index) => {
                let (owner, write) = world.late.remove(index);
                self.land(&mut world, owner, &write);
                return Some(world);
            }
            Step::Purge => {
                world.record = None;
                return Some(world);
            }
            Step::Ask(owner, _)
            | Step::Look(owner)
            | Step::Decide(owner, _)
            | Step::Mark(owner, _)
            | Step::Effect(owner)
            | Step::Complete(owner, _)
            | Step::Fail(owner, _)
            | Step::Abandon(owner, _)
            | Step::Crash(owner) => owner,
        };
        let actor = std::mem::replace(&mut world.owners[owner], Actor::Done);
        let seen = |world: &World| match &world.record {
            Some(record) => Actor::Saw(record.clone(), world.clock, world.elapsed),
            // A reconciler makes no record.
            None if self.reconciler == Some(owner) => Actor::Looks,
            None => Actor::Asks,
        };
        let next = match (step, actor) {
            (Step::Ask(_, reply), _) => match self.send(&mut world, owner, Write::Insert, reply) {
                Ok(true) => self.grant(&world, world.record.clone()?, (world.clock, world.elapsed)),
                Ok(false) => seen(&world),
                Err(()) => Actor::Asks,
            },
            (Step::Look(_), Actor::Looks) => seen(&world),
            (Step::Look(_), Actor::Marks { hold, change }) => judge_mark(&world, hold, &change),
            (Step::Look(_), Actor::Settles { hold, change, .. }) => self.conclude(&mut world, owner, hold, change),
            (Step::Decide(_, reply), Actor::Saw(record, clock, elapsed)) => {
                self.decide(&mut world, owner, (record, clock, elapsed), reply)
            }
            (Step::Mark(_, reply), Actor::Holds(hold)) => self.mark(&mut world, owner, hold, reply),
            (Step::Effect(_), Actor::Holds(mut hold)) => {
                hold.acted = true;
                world.lives[hold.life].effects += 1;
                Actor::Holds(hold)
            }
            (Step::Complete(_, reply), Actor::Holds(hold)) => {
                let response = Response::new(200, vec![u8::try_from(owner).unwrap()]);
                let change = hold.ownership.complete(response, hold.elapsed(&world), Duration::ZERO);
                self.settle(&mut world, owner, hold, change, reply)
            }
            (Step::Fail(_, reply), Actor::Holds(hold)) => {
                let undone = self.undone(Rule::NoEffectIsRefused);
                let verified = world.lives[hold.life].effects == 0 || undone;
                let change = hold.ownership.fail(verified, hold.elapsed(&world), Duration::ZERO).ok()?;
                self.settle(&mut world, owner, hold, change, reply)
            }
            (Step::Abandon(_, reply), Actor::Holds(hold)) => {
                self.settle(&mut world, owner, hold, Change::Abandon, reply)
            }
            (
                Step::Complete(_, reply) | Step::Fail(_, reply) | Step::Abandon(_, reply),
                Actor::Settles { hold, change, .. },
            ) => self.settle(&mut world, owner, hold, change, reply),
            (Step::Crash(_), _) => Actor::Done,
            (step, actor) => unreachable!("{step:?} in {actor:?}"),
        };
        world.owners[owner] = next;
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no rule is broken", |_, world: &World| world.violation.is_none()),
            Property::always("one effect in a life, unless the policy resumes", |rules: &Self, world: &World| {
                rules.takeovers.contains(&Takeover::Resume) || world.lives.iter().all(|life| life.effects <= 1)
            }),
            Property::always(
                "one owner at work at a time, unless the clock stepped back",
                |rules: &Self, world: &World| {
                    let at_work = |actor: &&Actor| matches!(actor, Actor::Holds(hold) if !hold.is_over(world) || rules.undone(Rule::OwnerStopsAtDeadline));
                    world.steps_back < rules.steps_back || world.owners.iter().filter(at_work).count() <= 1
                },
            ),
            Property::sometimes("a takeover", |_, world: &World| {
                world.record.as_ref().is_some_and(|record| record.unresolved > 0)
            }),
            Property::sometimes("a completion", |_, world: &World| {
                world.lives.iter().any(|life| life.completed_by.is_some())
            }),
        ]
    }
}

const RESUME: &[Takeover] = &[Takeover::Resume; 2];
const NEVER: &[Takeover] = &[Takeover::Never; 2];
const BEFORE_EFFECT: &[Takeover] = &[Takeover::OnlyBeforeEffect; 2];
const MIXED: &[Takeover] = &[Takeover::OnlyBeforeEffect, Takeover::Resume];
const THREE_NEVER: &[Takeover] = &[Takeover::Never; 3];
const THREE_BEFORE_EFFECT: &[Takeover] = &[Takeover::OnlyBeforeEffect; 3];
const THREE_RESUME: &[Takeover] = &[Takeover::Resume; 3];
const THREE_MIXED: &[Takeover] = &[Takeover::OnlyBeforeEffect, Takeover::Resume, Takeover::OnlyBeforeEffect];

fn rules(takeovers: &'static [Takeover]) -> Rules {
    // Three owners make enough interleavings by themselves.
    let trouble = u8::from(takeovers.len() == 2);
    Rules {
        takeovers,
        reconciler: None,
        undone: None,
        last_tick: 4,
        steps_back: trouble,
        faults: trouble,
        retention: 1,
    }
}

fn check(rules: Rules) -> (usize, Vec<&'static str>) {
    let checker = rules.checker().threads(2).spawn_bfs().join();
    let mut broken: Vec<_> = checker.discoveries().into_keys().filter(|name| !name.starts_with("a ")).collect();
    broken.sort_unstable();
    for name in ["a takeover", "a completion"] {
        if broken.is_empty() && (name != "a takeover" || checker.model().takeovers != NEVER) {
            assert!(checker.discovery(name).is_some(), "{name} is never reached: the model is too small");
        }
    }
    if let Some(name) = broken.first()
        && checker.model().undone.is_none()
    {
        checker.assert_no_discovery(name);
    }
    (checker.unique_state_count(), broken)
}

#[test]
fn every_interleaving_of_two_owners_keeps_every_rule() {
    for takeovers in [RESUME, BEFORE_EFFECT, NEVER, MIXED] {
        let (states, broken) = check(rules(takeovers));
        assert!(broken.is_empty(), "{takeovers:?}: {broken:?}");
        assert!(states > 10_000, "{takeovers:?}: only {states} states");
    }
}

#[test]
fn every_interleaving_of_three_owners_keeps_every_rule() {
    for takeovers in [THREE_RESUME, THREE_MIXED] {
        let (states, broken) = check(rules(takeovers));
        assert!(broken.is_empty(), "{takeovers:?}: {broken:?}");
        assert!(states > 10_000, "{takeovers:?}: only {states} states");
    }
}

/// A reconciler beside two owners: what an owner did is never done again because somebody looked.
#[test]
fn every_interleaving_with_a_reconciler_keeps_every_rule() {
    for takeovers in [THREE_NEVER, THREE_BEFORE_EFFECT, THREE_RESUME] {
        let (states, broken) = check(Rules { reconciler: Some(2), ..rules(takeovers) });
        assert!(broken.is_empty(), "{takeovers:?}: {broken:?}");
        assert!(states > 10_000, "{takeovers:?}: only {states} states");
    }
}

/// Each rule undone gives a counterexample, so each is needed, and the model would notice if the machine lost it.
#[test]
fn every_rule_undone_gives_a_counterexample() {
    let undone = [
        (Rule::SettlingComparesOwner, RESUME),
        (Rule::SettlingComparesVersion, RESUME),
        (Rule::RivalComparesLease, RESUME),
        (Rule::RivalComparesStatus, RESUME),
        (Rule::LockedAtGrows, RESUME),
        (Rule::UnknownIsNotFenced, RESUME),
        (Rule::NoEffectIsRefused, NEVER),
        (Rule::EffectIsMarkedFirst, BEFORE_EFFECT),
        (Rule::UnresolvedDoesNotExpire, NEVER),
        (Rule::UnknownPastDoesNotExpire, THREE_MIXED),
        (Rule::OwnerStopsAtDeadline, RESUME),
    ];
    for (rule, takeovers) in undone {
        let (_, broken) = check(Rules { undone: Some(rule), ..rules(takeovers) });
        assert!(!broken.is_empty(), "nothing depends on {rule:?}");
    }
}
