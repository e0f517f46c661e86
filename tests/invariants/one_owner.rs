//! Promise 1: at most one owner per key is current, and somebody is.

use super::{Memory, Subject, claim, completion, dead_at_once, identity, load, own, send};
use idem_core::machine::{Decision, Ownership, decide};
use idem_core::store::{Inserted, Swapped};
use idem_core::{Claim, Store, Version};
use std::sync::Arc;
use tokio::sync::Barrier;

const TASKS: usize = 64;

/// Runs `TASKS` copies of a task that start at the same time.
async fn at_once<T, F>(task: impl Fn(usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let barrier = Arc::new(Barrier::new(TASKS));
    let tasks: Vec<_> = (0..TASKS)
        .map(|number| {
            let (barrier, task) = (Arc::clone(&barrier), task(number));
            tokio::spawn(async move {
                barrier.wait().await;
                task.await
            })
        })
        .collect();
    let mut answers = Vec::with_capacity(TASKS);
    for task in tasks {
        answers.push(task.await.expect("no task panics"));
    }
    answers
}

/// All claim one new key: one is granted, and each of the others is told who was.
async fn one_of_many_claims_is_granted(subject: &impl Subject) {
    let store = subject.fresh().await;
    for round in 0..subject.rounds() {
        let key = identity("scope", &format!("key-{round}"));
        let answers = at_once(|_| {
            let (store, claim) = (Arc::clone(&store), claim(&key));
            async move { (claim.owner(), store.insert(&claim).await.expect("a rival is no error")) }
        })
        .await;
        let mut granted = Vec::new();
        let mut told = Vec::new();
        for (owner, answer) in answers {
            match answer {
                Inserted::Won(version) => {
                    assert_eq!(version.owner, owner);
                    granted.push(version);
                }
                Inserted::Existing(record, clock) => {
                    assert!(record.is_live(clock));
                    told.push(record.version);
                }
                Inserted::Busy { .. } => panic!("only a cache says that"),
            }
        }
        assert_eq!(granted.len(), 1, "round {round}");
        assert!(told.iter().all(|version| *version == granted[0]), "round {round}");
        assert_eq!(load(&*store, &key).await.map(|record| record.version), Some(granted[0]));
    }
}

/// All take over one dead owner: one does.
async fn one_of_many_takeovers_is_granted(subject: &impl Subject) {
    let store = subject.fresh().await;
    for round in 0..subject.rounds() / 10 {
        let key = identity("scope", &format!("key-{round}"));
        own(&*store, &dead_at_once(&key)).await;
        let granted = at_once(|_| take_over(Arc::clone(&store), claim(&key))).await;
        let granted: Vec<Version> = granted.into_iter().flatten().collect();
        let record = load(&*store, &key).await.unwrap();
        assert_eq!(granted, [record.version], "round {round}");
        assert_eq!((record.attempt, record.unresolved), (2, 1));
    }
}

async fn take_over(store: Arc<dyn Store>, claim: Claim) -> Option<Version> {
    let Inserted::Existing(record, clock) = store.insert(&claim).await.unwrap() else { panic!("it is there") };
    let Decision::Swap { expected, change } = decide(&record, &claim, clock) else { return None };
    match store.swap(claim.identity(), &expected, &change).await.unwrap() {
        Swapped::Applied => change.apply(&record, &expected).map(|record| record.version),
        Swapped::Lost(found, clock) => {
            let found = found.expect("nobody deletes");
            assert!(matches!(decide(&found, &claim, clock), Decision::InProgress { .. }));
            None
        }
    }
}

/// One completes as often as it can: one completion is recorded, and it is the one that was acknowledged.
async fn one_completion_is_recorded(subject: &impl Subject) {
    const ANSWERS: [&str; TASKS] = {
        let mut answers = ["even"; TASKS];
        let mut odd = 1;
        while odd < TASKS {
            answers[odd] = "odd";
            odd += 2;
        }
        answers
    };
    let store = subject.fresh().await;
    for round in 0..subject.rounds() / 10 {
        let key = identity("scope", &format!("key-{round}"));
        let owner = own(&*store, &claim(&key)).await;
        let answers = at_once(|number| {
            let (store, owner, key): (_, Ownership, _) = (Arc::clone(&store), owner.clone(), key.clone());
            async move {
                let change = completion(&owner, ANSWERS[number]);
                let applied = send(&*store, &key, &owner, &change).await == Swapped::Applied;
                applied.then_some(change)
            }
        })
        .await;
        let [acknowledged] = answers.into_iter().flatten().collect::<Vec<_>>().try_into().expect("one was recorded");
        let stored = load(&*store, &key).await;
        assert_eq!(stored, acknowledged.apply(owner.record(), &owner.version()), "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_claims_is_granted_by_memory() {
    one_of_many_claims_is_granted(&Memory).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_takeovers_is_granted_by_memory() {
    one_of_many_takeovers_is_granted(&Memory).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_completion_is_recorded_by_memory() {
    one_completion_is_recorded(&Memory).await;
}
