//! The same key in two scopes is two operations, however alike the scopes look.

use super::{Memory, Subject, claim, completion, identity, load, own, send};
use idem_core::machine::Ownership;
use idem_core::store::{Erase, Swapped};
use idem_core::{Identity, Scope, Store};

/// Pairs that an index, a collation, a separator or a pattern could take for one.
fn look_alikes() -> Vec<Identity> {
    let longest = "s".repeat(255);
    let names = [
        ("a", "bc"),
        ("ab", "c"),
        ("abc", "bc"),
        ("A", "bc"),
        ("a ", "bc"),
        (" a", "bc"),
        ("a/b", "c"),
        ("a", "b/c"),
        ("a:b", "c"),
        ("a", "b:c"),
        ("a%", "bc"),
        ("a_", "bc"),
        ("a*", "bc"),
        ("\u{e9}", "bc"),
        ("e\u{301}", "bc"),
        ("e", "bc"),
        ("\u{df}", "bc"),
        ("ss", "bc"),
        ("1", "bc"),
        ("01", "bc"),
        ("1.0", "bc"),
        ("null", "bc"),
        ("'a'", "bc"),
        ("a\\", "bc"),
        (&longest, "bc"),
        (&longest[1..], "bc"),
    ];
    names.iter().map(|(scope, key)| identity(scope, key)).collect()
}

async fn complete(store: &dyn Store, key: &Identity, owner: &Ownership) {
    assert_eq!(send(store, key, owner, &completion(owner, "answer")).await, Swapped::Applied);
}

async fn look_alikes_are_apart(subject: &impl Subject) {
    let store = subject.fresh().await;
    let store = &*store;
    let places = look_alikes();
    let mut owners = Vec::new();
    for place in &places {
        // `own` panics if somebody else holds it.
        owners.push(own(store, &claim(place)).await);
    }
    for (place, owner) in places.iter().zip(&owners) {
        assert_eq!(load(store, place).await.as_ref(), Some(owner.record()), "{place:?}");
    }

    // What happens to one happens to no other.
    let (first, others) = places.split_first().unwrap();
    complete(store, first, &owners[0]).await;
    for (place, owner) in others.iter().zip(&owners[1..]) {
        assert_eq!(load(store, place).await.as_ref(), Some(owner.record()), "{place:?}");
    }

    for (place, owner) in others.iter().zip(&owners[1..]) {
        complete(store, place, owner).await;
    }
    let mut left = places.clone();
    let mut scopes: Vec<Scope> = places.iter().map(|place| place.scope().clone()).collect();
    scopes.dedup();
    for scope in scopes {
        let here = left.iter().filter(|place| *place.scope() == scope).count() as u64;
        let erased = store.erase(&scope, Erase::Everything).await.unwrap();
        assert_eq!((erased.deleted, erased.kept), (here, 0), "{:?}", scope.as_str());
        left.retain(|place| *place.scope() != scope);
        for place in &left {
            assert!(load(store, place).await.is_some(), "{:?} went with {:?}", place.scope().as_str(), scope.as_str());
        }
    }
    assert_eq!(store.stats().await.unwrap().total(), 0);
}

/// An owner's version is good for its own record only.
async fn a_version_opens_one_record(subject: &impl Subject) {
    let store = subject.fresh().await;
    let (mine, yours) = (identity("mine", "key"), identity("yours", "key"));
    let my_ownership = own(&*store, &claim(&mine)).await;
    let your_ownership = own(&*store, &claim(&yours)).await;
    let change = completion(&my_ownership, "answer");
    assert!(matches!(send(&*store, &yours, &my_ownership, &change).await, Swapped::Lost(Some(_), _)));
    assert_eq!(load(&*store, &yours).await.as_ref(), Some(your_ownership.record()));
}

#[tokio::test]
async fn look_alikes_are_apart_in_memory() {
    look_alikes_are_apart(&Memory).await;
}

#[tokio::test]
async fn a_version_opens_one_record_in_memory() {
    a_version_opens_one_record(&Memory).await;
}
