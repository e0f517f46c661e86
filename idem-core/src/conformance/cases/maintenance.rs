//! What people and dashboards use: stuck, stats, erase.

use super::standing::Standing;
use super::trial::{HOUR, TICK, Trial, answer, brief_claim, claim, complete, fail, identity, next, scope};
use crate::key::Identity;
use crate::machine::{Change, NextOwnership};
use crate::record::{Record, Status};
use crate::store::{Erase, Stuck, StuckQuery};
use crate::time::LeaseLength;
use std::time::Duration;

impl Trial {
    async fn erase(&self, of: &str, which: Erase) -> (u64, u64) {
        let erased = self.store.erase(&scope(of), which).await.expect("erase on a healthy store is not an error");
        (erased.deleted, erased.kept)
    }
}

pub(super) async fn stuck_lists_what_nobody_resolves_and_nothing_else(trial: Trial) {
    let mut expected = Vec::new();
    for standing in Standing::ALL {
        let (identity, record) = trial.stand(standing).await;
        if matches!(standing, Standing::Abandoned | Standing::FailedMarked) {
            expected.push(Stuck::new(identity, &record));
        }
    }
    let identity = trial.identity();
    let record = trial.win(brief_claim(&identity)).await;
    trial.until(record.lease_until()).await;
    expected.push(Stuck::new(identity, &record));
    expected.sort_by_cached_key(Stuck::cursor);
    assert_eq!(trial.all_stuck(&StuckQuery::default()).await, expected, "with all that is known of each");
}

pub(super) async fn stuck_pages_go_on_where_they_ended(trial: Trial) {
    // Claimed in an order that is not that of their names, four of them in one microsecond.
    let names = [("b", "k"), ("B", "k"), ("a", "z"), ("a", "Z"), ("a", "\u{e9}"), ("a", "a"), ("ab", "a"), ("a-", "a")];
    let mut records: Vec<(Identity, Record)> = Vec::new();
    for (scope, key) in names {
        let identity = identity(scope, key);
        let record = trial.win(brief_claim(&identity)).await;
        records.push((identity, record));
    }
    let tie = records.iter().map(|(_, record)| record.version.locked_at).max().expect("there are some");
    let tie = tie.saturating_add(TICK);
    let mut expected = Vec::new();
    for (index, (identity, record)) in records.into_iter().enumerate() {
        let record = if index < 4 {
            let mut next = NextOwnership { lease: LeaseLength::ZERO, ..next(&record) };
            next.version.locked_at = tie;
            let change = Change::Takeover { from: Status::InProgress, read_lease: record.lease, next, unresolved: 1 };
            trial.apply(&identity, &record, &change).await
        } else {
            record
        };
        expected.push(Stuck::new(identity, &record));
    }
    expected.sort_by_cached_key(Stuck::cursor);
    trial.until(tie).await;
    for limit in [1, 2, 3, 8, 100] {
        let listed = trial.all_stuck(&StuckQuery::default().with_limit(limit)).await;
        assert_eq!(listed, expected, "oldest locked_at first, then scope and key by their bytes; pages of {limit}");
    }
}

pub(super) async fn stuck_can_wait(trial: Trial) {
    let identity = trial.identity();
    let record = trial.win(claim(&identity).with_lease(LeaseLength::from_millis(1))).await;
    trial.until(record.lease_until().saturating_add(Duration::from_millis(5))).await;
    let stale_for = |at_least| StuckQuery::default().with_stale_for(at_least);
    let listed = [Stuck::new(identity, &record)];
    assert_eq!(trial.all_stuck(&stale_for(Duration::ZERO)).await, listed);
    assert_eq!(trial.all_stuck(&stale_for(Duration::from_millis(5))).await, listed, "counted from the lease's end");
    assert_eq!(trial.all_stuck(&stale_for(HOUR)).await, []);
}

pub(super) async fn stats_count_every_kind(trial: Trial) {
    let empty = trial.store.stats().await.expect("stats on a healthy store is not an error");
    assert_eq!(empty, crate::store::Stats::default(), "a fresh store is empty");
    for standing in Standing::ALL {
        trial.stand(standing).await;
    }
    trial.stand(Standing::Fresh).await;
    trial.expired(false).await;
    trial.expired(false).await;
    let (_, last) = trial.expired(true).await;
    trial.until(last.expires_at).await;
    let stats = trial.store.stats().await.expect("stats on a healthy store is not an error");
    assert_eq!((stats.live, stats.stale), (3, 1), "in progress: {stats:?}");
    assert_eq!((stats.completed, stats.failed, stats.expired), (3, 3, 3), "settled: {stats:?}");
    assert_eq!(stats.total(), 10);
}

pub(super) async fn looking_changes_nothing(trial: Trial) {
    let mut records = Vec::new();
    for standing in Standing::ALL {
        records.push(trial.stand(standing).await);
    }
    records.push(trial.expired(false).await);
    for _ in 0..3 {
        trial.all_stuck(&StuckQuery::default()).await;
        trial.store.stats().await.expect("stats on a healthy store is not an error");
        for (identity, record) in &records {
            assert_eq!(trial.record(identity).await, *record, "reads write nothing, whatever they find");
        }
    }
}

/// One record in every state in `acct_1`, which is where trials put theirs.
async fn resolved_and_not(trial: &Trial) -> (Vec<Identity>, Vec<(Identity, Record)>) {
    let (mut resolved, mut unresolved) = (Vec::new(), Vec::new());
    for standing in Standing::ALL {
        let (identity, record) = trial.stand(standing).await;
        if record.is_resolved() { resolved.push(identity) } else { unresolved.push((identity, record)) }
    }
    (resolved, unresolved)
}

pub(super) async fn erasing_what_is_resolved_keeps_the_rest(trial: Trial) {
    let (resolved, unresolved) = resolved_and_not(&trial).await;
    assert_eq!(trial.erase("acct_1", Erase::Settled).await, (2, 4), "deleted and kept");
    for identity in &resolved {
        assert!(trial.is_absent(identity).await, "resolved records are deleted, expired or not");
    }
    for (identity, record) in &unresolved {
        assert_eq!(trial.record(identity).await, *record, "live and stuck records stay");
    }
    assert_eq!(trial.erase("acct_1", Erase::Settled).await, (0, 4), "erasing again is always right");
}

pub(super) async fn erasing_everything_is_force(trial: Trial) {
    let (resolved, unresolved) = resolved_and_not(&trial).await;
    assert_eq!(trial.erase("acct_1", Erase::Everything).await, (6, 0));
    for identity in resolved.iter().chain(unresolved.iter().map(|(identity, _)| identity)) {
        assert!(trial.is_absent(identity).await);
    }
    // Owners that were at work are fenced, and their keys are new.
    let (identity, old) = &unresolved[0];
    let late = trial.swap(identity, &old.version, &complete(old, answer("late"))).await;
    assert!(matches!(late, crate::store::Swapped::Lost(None, _)), "{late:?}");
    let record = trial.win(claim(identity)).await;
    trial.refuse(identity, &old.version, &fail(old), &record).await;
}

pub(super) async fn erasing_touches_one_scope(trial: Trial) {
    let alike = [
        "Tenant_%",
        "tenant_",
        "tenant_%%",
        "tenant_% ",
        " tenant_%",
        "tenant",
        "tenantX%",
        "tenant_42",
        "%",
        "_",
        "t",
        "tenant_\u{ff05}",
        "tenant_%/sub",
        "TENANT_%",
        "tenant\\_\\%",
        "e\u{301}tenant_%",
        "\u{e9}tenant_%",
    ];
    let mut others = Vec::new();
    for scope in alike {
        let identity = identity(scope, "k");
        let record = trial.win(claim(&identity)).await;
        let record = trial.apply(&identity, &record, &complete(&record, answer(scope))).await;
        others.push((identity, record));
    }
    let mine = identity("tenant_%", "k");
    let record = trial.win(claim(&mine)).await;
    trial.apply(&mine, &record, &complete(&record, answer("mine"))).await;
    let at_work = identity("tenant_%", "at work");
    trial.win(claim(&at_work)).await;

    assert_eq!(trial.erase("tenant_%", Erase::Settled).await, (1, 1));
    assert_eq!(trial.erase("tenant_%", Erase::Everything).await, (1, 0));
    assert_eq!(trial.erase("e\u{301}", Erase::Everything).await, (0, 0), "nobody has this scope");
    for (identity, record) in &others {
        assert_eq!(trial.record(identity).await, *record, "scopes that look alike are others");
    }
}
