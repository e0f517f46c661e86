//! How a key is claimed: insert, decide, swap, until something is known.

use super::calls::{pauses, until, worth_repeating};
use super::clock::{Anchor, Instant, now};
use super::events;
use super::shared::Shared;
use super::tenure::Tenure;
use crate::claim::Claim;
use crate::error::{Error, ErrorKind, WriteOutcome};
use crate::fingerprint::Part;
use crate::machine::decide::in_progress;
use crate::machine::{AbandonReason, Change, Decision, decide, reconcile};
use crate::policy::{Policy, Takeover};
use crate::record::{Record, Version};
use crate::response::Response;
use crate::store::{Inserted, Loaded, Stuck, Swapped};
use crate::time::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// How often one claim call sends the same question again when the store cannot be reached or an answer is lost.
const MAX_REPEATS: usize = 4;
/// How often one claim call decides anew because a rival was faster, before it says `InProgress`.
const MAX_ROUNDS: usize = 16;
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// What a claim came to.
pub(super) enum Claimed {
    Acquired(Grant),
    Replay(Response),
    InProgress { since: Option<Timestamp>, retry_after: Duration },
    Mismatch { part: Option<Part> },
    Abandoned { reason: AbandonReason },
}

/// A key that was granted and under which nothing was started. Dropped like that, because its caller is gone, it is
/// given back.
pub(super) struct Grant(Option<Arc<Tenure>>);

impl Grant {
    /// The key is in somebody's hands.
    pub(super) fn take(mut self) -> Option<Arc<Tenure>> {
        self.0.take()
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if let Some(tenure) = self.0.take() {
            let shared = Arc::clone(tenure.shared());
            shared.forget(&tenure);
            shared.spawn_if_possible(async move { drop(tenure.release().await) });
        }
    }
}

/// One claim call under way.
struct Claiming<'a> {
    shared: &'a Arc<Shared>,
    policy: &'a Arc<Policy>,
    claim: &'a mut Claim,
    repeats: usize,
    /// Whether a row may be there that nobody holds: a write was sent whose answer never came, or the claimer's own
    /// lease ran out.
    left_behind: bool,
}

/// A row as it was seen, with the clock and the exchange that brought it.
struct Seen {
    record: Box<Record>,
    clock: Timestamp,
    sent: Instant,
    received: Instant,
}

/// Claims the key, or says why not. An error is never a grant; after an unknown one a row without an owner may be left,
/// which is stale after one lease.
pub(super) async fn claim(shared: &Arc<Shared>, policy: &Arc<Policy>, claim: &mut Claim) -> Result<Claimed, Error> {
    let mut claiming = Claiming { shared, policy, claim, repeats: MAX_REPEATS, left_behind: false };
    let mut rounds = MAX_ROUNDS;
    let mut pauses = pauses();
    let mut seen = None;
    loop {
        rounds -= 1;
        let current = match seen.take() {
            Some(row) => row,
            None => match claiming.ask(&mut pauses).await? {
                Asked::Done(claimed) => return Ok(claimed),
                Asked::Row(row) => row,
            },
        };
        let decision = decide(&current.record, claiming.claim, current.clock);
        seen = match decision {
            Decision::Acquired => match claiming.own_row(current) {
                Some(claimed) => return Ok(claimed),
                None => claiming.look(&mut pauses).await?,
            },
            Decision::Swap { expected, change } if rounds > 0 => {
                match claiming.swap(&expected, &change).await {
                    Ok((Swapped::Applied, ..)) => match claiming.swapped_row(&current, &change) {
                        Some(claimed) => return Ok(claimed),
                        None => claiming.look(&mut pauses).await?,
                    },
                    Ok((Swapped::Lost(record, clock), sent, received)) => {
                        record.map(|record| Seen { record, clock, sent, received })
                    }
                    // The proposed values are there, or they are not: the row says.
                    Err(error) => {
                        claiming.repeat_after(error, &mut pauses).await?;
                        claiming.look(&mut pauses).await?
                    }
                }
            }
            Decision::Swap { .. } => match in_progress(&current.record, current.clock) {
                Decision::InProgress { since, retry_after } => {
                    return Ok(Claimed::InProgress { since: Some(since), retry_after });
                }
                _ => return Ok(Claimed::InProgress { since: None, retry_after: ASK_AGAIN }),
            },
            Decision::Mismatch { part } => return Ok(Claimed::Mismatch { part }),
            Decision::UnknownFingerprint => {
                return Err(Error::new(ErrorKind::UnknownFingerprint, "claim", WriteOutcome::NotApplied));
            }
            Decision::Replay(response) => return Ok(Claimed::Replay(response)),
            Decision::InProgress { since, retry_after } => {
                return Ok(Claimed::InProgress { since: Some(since), retry_after });
            }
            Decision::Abandoned { reason } => return Ok(Claimed::Abandoned { reason }),
        };
        if rounds == 0 {
            return Ok(Claimed::InProgress { since: None, retry_after: ASK_AGAIN });
        }
    }
}

/// A record that a reconciler took over, and the store's clock when it was read.
pub(super) struct Seized {
    pub(super) grant: Grant,
    pub(super) clock: Timestamp,
}

/// Takes over a record that was listed as stuck, whatever the takeover policies of its requests say; `None` if it is not
/// as it was listed any more. It makes no record.
pub(super) async fn seize(shared: &Arc<Shared>, policy: &Arc<Policy>, stuck: &Stuck) -> Result<Option<Seized>, Error> {
    let sent = now();
    let loaded = until(sent + policy.statement_deadline(), "load", shared.store.load(&stuck.identity)).await?;
    let Loaded { record: Some(record), clock } = loaded else { return Ok(None) };
    if record.version != stuck.version {
        return Ok(None);
    }
    let claim = &mut Claim::under(policy, stuck.identity.clone(), record.fingerprint.clone(), Takeover::Never);
    let Some((expected, change)) = reconcile(&record, claim, clock) else { return Ok(None) };
    let current = Seen { record, clock, sent, received: now() };
    let mut claiming = Claiming { shared, policy, claim, repeats: MAX_REPEATS, left_behind: false };
    let claimed = match claiming.swap(&expected, &change).await {
        Ok((Swapped::Applied, ..)) => claiming.swapped_row(&current, &change),
        Ok((Swapped::Lost(..), ..)) => None,
        // The proposed values are there, or they are not: the row says.
        Err(error) => {
            let mut pauses = pauses();
            claiming.repeat_after(error, &mut pauses).await?;
            let owner = claiming.claim.owner();
            let found = claiming.look(&mut pauses).await?.filter(|seen| seen.record.version.owner == owner);
            found.and_then(|seen| claiming.own_row(seen))
        }
    };
    Ok(match claimed {
        Some(Claimed::Acquired(grant)) => Some(Seized { grant, clock }),
        _ => None,
    })
}

enum Asked {
    Done(Claimed),
    Row(Seen),
}

impl Claiming<'_> {
    /// Asks by insert, again and again with the same owner while the answer is lost.
    async fn ask(&mut self, pauses: &mut impl Iterator<Item = Duration>) -> Result<Asked, Error> {
        loop {
            let sent = now();
            let call = self.shared.store.insert(self.claim);
            let inserted = until(sent + self.policy.statement_deadline(), "insert", call).await;
            self.claim.mark_asked();
            let received = now();
            match inserted {
                Ok(Inserted::Won(version)) if version.owner == self.claim.owner() => {
                    let record = self.claim.first_record(version.locked_at);
                    if let Some(claimed) = self.grant(record, Anchor::fresh(sent, received)) {
                        return Ok(Asked::Done(claimed));
                    }
                    if let Some(row) = self.look(pauses).await? {
                        return Ok(Asked::Row(row));
                    }
                }
                Ok(Inserted::Won(_)) => {
                    return Err(Error::new(ErrorKind::Internal, "insert", WriteOutcome::Unknown));
                }
                Ok(Inserted::Existing(record, clock)) => {
                    return Ok(Asked::Row(Seen { record, clock, sent, received }));
                }
                Ok(Inserted::Busy { retry_after }) => {
                    return Ok(Asked::Done(Claimed::InProgress { since: None, retry_after }));
                }
                Err(error) => self.repeat_after(error, pauses).await?,
            }
        }
    }

    async fn swap(&self, expected: &Version, change: &Change) -> Result<(Swapped, Instant, Instant), Error> {
        let sent = now();
        let call = self.shared.store.swap(self.claim.identity(), expected, change);
        let swapped = until(sent + self.policy.statement_deadline(), "swap", call).await?;
        Ok((swapped, sent, now()))
    }

    /// What is there now; `None` if the row is gone, which is claimed again by insert.
    async fn look(&mut self, pauses: &mut impl Iterator<Item = Duration>) -> Result<Option<Seen>, Error> {
        loop {
            let sent = now();
            let call = self.shared.store.load(self.claim.identity());
            match until(sent + self.policy.statement_deadline(), "load", call).await {
                Ok(Loaded { record, clock }) => {
                    return Ok(record.map(|record| Seen { record, clock, sent, received: now() }));
                }
                Err(error) => self.repeat_after(error, pauses).await?,
            }
        }
    }

    /// Pauses before the same question is sent again, or gives the error back: *unknown* if anything may have been left
    /// behind.
    async fn repeat_after(&mut self, error: Error, pauses: &mut impl Iterator<Item = Duration>) -> Result<(), Error> {
        self.left_behind |= error.write_outcome() == WriteOutcome::Unknown;
        if !worth_repeating(&error) || self.repeats == 0 {
            let outcome = if self.left_behind { WriteOutcome::Unknown } else { WriteOutcome::NotApplied };
            return Err(error.with_write_outcome(outcome));
        }
        self.repeats -= 1;
        sleep(pauses.next().unwrap_or(ASK_AGAIN)).await;
        Ok(())
    }

    /// The claimer's own row, found again after a lost answer.
    fn own_row(&mut self, seen: Seen) -> Option<Claimed> {
        let anchor = Anchor::of(&seen.record, seen.clock, seen.sent, seen.received);
        self.grant(*seen.record, anchor)
    }

    /// The row after an applied swap.
    fn swapped_row(&mut self, seen: &Seen, change: &Change) -> Option<Claimed> {
        let record = change.apply(&seen.record, &seen.record.version)?;
        // `locked_at` was computed from the clock that came with the read, so time counts from there.
        self.grant(record, Anchor::fresh(seen.sent, seen.received))
    }

    /// The key is the claimer's; `None` if its lease is over by the owner's own clock, so that it has to look again.
    fn grant(&mut self, record: Record, anchor: Anchor) -> Option<Claimed> {
        let at = now();
        if at >= anchor.deadline(record.lease) {
            self.left_behind = true;
            return None;
        }
        let shared = Arc::clone(self.shared);
        let policy = Arc::clone(self.policy);
        let identity = self.claim.identity().clone();
        let tenure = Tenure::new(shared, policy, identity, record, anchor, at);
        events::acquired(&tenure);
        Some(Claimed::Acquired(Grant(Some(Arc::new(tenure)))))
    }
}
