//! Many callers at once, on real threads.

use super::standing::{Standing, checkpoint};
use super::trial::HOUR;
use super::trial::{Trial, answer, claim, complete, fail, lease, next, renew, request_of, take_over};
use crate::claim::Claim;
use crate::machine::{Change, Decision, NextOwnership, decide};
use crate::policy::Takeover;
use crate::record::{Record, Status};
use crate::store::{Inserted, PurgeOptions, Store, Swapped};
use crate::time::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Barrier;

const RIVALS: usize = 64;

/// Lets all of them start in the same instant, each on a task of its own.
async fn together<F>(futures: Vec<F>) -> Vec<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let barrier = Arc::new(Barrier::new(futures.len()));
    let tasks: Vec<_> = futures
        .into_iter()
        .map(|future| {
            let barrier = barrier.clone();
            tokio::spawn(async move {
                barrier.wait().await;
                future.await
            })
        })
        .collect();
    let mut outputs = Vec::new();
    for task in tasks {
        outputs.push(task.await.expect("a rival is not cancelled and does not panic"));
    }
    outputs
}

/// Asks until the store itself answers, as [`Trial::insert`] does.
async fn ask(store: Arc<dyn Store>, mut claim: Claim) -> Inserted {
    let answer = store.insert(&claim).await.expect("losing a race for a key is not an error");
    let Inserted::Busy { .. } = answer else { return answer };
    claim.mark_asked();
    store.insert(&claim).await.expect("losing a race for a key is not an error")
}

impl Trial {
    /// Sends the changes, each as its own compare-and-swap with one version, at once.
    async fn swap_together(&self, identity: &crate::Identity, record: &Record, changes: &[Change]) -> Vec<Swapped> {
        let swaps = changes.iter().map(|change| {
            let (store, identity, version) = (self.store.clone(), identity.clone(), record.version);
            let change = change.clone();
            async move { store.swap(&identity, &version, &change).await.expect("losing a race is not an error") }
        });
        together(swaps.collect()).await
    }

    /// Of many changes of which only one can apply, only one does, and all others are told by what they lost.
    async fn only_one_applies(&self, identity: &crate::Identity, record: &Record, changes: &[Change]) {
        let answers = self.swap_together(identity, record, changes).await;
        let won: Vec<usize> = (0..answers.len()).filter(|&index| answers[index] == Swapped::Applied).collect();
        let [winner] = won[..] else { panic!("exactly one of {} applies, not {}", changes.len(), won.len()) };
        let after = changes[winner].apply(record, &record.version).expect("the case only sends what is legal");
        assert_eq!(self.record(identity).await, after, "what the winner set is what stands");
        for answer in answers {
            if let Swapped::Lost(found, _) = answer {
                assert_eq!(found.as_deref(), Some(&after), "the others are told who won");
            }
        }
    }
}

pub(super) async fn one_of_many_claims_wins(trial: Trial) {
    for round in 0..trial.race_rounds() {
        let identity = trial.identity();
        let claims: Vec<Claim> = (0..RIVALS).map(|_| claim(&identity)).collect();
        let owners: Vec<_> = claims.iter().map(Claim::owner).collect();
        let answers = together(claims.into_iter().map(|claim| ask(trial.store.clone(), claim)).collect()).await;

        let mut winners = Vec::new();
        for (answer, owner) in answers.iter().zip(&owners) {
            if let Inserted::Won(version) = answer {
                assert_eq!(version.owner, *owner);
                winners.push(*version);
            }
        }
        let [winner] = winners[..] else { panic!("round {round}: {} of {RIVALS} won", winners.len()) };
        let stands = trial.record(&identity).await;
        assert_eq!(stands.version, winner, "round {round}: the winner's record stands");
        for answer in answers {
            match answer {
                Inserted::Won(_) => {}
                Inserted::Existing(found, _) => assert_eq!(*found, stands, "round {round}: all others find it"),
                Inserted::Busy { .. } => panic!("a claim that was asked before must reach the store"),
            }
        }
    }
}

pub(super) async fn one_of_many_takeovers_wins(trial: Trial) {
    for _ in 0..trial.short_race_rounds() {
        let (identity, record) = trial.stand(Standing::Abandoned).await;
        let rivals: Vec<Change> = (0..RIVALS).map(|_| take_over(&record)).collect();
        trial.only_one_applies(&identity, &record, &rivals).await;
    }
}

pub(super) async fn one_of_many_retries_wins(trial: Trial) {
    for _ in 0..trial.short_race_rounds() {
        let (identity, record) = trial.stand(Standing::Failed).await;
        let retry = || Change::Retry { read_lease: record.lease, next: next(&record) };
        trial.only_one_applies(&identity, &record, &(0..RIVALS).map(|_| retry()).collect::<Vec<_>>()).await;
    }
}

pub(super) async fn one_of_many_new_lives_begins(trial: Trial) {
    for _ in 0..trial.short_race_rounds() {
        let (identity, record) = trial.expired(false).await;
        let as_new = |_| Change::AsNew {
            from: Status::Completed,
            read_lease: record.lease,
            next: NextOwnership { attempt: 1, ..next(&record) },
            fingerprint: request_of(b"new"),
        };
        trial.only_one_applies(&identity, &record, &(0..RIVALS).map(as_new).collect::<Vec<_>>()).await;
    }
}

pub(super) async fn one_of_many_completions_counts(trial: Trial) {
    for _ in 0..trial.short_race_rounds() {
        let (identity, record) = trial.stand(Standing::Fresh).await;
        let answers = (0..RIVALS).map(|index| complete(&record, answer(&format!("answer {index}"))));
        trial.only_one_applies(&identity, &record, &answers.collect::<Vec<_>>()).await;
    }
}

pub(super) async fn owner_and_rival_see_one_order(trial: Trial) {
    for _ in 0..trial.short_race_rounds() {
        let (identity, record) = trial.stand(Standing::Fresh).await;
        let changes = [
            complete(&record, answer("of the owner")),
            fail(&record),
            Change::Abandon,
            renew(&record),
            checkpoint(&record, "charged"),
            take_over(&record),
        ];
        let answers = trial.swap_together(&identity, &record, &changes).await;
        let seen: Vec<bool> = answers.iter().map(|answer| *answer == Swapped::Applied).collect();
        let stands = trial.record(&identity).await;
        let orders = outcomes(&record, &record, &changes);
        assert!(
            orders.contains(&(seen.clone(), stands.clone())),
            "applied {seen:?} and left {stands:?}, which no order of {changes:?} gives",
        );
    }
}

/// Which of the changes apply, and what is left, in every order in which they could be made.
fn outcomes(start: &Record, record: &Record, changes: &[Change]) -> Vec<(Vec<bool>, Record)> {
    fn go(
        start: &Record,
        record: &Record,
        changes: &[Change],
        done: &mut Vec<Option<bool>>,
        out: &mut Vec<(Vec<bool>, Record)>,
    ) {
        if let Some(all) = done.iter().copied().collect::<Option<Vec<bool>>>() {
            let outcome = (all, record.clone());
            if !out.contains(&outcome) {
                out.push(outcome);
            }
            return;
        }
        for index in 0..changes.len() {
            if done[index].is_none() {
                let after = changes[index].apply(record, &start.version);
                done[index] = Some(after.is_some());
                go(start, after.as_ref().unwrap_or(record), changes, done, out);
                done[index] = None;
            }
        }
    }
    let mut out = Vec::new();
    go(start, record, changes, &mut vec![None; changes.len()], &mut out);
    out
}

pub(super) async fn purge_takes_no_new_life(trial: Trial) {
    for round in 0..trial.short_race_rounds() {
        let (identity, _) = trial.expired(round % 2 == 0).await;
        let (store, mine) = (trial.store.clone(), claim(&identity));
        let owner = mine.owner();
        let purges = (0..2).map(|_| {
            let store = trial.store.clone();
            Box::pin(async move {
                store.purge(&PurgeOptions::default()).await.expect("purge beside live traffic is not an error");
            }) as std::pin::Pin<Box<dyn Future<Output = ()> + Send>>
        });
        let mut all: Vec<_> = purges.collect();
        all.push(Box::pin(acquire(store, mine)));
        together(all).await;
        let stands = trial.load(&identity).await.record;
        let stands = stands.unwrap_or_else(|| panic!("round {round}: a purge deleted a record that was alive again"));
        assert_eq!((stands.version.owner, stands.status()), (owner, Status::InProgress), "round {round}");
    }
}

/// Claims as the engine does: insert, decide, swap, and again from whatever won.
async fn acquire(store: Arc<dyn Store>, mut claim: Claim) {
    for _ in 0..10 {
        let (mut found, mut clock) = match store.insert(&claim).await.expect("insert is not an error") {
            Inserted::Won(_) => return,
            Inserted::Existing(record, clock) => (Some(record), clock),
            Inserted::Busy { .. } => (None, Timestamp::from_micros(0)),
        };
        claim.mark_asked();
        while let Some(record) = found {
            let Decision::Swap { expected, change } = decide(&record, &claim, clock) else {
                panic!("an expired record is an invitation: {record:?}")
            };
            match store.swap(claim.identity(), &expected, &change).await.expect("swap is not an error") {
                Swapped::Applied => return,
                Swapped::Lost(record, now) => (found, clock) = (record, now),
            }
        }
    }
    panic!("a key that is free or expired can be claimed");
}

pub(super) async fn purges_share_the_work(trial: Trial) {
    const DEAD: u64 = 60;
    for _ in 0..DEAD {
        trial.expired(false).await;
    }
    let purge = |_| {
        let store = trial.store.clone();
        async move {
            let mut settled = 0;
            for _ in 0..DEAD {
                let options = PurgeOptions::default().with_batch(7);
                let purged = store.purge(&options).await.expect("purges beside each other are not an error");
                assert!(purged.total() <= 7, "each deletes at most its batch: {purged:?}");
                settled += purged.settled;
            }
            settled
        }
    };
    let counted: u64 = together((0..4).map(purge).collect()).await.into_iter().sum();
    assert_eq!(counted, DEAD, "every record is deleted and counted once");
}

pub(super) async fn keys_do_not_disturb_each_other(trial: Trial) {
    for _ in 0..trial.short_race_rounds() {
        let work = |_| {
            let (store, mine) = (trial.store.clone(), claim(&trial.identity()));
            async move {
                let identity = mine.identity().clone();
                let first = store.insert(&mine).await.expect("nobody else wants this key");
                let Inserted::Won(version) = first else { panic!("nobody else wants this key: {first:?}") };
                let record = mine.first_record(version.locked_at);
                let renewed = Change::Renew { lease: lease(2 * HOUR) };
                for change in [renewed, complete(&record, answer("done"))] {
                    let answer = store.swap(&identity, &version, &change).await.expect("nobody else has this key");
                    assert_eq!(answer, Swapped::Applied, "nobody else has this key");
                }
            }
        };
        together((0..RIVALS).map(work).collect()).await;
    }
}

pub(super) async fn readers_see_no_half_record(trial: Trial) {
    for _ in 0..trial.short_race_rounds() {
        let identity = trial.identity();
        let done = Arc::new(AtomicBool::new(false));
        let readers = (0..2).map(|_| {
            let (store, identity, done) = (trial.store.clone(), identity.clone(), done.clone());
            tokio::spawn(async move {
                let mut seen: Vec<Option<Record>> = Vec::new();
                while !done.load(Ordering::Relaxed) {
                    let found = store.load(&identity).await.expect("load is not an error").record.map(|record| *record);
                    if seen.last() != Some(&found) {
                        seen.push(found);
                    }
                    tokio::task::yield_now().await;
                }
                seen
            })
        });
        let readers: Vec<_> = readers.collect();

        let mut history = vec![None];
        let mut record = trial.win(claim(&identity)).await;
        history.push(Some(record.clone()));
        let steps: [fn(&Record) -> Change; 6] = [
            |record| Change::BeginEffect { lease: record.lease.next() },
            |record| checkpoint(record, "charged"),
            take_over,
            fail,
            take_over,
            |record| complete(record, answer("done")),
        ];
        for step in steps {
            record = trial.apply(&identity, &record, &step(&record)).await;
            history.push(Some(record.clone()));
        }
        done.store(true, Ordering::Relaxed);
        for reader in readers {
            let mut from = 0;
            for seen in reader.await.expect("a reader is not cancelled and does not panic") {
                let at = history[from..].iter().position(|then| *then == seen);
                from += at.unwrap_or_else(|| panic!("{seen:?} was read, which never stood there, or was over by then"));
            }
        }
    }
}

pub(super) async fn a_mismatch_disturbs_nobody(trial: Trial) {
    let identity = trial.identity();
    let record = trial.win(claim(&identity)).await;
    let rivals = (0..RIVALS).map(|index| {
        let body = format!("another request {index}");
        let rival = Claim::new(identity.clone(), request_of(body.as_bytes()), Takeover::Resume);
        ask(trial.store.clone(), rival)
    });
    for answer in together(rivals.collect()).await {
        let Inserted::Existing(found, _) = answer else { panic!("somebody is at work on it: {answer:?}") };
        assert_eq!(*found, record);
    }
    trial.apply(&identity, &record, &complete(&record, answer("undisturbed"))).await;
}
