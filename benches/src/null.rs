//! A store that does nothing: beside it, what a call costs is what the engine costs.

use async_trait::async_trait;
use idem_core::machine::Change;
use idem_core::store::{Erase, Erased, Inserted, Loaded, PurgeOptions, Purged, Stats, StuckPage, StuckQuery, Swapped};
use idem_core::{Claim, Error, Identity, Record, Scope, Store, Timestamp, Version};

/// Answers at once and keeps nothing. For measuring only: two claims of one key are both granted.
#[derive(Clone, Debug, Default)]
pub struct NullStore {
    found: Option<Record>,
}

impl NullStore {
    /// The time on its clock, which stands still.
    pub const CLOCK: Timestamp = Timestamp::from_micros(1_900_000_000_000_000);

    /// A store in which every claim meets `record`. One made by [`Default`] grants every claim.
    #[must_use]
    pub fn that_holds(record: Record) -> Self {
        Self { found: Some(record) }
    }
}

#[async_trait]
impl Store for NullStore {
    async fn insert(&self, claim: &Claim) -> Result<Inserted, Error> {
        Ok(match &self.found {
            None => Inserted::Won(Version { locked_at: Self::CLOCK, owner: claim.owner() }),
            Some(record) => Inserted::Existing(Box::new(record.clone()), Self::CLOCK),
        })
    }

    async fn swap(&self, _: &Identity, _: &Version, _: &Change) -> Result<Swapped, Error> {
        Ok(Swapped::Applied)
    }

    async fn load(&self, _: &Identity) -> Result<Loaded, Error> {
        Ok(Loaded { record: self.found.clone().map(Box::new), clock: Self::CLOCK })
    }

    async fn purge(&self, _: &PurgeOptions) -> Result<Purged, Error> {
        Ok(Purged::default())
    }

    async fn stuck(&self, query: &StuckQuery) -> Result<StuckPage, Error> {
        Ok(StuckPage::from_listed(query, Vec::new()))
    }

    async fn stats(&self) -> Result<Stats, Error> {
        Ok(Stats::default())
    }

    async fn erase(&self, _: &Scope, _: Erase) -> Result<Erased, Error> {
        Ok(Erased::default())
    }
}
