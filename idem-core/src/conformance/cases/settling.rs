//! Settlements: complete, fail, abandon.

use super::standing::{Standing, all_changes, completion, failure, settling_changes};
use super::trial::{Trial, answer, brief_claim, claim, complete, fail, next, take_over};
use crate::machine::{Change, Decision, decide};
use crate::record::{Owner, State, Status};
use crate::time::LeaseLength;

const UNSETTLED: [Standing; 3] = [Standing::Fresh, Standing::Marked, Standing::Abandoned];
const SETTLED: [Standing; 3] = [Standing::Completed, Standing::Failed, Standing::FailedMarked];

pub(super) async fn a_settlement_sets_what_it_says(trial: Trial) {
    for standing in UNSETTLED {
        for index in 0..4 {
            let (identity, record) = trial.stand(standing).await;
            trial.apply(&identity, &record, &settling_changes(&record)[index]).await;
        }
    }
}

pub(super) async fn settling_compares_locked_at(trial: Trial) {
    for standing in UNSETTLED {
        let (identity, record) = trial.stand(standing).await;
        for change in settling_changes(&record) {
            for shifted in [1, -1, 1_000] {
                let mut other = record.version;
                other.locked_at = crate::Timestamp::from_micros(other.locked_at.as_micros() + shifted);
                trial.refuse(&identity, &other, &change, &record).await;
            }
        }
    }
}

pub(super) async fn settling_compares_the_owner(trial: Trial) {
    for standing in UNSETTLED {
        let (identity, record) = trial.stand(standing).await;
        for change in settling_changes(&record) {
            let mut other = record.version;
            other.owner = Owner::mint();
            trial.refuse(&identity, &other, &change, &record).await;
        }
    }
}

pub(super) async fn settling_compares_the_status(trial: Trial) {
    for standing in SETTLED {
        let (identity, record) = trial.stand(standing).await;
        for change in settling_changes(&record) {
            trial.refuse(&identity, &record.version, &change, &record).await;
        }
    }
}

pub(super) async fn completed_is_final(trial: Trial) {
    let (identity, record) = trial.stand(Standing::Completed).await;
    for change in all_changes(&record) {
        let ends_the_life = matches!(change, Change::AsNew { from: Status::Completed, .. });
        if !ends_the_life {
            trial.refuse(&identity, &record.version, &change, &record).await;
        }
    }
    // Not even by a repetition of itself.
    let State::Completed(response) = record.state.clone() else { panic!("it is completed") };
    let again = complete(&record, response);
    trial.refuse(&identity, &record.version, &again, &record).await;
}

pub(super) async fn completion_touches_nothing_else(trial: Trial) {
    let (identity, before) = trial.stand(Standing::Marked).await;
    let after = trial.apply(&identity, &before, &completion(&before, "done")).await;
    assert_eq!(after.fingerprint, before.fingerprint);
    assert_eq!((after.effect_begun, after.unresolved), (before.effect_begun, before.unresolved), "marks stay");
    assert_eq!(after.recovery_point, before.recovery_point);
    assert_eq!((after.version, after.lease, after.attempt), (before.version, before.lease, before.attempt));
    assert_eq!(after.created_at, before.created_at);
    assert_eq!(after.state, State::Completed(answer("done")));
}

pub(super) async fn a_late_completion_counts_if_nobody_took_over(trial: Trial) {
    let identity = trial.identity();
    let record = trial.win(claim(&identity).with_lease(LeaseLength::from_millis(1))).await;
    let clock = trial.until(record.lease_until()).await;
    assert!(record.is_stale(clock));
    trial.apply(&identity, &record, &complete(&record, answer("late, and true"))).await;

    let identity = trial.identity();
    let record = trial.win(brief_claim(&identity)).await;
    trial.until(record.lease_until()).await;
    trial.apply(&identity, &record, &complete(&record, answer("late, and true"))).await;
}

pub(super) async fn a_replaced_owner_settles_nothing(trial: Trial) {
    let identity = trial.identity();
    let old = trial.win(brief_claim(&identity).with_retention(super::trial::HOUR)).await;
    let clock = trial.until(old.lease_until()).await;
    let rival = claim(&identity);
    let Decision::Swap { change, .. } = decide(&old, &rival, clock) else { panic!("the record is stale") };
    let taken = trial.apply(&identity, &old, &change).await;

    // While the new owner is at work, and when it is done.
    for late in settling_changes(&old) {
        trial.refuse(&identity, &old.version, &late, &taken).await;
    }
    let completed = trial.apply(&identity, &taken, &complete(&taken, answer("of the new owner"))).await;
    for late in settling_changes(&old) {
        trial.refuse(&identity, &old.version, &late, &completed).await;
    }
    let (found, clock) = trial.find(claim(&identity)).await;
    assert_eq!(decide(&found, &rival, clock), Decision::Replay(answer("of the new owner")));
}

pub(super) async fn an_owner_of_a_former_life_settles_nothing(trial: Trial) {
    let (identity, old) = trial.stand(Standing::Failed).await;
    let next = crate::machine::NextOwnership { attempt: 1, ..next(&old) };
    let as_new =
        Change::AsNew { from: Status::Failed, read_lease: old.lease, next, fingerprint: old.fingerprint.clone() };
    let reborn = trial.apply(&identity, &old, &as_new).await;
    for late in settling_changes(&old) {
        trial.refuse(&identity, &old.version, &late, &reborn).await;
    }
}

pub(super) async fn a_failure_keeps_the_marks(trial: Trial) {
    let (identity, before) = trial.stand(Standing::Marked).await;
    let after = trial.apply(&identity, &before, &failure(&before, false)).await;
    assert!(after.effect_begun && after.unresolved > 0, "nobody verified that nothing happened");
    assert_eq!(after.recovery_point, before.recovery_point);
}

pub(super) async fn a_verified_failure_clears_the_marks(trial: Trial) {
    let (identity, before) = trial.stand(Standing::Marked).await;
    let after = trial.apply(&identity, &before, &failure(&before, true)).await;
    assert_eq!((after.effect_begun, after.unresolved), (false, 0));
    assert_eq!(after.recovery_point, before.recovery_point, "the recovery point is no mark");
}

pub(super) async fn abandoning_is_no_settlement(trial: Trial) {
    let (identity, before) = trial.stand(Standing::Marked).await;
    let after = trial.apply(&identity, &before, &Change::Abandon).await;
    let clock = trial.until(after.version.locked_at).await;
    assert!(after.is_stale(clock), "an abandoned record is stale at once");
    assert_eq!((after.expires_at, after.unresolved), (before.expires_at, before.unresolved));
    // Whoever learns how it ended, an operator or the owner, may still say so under the same version.
    trial.apply(&identity, &after, &complete(&after, answer("found out"))).await;
}

pub(super) async fn a_failed_key_can_be_completed_by_the_next_owner(trial: Trial) {
    let identity = trial.identity();
    let record = trial.win(claim(&identity)).await;
    let failed = trial.apply(&identity, &record, &fail(&record)).await;
    let (found, clock) = trial.find(claim(&identity)).await;
    let Decision::Swap { change: change @ Change::Retry { .. }, .. } = decide(&found, &claim(&identity), clock) else {
        panic!("nothing happened, so a retry may run")
    };
    let retried = trial.apply(&identity, &failed, &change).await;
    trial.refuse(&identity, &record.version, &complete(&record, answer("of the first")), &retried).await;
    let taken = trial.apply(&identity, &retried, &take_over(&retried)).await;
    trial.apply(&identity, &taken, &complete(&taken, answer("of the third"))).await;
}
