//! The records in a table: [`PostgresStore`].

use crate::blocked::Look;
use crate::config::PostgresConfig;
use crate::group::{ClaimGroups, Completion, CompletionGroups, Crowd, Lane, Limits, Way, answered};
use crate::link::now;
use crate::single::{Insertion, Single};
use crate::sql::ROW_BY_ROW;
use async_trait::async_trait;
use idem_core::machine::Change;
use idem_core::store::{
    Erase, Erased, Inserted, Loaded, PurgeOptions, Purged, Stats, Store, StuckPage, StuckQuery, Swapped,
};
use idem_core::{Claim, Error, ErrorKind, Identity, Scope, Version, WriteOutcome};
use std::fmt;
use std::sync::Arc;
use tokio::time::timeout_at;

/// A store in one table of a PostgreSQL database. Cheap to clone; clones share one pool.
///
/// Made by [`PostgresStore::connect`]. Everything that it acknowledges was committed before.
#[derive(Clone)]
pub struct PostgresStore {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) single: Arc<Single>,
    groups: Option<Groups>,
    pub(crate) config: PostgresConfig,
}

/// Callers that go together.
struct Groups {
    claims: Lane<ClaimGroups>,
    completions: Lane<CompletionGroups>,
}

impl Groups {
    fn new(limits: Limits, single: &Arc<Single>) -> Self {
        let crowd = Crowd::default();
        let claims = Arc::new(ClaimGroups { single: Arc::clone(single) });
        let completions = Arc::new(CompletionGroups { single: Arc::clone(single) });
        Self { claims: Lane::new(claims, limits, &crowd), completions: Lane::new(completions, limits, &crowd) }
    }
}

impl PostgresStore {
    /// Connects, and checks that the server and the table are such that every promise can be kept.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Misconfigured`], with a source that says what to do, if the table is missing or of another version, if a right is
    /// missing, if the server is a standby or older than PostgreSQL 14, if the table is unlogged, or if `fsync` or `synchronous_commit` is
    /// off and that was not [allowed](PostgresConfig::allow_unsafe_durability). [`ErrorKind::Unavailable`] if the server cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Dropped half-way, nothing is left behind.
    pub async fn connect(config: PostgresConfig) -> Result<Self, Error> {
        let store = Self::unchecked(config)?;
        store.check().await?;
        Ok(store)
    }

    /// A store that connects when it is first used, without any check.
    ///
    /// For a process that must start although its database is down. Call [`check`](PostgresStore::check) later: without it, nobody
    /// notices a standby, an unlogged table or a server that acknowledges what it has not written.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Internal`] if the pool cannot be made.
    pub fn unchecked(config: PostgresConfig) -> Result<Self, Error> {
        let single = Arc::new(Single::new(&config)?);
        let groups = config.group_limits().map(|limits| Groups::new(limits, &single));
        Ok(Self { shared: Arc::new(Shared { single, groups, config }) })
    }

    /// Every statement that touches records, by name: for a test that looks at their plans.
    #[doc(hidden)]
    #[must_use]
    pub fn statements(&self) -> Vec<(&'static str, Arc<str>)> {
        self.shared.single.sql.all()
    }

    /// How the server is told to plan all of them but those that read a great part of the table.
    #[doc(hidden)]
    #[must_use]
    pub fn planning() -> &'static [(&'static str, &'static str)] {
        &ROW_BY_ROW
    }

    pub(crate) fn single(&self) -> &Single {
        &self.shared.single
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Store for PostgresStore {
    async fn insert(&self, claim: &Claim) -> Result<Inserted, Error> {
        let look = match self.single().may_ask(claim) {
            Ok(look) => look,
            Err(busy) => return Ok(busy),
        };
        let insertion = Insertion::from(claim);
        // A claim that was asked before may be its own rival, and has to wait for itself; one that goes to see after a rival would make a group
        // wait with it.
        let apart = insertion.asked_before || look.as_ref().is_some_and(Look::is_at_a_blocked_key);
        let Some(groups) = self.shared.groups.as_ref().filter(|_| !apart) else {
            return self.single().insert(&insertion).await;
        };
        let ends = now() + self.shared.config.statement_deadline;
        match timeout_at(ends, groups.claims.enter(insertion)).await {
            Ok(Way::Alone(insertion, _presence)) => self.single().insert(&insertion).await,
            Ok(Way::Together(answer, _presence)) => answered("insert", timeout_at(ends, answer).await),
            Err(_) => Err(Error::new(ErrorKind::Timeout, "insert", WriteOutcome::NotApplied)),
        }
    }

    async fn swap(&self, identity: &Identity, expected: &Version, change: &Change) -> Result<Swapped, Error> {
        let (Some(groups), Change::Complete { response, expires_at }) = (&self.shared.groups, change) else {
            return self.single().swap(identity, expected, change).await;
        };
        let completion = Completion {
            identity: identity.clone(),
            expected: *expected,
            response: response.clone(),
            expires_at: *expires_at,
        };
        let ends = now() + self.shared.config.statement_deadline;
        match timeout_at(ends, groups.completions.enter(completion)).await {
            Ok(Way::Alone(_, _presence)) => self.single().swap(identity, expected, change).await,
            Ok(Way::Together(answer, _presence)) => answered("swap", timeout_at(ends, answer).await),
            Err(_) => Err(Error::new(ErrorKind::Timeout, "swap", WriteOutcome::NotApplied)),
        }
    }

    async fn load(&self, identity: &Identity) -> Result<Loaded, Error> {
        self.single().find("load", identity).await.map_err(|error| error.with_write_outcome(WriteOutcome::NotApplied))
    }

    async fn purge(&self, options: &PurgeOptions) -> Result<Purged, Error> {
        self.purge_batch(options).await
    }

    async fn stuck(&self, query: &StuckQuery) -> Result<StuckPage, Error> {
        self.stuck_page(query).await.map_err(|error| error.with_write_outcome(WriteOutcome::NotApplied))
    }

    async fn stats(&self) -> Result<Stats, Error> {
        self.count_all().await.map_err(|error| error.with_write_outcome(WriteOutcome::NotApplied))
    }

    async fn erase(&self, scope: &Scope, which: Erase) -> Result<Erased, Error> {
        self.erase_in_batches(scope, which).await
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("config", &self.shared.config).finish_non_exhaustive()
    }
}
