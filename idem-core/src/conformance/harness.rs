//! What a back-end author writes: a [`Harness`] that makes a fresh store for every case.

use crate::store::Store;
use async_trait::async_trait;
use std::fmt;
use std::sync::Arc;

/// Makes stores for the conformance suite: one fresh, empty store, or namespace of a store, for every case.
///
/// # Examples
///
/// ```
/// use idem_core::conformance::{Fresh, Harness, ReferenceStore};
///
/// struct InProcess;
///
/// #[async_trait::async_trait]
/// impl Harness for InProcess {
///     type Store = ReferenceStore;
///     type Guard = ();
///
///     async fn fresh(&self) -> Fresh<ReferenceStore> {
///         Fresh::new(ReferenceStore::default())
///     }
/// }
/// ```
#[async_trait]
pub trait Harness: Send + Sync {
    /// The store under test.
    type Store: Store + 'static;
    /// What has to live as long as the store does: a server's process, a schema that is dropped afterwards. `()` if
    /// there is nothing.
    type Guard: Send + 'static;

    /// Makes a store that holds no record and that nobody else uses.
    ///
    /// # Contract
    ///
    /// Cases run at the same time, in one process or in several: what one of them writes must not be seen by
    /// another. The store's clock runs, as a server's does.
    ///
    /// # Panics
    ///
    /// May panic if there is no store to be had. A case that cannot run fails; it is never skipped.
    async fn fresh(&self) -> Fresh<Self::Store, Self::Guard>;

    /// How many times the race for one new key is run, with 64 claimers each. Defaults to 200; a store in the process
    /// can afford 2,000. The other races run a tenth of it, and at least 20 times.
    fn race_rounds(&self) -> usize {
        200
    }
}

/// A store with nothing in it, and what keeps it alive.
///
/// The guard is dropped, inside the test's runtime, when the case is over, whether it passed or not.
pub struct Fresh<S, G = ()> {
    /// The store.
    pub store: Arc<S>,
    /// Dropped after the last use of the store.
    pub guard: G,
}

impl<S> Fresh<S> {
    /// A store that needs nothing to be kept alive.
    #[must_use]
    pub fn new(store: S) -> Self {
        Self { store: Arc::new(store), guard: () }
    }
}

impl<S, G> Fresh<S, G> {
    /// A store that lives as long as `guard` does.
    #[must_use]
    pub fn guarded(store: S, guard: G) -> Self {
        Self { store: Arc::new(store), guard }
    }
}

impl<S, G> fmt::Debug for Fresh<S, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fresh").finish_non_exhaustive()
    }
}
