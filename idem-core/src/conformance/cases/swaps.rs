//! Swap as a whole: the total table, and what a refusal means.

use super::standing::{Standing, all_changes};
use super::trial::{HOUR, Trial, answer, claim, complete, identity, lease, renew};
use crate::machine::Change;
use crate::store::Swapped;

pub(super) async fn every_cell_of_the_table_holds(trial: Trial) {
    for standing in Standing::ALL {
        // Made anew for every change, since the one before may have applied.
        let count = all_changes(&trial.stand(standing).await.1).len();
        for index in 0..count {
            let (identity, record) = trial.stand(standing).await;
            let change = &all_changes(&record)[index];
            match change.apply(&record, &record.version) {
                Some(_) => drop(trial.apply(&identity, &record, change).await),
                None => trial.refuse(&identity, &record.version, change, &record).await,
            }
        }
    }
}

pub(super) async fn a_swap_makes_no_record(trial: Trial) {
    let (_, elsewhere) = trial.stand(Standing::Marked).await;
    for change in all_changes(&elsewhere) {
        let nowhere = trial.identity();
        let answer = trial.swap(&nowhere, &elsewhere.version, &change).await;
        assert!(matches!(answer, Swapped::Lost(None, _)), "{change:?} on nothing loses to nothing: {answer:?}");
        assert!(trial.is_absent(&nowhere).await, "{change:?} makes no record");
    }
}

pub(super) async fn a_refused_swap_returns_what_stands(trial: Trial) {
    for standing in Standing::ALL {
        let (identity, record) = trial.stand(standing).await;
        let mut elsewhere = record.version;
        elsewhere.owner = crate::record::Owner::mint();
        for change in all_changes(&record) {
            trial.refuse(&identity, &elsewhere, &change, &record).await;
        }
    }
}

pub(super) async fn a_swap_touches_one_record(trial: Trial) {
    let others = [identity("acct_1", "swapped-not"), identity("acct_2", "swapped"), identity("acct_2", "swapped-not")];
    let mut before = Vec::new();
    for other in &others {
        before.push(trial.win(claim(other)).await);
    }
    let identity = identity("acct_1", "swapped");
    let mut record = trial.win(claim(&identity)).await;
    let begin = Change::BeginEffect { lease: lease(2 * HOUR) };
    for change in [renew(&record), begin, complete(&record, answer("done"))] {
        record = trial.apply(&identity, &record, &change).await;
        for (other, before) in others.iter().zip(&before) {
            assert_eq!(trial.record(other).await, *before, "{change:?} leaves other records alone");
        }
    }
}

pub(super) async fn load_sees_what_was_acknowledged(trial: Trial) {
    let identity = trial.identity();
    assert!(trial.is_absent(&identity).await);
    let mut record = trial.win(claim(&identity)).await;
    for _ in 0..20 {
        record = trial.apply(&identity, &record, &renew(&record)).await;
    }
    trial.apply(&identity, &record, &complete(&record, answer("done"))).await;
}
