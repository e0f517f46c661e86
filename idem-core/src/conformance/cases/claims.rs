//! Insert: one atomic, create-only step.

use super::standing::Standing;
use super::trial::{HOUR, TICK, Trial, brief_claim, claim, complete, fail, identity, request_of};
use super::trial::{answer, lease};
use crate::claim::Claim;
use crate::machine::Change;
use crate::policy::Takeover;
use crate::store::Inserted;
use crate::time::LeaseLength;
use std::time::Duration;

pub(super) async fn the_first_claim_wins(trial: Trial) {
    let identity = trial.identity();
    assert!(trial.is_absent(&identity).await, "the store is empty");
    let first = claim(&identity);
    // Asked directly: nobody may call the first claim busy.
    let answer = trial.store.insert(&first).await.expect("insert on a healthy store is not an error");
    let Inserted::Won(version) = answer else { panic!("the first claim wins: {answer:?}") };
    assert_eq!(version.owner, first.owner());
    assert_eq!(trial.record(&identity).await, first.first_record(version.locked_at));
}

pub(super) async fn a_second_claim_changes_nothing(trial: Trial) {
    for standing in Standing::ALL {
        let (identity, record) = trial.stand(standing).await;
        // A rival, and a rival with another request, lease and retention.
        let other = Claim::new(identity.clone(), request_of(b"other"), Takeover::Never)
            .with_lease(lease(9 * HOUR))
            .with_retention(9 * HOUR);
        for rival in [claim(&identity), other] {
            let (found, _) = trial.find(rival).await;
            assert_eq!(found, record, "a claim that meets {standing:?} gets it back whole");
            assert_eq!(trial.record(&identity).await, record, "a claim that meets {standing:?} writes nothing");
        }
    }
}

pub(super) async fn an_expired_record_still_stands(trial: Trial) {
    let settlements: [fn(&crate::Record) -> Change; 3] =
        [|record| complete(record, answer("done")), fail, |_| Change::Abandon];
    for settlement in settlements {
        let identity = trial.identity();
        let record = trial.win(brief_claim(&identity)).await;
        let record = trial.apply(&identity, &record, &settlement(&record)).await;
        let clock = trial.until(record.expires_at).await;
        assert!(record.is_expired(clock) || record.is_stale(clock));
        assert_eq!(trial.find(claim(&identity)).await.0, record, "only a swap or a purge ends a record's life");
        assert_eq!(trial.record(&identity).await, record);
    }
}

pub(super) async fn a_claimer_finds_its_own_row(trial: Trial) {
    let identity = trial.identity();
    let mut mine = claim(&identity);
    let Inserted::Won(version) = trial.insert(&mut mine).await else { panic!("the first claim wins") };
    mine.mark_asked();
    for _ in 0..3 {
        let answer = trial.insert(&mut mine).await;
        let Inserted::Existing(record, _) = answer else { panic!("its own row is there: {answer:?}") };
        assert_eq!(*record, mine.first_record(version.locked_at), "asked again, a claim finds the row that it made");
    }
}

pub(super) async fn another_key_is_no_rival(trial: Trial) {
    let (left, right) = (identity("acct_1", "left"), identity("acct_1", "right"));
    let first = trial.win(claim(&left)).await;
    let second = trial.win(claim(&right)).await;
    trial.apply(&right, &second, &complete(&second, answer("right"))).await;
    assert_eq!(trial.record(&left).await, first, "what happens to a key leaves the others alone");
}

pub(super) async fn zero_is_a_value(trial: Trial) {
    let identity = trial.identity();
    let record = trial.win(brief_claim(&identity)).await;
    assert_eq!(record.lease, LeaseLength::ZERO);
    assert_eq!(record.expires_at, record.created_at);

    let clock = trial.until(record.version.locked_at).await;
    assert!(record.is_stale(clock), "a lease of zero is over as soon as it begins");
    let record = trial.apply(&identity, &record, &complete(&record, answer("done"))).await;
    assert!(record.is_expired(clock), "with a retention of zero, settled is expired");
}

pub(super) async fn the_store_stamps_with_its_clock(trial: Trial) {
    // A clock may be slewed while the case runs; it is not set back by more than this.
    const SLACK: Duration = Duration::from_millis(100);
    let identity = trial.identity();
    let before = trial.load(&identity).await.clock;
    let record = trial.win(claim(&identity).with_retention(2 * HOUR)).await;
    let after = trial.load(&identity).await.clock;
    let stamp = record.version.locked_at;
    assert!(
        before <= stamp.saturating_add(SLACK),
        "stamped {stamp:?}, before the clock that was read first, {before:?}"
    );
    assert!(stamp <= after.saturating_add(SLACK), "stamped {stamp:?}, after the clock that was read last, {after:?}");
    assert_eq!(record.expires_at, stamp.saturating_add(2 * HOUR), "retention counts from the stamp");
}

pub(super) async fn every_answer_brings_the_clock(trial: Trial) {
    const STEP: Duration = Duration::from_millis(60);
    let identity = trial.identity();
    let record = trial.win(claim(&identity)).await;
    let earlier = trial.until(record.version.locked_at.saturating_add(TICK)).await;
    let now = trial.until(earlier.saturating_add(STEP)).await;
    let least = earlier.saturating_add(STEP / 2);

    let (_, found) = trial.find(claim(&identity)).await;
    assert!(found >= least, "insert says when it was answered: {found:?}, although it was {now:?} before");
    let lost = trial.swap(&identity, &record.version, &Change::Renew { lease: LeaseLength::ZERO }).await;
    let crate::store::Swapped::Lost(Some(_), lost) = lost else { panic!("a lease cannot shrink: {lost:?}") };
    assert!(lost >= least, "a lost swap says when it was answered: {lost:?}, although it was {now:?} before");
    let loaded = trial.load(&identity).await.clock;
    assert!(loaded >= least, "load says when it was answered: {loaded:?}, although it was {now:?} before");
}
