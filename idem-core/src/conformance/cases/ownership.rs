//! Changes of ownership: retry, takeover, as new, relock.

use super::standing::{Standing, checkpoint, having_read, ownership_changes};
use super::trial::{
    HOUR, TICK, Trial, answer, brief_claim, claim, complete, fail, lease, next, renew, request_of, take_over,
};
use crate::key::Identity;
use crate::machine::{Change, Decision, NextOwnership, decide};
use crate::record::{Owner, Record, Status};
use crate::time::LeaseLength;
use std::time::Duration;

/// Every ownership change that is legal on a record of each kind, with the record.
async fn legal_changes(trial: &Trial) -> Vec<(Identity, Record, Change)> {
    let mut legal = Vec::new();
    for standing in Standing::ALL {
        let (identity, record) = trial.stand(standing).await;
        for change in ownership_changes(&record) {
            if change.apply(&record, &record.version).is_some() {
                legal.push((identity.clone(), record.clone(), change));
            }
        }
    }
    legal
}

pub(super) async fn ownership_compares_locked_at(trial: Trial) {
    for (identity, record, change) in legal_changes(&trial).await {
        for shifted in [1, -1, 1_000, -1_000_000] {
            let mut other = record.version;
            other.locked_at = crate::Timestamp::from_micros(other.locked_at.as_micros() + shifted);
            trial.refuse(&identity, &other, &change, &record).await;
        }
    }
}

pub(super) async fn ownership_compares_the_owner(trial: Trial) {
    for (identity, record, change) in legal_changes(&trial).await {
        let mut other = record.version;
        other.owner = Owner::mint();
        trial.refuse(&identity, &other, &change, &record).await;
    }
}

pub(super) async fn ownership_compares_the_lease_as_read(trial: Trial) {
    for (identity, record, change) in legal_changes(&trial).await {
        let shorter = LeaseLength::from_millis(record.lease.as_millis().saturating_sub(1));
        for lease in [record.lease.next(), shorter, LeaseLength::ZERO, LeaseLength::MAX] {
            if lease != record.lease {
                trial.refuse(&identity, &record.version, &having_read(&change, lease), &record).await;
            }
        }
    }
}

pub(super) async fn ownership_compares_the_status(trial: Trial) {
    for standing in Standing::ALL {
        let (identity, record) = trial.stand(standing).await;
        for change in ownership_changes(&record) {
            if change.apply(&record, &record.version).is_none() {
                trial.refuse(&identity, &record.version, &change, &record).await;
            }
        }
    }
}

pub(super) async fn a_takeover_loses_to_a_renewal(trial: Trial) {
    let identity = trial.identity();
    let record = trial.win(claim(&identity).with_lease(LeaseLength::from_millis(1))).await;
    let clock = trial.until(record.lease_until()).await;
    let rival = claim(&identity);
    let Decision::Swap { expected, change } = decide(&record, &rival, clock) else { panic!("the record is stale") };

    let renewed = trial.apply(&identity, &record, &Change::Renew { lease: lease(HOUR) }).await;
    trial.refuse(&identity, &expected, &change, &renewed).await;
}

pub(super) async fn a_takeover_loses_to_a_completion(trial: Trial) {
    let identity = trial.identity();
    let record = trial.win(brief_claim(&identity).with_retention(HOUR)).await;
    let clock = trial.until(record.lease_until()).await;
    let rival = claim(&identity);
    let Decision::Swap { expected, change } = decide(&record, &rival, clock) else { panic!("the record is stale") };

    let completed = trial.apply(&identity, &record, &complete(&record, answer("first"))).await;
    trial.refuse(&identity, &expected, &change, &completed).await;
    let (found, clock) = trial.find(claim(&identity)).await;
    assert_eq!(decide(&found, &rival, clock), Decision::Replay(answer("first")), "the rival gets the stored answer");
}

pub(super) async fn a_takeover_loses_to_a_takeover(trial: Trial) {
    let identity = trial.identity();
    let record = trial.win(brief_claim(&identity)).await;
    let (first, second) = (take_over(&record), take_over(&record));
    let taken = trial.apply(&identity, &record, &first).await;
    trial.refuse(&identity, &record.version, &second, &taken).await;
    trial.refuse(&identity, &record.version, &first, &taken).await;
}

pub(super) async fn a_takeover_keeps_the_life(trial: Trial) {
    let identity = trial.identity();
    let mut record = trial.win(claim(&identity)).await;
    record = trial.apply(&identity, &record, &Change::BeginEffect { lease: record.lease.next() }).await;
    record = trial.apply(&identity, &record, &checkpoint(&record, "charged")).await;
    for unresolved in 1..=3 {
        let taken = trial.apply(&identity, &record, &take_over(&record)).await;
        assert_eq!(taken.created_at, record.created_at, "a takeover does not move created_at");
        assert_eq!(taken.fingerprint, record.fingerprint);
        assert_eq!(taken.recovery_point, record.recovery_point, "the next owner goes on from the recovery point");
        assert!(taken.effect_begun, "the mark is sticky");
        assert_eq!((taken.unresolved, taken.attempt), (unresolved, unresolved + 1));
        record = taken;
    }
}

pub(super) async fn a_takeover_of_a_failure_keeps_the_life(trial: Trial) {
    let (identity, record) = trial.stand(Standing::FailedMarked).await;
    let taken = trial.apply(&identity, &record, &take_over(&record)).await;
    assert_eq!(taken.status(), Status::InProgress);
    assert_eq!((taken.created_at, &taken.recovery_point), (record.created_at, &record.recovery_point));
}

pub(super) async fn a_retry_keeps_the_life(trial: Trial) {
    for standing in [Standing::Failed, Standing::FailedMarked] {
        let (identity, record) = trial.stand(standing).await;
        let retry = Change::Retry { read_lease: record.lease, next: next(&record) };
        let retried = trial.apply(&identity, &record, &retry).await;
        assert_eq!(retried.created_at, record.created_at);
        assert_eq!(retried.recovery_point, record.recovery_point);
        assert_eq!((retried.effect_begun, retried.unresolved), (record.effect_begun, record.unresolved));
    }
}

pub(super) async fn a_new_life_keeps_nothing_of_the_old(trial: Trial) {
    for standing in [Standing::Completed, Standing::Failed, Standing::FailedMarked] {
        let (identity, record) = trial.stand(standing).await;
        let begin = NextOwnership { attempt: 1, ..next(&record) };
        let fingerprint = request_of(b"another request");
        let as_new = Change::AsNew {
            from: record.status(),
            read_lease: record.lease,
            next: begin,
            fingerprint: fingerprint.clone(),
        };
        let reborn = trial.apply(&identity, &record, &as_new).await;
        assert_eq!((reborn.status(), reborn.attempt), (Status::InProgress, 1));
        assert_eq!(reborn.created_at, begin.version.locked_at, "a life begins when its first ownership begins");
        assert!(reborn.version.locked_at > record.version.locked_at, "locked_at alone lives on, by growing");
        assert_eq!((reborn.effect_begun, reborn.unresolved), (false, 0), "the marks are those of the old life");
        assert_eq!(reborn.recovery_point, None, "the recovery point is that of the old life");
        assert_eq!(reborn.fingerprint, fingerprint);
        // And it can be settled with another answer.
        trial.apply(&identity, &reborn, &complete(&reborn, answer("second life"))).await;
    }
}

pub(super) async fn an_expired_record_becomes_new(trial: Trial) {
    for failed in [false, true] {
        let identity = trial.identity();
        let record = trial.win(brief_claim(&identity)).await;
        let settlement = if failed { fail(&record) } else { complete(&record, answer("old")) };
        let record = trial.apply(&identity, &record, &settlement).await;
        trial.until(record.expires_at).await;

        let mine = claim(&identity);
        let (found, clock) = trial.find(claim(&identity)).await;
        let Decision::Swap { expected, change: change @ Change::AsNew { .. } } = decide(&found, &mine, clock) else {
            panic!("an expired record is an invitation")
        };
        assert_eq!(expected, record.version);
        trial.apply(&identity, &found, &change).await;
        // Decided twice, done once.
        let reborn = trial.record(&identity).await;
        trial.refuse(&identity, &expected, &change, &reborn).await;
    }
}

pub(super) async fn a_stale_record_past_retention_is_never_new(trial: Trial) {
    let identity = trial.identity();
    let record = trial.win(brief_claim(&identity)).await;
    let clock = trial.until(record.expires_at).await;
    assert!(record.is_stale(clock) && record.expires_at <= clock);
    assert_eq!(trial.find(claim(&identity)).await.0, record, "nobody knows how it ended, so it stands");
    for from in Status::ALL {
        let next = NextOwnership { attempt: 1, ..next(&record) };
        let as_new = Change::AsNew { from, read_lease: record.lease, next, fingerprint: request_of(b"new") };
        trial.refuse(&identity, &record.version, &as_new, &record).await;
    }
}

pub(super) async fn locked_at_grows_while_the_clock_stands(trial: Trial) {
    let identity = trial.identity();
    let mut record = trial.win(claim(&identity)).await;
    let stands = record.version.locked_at;
    let set_back = crate::Timestamp::from_micros(stands.as_micros() - 3_600_000_000);
    for clock in [stands, stands, set_back, set_back] {
        let failed = trial.apply(&identity, &record, &fail(&record)).await;
        let Decision::Swap { change, .. } = decide(&failed, &claim(&identity), clock) else {
            panic!("a failed record is retried")
        };
        let retried = trial.apply(&identity, &failed, &change).await;
        assert!(retried.version.locked_at > record.version.locked_at, "every ownership has a larger fencing token");
        record = retried;
    }
    assert_eq!(record.version.locked_at, stands.saturating_add(4 * TICK));
}

pub(super) async fn a_claimer_locks_its_own_stale_row_again(trial: Trial) {
    let identity = trial.identity();
    let mut mine = claim(&identity).with_lease(LeaseLength::from_millis(1));
    trial.insert(&mut mine).await;
    let record = trial.record(&identity).await;
    let clock = trial.until(record.lease_until()).await;
    let Decision::Swap { change: change @ Change::Relock { .. }, .. } = decide(&record, &mine, clock) else {
        panic!("its own row is stale")
    };
    let relocked = trial.apply(&identity, &record, &change).await;
    assert_eq!((relocked.version.owner, relocked.attempt), (record.version.owner, 1));
    assert!(relocked.version.locked_at > record.version.locked_at);
    // The version that it had before is one like any other that was lost.
    trial.refuse(&identity, &record.version, &complete(&record, answer("late")), &relocked).await;
    trial.refuse(&identity, &record.version, &renew(&relocked), &relocked).await;
    trial.apply(&identity, &relocked, &Change::Renew { lease: relocked.lease.next() }).await;
}

pub(super) async fn ownership_takes_the_values_that_it_is_given(trial: Trial) {
    let (identity, record) = trial.stand(Standing::Marked).await;
    let mut given = next(&record);
    given.lease = LeaseLength::ZERO;
    given.attempt = 77;
    given.expires_at = record.expires_at.saturating_add(Duration::from_micros(1_234_567));
    let change = Change::Takeover { from: Status::InProgress, read_lease: record.lease, next: given, unresolved: 41 };
    let taken = trial.apply(&identity, &record, &change).await;
    assert_eq!((taken.attempt, taken.unresolved, taken.lease), (77, 41, LeaseLength::ZERO));
}
