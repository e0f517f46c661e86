//! Stores with one rule undone, for seeing that the model test notices.

use async_trait::async_trait;
use idem_core::machine::{Change, NextOwnership};
use idem_core::store::{
    Erase, Erased, Inserted, Loaded, PurgeOptions, Purged, Stats, StuckPage, StuckQuery, Swapped, UnresolvedRows,
};
use idem_core::{Claim, Error, Identity, LeaseLength, ManualClock, Record, Scope, Store, Version};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// One rule undone. What is not said is done as the good store does it.
pub(crate) trait Rule: Send + Sync + 'static {
    /// The swap that is made in place of the one that was asked for, `there` being the row.
    fn swap(expected: Version, change: Change, there: &Record) -> (Version, Change) {
        let _ = there;
        (expected, change)
    }

    /// The purge that is made in place of the one that was asked for.
    fn purge(options: PurgeOptions) -> PurgeOptions {
        options
    }

    /// Where a record is kept.
    fn place(identity: &Identity) -> Identity {
        identity.clone()
    }
}

/// A settlement does not ask whose row it is.
pub(crate) struct SettlesAnybodys;

impl Rule for SettlesAnybodys {
    fn swap(expected: Version, change: Change, there: &Record) -> (Version, Change) {
        match change {
            Change::Complete { .. } | Change::Fail { .. } | Change::Abandon => (there.version, change),
            other => (expected, other),
        }
    }
}

/// A takeover does not ask whether the owner renewed after it was read.
pub(crate) struct TakesWhatWasRenewed;

impl Rule for TakesWhatWasRenewed {
    fn swap(expected: Version, change: Change, there: &Record) -> (Version, Change) {
        match change {
            Change::Takeover { from, next, unresolved, read_lease: _ } => {
                (expected, Change::Takeover { from, read_lease: there.lease, next, unresolved })
            }
            other => (expected, other),
        }
    }
}

/// A renewal revives a lease that was given up.
pub(crate) struct RenewsWhatWasGivenUp;

impl Rule for RenewsWhatWasGivenUp {
    fn swap(expected: Version, change: Change, there: &Record) -> (Version, Change) {
        match change {
            // As a takeover of one's own that changes nothing but the lease.
            Change::Renew { lease } if there.lease == LeaseLength::ZERO && there.version == expected => {
                let next = NextOwnership {
                    version: there.version,
                    lease,
                    attempt: there.attempt,
                    expires_at: there.expires_at,
                };
                (expected, Change::Relock { read_lease: there.lease, next })
            }
            other => (expected, other),
        }
    }
}

/// A purge takes unresolved rows too.
pub(crate) struct PurgesTheUnresolved;

impl Rule for PurgesTheUnresolved {
    fn purge(options: PurgeOptions) -> PurgeOptions {
        options.with_unresolved(UnresolvedRows::DropAfter(Duration::ZERO))
    }
}

/// Records are kept by key alone.
pub(crate) struct ForgetsTheScope;

impl Rule for ForgetsTheScope {
    fn place(identity: &Identity) -> Identity {
        Identity::new(Scope::new("a").expect("it is a good name"), identity.key().clone())
    }
}

/// A completion does not say until when the answer is kept.
pub(crate) struct ForgetsTheFloor;

impl Rule for ForgetsTheFloor {
    fn swap(expected: Version, change: Change, there: &Record) -> (Version, Change) {
        match change {
            Change::Complete { response, expires_at: _ } => {
                (expected, Change::Complete { response, expires_at: there.expires_at })
            }
            other => (expected, other),
        }
    }
}

/// A memory store with one rule undone.
pub(crate) fn memory<R: Rule>(clock: Option<ManualClock>) -> Arc<dyn Store> {
    Arc::new(BrokenMemory::<R> { inner: super::memory(clock), rule: PhantomData })
}

struct BrokenMemory<R> {
    inner: Arc<dyn Store>,
    rule: PhantomData<R>,
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<R: Rule> Store for BrokenMemory<R> {
    async fn insert(&self, claim: &Claim) -> Result<Inserted, Error> {
        let place = R::place(claim.identity());
        if place == *claim.identity() {
            return self.inner.insert(claim).await;
        }
        let loaded = self.inner.load(&place).await?;
        match loaded.record {
            Some(record) => Ok(Inserted::Existing(record, loaded.clock)),
            None => self.inner.insert(claim).await,
        }
    }

    async fn swap(&self, identity: &Identity, expected: &Version, change: &Change) -> Result<Swapped, Error> {
        let place = R::place(identity);
        let (expected, change) = match self.inner.load(&place).await?.record {
            Some(there) => R::swap(*expected, change.clone(), &there),
            None => (*expected, change.clone()),
        };
        self.inner.swap(&place, &expected, &change).await
    }

    async fn load(&self, identity: &Identity) -> Result<Loaded, Error> {
        self.inner.load(&R::place(identity)).await
    }

    async fn purge(&self, options: &PurgeOptions) -> Result<Purged, Error> {
        self.inner.purge(&R::purge(options.clone())).await
    }

    async fn stuck(&self, query: &StuckQuery) -> Result<StuckPage, Error> {
        self.inner.stuck(query).await
    }

    async fn stats(&self) -> Result<Stats, Error> {
        self.inner.stats().await
    }

    async fn erase(&self, scope: &Scope, which: Erase) -> Result<Erased, Error> {
        self.inner.erase(scope, which).await
    }
}
