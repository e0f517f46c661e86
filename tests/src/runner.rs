//! What comes of every [`Command`] on a real store, driven with `idem-core`'s public functions as an engine does.

use crate::command::{ACTORS, Command, Fault, How, Step};
use crate::row::{Answer, ClaimNumber, HOUR, Micros, PLACES, Place, Row};
use crate::words::{answer_in, claim, failed, identity, micros, recovery_point, refusal, response, row, scope, why};
use idem_core::conformance::{CallKind, FaultPlan, FaultStore, Injection};
use idem_core::fingerprint::Part;
use idem_core::machine::{Change, Decision, Ownership, ProgressVerdict, SettlementVerdict, decide};
use idem_core::store::{Erase, Inserted, PurgeOptions, StuckQuery, Swapped, UnresolvedRows};
use idem_core::{Claim, Clock, ManualClock, Owner, Record, Store, Timestamp, Version, WriteOutcome};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Whose clock the store reads.
#[derive(Debug, Clone)]
pub enum Time {
    /// The test's: instants are compared to the microsecond.
    Ours(ManualClock),
    /// Its own: only what is over and what is not is compared.
    Its,
}

/// A store and the actors that use it.
pub struct Runner {
    store: FaultStore<Arc<dyn Store>>,
    time: Time,
    uptime: Micros,
    parties: [Party; ACTORS],
    claims: HashMap<Owner, ClaimNumber>,
}

/// What an actor is about.
enum Party {
    Idle,
    Asking(Claim),
    Deciding { claim: Claim, read: Box<Record>, expected: Version, change: Change },
    Owning(Box<Owning>),
}

struct Owning {
    place: Place,
    ownership: Ownership,
    since: Micros,
    waiting: Option<Waiting>,
}

enum Waiting {
    Progress { step: Step, sent: Change },
    Settle(Change),
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").field("store", &self.store).field("time", &self.time).finish_non_exhaustive()
    }
}

impl Runner {
    /// A runner on an empty store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, time: Time) -> Self {
        Self {
            store: FaultStore::new(store, FaultPlan::none()),
            time,
            uptime: 0,
            parties: std::array::from_fn(|_| Party::Idle),
            claims: HashMap::new(),
        }
    }

    /// Does what `command` says.
    ///
    /// # Panics
    ///
    /// If the store fails when it was not made to, or says something that nothing here could have written.
    pub async fn step(&mut self, command: &Command) -> Answer {
        match *command {
            Command::Ask { actor, terms, fault } => {
                if !matches!(self.parties[actor], Party::Idle) {
                    return Answer::Nothing;
                }
                let claim = claim(terms);
                let number = ClaimNumber::try_from(self.claims.len()).expect("there are few") + 1;
                self.claims.insert(claim.owner(), number);
                self.ask(actor, claim, fault).await
            }
            Command::AskAgain { actor, fault } => match self.put_down(actor) {
                Party::Asking(claim) | Party::Deciding { claim, .. } => self.ask(actor, claim, fault).await,
                party @ (Party::Idle | Party::Owning(_)) => {
                    self.parties[actor] = party;
                    Answer::Nothing
                }
            },
            Command::Take { actor, fault } => self.take(actor, fault).await,
            Command::Progress { actor, step, fault } => self.progress(actor, step, fault).await,
            Command::Settle { actor, how, floor, fault } => self.settle(actor, how, floor, fault).await,
            Command::Resolve { actor, fault } => self.resolve(actor, fault).await,
            Command::Die { actor } => {
                self.parties[actor] = Party::Idle;
                Answer::Nothing
            }
            Command::Load(place) => {
                let loaded = self.store.load(&identity(place)).await.expect("nothing is wrong");
                Answer::Found(self.row_if_any(loaded.record.as_deref()))
            }
            Command::Purge { batch, unresolved_after } => self.purge(batch, unresolved_after).await,
            Command::Erase { scope: number, everything } => {
                let which = if everything { Erase::Everything } else { Erase::Settled };
                let erased = self.store.erase(&scope(number), which).await.expect("nothing is wrong");
                Answer::Erased(erased.deleted, erased.kept)
            }
            Command::Stuck { page } => self.stuck(page).await,
            Command::Stats => {
                let stats = self.store.stats().await.expect("nothing is wrong");
                Answer::Counted([stats.live, stats.stale, stats.completed, stats.failed, stats.stuck, stats.expired])
            }
            Command::LandLate => {
                self.store.land_all().await;
                Answer::Nothing
            }
            Command::MoveClock(by) => {
                if let Time::Ours(clock) = &self.time {
                    clock.set(Timestamp::from_micros(clock.now().as_micros() + by));
                    self.uptime += by.max(0);
                }
                Answer::Nothing
            }
        }
    }

    /// Every row of the store, and its clock, read without a fault.
    ///
    /// # Panics
    ///
    /// If the store fails, or holds something that nothing here could have written.
    pub async fn rows(&self) -> (BTreeMap<Place, Row>, Micros) {
        let mut rows = BTreeMap::new();
        let mut clock = 0;
        for place in 0..PLACES {
            let loaded = self.store.inner().load(&identity(place)).await.expect("nothing is wrong");
            clock = loaded.clock.as_micros();
            if let Some(record) = loaded.record {
                rows.insert(place, self.row(&record));
            }
        }
        (rows, clock)
    }

    fn put_down(&mut self, actor: usize) -> Party {
        std::mem::replace(&mut self.parties[actor], Party::Idle)
    }

    fn arm(&self, fault: Fault) {
        let injection = match fault {
            Fault::None => return self.store.set_plan(FaultPlan::none()),
            Fault::Refuse => Injection::Refuse,
            Fault::LoseRequest => Injection::LoseRequest,
            Fault::LoseReply => Injection::LoseReply,
            // When it lands is a command's to say.
            Fault::LandLate => Injection::LandLate { after_calls: u64::MAX / 2 },
        };
        self.store.set_plan(FaultPlan::none().on(CallKind::Any, 1, injection));
    }

    async fn ask(&mut self, actor: usize, mut claim: Claim, fault: Fault) -> Answer {
        self.arm(fault);
        let answer = self.store.insert(&claim).await;
        claim.mark_asked();
        match answer {
            Ok(Inserted::Won(version)) => self.own(actor, &claim, claim.first_record(version.locked_at), 0),
            Ok(Inserted::Existing(record, clock)) => self.meet(actor, claim, Some(record), clock),
            Ok(Inserted::Busy { .. }) => panic!("only a cache says that"),
            Err(error) => {
                self.parties[actor] = Party::Asking(claim);
                failed(&error)
            }
        }
    }

    async fn take(&mut self, actor: usize, fault: Fault) -> Answer {
        let (claim, read, expected, change) = match self.put_down(actor) {
            Party::Deciding { claim, read, expected, change } => (claim, read, expected, change),
            party @ (Party::Idle | Party::Asking(_) | Party::Owning(_)) => {
                self.parties[actor] = party;
                return Answer::Nothing;
            }
        };
        self.arm(fault);
        match self.store.swap(claim.identity(), &expected, &change).await {
            Ok(Swapped::Applied) => {
                let record = change.apply(&read, &expected).expect("it was decided from this record");
                self.own(actor, &claim, record, 0)
            }
            Ok(Swapped::Lost(found, clock)) => self.meet(actor, claim, found, clock),
            Err(error) => {
                self.parties[actor] = Party::Asking(claim);
                failed(&error)
            }
        }
    }

    fn meet(&mut self, actor: usize, claim: Claim, found: Option<Box<Record>>, clock: Timestamp) -> Answer {
        let Some(record) = found else {
            self.parties[actor] = Party::Asking(claim);
            return Answer::Vanished;
        };
        match decide(&record, &claim, clock) {
            Decision::Acquired => {
                let age = self.age(&record, clock);
                self.own(actor, &claim, *record, age)
            }
            Decision::Swap { expected, change } => {
                self.parties[actor] = Party::Deciding { claim, read: record, expected, change };
                Answer::WillSwap
            }
            Decision::Mismatch { part } => {
                assert_eq!(part, Some(Part::Body), "that is what differs");
                Answer::Mismatch
            }
            Decision::UnknownFingerprint => panic!("there is one scheme"),
            Decision::Replay(stored) => Answer::Replay(answer_in(&stored)),
            Decision::InProgress { since, retry_after } => {
                Answer::InProgress(since.as_micros(), u64::try_from(retry_after.as_millis()).expect("it is short"))
            }
            Decision::Abandoned { reason } => Answer::Abandoned(why(reason)),
        }
    }

    fn own(&mut self, actor: usize, claim: &Claim, record: Record, age: Micros) -> Answer {
        let row = self.row(&record);
        let place = (0..PLACES).find(|place| identity(*place) == *claim.identity()).expect("it is one of them");
        let ownership = Ownership::new(record);
        self.parties[actor] =
            Party::Owning(Box::new(Owning { place, ownership, since: self.uptime - age, waiting: None }));
        Answer::Granted(row)
    }

    /// How long ago an ownership began that its owner finds again; what a test cannot know of a running clock is zero.
    fn age(&self, record: &Record, clock: Timestamp) -> Micros {
        match self.time {
            Time::Ours(_) => {
                let age = clock.saturating_duration_since(record.version.locked_at).as_micros();
                Micros::try_from(age).expect("it is short")
            }
            Time::Its => 0,
        }
    }

    fn owning(&mut self, actor: usize, waits: bool) -> Option<Box<Owning>> {
        match self.put_down(actor) {
            Party::Owning(owning) if owning.waiting.is_some() == waits => Some(owning),
            party => {
                self.parties[actor] = party;
                None
            }
        }
    }

    async fn progress(&mut self, actor: usize, step: Step, fault: Fault) -> Answer {
        let Some(mut owning) = self.owning(actor, false) else { return Answer::Nothing };
        owning.propose(step, self.uptime);
        self.send(actor, owning, fault).await
    }

    async fn settle(&mut self, actor: usize, how: How, floor: bool, fault: Fault) -> Answer {
        let Some(mut owning) = self.owning(actor, false) else { return Answer::Nothing };
        let elapsed = micros(self.uptime - owning.since);
        let replay_floor = if floor { micros(HOUR) } else { Duration::ZERO };
        let change = match how {
            How::Complete(answer) => Ok(owning.ownership.complete(response(answer), elapsed, replay_floor)),
            How::Fail { verified } => owning.ownership.fail(verified, elapsed, replay_floor),
            How::Abandon => Ok(Change::Abandon),
        };
        match change {
            Ok(change) => {
                owning.waiting = Some(Waiting::Settle(change));
                self.send(actor, owning, fault).await
            }
            Err(refused) => {
                self.parties[actor] = Party::Owning(owning);
                refusal(refused)
            }
        }
    }

    async fn resolve(&mut self, actor: usize, fault: Fault) -> Answer {
        let Some(owning) = self.owning(actor, true) else { return Answer::Nothing };
        self.arm(Fault::None);
        let loaded = self.store.load(&identity(owning.place)).await.expect("nothing is wrong");
        match self.conclude(actor, owning, loaded.record.as_deref(), loaded.clock) {
            Answer::StillMine | Answer::Adopted(_) => {}
            answer => return answer,
        }
        let Some(mut owning) = self.owning(actor, true) else { return Answer::Nothing };
        if let Some(Waiting::Progress { step, .. }) = owning.waiting {
            owning.propose(step, self.uptime);
        }
        self.send(actor, owning, fault).await
    }

    async fn send(&mut self, actor: usize, mut owning: Box<Owning>, fault: Fault) -> Answer {
        self.arm(fault);
        let (version, change) = (owning.ownership.version(), owning.change());
        match self.store.swap(&identity(owning.place), &version, &change).await {
            Ok(Swapped::Applied) => self.landed(actor, owning),
            Ok(Swapped::Lost(found, clock)) => self.conclude(actor, owning, found.as_deref(), clock),
            Err(error) => {
                if matches!(owning.waiting, Some(Waiting::Settle(_))) && error.write_outcome() == WriteOutcome::Unknown
                {
                    owning.ownership.settlement_became_unknown();
                }
                self.parties[actor] = Party::Owning(owning);
                failed(&error)
            }
        }
    }

    fn landed(&mut self, actor: usize, mut owning: Box<Owning>) -> Answer {
        if let Some(Waiting::Progress { sent, .. }) = owning.waiting.take() {
            owning.ownership.landed(&sent);
            self.parties[actor] = Party::Owning(owning);
        }
        Answer::Applied
    }

    fn conclude(&mut self, actor: usize, mut owning: Box<Owning>, found: Option<&Record>, clock: Timestamp) -> Answer {
        let change = owning.change();
        let verdict = match owning.waiting {
            Some(Waiting::Settle(_)) => owning.ownership.judge_settlement(&change, found),
            Some(Waiting::Progress { .. }) | None => match owning.ownership.judge_progress(&change, found) {
                ProgressVerdict::Applied => SettlementVerdict::Applied,
                ProgressVerdict::SendAgain => SettlementVerdict::SendAgain,
                ProgressVerdict::Adopt(record) => SettlementVerdict::Adopt(record),
                ProgressVerdict::Fenced(found) => SettlementVerdict::Fenced(found),
            },
        };
        match verdict {
            SettlementVerdict::Applied => self.landed(actor, owning),
            SettlementVerdict::SendAgain => {
                self.parties[actor] = Party::Owning(owning);
                Answer::StillMine
            }
            SettlementVerdict::Adopt(record) => {
                let row = self.row(&record);
                owning.since = self.uptime - self.age(&record, clock);
                owning.ownership.adopt(record);
                self.parties[actor] = Party::Owning(owning);
                Answer::Adopted(row)
            }
            SettlementVerdict::Fenced(found) => Answer::Fenced(self.row_if_any(found.as_ref())),
            SettlementVerdict::Unknown => Answer::SettlementUnknown,
        }
    }

    async fn purge(&mut self, batch: usize, unresolved_after: Option<Micros>) -> Answer {
        let unresolved =
            unresolved_after.map_or(UnresolvedRows::Keep, |after| UnresolvedRows::DropAfter(micros(after)));
        let options = PurgeOptions::default().with_batch(batch).with_unresolved(unresolved);
        let (mut settled, mut unresolved) = (0, 0);
        loop {
            let purged = self.store.purge(&options).await.expect("nothing is wrong");
            assert!(purged.total() <= batch as u64, "a batch is a batch");
            settled += purged.settled;
            unresolved += purged.unresolved;
            if purged.total() == 0 {
                return Answer::Purged(settled, unresolved);
            }
        }
    }

    async fn stuck(&mut self, page: usize) -> Answer {
        let mut places = Vec::new();
        let mut query = StuckQuery::default().with_limit(page);
        loop {
            let found = self.store.stuck(&query).await.expect("nothing is wrong");
            assert!(found.records.len() <= page, "a page is a page");
            places.extend(found.records.iter().map(|stuck| {
                (0..PLACES).find(|place| identity(*place) == stuck.identity).expect("nothing else was claimed")
            }));
            match found.next {
                Some(next) => query = query.after(next),
                None => return Answer::Stuck(places),
            }
        }
    }

    fn row_if_any(&self, record: Option<&Record>) -> Option<Row> {
        record.map(|record| self.row(record))
    }

    fn row(&self, record: &Record) -> Row {
        row(record, *self.claims.get(&record.version.owner).expect("nobody else claims"))
    }
}

impl Owning {
    fn propose(&mut self, step: Step, uptime: Micros) {
        let (elapsed, length) = (micros(uptime - self.since), micros(HOUR));
        let sent = match step {
            Step::Renew => self.ownership.renew(elapsed, length),
            Step::BeginEffect => self.ownership.begin_effect(elapsed, length),
            Step::Checkpoint(phase) => self.ownership.checkpoint(recovery_point(phase), elapsed, length),
        };
        self.waiting = Some(Waiting::Progress { step, sent });
    }

    fn change(&self) -> Change {
        match &self.waiting {
            Some(Waiting::Progress { sent, .. }) => sent.clone(),
            Some(Waiting::Settle(change)) => change.clone(),
            None => Change::Abandon,
        }
    }
}
