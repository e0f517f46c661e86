//! How an engine is set up: [`EngineBuilder`].

use super::Engine;
use super::shared::{Limits, Shared};
use crate::error::{Error, ErrorKind, WriteOutcome};
use crate::policy::Policy;
use crate::store::Store;
use crate::sweeper::{Sweeper, SweeperOptions};
use crate::tag::TagKey;
use std::fmt;
use std::sync::Arc;

/// The settings of an [`Engine`]; every one has a default.
///
/// # Examples
///
/// ```
/// # use idem_core::conformance::ReferenceStore;
/// use idem_core::{Engine, Policy};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store = ReferenceStore::default();
/// let engine = Engine::builder(store)
///     .with_policy(Policy::builder().with_lease(Duration::from_secs(30)).build()?)
///     .with_max_in_flight(64)
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct EngineBuilder {
    store: Arc<dyn Store>,
    policy: Policy,
    limits: Limits,
    max_in_flight: usize,
    tags: TagKey,
    sweeper: Option<SweeperOptions>,
}

impl EngineBuilder {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            policy: Policy::default(),
            limits: Limits { response: 1024 * 1024, recovery_data: 64 * 1024 },
            max_in_flight: 1_024,
            tags: TagKey::random(),
            sweeper: Some(SweeperOptions::default()),
        }
    }

    /// Sets the policy of every request that brings none of its own. Defaults to [`Policy::default`].
    pub fn with_policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// How many operations are claimed or run at a time; more are refused with [`ErrorKind::Overloaded`]. At least 1.
    /// Defaults to 1,024.
    pub fn with_max_in_flight(mut self, max_in_flight: usize) -> Self {
        self.max_in_flight = max_in_flight.clamp(1, tokio::sync::Semaphore::MAX_PERMITS);
        self
    }

    /// How many bytes a stored response takes at most, fields included; a larger one leaves a tombstone. Defaults to 1
    /// MiB.
    pub fn with_response_limit(mut self, bytes: usize) -> Self {
        self.limits.response = bytes;
        self
    }

    /// How many bytes of data a checkpoint takes at most. Defaults to 64 KiB.
    pub fn with_recovery_data_limit(mut self, bytes: usize) -> Self {
        self.limits.recovery_data = bytes;
        self
    }

    /// The secret under which events tag records. Defaults to a random one, under which tags lead nowhere after a
    /// restart.
    pub fn with_tag_key(mut self, tags: TagKey) -> Self {
        self.tags = tags;
        self
    }

    /// Sets how dead records are purged in the background. Defaults to [`SweeperOptions::default`].
    pub fn with_sweeper(mut self, options: SweeperOptions) -> Self {
        self.sweeper = Some(options);
        self
    }

    /// Turns the sweeper off: something else must purge, or the store grows without end.
    pub fn without_sweeper(mut self) -> Self {
        self.sweeper = None;
        self
    }

    /// Starts the engine, and its sweeper.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Misconfigured`] outside a Tokio runtime.
    pub fn build(self) -> Result<Engine, Error> {
        if let Err(no_runtime) = tokio::runtime::Handle::try_current() {
            return Err(Error::new(ErrorKind::Misconfigured, "build", WriteOutcome::NotApplied).with_source(no_runtime));
        }
        let sweeper = self.sweeper.map(|options| Sweeper::spawn(Arc::clone(&self.store), options));
        let shared = Shared::new(self.store, self.policy, self.limits, self.tags, self.max_in_flight);
        Ok(Engine::new(shared, sweeper))
    }
}

impl fmt::Debug for EngineBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineBuilder")
            .field("policy", &self.policy)
            .field("limits", &self.limits)
            .field("max_in_flight", &self.max_in_flight)
            .field("sweeper", &self.sweeper)
            .finish_non_exhaustive()
    }
}
