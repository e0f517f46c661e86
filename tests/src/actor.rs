//! The part of the model that claims, owns, and concludes from what it finds.

use crate::command::{Fault, How, Policy, Step};
use crate::model::{Actor, Claim, Ending, Model, Reply, Write};
use crate::row::{Answer, ClaimNumber, HOUR, Micros, Place, Row, Status, Why};

/// What an owner knows.
#[derive(Debug, Clone)]
pub struct Held {
    place: Place,
    version: (ClaimNumber, Micros),
    created_at: Micros,
    expires_at: Micros,
    unresolved: u32,
    /// An effect had begun before this ownership did.
    begun_before: bool,
    /// An effect may have begun by now.
    begun: bool,
    /// The longest lease ever proposed.
    proposed: u32,
    /// By the clock that never steps back: when this ownership began.
    since: Micros,
    settlement_unknown: bool,
    waiting: Option<Waiting>,
}

/// A write that is not known to be there.
#[derive(Debug, Clone, Copy)]
enum Waiting {
    Progress(Step, u32),
    Settle(Ending, Micros),
}

/// What a claim that meets a row does.
enum Meeting {
    Hold,
    Replace(Row),
    Answer(Answer),
}

impl Held {
    /// Whether a write of this owner is not known to be there, so that it does nothing else.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.waiting.is_some()
    }
}

impl Claim {
    pub(crate) fn lease_millis(&self) -> u32 {
        if self.terms.leased { 3_600_000 } else { 0 }
    }

    fn kept_until(&self, clock: Micros) -> Micros {
        if self.terms.retained { clock + HOUR } else { clock }
    }

    fn window(&self) -> Micros {
        if self.terms.windowed { 23 * HOUR } else { 0 }
    }

    pub(crate) fn first_row(&self, clock: Micros) -> Row {
        Row {
            request: self.terms.request,
            status: Status::Working,
            attempt: 1,
            owner: self.number,
            locked_at: clock,
            lease_millis: self.lease_millis(),
            effect_begun: false,
            unresolved: 0,
            phase: None,
            created_at: clock,
            expires_at: self.kept_until(clock),
        }
    }

    /// The table of section 4, row by row.
    fn meets(&self, row: &Row, clock: Micros) -> Meeting {
        let same = row.request == self.terms.request;
        let working = row.status == Status::Working;
        let locked_at = if clock > row.locked_at { clock } else { row.locked_at + 1 };
        let locked_again = Row { locked_at, lease_millis: self.lease_millis(), ..row.clone() };
        let next_attempt = Row {
            status: Status::Working,
            attempt: row.attempt + 1,
            owner: self.number,
            expires_at: row.expires_at.max(self.kept_until(clock)),
            ..locked_again.clone()
        };
        if working && same && row.owner == self.number {
            return if row.alive(clock) { Meeting::Hold } else { Meeting::Replace(locked_again) };
        }
        if row.expired(clock) {
            let fresh = self.first_row(clock);
            return Meeting::Replace(Row { locked_at, created_at: locked_at, ..fresh });
        }
        if !same {
            return Meeting::Answer(Answer::Mismatch);
        }
        match row.status {
            Status::Done(answer) => Meeting::Answer(Answer::Replay(answer)),
            Status::Working if row.alive(clock) => {
                let age = (clock - row.locked_at).max(0) / 1_000;
                let left = (row.lease_end() - clock) / 1_000;
                let wait = age.min(10_000).min(left).max(1_000);
                Meeting::Answer(Answer::InProgress(row.locked_at, wait.unsigned_abs()))
            }
            Status::Failed if !row.effect_begun && row.unresolved == 0 => Meeting::Replace(next_attempt),
            Status::Working | Status::Failed => {
                let unresolved = if working { row.unresolved + 1 } else { row.unresolved.max(1) };
                match self.may_not_run(row, unresolved, clock) {
                    Some(why) => Meeting::Answer(Answer::Abandoned(why)),
                    None => Meeting::Replace(Row { unresolved, ..next_attempt }),
                }
            }
        }
    }

    fn may_not_run(&self, row: &Row, unresolved: u32, clock: Micros) -> Option<Why> {
        match self.terms.policy {
            Policy::Never => return Some(Why::NeverTakeOver),
            Policy::OnlyBeforeEffect if row.effect_begun => return Some(Why::EffectBegun),
            Policy::OnlyBeforeEffect | Policy::Resume => {}
        }
        if clock - row.created_at > self.window() {
            Some(Why::ProviderWindowOver)
        } else if unresolved >= self.terms.max_attempts {
            Some(Why::TooManyAttempts)
        } else {
            None
        }
    }
}

impl Model {
    pub(crate) fn ask(&mut self, actor: usize, claim: Claim, fault: Fault) -> Answer {
        match self.send(Write::Make(claim), fault) {
            Ok(Reply::Landed) => self.own(actor, claim.terms.place, claim.first_row(self.clock), 0),
            Ok(Reply::Found(found)) => self.meet(actor, claim, found),
            Err(answer) => {
                self.actors[actor] = Actor::Asking(claim);
                answer
            }
        }
    }

    pub(crate) fn take(&mut self, actor: usize, fault: Fault) -> Answer {
        let Actor::Deciding { claim, read, becomes } = self.actors[actor].clone() else { return Answer::Nothing };
        let place = claim.terms.place;
        match self.send(Write::Replace { place, read, becomes: becomes.clone() }, fault) {
            Ok(Reply::Landed) => self.own(actor, place, becomes, 0),
            Ok(Reply::Found(found)) => self.meet(actor, claim, found),
            Err(answer) => {
                self.actors[actor] = Actor::Asking(claim);
                answer
            }
        }
    }

    fn meet(&mut self, actor: usize, claim: Claim, found: Option<Row>) -> Answer {
        let Some(row) = found else {
            self.actors[actor] = Actor::Asking(claim);
            return Answer::Vanished;
        };
        match claim.meets(&row, self.clock) {
            Meeting::Hold => {
                let age = self.age(&row);
                self.own(actor, claim.terms.place, row, age)
            }
            Meeting::Replace(becomes) => {
                self.actors[actor] = Actor::Deciding { claim, read: row, becomes };
                Answer::WillSwap
            }
            Meeting::Answer(answer) => {
                self.actors[actor] = Actor::Idle;
                answer
            }
        }
    }

    /// How long ago an ownership began that the owner finds again. Not to be told without the store's clock.
    fn age(&self, row: &Row) -> Micros {
        if self.is_exact() { (self.clock - row.locked_at).max(0) } else { 0 }
    }

    fn own(&mut self, actor: usize, place: Place, row: Row, age: Micros) -> Answer {
        self.actors[actor] = Actor::Owning(Held {
            place,
            version: (row.owner, row.locked_at),
            created_at: row.created_at,
            expires_at: row.expires_at,
            unresolved: row.unresolved,
            begun_before: row.effect_begun,
            begun: row.effect_begun,
            proposed: row.lease_millis,
            since: self.uptime - age,
            settlement_unknown: false,
            waiting: None,
        });
        Answer::Granted(row)
    }

    fn idle_owner(&self, actor: usize) -> Option<Held> {
        match &self.actors[actor] {
            Actor::Owning(held) if !held.waits() => Some(held.clone()),
            Actor::Owning(_) | Actor::Idle | Actor::Asking(_) | Actor::Deciding { .. } => None,
        }
    }

    pub(crate) fn progress(&mut self, actor: usize, step: Step, fault: Fault) -> Answer {
        let Some(mut held) = self.idle_owner(actor) else { return Answer::Nothing };
        held.waiting = Some(Waiting::Progress(step, 0));
        self.send_waiting(actor, held, fault)
    }

    pub(crate) fn settle(&mut self, actor: usize, how: How, floor: bool, fault: Fault) -> Answer {
        let Some(mut held) = self.idle_owner(actor) else { return Answer::Nothing };
        let ending = match how {
            How::Complete(answer) => Ending::Done(answer),
            How::Abandon => Ending::Abandoned,
            How::Fail { verified: false } if held.begun => return Answer::RefusedForEffect,
            How::Fail { verified: false } if held.unresolved > 0 => return Answer::RefusedForPast,
            How::Fail { verified } => Ending::Failed { clear: verified && !held.begun_before },
        };
        let now = held.version.1 + (self.uptime - held.since);
        let expires_at = held.expires_at.max(if floor { now + HOUR } else { now });
        held.waiting = Some(Waiting::Settle(ending, expires_at));
        self.send_waiting(actor, held, fault)
    }

    pub(crate) fn resolve(&mut self, actor: usize, fault: Fault) -> Answer {
        let Actor::Owning(held) = self.actors[actor].clone() else { return Answer::Nothing };
        if !held.waits() {
            return Answer::Nothing;
        }
        let found = self.rows.get(&held.place).cloned();
        match self.conclude(actor, held, found) {
            Answer::StillMine | Answer::Adopted(_) => {}
            answer => return answer,
        }
        let Actor::Owning(held) = self.actors[actor].clone() else { return Answer::Nothing };
        self.send_waiting(actor, held, fault)
    }

    /// Sends what waits: progress with a longer lease than ever before, a settlement as it is.
    fn send_waiting(&mut self, actor: usize, mut held: Held, fault: Fault) -> Answer {
        let (place, version) = (held.place, held.version);
        let write = match held.waiting {
            None => return Answer::Nothing,
            Some(Waiting::Progress(step, _)) => {
                let wanted = u32::try_from((self.uptime - held.since + HOUR) / 1_000).unwrap_or(u32::MAX);
                held.proposed = wanted.max(held.proposed + 1);
                held.begun |= step == Step::BeginEffect;
                held.waiting = Some(Waiting::Progress(step, held.proposed));
                Write::Progress { place, version, lease_millis: held.proposed, step }
            }
            Some(Waiting::Settle(ending, expires_at)) => Write::Settle { place, version, ending, expires_at },
        };
        let settles = matches!(write, Write::Settle { .. });
        match self.send(write, fault) {
            Ok(Reply::Landed) => self.landed(actor, held),
            Ok(Reply::Found(found)) => self.conclude(actor, held, found),
            Err(answer) => {
                held.settlement_unknown |= settles && answer == Answer::Unknown;
                self.actors[actor] = Actor::Owning(held);
                answer
            }
        }
    }

    fn landed(&mut self, actor: usize, mut held: Held) -> Answer {
        self.actors[actor] = match held.waiting.take() {
            Some(Waiting::Settle(..)) => Actor::Idle,
            Some(Waiting::Progress(..)) | None => Actor::Owning(held),
        };
        Answer::Applied
    }

    /// What an owner concludes from the row that it finds instead of "done".
    fn conclude(&mut self, actor: usize, mut held: Held, found: Option<Row>) -> Answer {
        let Some(waiting) = held.waiting else { return Answer::Nothing };
        let mine = found.as_ref().is_some_and(|row| (row.owner, row.locked_at) == held.version);
        if let Some(row) = &found
            && !mine
            && row.owner == held.version.0
            && row.status == Status::Working
            && row.created_at == held.created_at
        {
            held.version.1 = row.locked_at;
            held.expires_at = row.expires_at;
            held.unresolved = row.unresolved;
            held.begun |= row.effect_begun;
            held.proposed = held.proposed.max(row.lease_millis);
            held.since = self.uptime - self.age(row);
            self.actors[actor] = Actor::Owning(held);
            return Answer::Adopted(row.clone());
        }
        let row = found.as_ref().filter(|_| mine);
        let working = row.is_some_and(|row| row.status == Status::Working);
        let lease = row.map_or(0, |row| row.lease_millis);
        let (there, may_send_again) = match waiting {
            Waiting::Progress(_, proposed) => (working && lease == proposed, working && lease > 0),
            Waiting::Settle(ending, _) => {
                let there = row.is_some_and(|row| match ending {
                    Ending::Done(answer) => row.status == Status::Done(answer),
                    Ending::Failed { .. } => row.status == Status::Failed,
                    Ending::Abandoned => working && lease == 0,
                });
                (there, working)
            }
        };
        if there {
            return self.landed(actor, held);
        }
        if may_send_again {
            self.actors[actor] = Actor::Owning(held);
            return Answer::StillMine;
        }
        self.actors[actor] = Actor::Idle;
        if held.settlement_unknown && !mine { Answer::SettlementUnknown } else { Answer::Fenced(found) }
    }
}
