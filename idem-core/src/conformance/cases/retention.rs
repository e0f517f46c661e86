//! Retention and purge.

use super::standing::Standing;
use super::trial::{HOUR, Trial, answer, brief_claim, claim, complete, fail, lease, take_over};
use crate::key::Identity;
use crate::machine::Change;
use crate::record::Record;
use crate::store::{PurgeOptions, UnresolvedRows};
use std::time::Duration;

impl Trial {
    /// A settled record whose retention is over.
    pub(super) async fn expired(&self, failed: bool) -> (Identity, Record) {
        let identity = self.identity();
        let record = self.win(brief_claim(&identity)).await;
        let settlement = if failed { fail(&record) } else { complete(&record, answer("old")) };
        let record = self.apply(&identity, &record, &settlement).await;
        self.until(record.expires_at).await;
        (identity, record)
    }

    /// A record that is in progress with nobody working, and past its retention.
    async fn unresolved(&self) -> (Identity, Record) {
        let identity = self.identity();
        let record = self.win(brief_claim(&identity)).await;
        self.until(record.expires_at).await;
        (identity, record)
    }
}

fn drop_after(grace: Duration) -> PurgeOptions {
    PurgeOptions::default().with_unresolved(UnresolvedRows::DropAfter(grace))
}

pub(super) async fn purge_deletes_what_is_resolved_and_expired(trial: Trial) {
    let (completed, _) = trial.expired(false).await;
    let (failed, _) = trial.expired(true).await;
    let purged = trial.store.purge(&PurgeOptions::default()).await.expect("purge on a healthy store is not an error");
    assert_eq!((purged.settled, purged.unresolved), (2, 0), "both are deleted, and counted");
    assert!(purged.oldest_expired.is_some(), "how far behind the purge is can be seen");
    assert!(trial.is_absent(&completed).await && trial.is_absent(&failed).await);
    let idle = trial.store.purge(&PurgeOptions::default()).await.expect("purge on a healthy store is not an error");
    assert_eq!((idle.total(), idle.oldest_expired), (0, None));
}

pub(super) async fn a_purged_key_is_new(trial: Trial) {
    let (identity, old) = trial.expired(false).await;
    trial.purge_all(&PurgeOptions::default()).await;
    let record = trial.win(claim(&identity)).await;
    assert_ne!(record.version, old.version);
    // An owner from before the purge is nobody now.
    trial.refuse(&identity, &old.version, &complete(&record, answer("late")), &record).await;
}

pub(super) async fn purge_keeps_what_has_not_expired(trial: Trial) {
    let mut kept = Vec::new();
    for standing in Standing::ALL {
        kept.push(trial.stand(standing).await);
    }
    for options in [PurgeOptions::default(), drop_after(Duration::ZERO)] {
        assert_eq!(trial.purge_all(&options).await, (0, 0), "all of these have an hour to go");
    }
    for (identity, record) in &kept {
        assert_eq!(trial.record(identity).await, *record);
    }
}

pub(super) async fn purge_keeps_what_is_live(trial: Trial) {
    // Past its retention, and somebody is at work.
    let identity = trial.identity();
    let record = trial.win(claim(&identity).with_retention(Duration::ZERO)).await;
    trial.until(record.expires_at).await;
    for options in [PurgeOptions::default(), drop_after(Duration::ZERO)] {
        assert_eq!(trial.purge_all(&options).await, (0, 0), "nobody is deleted at work");
    }
    trial.apply(&identity, &record, &complete(&record, answer("done"))).await;
}

pub(super) async fn purge_keeps_the_unresolved_by_default(trial: Trial) {
    let (identity, record) = trial.unresolved().await;
    let (dead, _) = trial.expired(false).await;
    assert_eq!(trial.purge_all(&PurgeOptions::default()).await, (1, 0), "an unknown outcome is not expired");
    assert_eq!(trial.record(&identity).await, record);
    assert!(trial.is_absent(&dead).await);
}

pub(super) async fn purge_keeps_failures_with_an_unknown_past(trial: Trial) {
    let mut unresolved = Vec::new();
    // Taken over once; an effect begun; both.
    for (taken_over, begun) in [(true, false), (false, true), (true, true)] {
        let identity = trial.identity();
        let mut record = trial.win(brief_claim(&identity).with_lease(lease(HOUR))).await;
        if begun {
            let begin = Change::BeginEffect { lease: record.lease.next() };
            record = trial.apply(&identity, &record, &begin).await;
        }
        if taken_over {
            let change = take_over(&record);
            record = trial.apply(&identity, &record, &change).await;
        }
        record = trial.apply(&identity, &record, &fail(&record)).await;
        trial.until(record.expires_at).await;
        unresolved.push((identity, record));
    }
    assert_eq!(trial.purge_all(&PurgeOptions::default()).await, (0, 0), "what may have happened does not expire");
    for (identity, record) in &unresolved {
        assert_eq!(trial.record(identity).await, *record);
    }
    assert_eq!(trial.purge_all(&drop_after(Duration::ZERO)).await, (0, 3), "they are counted as unresolved");
}

pub(super) async fn purge_drops_the_unresolved_when_told(trial: Trial) {
    let (identity, _) = trial.unresolved().await;
    trial.expired(true).await;
    assert_eq!(trial.purge_all(&drop_after(Duration::ZERO)).await, (1, 1), "they are counted apart");
    assert!(trial.is_absent(&identity).await);
}

pub(super) async fn purge_gives_the_unresolved_their_grace(trial: Trial) {
    let (identity, record) = trial.unresolved().await;
    assert_eq!(trial.purge_all(&drop_after(HOUR)).await, (0, 0), "the grace counts from expires_at");
    // Also the longest that can be asked for.
    assert_eq!(trial.purge_all(&drop_after(Duration::MAX)).await, (0, 0));
    assert_eq!(trial.record(&identity).await, record);
}

pub(super) async fn purge_goes_by_batches(trial: Trial) {
    let mut dead = Vec::new();
    for index in 0..10 {
        dead.push(trial.expired(index % 2 == 0).await.0);
    }
    let (alive, record) = trial.stand(Standing::Completed).await;
    let options = PurgeOptions::default().with_batch(3);
    let first = trial.store.purge(&options).await.expect("purge on a healthy store is not an error");
    assert_eq!(first.total(), 3, "a batch is filled while there is something to delete: {first:?}");
    assert_eq!(trial.purge_all(&options).await, (7, 0), "purging again catches up");
    for identity in &dead {
        assert!(trial.is_absent(identity).await);
    }
    assert_eq!(trial.record(&alive).await, record);
}

pub(super) async fn purge_and_load_go_by_one_clock(trial: Trial) {
    // They expire one after the other while it runs.
    let mut records = Vec::new();
    for index in 0..40_u64 {
        let identity = trial.identity();
        let record = trial.win(claim(&identity).with_retention(Duration::from_millis(index))).await;
        records.push((identity.clone(), trial.apply(&identity, &record, &complete(&record, answer("x"))).await));
    }
    while !records.is_empty() {
        let before = trial.load(&records[0].0).await.clock;
        trial.purge_all(&PurgeOptions::default()).await;
        let mut left = Vec::new();
        for (identity, record) in records {
            let after = trial.load(&identity).await;
            match after.record {
                None => assert!(record.is_expired(after.clock), "purged before it expired: {record:?}"),
                Some(found) => {
                    assert_eq!(*found, record);
                    assert!(!record.is_expired(before), "expired at {before:?} and kept: {record:?}");
                    left.push((identity, record));
                }
            }
        }
        records = left;
    }
}
