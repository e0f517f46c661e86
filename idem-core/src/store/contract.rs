//! The [`Store`] trait and the answers of its primitives.

use super::maintenance::{Erase, Erased, PurgeOptions, Purged, Stats, StuckPage, StuckQuery};
use crate::claim::Claim;
use crate::error::Error;
use crate::key::{Identity, Scope};
use crate::machine::Change;
use crate::record::{Record, Version};
use crate::time::Timestamp;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;

/// A few primitives over records, each atomic on its own, none with a decision in it.
///
/// # Contract
///
/// * **Durable when it returns.** What a call reports as written survives whatever the store promises to survive,
///   before the call returns.
/// * **Losing is a value, not knowing is an error.** A lost race is [`Inserted::Existing`] or [`Swapped::Lost`]. An
///   error says [*not applied* or *unknown*](crate::WriteOutcome); a call whose reply was lost is *unknown*, and its
///   write may still land later.
/// * **One clock.** Timestamps are the store's, in microseconds, read once per call and never from the caller. Two
///   processes that share a store share its clock.
/// * **No retry inside.** A store may repeat a statement only if it knows that it was not applied. It never turns
///   *unknown* into an answer.
/// * **Bytes come back.** Names, fingerprint, response and recovery data come back byte for byte.
///
/// # Cancel safety
///
/// A call whose future is dropped has an unknown outcome, no more: it leaves the store usable, holds nothing (no lock,
/// transaction or connection), and either took effect as a whole or not at all.
///
/// # Examples
///
/// Object-safe, so an engine holds `Arc<dyn Store>`; `Arc<S>` and `Box<S>` are stores too.
///
/// ```
/// use idem_core::{Claim, Store, store::Inserted};
///
/// async fn is_first(store: &dyn Store, claim: &Claim) -> Result<bool, idem_core::Error> {
///     Ok(matches!(store.insert(claim).await?, Inserted::Won(_)))
/// }
/// ```
#[async_trait]
pub trait Store: Send + Sync {
    /// Makes the record of a claim if there is none for its identity.
    ///
    /// # Contract
    ///
    /// One atomic create-only step: of any number of concurrent calls for one identity on which no record stands,
    /// exactly one is `Won`. It stores [`Claim::first_record`] at the store's clock. If a record is there, expired or
    /// not, nothing is written and it is returned as it stands. Never an error because of a rival, and never "no
    /// record".
    ///
    /// # Errors
    ///
    /// *Not applied* or *unknown*; neither is ever a grant. After *unknown*, ask again with the same claim: if the row
    /// is its own, that comes back as `Existing`.
    async fn insert(&self, claim: &Claim) -> Result<Inserted, Error>;

    /// Changes a record if it still is as `expected` and `change` say: compare and swap.
    ///
    /// # Contract
    ///
    /// Exactly [`Change::apply`], atomically: every comparison of the change's kind and its status, then every value
    /// set. It never makes a record and never touches another one. A refused swap writes nothing.
    ///
    /// # Errors
    ///
    /// *Not applied* or *unknown*. After *unknown*, [`load`](Store::load) and compare.
    async fn swap(&self, identity: &Identity, expected: &Version, change: &Change) -> Result<Swapped, Error>;

    /// Reads a record and the store's clock.
    ///
    /// # Contract
    ///
    /// Sees every write that was acknowledged before the call began: from the primary, not from a replica or a cache.
    ///
    /// # Errors
    ///
    /// Any error is *not applied*.
    async fn load(&self, identity: &Identity) -> Result<Loaded, Error>;

    /// Deletes one batch of dead records.
    ///
    /// # Contract
    ///
    /// Deletes [resolved](Record::is_resolved) records with `expires_at <= clock`, and unresolved ones only as
    /// [`PurgeOptions::unresolved`] says. The condition holds at the moment of the delete, not only of the search. Safe
    /// beside other purges and live traffic.
    ///
    /// # Errors
    ///
    /// *Not applied* or *unknown*; purging again is always right.
    async fn purge(&self, options: &PurgeOptions) -> Result<Purged, Error>;

    /// Lists records that are [stuck](Record::is_stuck), oldest `locked_at` first, then by scope and key, byte for
    /// byte.
    ///
    /// # Errors
    ///
    /// Any error is *not applied*.
    async fn stuck(&self, query: &StuckQuery) -> Result<StuckPage, Error>;

    /// Counts records. May walk the whole store: for people and dashboards, not for every request.
    ///
    /// # Errors
    ///
    /// Any error is *not applied*.
    async fn stats(&self) -> Result<Stats, Error>;

    /// Deletes the records of one scope, for the right to be forgotten.
    ///
    /// # Contract
    ///
    /// [`Erase`] says which; other scopes are untouched, however alike their names are.
    ///
    /// # Errors
    ///
    /// *Not applied* or *unknown*, which includes "some of them"; erasing again is always right.
    async fn erase(&self, scope: &Scope, which: Erase) -> Result<Erased, Error>;
}

/// The answer to [`Store::insert`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inserted {
    /// The record was made; this is its version. The claimer owns it.
    Won(Version),
    /// A record is there, maybe the claimer's own.
    Existing(Box<Record>, Timestamp),
    /// A cache in front of the store says that somebody is working on it. The store was not asked.
    Busy {
        /// When to ask again.
        retry_after: Duration,
    },
}

/// The answer to [`Store::swap`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Swapped {
    /// The record was changed.
    Applied,
    /// A comparison failed and nothing was changed: the record that is there, if any, and the store's clock.
    Lost(Option<Box<Record>>, Timestamp),
}

/// The answer to [`Store::load`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The record, if there is one; expired ones too.
    pub record: Option<Box<Record>>,
    /// The store's clock when it was read.
    pub clock: Timestamp,
}

macro_rules! forward_to_inner {
    ($($wrapper:ident),*) => {$(
        #[async_trait]
        #[deny(clippy::missing_trait_methods)]
        impl<S: Store + ?Sized> Store for $wrapper<S> {
            async fn insert(&self, claim: &Claim) -> Result<Inserted, Error> {
                (**self).insert(claim).await
            }
            async fn swap(&self, identity: &Identity, expected: &Version, change: &Change) -> Result<Swapped, Error> {
                (**self).swap(identity, expected, change).await
            }
            async fn load(&self, identity: &Identity) -> Result<Loaded, Error> {
                (**self).load(identity).await
            }
            async fn purge(&self, options: &PurgeOptions) -> Result<Purged, Error> {
                (**self).purge(options).await
            }
            async fn stuck(&self, query: &StuckQuery) -> Result<StuckPage, Error> {
                (**self).stuck(query).await
            }
            async fn stats(&self) -> Result<Stats, Error> {
                (**self).stats().await
            }
            async fn erase(&self, scope: &Scope, which: Erase) -> Result<Erased, Error> {
                (**self).erase(scope, which).await
            }
        }
    )*};
}

forward_to_inner!(Arc, Box);
