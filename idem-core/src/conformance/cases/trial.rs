//! What every case works with: a fresh store, names that nobody used, and the steps that are taken again and again.

use crate::claim::Claim;
use crate::fingerprint::Fingerprint;
use crate::key::{Identity, Key, Scope};
use crate::machine::{Change, NextOwnership};
use crate::policy::Takeover;
use crate::record::{Owner, Record, Version};
use crate::response::Response;
use crate::store::{Inserted, Loaded, PurgeOptions, Store, Stuck, StuckQuery, Swapped};
use crate::time::{LeaseLength, Timestamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub(super) const HOUR: Duration = Duration::from_secs(3600);
pub(super) const TICK: Duration = Duration::from_micros(1);
/// How long a store's clock may take to get somewhere that it must pass within milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// A fresh store and the steps that cases are made of.
pub(crate) struct Trial {
    pub(super) store: Arc<dyn Store>,
    race_rounds: usize,
    names: AtomicU64,
}

impl Trial {
    pub(crate) fn new(store: Arc<dyn Store>, race_rounds: usize) -> Self {
        Self { store, race_rounds, names: AtomicU64::new(0) }
    }

    /// How often the race for one new key is run.
    pub(super) fn race_rounds(&self) -> usize {
        self.race_rounds
    }

    /// How often any other race is run.
    pub(super) fn short_race_rounds(&self) -> usize {
        (self.race_rounds / 10).max(20)
    }

    /// A name that no record has.
    pub(super) fn identity(&self) -> Identity {
        identity("acct_1", &format!("key-{}", self.names.fetch_add(1, Ordering::Relaxed)))
    }

    /// Asks with a claim until the store itself answers: a cache in front may answer the first ask with `Busy`, and
    /// must answer no later one.
    pub(super) async fn insert(&self, claim: &mut Claim) -> Inserted {
        let first = self.store.insert(claim).await.expect("insert on a healthy store is not an error");
        let Inserted::Busy { .. } = first else { return first };
        claim.mark_asked();
        let second = self.store.insert(claim).await.expect("insert on a healthy store is not an error");
        assert!(!matches!(second, Inserted::Busy { .. }), "a claim that was asked before must reach the store");
        second
    }

    /// Makes the record of a claim where there is none, and checks it.
    pub(super) async fn win(&self, mut claim: Claim) -> Record {
        let answer = self.insert(&mut claim).await;
        let Inserted::Won(version) = answer else { panic!("no record stands there, so insert must win: {answer:?}") };
        assert_eq!(version.owner, claim.owner(), "the version that was won has the claim's owner");
        let record = claim.first_record(version.locked_at);
        assert_eq!(self.record(claim.identity()).await, record, "insert stores Claim::first_record, whole");
        record
    }

    /// Claims where a record stands; gives what came back.
    pub(super) async fn find(&self, mut claim: Claim) -> (Record, Timestamp) {
        match self.insert(&mut claim).await {
            Inserted::Existing(record, clock) => (*record, clock),
            other => panic!("a record stands there, so insert must return it: {other:?}"),
        }
    }

    pub(super) async fn load(&self, identity: &Identity) -> Loaded {
        self.store.load(identity).await.expect("load on a healthy store is not an error")
    }

    pub(super) async fn record(&self, identity: &Identity) -> Record {
        *self.load(identity).await.record.expect("the record is there")
    }

    pub(super) async fn is_absent(&self, identity: &Identity) -> bool {
        self.load(identity).await.record.is_none()
    }

    pub(super) async fn swap(&self, identity: &Identity, expected: &Version, change: &Change) -> Swapped {
        self.store.swap(identity, expected, change).await.expect("swap on a healthy store is not an error")
    }

    /// A change that must apply to `record`, with exactly the effect of [`Change::apply`].
    pub(super) async fn apply(&self, identity: &Identity, record: &Record, change: &Change) -> Record {
        let after = change.apply(record, &record.version).expect("the case only applies what is legal");
        let answer = self.swap(identity, &record.version, change).await;
        assert_eq!(answer, Swapped::Applied, "{change:?} applies to {record:?}");
        let stored = self.record(identity).await;
        assert_eq!(stored, after, "{change:?} has exactly the effect of Change::apply");
        after
    }

    /// A swap that must be refused: it returns what stands there and changes none of it.
    pub(super) async fn refuse(&self, identity: &Identity, expected: &Version, change: &Change, standing: &Record) {
        assert_eq!(change.apply(standing, expected), None, "the case only refuses what is illegal");
        let answer = self.swap(identity, expected, change).await;
        let Swapped::Lost(Some(returned), _) = answer else {
            panic!("{change:?} must lose to the record that stands there, {standing:?}, and return it: {answer:?}")
        };
        assert_eq!(*returned, *standing, "a refused {change:?} returns the record as it stands");
        assert_eq!(self.record(identity).await, *standing, "a refused {change:?} writes nothing");
    }

    /// Waits for the store's clock, which is on its way there. A wait for what must come, not for luck.
    pub(super) async fn until(&self, instant: Timestamp) -> Timestamp {
        let nowhere = Identity::new(scope("clock"), key("clock"));
        let arrival = async {
            loop {
                let clock = self.load(&nowhere).await.clock;
                if clock >= instant {
                    return clock;
                }
                tokio::task::yield_now().await;
            }
        };
        match tokio::time::timeout(PATIENCE, arrival).await {
            Ok(clock) => clock,
            Err(_) => panic!("the store's clock did not reach {instant:?} within {PATIENCE:?}"),
        }
    }

    /// Every stuck record, page by page.
    pub(super) async fn all_stuck(&self, query: &StuckQuery) -> Vec<Stuck> {
        let mut all = Vec::new();
        let mut query = query.clone();
        // More pages than records would be a list that goes round in circles.
        for _ in 0..200 {
            let page = self.store.stuck(&query).await.expect("stuck on a healthy store is not an error");
            assert!(page.records.len() <= query.limit(), "a page holds at most what was asked for");
            all.extend(page.records);
            match page.next {
                Some(next) => query = query.after(next),
                None => return all,
            }
        }
        panic!("the pages of stuck do not come to an end");
    }

    /// Purges until a call finds nothing more; gives the counts of settled and unresolved records.
    pub(super) async fn purge_all(&self, options: &PurgeOptions) -> (u64, u64) {
        let (mut settled, mut unresolved) = (0, 0);
        for _ in 0..1_000 {
            let purged = self.store.purge(options).await.expect("purge on a healthy store is not an error");
            assert!(purged.total() <= options.batch() as u64, "a call deletes at most a batch: {purged:?}");
            if purged.total() == 0 {
                return (settled, unresolved);
            }
            settled += purged.settled;
            unresolved += purged.unresolved;
        }
        panic!("purging does not come to an end");
    }
}

pub(super) fn scope(name: &str) -> Scope {
    Scope::new(name).expect("cases use valid scopes")
}

pub(super) fn key(name: &str) -> Key {
    Key::new(name).expect("cases use valid keys")
}

pub(super) fn identity(scope_name: &str, key_name: &str) -> Identity {
    Identity::new(scope(scope_name), key(key_name))
}

/// The request of almost every case.
pub(super) fn request() -> Fingerprint {
    request_of(b"{\"amount\":100}")
}

pub(super) fn request_of(body: &[u8]) -> Fingerprint {
    let built = Fingerprint::builder("POST /v1/charges").bytes(body).finish();
    built.expect("the request has a fingerprint").current().clone()
}

/// A claim with a lease and a retention of one hour.
pub(super) fn claim(identity: &Identity) -> Claim {
    Claim::new(identity.clone(), request(), Takeover::Resume).with_lease(lease(HOUR)).with_retention(HOUR)
}

/// A claim that is stale as soon as it is made, and expired as soon as it is settled.
pub(super) fn brief_claim(identity: &Identity) -> Claim {
    claim(identity).with_lease(LeaseLength::ZERO).with_retention(Duration::ZERO)
}

pub(super) fn lease(length: Duration) -> LeaseLength {
    LeaseLength::from_duration(length)
}

/// The next ownership of a record, by an owner that nobody has met.
pub(super) fn next(record: &Record) -> NextOwnership {
    NextOwnership {
        version: Version { locked_at: record.version.locked_at.saturating_add(TICK), owner: Owner::mint() },
        lease: lease(HOUR + Duration::from_millis(7)),
        attempt: record.attempt + 1,
        expires_at: record.expires_at.saturating_add(TICK),
    }
}

pub(super) fn take_over(record: &Record) -> Change {
    Change::Takeover {
        from: record.status(),
        read_lease: record.lease,
        next: next(record),
        unresolved: record.unresolved + 1,
    }
}

pub(super) fn renew(record: &Record) -> Change {
    Change::Renew { lease: record.lease.next() }
}

pub(super) fn complete(record: &Record, response: Response) -> Change {
    Change::Complete { response, expires_at: record.expires_at }
}

pub(super) fn fail(record: &Record) -> Change {
    Change::Fail { clear_marks: false, expires_at: record.expires_at }
}

pub(super) fn answer(body: &str) -> Response {
    Response::new(201, body.to_owned())
        .with_header("content-type", "application/json")
        .with_header("location", "/v1/charges/ch_1")
}
