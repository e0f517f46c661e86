//! The charges as they stand now: what `GET /v1/charges/{id}` shows. A replay never looks here.

use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A charge as it stands now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Charge {
    pub(crate) id: String,
    pub(crate) order: String,
    pub(crate) amount: u64,
    pub(crate) currency: String,
    pub(crate) refunded: u64,
}

#[derive(Debug, Default)]
struct Page {
    tenant: String,
    charge: Option<Charge>,
    refunds: HashSet<String>,
}

/// All charges of this process.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pages: Mutex<HashMap<String, Page>>,
}

impl Book {
    fn pages(&self) -> MutexGuard<'_, HashMap<String, Page>> {
        // Nothing panics while it is held.
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a charge. Entered again it stays as it is, so that a handler that runs again undoes no refund.
    pub(crate) fn enter(&self, tenant: &str, charge: Charge) {
        let mut pages = self.pages();
        let page = pages.entry(charge.id.clone()).or_default();
        if page.charge.is_none() {
            *page = Page { tenant: tenant.to_owned(), charge: Some(charge), refunds: HashSet::new() };
        }
    }

    /// Takes a refund off a charge, once.
    pub(crate) fn refund(&self, charge: &str, refund: &str, amount: u64) {
        if let Some(page) = self.pages().get_mut(charge)
            && page.refunds.insert(refund.to_owned())
            && let Some(charge) = &mut page.charge
        {
            charge.refunded += amount;
        }
    }

    /// A charge of `tenant`. Another tenant's does not exist.
    pub(crate) fn find(&self, tenant: &str, id: &str) -> Option<Charge> {
        self.pages().get(id).filter(|page| page.tenant == tenant)?.charge.clone()
    }
}
