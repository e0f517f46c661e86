//! Promise 3: an owner whose key was taken over is told so, and its completion changes nothing.

use super::{LONG, Memory, Subject, claim, completion, dead_at_once, identity, load, own, send};
use idem_core::Identity;
use idem_core::machine::{Change, Ownership, ProgressVerdict, SettlementVerdict};
use idem_core::store::{Erase, PurgeOptions, Swapped};
use idem_core::{RecoveryPoint, Store};
use std::time::Duration;

/// Whatever the late owner sends is refused, changes nothing, and shows it who has the key.
async fn assert_fenced(store: &dyn Store, key: &Identity, late: &mut Ownership) {
    let before = load(store, key).await;
    let point = RecoveryPoint { name: "late".into(), data: "late".into() };
    let progress = [late.renew(LONG, LONG), late.checkpoint(point, LONG, LONG), late.begin_effect(LONG, LONG)];
    for change in progress {
        let Swapped::Lost(found, _) = send(store, key, late, &change).await else { panic!("{change:?} was taken") };
        let found = found.map(|found| *found);
        assert_eq!(found, before);
        assert_eq!(late.judge_progress(&change, found.as_ref()), ProgressVerdict::Fenced(before.clone()));
    }
    let verified = late.fail(true, LONG, Duration::ZERO).expect("it was verified");
    for change in [completion(late, "late"), verified, Change::Abandon] {
        let Swapped::Lost(found, _) = send(store, key, late, &change).await else { panic!("{change:?} was taken") };
        let found = found.map(|found| *found);
        assert_eq!(found, before);
        assert_eq!(late.judge_settlement(&change, found.as_ref()), SettlementVerdict::Fenced(before.clone()));
    }
    assert_eq!(load(store, key).await, before);
}

async fn late_owners_are_fenced(subject: &impl Subject) {
    let store = subject.fresh().await;
    let store = &*store;

    let key = identity("scope", "taken over");
    let mut late = own(store, &dead_at_once(&key)).await;
    let next = own(store, &claim(&key)).await;
    assert!(next.version().fencing_token() > late.version().fencing_token());
    assert_fenced(store, &key, &mut late).await;
    assert_eq!(send(store, &key, &next, &completion(&next, "answer")).await, Swapped::Applied);
    assert_fenced(store, &key, &mut late).await;

    let key = identity("scope", "abandoned and taken over");
    let mut late = own(store, &claim(&key)).await;
    assert_eq!(send(store, &key, &late, &Change::Abandon).await, Swapped::Applied);
    own(store, &claim(&key)).await;
    assert_fenced(store, &key, &mut late).await;

    let key = identity("scope", "failed and retried");
    let mut late = own(store, &claim(&key)).await;
    let failed = late.fail(false, Duration::ZERO, Duration::ZERO).expect("nothing has begun");
    assert_eq!(send(store, &key, &late, &failed).await, Swapped::Applied);
    own(store, &claim(&key)).await;
    assert_fenced(store, &key, &mut late).await;

    let key = identity("scope", "expired and new");
    let mut late = own(store, &claim(&key).with_retention(Duration::ZERO)).await;
    assert_eq!(send(store, &key, &late, &completion(&late, "answer")).await, Swapped::Applied);
    own(store, &claim(&key)).await;
    assert_fenced(store, &key, &mut late).await;

    let key = identity("scope", "purged");
    let mut late = own(store, &claim(&key).with_retention(Duration::ZERO)).await;
    assert_eq!(send(store, &key, &late, &completion(&late, "answer")).await, Swapped::Applied);
    assert_eq!(store.purge(&PurgeOptions::default()).await.unwrap().settled, 1);
    assert_fenced(store, &key, &mut late).await;
    own(store, &claim(&key)).await;
    assert_fenced(store, &key, &mut late).await;

    let key = identity("another scope", "erased by force");
    let mut late = own(store, &claim(&key)).await;
    assert_eq!(store.erase(key.scope(), Erase::Everything).await.unwrap().deleted, 1);
    assert_fenced(store, &key, &mut late).await;
    own(store, &claim(&key)).await;
    assert_fenced(store, &key, &mut late).await;
}

#[tokio::test]
async fn late_owners_are_fenced_by_memory() {
    late_owners_are_fenced(&Memory).await;
}
