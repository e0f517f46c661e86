//! The promises, one file each, at the level of the store. A store joins with one [`Subject`] and one line in every file.

#![allow(clippy::unwrap_used, reason = "a test may, in its helpers too")]

mod late_owner_is_fenced;
mod one_owner;
mod purge_removes_only_the_dead;
mod scopes_never_meet;

use idem_core::machine::{Change, Decision, Ownership, decide};
use idem_core::store::{Inserted, Swapped};
use idem_core::{Claim, Fingerprint, Identity, Key, LeaseLength, Record, Response, Scope, Store, Takeover};
use std::sync::Arc;
use std::time::Duration;

/// Makes fresh, empty stores of one back end.
trait Subject: Send + Sync {
    fn fresh(&self) -> impl Future<Output = Arc<dyn Store>> + Send;

    /// How many times a race is run.
    fn rounds(&self) -> usize;
}

struct Memory;

impl Subject for Memory {
    async fn fresh(&self) -> Arc<dyn Store> {
        Arc::new(idem_memory::MemoryStore::default())
    }

    fn rounds(&self) -> usize {
        2_000
    }
}

/// A lease and a retention that end long after the test does.
const LONG: Duration = Duration::from_secs(3_600);

fn identity(scope: &str, key: &str) -> Identity {
    Identity::new(Scope::new(scope).unwrap(), Key::new(key).unwrap())
}

fn claim(identity: &Identity) -> Claim {
    let fingerprint = Fingerprint::builder("POST /charges").bytes(b"100").finish().unwrap();
    Claim::new(identity.clone(), fingerprint, Takeover::Resume)
        .with_lease(LeaseLength::from_duration(LONG))
        .with_retention(LONG)
        .with_max_attempts(u32::MAX)
}

fn dead_at_once(identity: &Identity) -> Claim {
    claim(identity).with_lease(LeaseLength::ZERO)
}

/// Claims what nobody holds, in whatever state it is, even while a purge deletes it.
async fn own(store: &dyn Store, claim: &Claim) -> Ownership {
    loop {
        let mut found = match store.insert(claim).await.unwrap() {
            Inserted::Won(version) => return Ownership::new(claim.first_record(version.locked_at)),
            Inserted::Existing(record, clock) => Some((record, clock)),
            Inserted::Busy { .. } => panic!("only a cache says that"),
        };
        while let Some((record, clock)) = found {
            let Decision::Swap { expected, change } = decide(&record, claim, clock) else {
                panic!("somebody holds it: {record:?}")
            };
            found = match store.swap(claim.identity(), &expected, &change).await.unwrap() {
                Swapped::Applied => return Ownership::new(change.apply(&record, &expected).unwrap()),
                Swapped::Lost(record, clock) => record.map(|record| (record, clock)),
            };
        }
    }
}

async fn load(store: &dyn Store, identity: &Identity) -> Option<Record> {
    store.load(identity).await.unwrap().record.map(|record| *record)
}

/// Sends what an owner proposes.
async fn send(store: &dyn Store, identity: &Identity, owner: &Ownership, change: &Change) -> Swapped {
    store.swap(identity, &owner.version(), change).await.unwrap()
}

fn completion(owner: &Ownership, body: &'static str) -> Change {
    owner.complete(Response::new(201, body), Duration::ZERO, Duration::ZERO)
}
