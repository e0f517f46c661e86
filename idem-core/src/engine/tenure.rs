//! One ownership at work: [`Tenure`] sends what [`Ownership`] proposes and acts on what it concludes.

use super::calls::{pauses, until, worth_repeating};
use super::clock::{Anchor, Instant, now};
use super::events;
use super::outcome::Interrupted;
use super::shared::Shared;
use crate::error::{Error, ErrorKind, WriteOutcome};
use crate::key::Identity;
use crate::machine::{Change, Completion, NoEffectRefused, Ownership, ProgressVerdict, SettlementVerdict};
use crate::policy::Policy;
use crate::record::{Record, RecoveryPoint, State, Version};
use crate::response::Response;
use crate::store::Swapped;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{self, Arc, PoisonError};
use std::time::Duration;
use tokio::sync::{Mutex, Notify};
use tokio::time::sleep;

/// An ownership that this process holds, until it is settled or lost.
#[derive(Debug)]
pub(super) struct Tenure {
    shared: Arc<Shared>,
    policy: Arc<Policy>,
    identity: Identity,
    /// The record as it was granted: attempt, recovery point and what is known of the past do not change under an
    /// owner.
    granted: Record,
    /// Held over a write, so that at most one is in flight.
    work: Mutex<Work>,
    standing: sync::Mutex<Standing>,
    /// Whoever waits until the owner is told to stop.
    told: Notify,
    /// Whether a transaction of the caller's writes the completion.
    joined: AtomicBool,
}

#[derive(Debug)]
struct Work {
    ownership: Ownership,
    anchor: Anchor,
}

/// What handler and keeper look at without waiting for a write.
#[derive(Debug, Clone, Copy)]
struct Standing {
    version: Version,
    began: Instant,
    deadline: Instant,
    /// Whether the owner was told to stop, or has settled.
    over: bool,
}

/// How a settlement ended.
#[derive(Debug)]
pub(super) enum Settled {
    /// It is stored.
    Recorded,
    /// Somebody else has the key, and this settlement changed nothing. Their row, if there is one.
    Fenced(Option<Box<Record>>),
    /// Nobody knows whether it is stored.
    Unknown(Error),
    /// It was to be stored by a transaction of the caller's, which was not committed. The key is abandoned.
    NotCommitted,
}

/// What a renewal came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Renewal {
    Extended,
    /// The lease reaches to the end of the longest run that is allowed: there is nothing left to extend.
    AtMaxRun,
    /// The caller's transaction writes the completion: nothing else is written meanwhile.
    Joined,
}

impl Tenure {
    /// An ownership that was granted at `began`.
    pub(super) fn new(
        shared: Arc<Shared>,
        policy: Arc<Policy>,
        identity: Identity,
        record: Record,
        anchor: Anchor,
        began: Instant,
    ) -> Self {
        let standing =
            Standing { version: record.version, began, deadline: anchor.deadline(record.lease), over: false };
        Self {
            shared,
            policy,
            identity,
            granted: record.clone(),
            work: Mutex::new(Work { ownership: Ownership::new(record), anchor }),
            standing: sync::Mutex::new(standing),
            told: Notify::new(),
            joined: AtomicBool::new(false),
        }
    }

    fn standing(&self) -> Standing {
        // Nothing panics while it is held.
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change_standing(&self, change: impl FnOnce(&mut Standing)) {
        change(&mut self.standing.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(super) fn granted(&self) -> &Record {
        &self.granted
    }

    pub(super) fn policy(&self) -> &Policy {
        &self.policy
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(super) fn version(&self) -> Version {
        self.standing().version
    }

    /// When the owner must have stopped, by its own clock.
    pub(super) fn deadline(&self) -> Instant {
        self.standing().deadline
    }

    /// For how long the owner may still work.
    pub(super) fn remaining(&self) -> Duration {
        let standing = self.standing();
        if standing.over { Duration::ZERO } else { standing.deadline.saturating_duration_since(now()) }
    }

    /// For how long this process has held the key.
    pub(super) fn held_for(&self) -> Duration {
        now().saturating_duration_since(self.standing().began)
    }

    pub(super) fn is_over(&self) -> bool {
        self.standing().over
    }

    /// Whether a mark of an effect is set, or may be.
    pub(super) async fn effect_may_have_begun(&self) -> bool {
        self.work.lock().await.ownership.effect_may_have_begun()
    }

    /// Tells the handler to stop.
    pub(super) fn tell_over(&self) {
        self.change_standing(|standing| standing.over = true);
        self.told.notify_waiters();
    }

    /// Waits until the handler is told to stop.
    pub(super) async fn told_over(&self) {
        // It hears of every notification from here on, so what is told after the look is not missed.
        let told = self.told.notified();
        if !self.is_over() {
            told.await;
        }
    }

    pub(super) async fn begin_effect(&self) -> Result<(), Interrupted> {
        self.progress("begin_effect", Ownership::begin_effect).await
    }

    pub(super) async fn checkpoint(&self, point: RecoveryPoint) -> Result<(), Interrupted> {
        let propose = |ownership: &mut Ownership, elapsed, length| ownership.checkpoint(point.clone(), elapsed, length);
        self.progress("checkpoint", propose).await
    }

    pub(super) async fn renew(&self) -> Result<Renewal, Interrupted> {
        if self.joined.load(Ordering::SeqCst) {
            return Ok(Renewal::Joined);
        }
        let deadline = self.deadline();
        if deadline >= self.last_deadline().await {
            return Ok(Renewal::AtMaxRun);
        }
        self.progress("renew", Ownership::renew).await?;
        Ok(Renewal::Extended)
    }

    /// The latest deadline that renewal may reach.
    async fn last_deadline(&self) -> Instant {
        let work = self.work.lock().await;
        let max_run = crate::LeaseLength::from_duration(self.policy.max_run());
        work.anchor.deadline(max_run)
    }

    /// Sends a progress write until it is known to have landed, the key is somebody else's, or the lease is over.
    async fn progress(
        &self,
        operation: &'static str,
        mut propose: impl FnMut(&mut Ownership, Duration, Duration) -> Change,
    ) -> Result<(), Interrupted> {
        let mut work = self.work.lock().await;
        let mut pauses = pauses();
        loop {
            let deadline = self.deadline();
            let at = now();
            if self.is_over() || at >= deadline {
                return Err(Interrupted::LeaseLost);
            }
            let elapsed = work.anchor.elapsed(at);
            // A write near the longest run still has to propose a larger lease, but by no more than it must.
            let length = self.policy.lease().min(self.policy.max_run().saturating_sub(elapsed));
            let change = propose(&mut work.ownership, elapsed, length);
            let version = work.ownership.version();

            let call_ends = deadline.min(at + self.policy.statement_deadline());
            let swapped = until(call_ends, operation, self.shared.store.swap(&self.identity, &version, &change)).await;
            let found = match swapped {
                Ok(Swapped::Applied) => {
                    self.progress_landed(&mut work, &change);
                    return Ok(());
                }
                Ok(Swapped::Lost(record, clock)) => Found { record, anchor_at: (at, now()), clock },
                Err(error) if worth_repeating(&error) => {
                    match Box::pin(self.find(error, deadline, &mut pauses)).await {
                        Ok(Some(found)) => found,
                        Ok(None) => continue,
                        Err(error) => return Err(Interrupted::Store(error)),
                    }
                }
                Err(error) => return Err(Interrupted::Store(error)),
            };
            match work.ownership.judge_progress(&change, found.record.as_deref()) {
                ProgressVerdict::Applied => {
                    self.progress_landed(&mut work, &change);
                    return Ok(());
                }
                ProgressVerdict::SendAgain => self.pause(&mut pauses, deadline).await,
                ProgressVerdict::Adopt(record) => self.adopt(&mut work, record, &found),
                ProgressVerdict::Fenced(_) => {
                    events::fenced(self, operation);
                    return Err(Interrupted::Fenced);
                }
            }
        }
    }

    fn progress_landed(&self, work: &mut Work, change: &Change) {
        work.ownership.landed(change);
        let deadline = work.anchor.deadline(work.ownership.record().lease);
        self.change_standing(|standing| standing.deadline = deadline);
    }

    /// After a write that may or may not have landed: what is there now. `None` if the write is known not to have been
    /// applied, so that it can be sent again without looking.
    ///
    /// Callers box it: it is seldom needed, and every task would be larger by it.
    async fn find(
        &self,
        error: Error,
        deadline: Instant,
        pauses: &mut impl Iterator<Item = Duration>,
    ) -> Result<Option<Found>, Error> {
        if error.write_outcome() == WriteOutcome::NotApplied {
            self.pause(pauses, deadline).await;
            return if now() < deadline { Ok(None) } else { Err(error) };
        }
        loop {
            let sent = now();
            if sent >= deadline {
                return Err(error);
            }
            let call_ends = deadline.min(sent + self.policy.statement_deadline());
            match until(call_ends, "load", self.shared.store.load(&self.identity)).await {
                Ok(loaded) => {
                    return Ok(Some(Found { record: loaded.record, anchor_at: (sent, now()), clock: loaded.clock }));
                }
                Err(again) if worth_repeating(&again) => self.pause(pauses, deadline).await,
                // The write's own outcome is what the caller has to know; why looking failed is the cause.
                Err(again) => {
                    return Err(Error::new(again.kind(), error.operation(), error.write_outcome()).with_source(again));
                }
            }
        }
    }

    fn adopt(&self, work: &mut Work, record: Record, found: &Found) {
        let (sent, received) = found.anchor_at;
        work.anchor = Anchor::of(&record, found.clock, sent, received);
        let deadline = work.anchor.deadline(record.lease);
        let version = record.version;
        work.ownership.adopt(record);
        self.change_standing(|standing| {
            standing.version = version;
            standing.deadline = deadline;
        });
    }

    async fn pause(&self, pauses: &mut impl Iterator<Item = Duration>, deadline: Instant) {
        let pause = pauses.next().unwrap_or(Duration::from_secs(1));
        sleep(pause.min(deadline.saturating_duration_since(now()))).await;
    }

    /// The completion, for a transaction of the caller's to write.
    pub(super) async fn completion(&self, response: &Response) -> Result<Completion, Interrupted> {
        let kept = response.kept_within(self.shared.limits.response);
        let work = self.work.lock().await;
        let at = now();
        if self.is_over() || at >= self.deadline() {
            return Err(Interrupted::LeaseLost);
        }
        self.joined.store(true, Ordering::SeqCst);
        let elapsed = work.anchor.elapsed(at);
        let expires_at = work.ownership.settled_expiry(elapsed, self.policy.replay_floor());
        Ok(Completion::new(self.identity.clone(), work.ownership.version(), kept, expires_at))
    }

    /// Stores the answer, or looks whether the caller's transaction did.
    pub(super) async fn complete(&self, response: &Response) -> Settled {
        let kept = response.kept_within(self.shared.limits.response);
        if self.joined.load(Ordering::SeqCst) {
            return Box::pin(self.confirm(kept)).await;
        }
        let floor = self.policy.replay_floor();
        self.settle("complete", |ownership, elapsed| ownership.complete(kept.clone(), elapsed, floor)).await
    }

    /// Looks whether the caller's transaction stored `kept`, and gives the key up if it did not.
    async fn confirm(&self, kept: Response) -> Settled {
        self.tell_over();
        let confirmed = {
            let mut work = self.work.lock().await;
            let deadline = self.deadline().max(now() + self.policy.statement_deadline());
            let unknown = Error::new(ErrorKind::Timeout, "complete", WriteOutcome::Unknown);
            // Nothing else is stored under this version, and a rival's row may have replaced what was.
            work.ownership.settlement_became_unknown();
            match self.find(unknown, deadline, &mut pauses()).await {
                Ok(found) => {
                    let record = found.and_then(|found| found.record);
                    let change = work.ownership.complete(kept, Duration::ZERO, Duration::ZERO);
                    work.ownership.judge_settlement(&change, record.as_deref())
                }
                Err(error) => {
                    let settled = Settled::Unknown(error);
                    events::settled(self, "complete", &settled);
                    return settled;
                }
            }
        };
        let settled = match confirmed {
            SettlementVerdict::Applied => Settled::Recorded,
            // Still this owner's, and in progress: it was rolled back.
            SettlementVerdict::SendAgain => {
                self.abandon().await;
                Settled::NotCommitted
            }
            SettlementVerdict::Fenced(record) => Settled::Fenced(record.map(Box::new)),
            // What the transaction wrote compared another version, and cannot have landed; or it is gone again.
            SettlementVerdict::Adopt(_) | SettlementVerdict::Unknown => {
                Settled::Unknown(Error::new(ErrorKind::Unavailable, "complete", WriteOutcome::Unknown))
            }
        };
        events::settled(self, "complete", &settled);
        settled
    }

    /// Stores that nothing happened, if that can be known.
    pub(super) async fn fail(&self, verified: bool) -> Result<Settled, NoEffectRefused> {
        let floor = self.policy.replay_floor();
        // The rule looks at marks that no settlement changes, so what holds now holds for every send.
        self.work.lock().await.ownership.fail(verified, Duration::ZERO, floor)?;
        let fail = |ownership: &Ownership, elapsed| ownership.fail(verified, elapsed, floor).unwrap_or(Change::Abandon);
        Ok(self.settle("fail", fail).await)
    }

    /// Gives the key up with an unknown outcome: stale at once.
    pub(super) async fn abandon(&self) -> Settled {
        self.settle("abandon", |_, _| Change::Abandon).await
    }

    /// Gives up a key under which nothing was started.
    pub(super) async fn release(&self) -> Settled {
        match self.fail(false).await {
            Ok(settled) => settled,
            Err(NoEffectRefused::EffectBegun | NoEffectRefused::PreviousUnknown) => self.abandon().await,
        }
    }

    /// Sends one settlement until it is known what became of it, or the lease is over; once at the least, since it
    /// stays valid until somebody else has the key.
    async fn settle(&self, operation: &'static str, settlement: impl Fn(&Ownership, Duration) -> Change) -> Settled {
        // Nothing but this settlement is sent from here on.
        self.tell_over();
        let mut work = self.work.lock().await;
        let mut pauses = pauses();
        let began = now();
        let deadline = self.deadline().max(began + self.policy.statement_deadline());
        let change = settlement(&work.ownership, work.anchor.elapsed(began));
        let settled = loop {
            let at = now();
            let version = work.ownership.version();
            let call_ends = deadline.min(at + self.policy.statement_deadline());
            let swapped = until(call_ends, operation, self.shared.store.swap(&self.identity, &version, &change)).await;
            let found = match swapped {
                Ok(Swapped::Applied) => break Settled::Recorded,
                Ok(Swapped::Lost(record, clock)) => Found { record, anchor_at: (at, now()), clock },
                Err(error) => {
                    if error.write_outcome() == WriteOutcome::Unknown {
                        work.ownership.settlement_became_unknown();
                    }
                    if !worth_repeating(&error) {
                        break Settled::Unknown(error);
                    }
                    match Box::pin(self.find(error, deadline, &mut pauses)).await {
                        Ok(Some(found)) => found,
                        Ok(None) => continue,
                        Err(error) => break Settled::Unknown(error),
                    }
                }
            };
            match work.ownership.judge_settlement(&change, found.record.as_deref()) {
                SettlementVerdict::Applied => break Settled::Recorded,
                SettlementVerdict::SendAgain if now() >= deadline => {
                    break Settled::Unknown(Error::new(ErrorKind::Timeout, operation, WriteOutcome::Unknown));
                }
                SettlementVerdict::SendAgain => self.pause(&mut pauses, deadline).await,
                SettlementVerdict::Adopt(record) => self.adopt(&mut work, record, &found),
                SettlementVerdict::Fenced(record) => break Settled::Fenced(record.map(Box::new)),
                SettlementVerdict::Unknown => {
                    break Settled::Unknown(Error::new(ErrorKind::Unavailable, operation, WriteOutcome::Unknown));
                }
            }
        };
        events::settled(self, operation, &settled);
        settled
    }

    /// The answer in a row that fenced this owner out, if it is an answer to the same request, in the same life.
    pub(super) fn their_answer(&self, record: Option<Box<Record>>) -> Option<Response> {
        let record = record.filter(|record| {
            record.created_at == self.granted.created_at && record.fingerprint == self.granted.fingerprint
        })?;
        match record.state {
            State::Completed(response) => Some(response),
            State::InProgress | State::Failed => None,
        }
    }
}

/// A row that was found, with the clock and the exchange that brought it.
struct Found {
    record: Option<Box<Record>>,
    anchor_at: (Instant, Instant),
    clock: crate::Timestamp,
}
