//! Dropped futures: whatever the moment, a call takes effect as a whole or not at all, and holds nothing.

use super::standing::{Standing, all_changes};
use super::trial::{Trial, answer, brief_claim, claim, complete, identity};
use crate::machine::Change;
use crate::store::{Erase, Inserted, PurgeOptions, StuckQuery, Swapped};
use std::task::Poll;
use std::time::Duration;

/// No call of a healthy store is polled more often than this before it is ready.
const MOST_POLLS: usize = 100;
/// A store that holds a lock or a connection for a caller who is gone hangs or fails; it does not get this far.
const PATIENCE: Duration = Duration::from_secs(60);

/// Polls a call so many times and drops it, if it is not ready by then.
async fn polled<F: Future>(call: F, polls: usize) -> Option<F::Output> {
    let mut call = Box::pin(call);
    let mut left = polls;
    std::future::poll_fn(move |context| {
        left -= 1;
        match call.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

async fn patiently<T>(call: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, call).await {
        Ok(output) => output,
        Err(_) => panic!("the store hangs after a future was dropped"),
    }
}

impl Trial {
    /// Another key can be claimed, and completed.
    async fn still_works(&self) {
        let identity = self.identity();
        let record = self.win(claim(&identity)).await;
        self.apply(&identity, &record, &complete(&record, answer("still works"))).await;
    }
}

pub(super) async fn a_dropped_insert_is_whole_or_nothing(trial: Trial) {
    for polls in 1..=MOST_POLLS {
        let identity = trial.identity();
        let mut mine = claim(&identity);
        let ended = polled(trial.store.insert(&mine), polls).await.is_some();
        mine.mark_asked();
        patiently(async {
            if let Some(found) = trial.load(&identity).await.record {
                assert_eq!(
                    *found,
                    mine.first_record(found.version.locked_at),
                    "dropped at poll {polls}: half a record"
                );
            }
            // The claimer asks again. A statement of the first call may still have been on its way.
            let stamp = match trial.insert(&mut mine).await {
                Inserted::Won(version) => version.locked_at,
                Inserted::Existing(record, _) => record.version.locked_at,
                Inserted::Busy { .. } => panic!("a claim that was asked before must reach the store"),
            };
            assert_eq!(trial.record(&identity).await, mine.first_record(stamp), "dropped at poll {polls}");
            trial.still_works().await;
        })
        .await;
        if ended {
            return;
        }
    }
}

pub(super) async fn a_dropped_swap_is_whole_or_nothing(trial: Trial) {
    for standing in [Standing::Fresh, Standing::Marked, Standing::Completed, Standing::FailedMarked] {
        let count = all_changes(&trial.stand(standing).await.1).len();
        for index in 0..count {
            for polls in 1..=MOST_POLLS {
                let (identity, record) = trial.stand(standing).await;
                let change = all_changes(&record).swap_remove(index);
                let ended = polled(trial.store.swap(&identity, &record.version, &change), polls).await.is_some();
                patiently(whole_or_nothing(&trial, &identity, &record, &change)).await;
                if ended {
                    break;
                }
            }
        }
    }
    trial.still_works().await;
}

async fn whole_or_nothing(trial: &Trial, identity: &crate::Identity, before: &crate::Record, change: &Change) {
    let after = change.apply(before, &before.version);
    let found = trial.record(identity).await;
    assert!(found == *before || Some(&found) == after.as_ref(), "a dropped {change:?} left half a write: {found:?}");
    // The caller sends it again: either one of the two has applied by now, or it is illegal.
    let again = trial.swap(identity, &before.version, change).await;
    let found = trial.record(identity).await;
    match after {
        Some(after) => assert_eq!(found, after, "a dropped {change:?}, sent again"),
        None => {
            assert!(matches!(again, Swapped::Lost(Some(_), _)), "{again:?}");
            assert_eq!(found, *before, "a dropped {change:?} that is illegal");
        }
    }
}

pub(super) async fn a_dropped_read_leaves_nothing_behind(trial: Trial) {
    let (identity, record) = trial.stand(Standing::Abandoned).await;
    let query = StuckQuery::default();
    let mut unfinished = [true; 3];
    for polls in 1..=MOST_POLLS {
        if unfinished[0] {
            unfinished[0] = polled(trial.store.load(&identity), polls).await.is_none();
        }
        if unfinished[1] {
            unfinished[1] = polled(trial.store.stuck(&query), polls).await.is_none();
        }
        if unfinished[2] {
            unfinished[2] = polled(trial.store.stats(), polls).await.is_none();
        }
        patiently(async {
            assert_eq!(trial.record(&identity).await, record);
            trial.still_works().await;
        })
        .await;
        if unfinished == [false; 3] {
            return;
        }
    }
}

pub(super) async fn a_dropped_purge_can_be_done_again(trial: Trial) {
    let (alive, record) = trial.stand(Standing::Completed).await;
    for polls in 1..=MOST_POLLS {
        // Not looked at in between: a purge that was dropped before may still be on its way.
        let dead = trial.identity();
        let brief = trial.win(brief_claim(&dead)).await;
        let completed = trial.swap(&dead, &brief.version, &complete(&brief, answer("dead"))).await;
        assert_eq!(completed, Swapped::Applied);
        trial.until(brief.expires_at).await;

        let ended = polled(trial.store.purge(&PurgeOptions::default()), polls).await.is_some();
        patiently(async {
            trial.purge_all(&PurgeOptions::default()).await;
            assert!(trial.is_absent(&dead).await, "dropped at poll {polls}: what is dead goes");
            assert_eq!(trial.record(&alive).await, record, "dropped at poll {polls}: what is alive stays");
            trial.still_works().await;
        })
        .await;
        if ended {
            return;
        }
    }
}

pub(super) async fn a_dropped_erasure_can_be_done_again(trial: Trial) {
    let other = identity("not erased", "k");
    let record = trial.win(claim(&other)).await;
    for polls in 1..=MOST_POLLS {
        // A scope of its own each time: an erasure that was dropped before may still be on its way.
        let erased = identity(&format!("erased-{polls}"), "k");
        let old = trial.win(claim(&erased)).await;
        trial.apply(&erased, &old, &complete(&old, answer("old"))).await;

        let ended = polled(trial.store.erase(erased.scope(), Erase::Settled), polls).await.is_some();
        patiently(async {
            trial.store.erase(erased.scope(), Erase::Settled).await.expect("erasing again is always right");
            assert!(trial.is_absent(&erased).await, "dropped at poll {polls}");
            assert_eq!(trial.record(&other).await, record, "dropped at poll {polls}");
            trial.still_works().await;
        })
        .await;
        if ended {
            return;
        }
    }
}
