//! The owner's progress: renew, `begin_effect`, checkpoint.

use super::standing::{Standing, checkpoint, progress_changes, progress_with};
use super::trial::{HOUR, Trial, brief_claim, claim, lease, take_over};
use crate::machine::Change;
use crate::record::Owner;
use crate::time::LeaseLength;
use std::time::Duration;

const AT_WORK: [Standing; 2] = [Standing::Fresh, Standing::Marked];

pub(super) async fn progress_sets_what_it_says(trial: Trial) {
    for standing in AT_WORK {
        let (identity, mut record) = trial.stand(standing).await;
        // Twice each, so that a second recovery point replaces a first.
        for index in [0, 1, 2, 2, 1, 0] {
            let change = progress_changes(&record).swap_remove(index);
            record = trial.apply(&identity, &record, &change).await;
        }
        assert!(record.effect_begun);
        let replaced = trial.apply(&identity, &record, &checkpoint(&record, "shipped")).await;
        assert_eq!(replaced.recovery_point.expect("it was set").name, "shipped");
    }
}

pub(super) async fn progress_compares_locked_at(trial: Trial) {
    for standing in AT_WORK {
        let (identity, record) = trial.stand(standing).await;
        for change in progress_changes(&record) {
            for shifted in [1, -1, 1_000] {
                let mut other = record.version;
                other.locked_at = crate::Timestamp::from_micros(other.locked_at.as_micros() + shifted);
                trial.refuse(&identity, &other, &change, &record).await;
            }
        }
    }
}

pub(super) async fn progress_compares_the_owner(trial: Trial) {
    for standing in AT_WORK {
        let (identity, record) = trial.stand(standing).await;
        for change in progress_changes(&record) {
            let mut other = record.version;
            other.owner = Owner::mint();
            trial.refuse(&identity, &other, &change, &record).await;
        }
    }
}

pub(super) async fn progress_compares_the_status(trial: Trial) {
    for standing in [Standing::Completed, Standing::Failed, Standing::FailedMarked] {
        let (identity, record) = trial.stand(standing).await;
        for change in progress_changes(&record) {
            trial.refuse(&identity, &record.version, &change, &record).await;
        }
    }
}

pub(super) async fn a_lease_only_grows(trial: Trial) {
    for standing in AT_WORK {
        let (identity, record) = trial.stand(standing).await;
        let shorter = LeaseLength::from_millis(record.lease.as_millis() - 1);
        for refused in [record.lease, shorter, LeaseLength::from_millis(1), LeaseLength::ZERO] {
            for change in progress_with(refused) {
                trial.refuse(&identity, &record.version, &change, &record).await;
            }
        }
        let longest = trial.apply(&identity, &record, &Change::Renew { lease: LeaseLength::MAX }).await;
        for change in progress_with(LeaseLength::MAX) {
            trial.refuse(&identity, &record.version, &change, &longest).await;
        }
    }
}

pub(super) async fn a_delayed_older_write_is_refused(trial: Trial) {
    let (identity, record) = trial.stand(Standing::Fresh).await;
    let older = checkpoint(&record, "older");
    let newer = Change::Renew { lease: lease(2 * HOUR) };
    let renewed = trial.apply(&identity, &record, &newer).await;
    trial.refuse(&identity, &record.version, &older, &renewed).await;
    trial.refuse(&identity, &record.version, &newer, &renewed).await;
}

pub(super) async fn nothing_revives_an_abandoned_lease(trial: Trial) {
    let born_abandoned = trial.identity();
    let first = trial.win(brief_claim(&born_abandoned)).await;
    for (identity, record) in [trial.stand(Standing::Abandoned).await, (born_abandoned, first)] {
        for lease in [LeaseLength::ZERO, LeaseLength::from_millis(1), lease(2 * HOUR), LeaseLength::MAX] {
            for change in progress_with(lease) {
                trial.refuse(&identity, &record.version, &change, &record).await;
            }
        }
    }
}

pub(super) async fn an_owner_may_renew_until_it_is_replaced(trial: Trial) {
    let identity = trial.identity();
    let record = trial.win(claim(&identity).with_lease(LeaseLength::from_millis(1))).await;
    let clock = trial.until(record.lease_until()).await;
    assert!(record.is_stale(clock));
    // A store compares and sets. That an owner sends nothing after its own deadline is the owner's business.
    let longer = LeaseLength::from_duration(HOUR + Duration::from_millis(1));
    for change in progress_with(longer) {
        let identity = trial.identity();
        let record = trial.win(claim(&identity).with_lease(LeaseLength::from_millis(1))).await;
        trial.until(record.lease_until()).await;
        trial.apply(&identity, &record, &change).await;
    }
}

pub(super) async fn a_replaced_owner_makes_no_progress(trial: Trial) {
    let (identity, record) = trial.stand(Standing::Fresh).await;
    let taken = trial.apply(&identity, &record, &take_over(&record)).await;
    for change in progress_with(lease(9 * HOUR)) {
        trial.refuse(&identity, &record.version, &change, &taken).await;
    }
    // The new owner is not disturbed.
    trial.apply(&identity, &taken, &Change::Renew { lease: lease(9 * HOUR) }).await;
}
