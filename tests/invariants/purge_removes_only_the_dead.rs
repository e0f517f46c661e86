//! A purge deletes settled records that have expired, unresolved ones only when told to, and never anything alive: not even while
//! owners, retries and other purges are at it.

use super::{LONG, Memory, Subject, claim, completion, dead_at_once, identity, load, own, send};
use idem_core::machine::Change;
use idem_core::store::{PurgeOptions, Swapped, UnresolvedRows};
use idem_core::{Claim, Identity, Store};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const BRIEF: Duration = Duration::ZERO;

async fn complete(store: &dyn Store, claim: &Claim) {
    let owner = own(store, claim).await;
    assert_eq!(send(store, claim.identity(), &owner, &completion(&owner, "answer")).await, Swapped::Applied);
}

async fn fail(store: &dyn Store, claim: &Claim) {
    let owner = own(store, claim).await;
    let failure = owner.fail(false, Duration::ZERO, Duration::ZERO).expect("nothing has begun");
    assert_eq!(send(store, claim.identity(), &owner, &failure).await, Swapped::Applied);
}

async fn each_kind_of_record(subject: &impl Subject) {
    let store = subject.fresh().await;
    let store = &*store;
    let at = |name: &str| identity("scope", name);

    complete(store, &claim(&at("answer"))).await;
    complete(store, &claim(&at("expired answer")).with_retention(BRIEF)).await;
    fail(store, &claim(&at("failure"))).await;
    fail(store, &claim(&at("expired failure")).with_retention(BRIEF)).await;
    own(store, &claim(&at("live"))).await;
    own(store, &claim(&at("live past retention")).with_retention(BRIEF)).await;
    own(store, &dead_at_once(&at("stale"))).await;
    own(store, &dead_at_once(&at("stale past retention")).with_retention(BRIEF)).await;
    let abandoned = own(store, &claim(&at("abandoned past retention")).with_retention(BRIEF)).await;
    assert_eq!(send(store, &at("abandoned past retention"), &abandoned, &Change::Abandon).await, Swapped::Applied);

    let gone = async |names: &[&str]| {
        for name in ["answer", "failure", "live", "live past retention", "stale"] {
            assert!(load(store, &at(name)).await.is_some(), "{name} was purged");
        }
        for name in names {
            assert!(load(store, &at(name)).await.is_none(), "{name} was not purged");
        }
    };

    let purged = store.purge(&PurgeOptions::default()).await.unwrap();
    assert_eq!((purged.settled, purged.unresolved), (2, 0));
    gone(&["expired answer", "expired failure"]).await;

    let patient = PurgeOptions::default().with_unresolved(UnresolvedRows::DropAfter(LONG));
    assert_eq!(store.purge(&patient).await.unwrap().total(), 0);

    let dropping = PurgeOptions::default().with_unresolved(UnresolvedRows::DropAfter(Duration::ZERO));
    let purged = store.purge(&dropping).await.unwrap();
    assert_eq!((purged.settled, purged.unresolved), (0, 2));
    gone(&["stale past retention", "abandoned past retention"]).await;
    assert_eq!(store.purge(&dropping).await.unwrap().total(), 0);
}

/// Records expire, come to life again and are settled while two purges run: no owner ever loses a live record, and no answer
/// is purged that has not expired.
async fn beside_live_traffic(subject: &impl Subject) {
    let store = subject.fresh().await;
    let stop = Arc::new(AtomicBool::new(false));
    let purges: Vec<_> = (0..2)
        .map(|_| {
            let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
            tokio::spawn(async move {
                let options =
                    PurgeOptions::default().with_batch(3).with_unresolved(UnresolvedRows::DropAfter(Duration::ZERO));
                while !stop.load(Ordering::Relaxed) {
                    store.purge(&options).await.unwrap();
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    let owners: Vec<_> = (0..8)
        .map(|number| tokio::spawn(live_again_and_again(Arc::clone(&store), number, subject.rounds() / 10)))
        .collect();
    for owner in owners {
        owner.await.expect("every owner kept what was alive");
    }
    stop.store(true, Ordering::Relaxed);
    for purge in purges {
        purge.await.expect("a purge is safe beside others");
    }
}

async fn live_again_and_again(store: Arc<dyn Store>, number: usize, rounds: usize) {
    let at = |name: &str, round: usize| -> Identity { identity("scope", &format!("{name}-{number}-{round}")) };
    for round in 0..rounds {
        // Live and past its retention: settling it must find it.
        let brief = at("brief", 0);
        complete(&*store, &claim(&brief).with_retention(BRIEF)).await;
        // Settled and kept: it must stay.
        let kept = at("kept", round);
        complete(&*store, &claim(&kept)).await;
        tokio::task::yield_now().await;
        assert!(load(&*store, &kept).await.is_some(), "an answer that had not expired was purged");
    }
    for round in 0..rounds {
        assert!(load(&*store, &at("kept", round)).await.is_some(), "an answer that had not expired was purged");
    }
}

#[tokio::test]
async fn each_kind_of_record_in_memory() {
    each_kind_of_record(&Memory).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_live_traffic_in_memory() {
    beside_live_traffic(&Memory).await;
}
