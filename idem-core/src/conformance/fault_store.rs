//! A store that fails on demand: [`FaultStore`].

use super::fault_plan::{CallKind, FaultPlan, Injection, Progress};
use crate::claim::Claim;
use crate::error::{Error, ErrorKind, WriteOutcome};
use crate::key::{Identity, Scope};
use crate::machine::Change;
use crate::record::Version;
use crate::store::{
    Erase, Erased, Inserted, Loaded, PurgeOptions, Purged, Stats, Store, StuckPage, StuckQuery, Swapped,
};
use async_trait::async_trait;
use std::fmt;
use std::sync::{Mutex, MutexGuard};

/// Wraps any store and makes chosen calls fail: before they took effect, after it, later than they said, or never
/// returning.
///
/// `FaultStore<Arc<S>>` is right when the test also looks at the store behind it.
///
/// # Examples
///
/// ```
/// use idem_core::conformance::{CallKind, FaultPlan, FaultStore, Injection, ReferenceStore};
/// use idem_core::{Claim, Fingerprint, Identity, Key, Scope, Store, Takeover, WriteOutcome};
/// use idem_core::store::Inserted;
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let plan = FaultPlan::none().on(CallKind::Insert, 1, Injection::LoseReply);
/// let store = FaultStore::new(ReferenceStore::default(), plan);
///
/// let identity = Identity::new(Scope::new("acct_1")?, Key::new("k")?);
/// let fingerprint = Fingerprint::builder("POST /charges").bytes(b"100").finish()?;
/// let claim = Claim::new(identity, fingerprint, Takeover::Resume);
///
/// let error = store.insert(&claim).await.unwrap_err();
/// assert_eq!(error.write_outcome(), WriteOutcome::Unknown);
/// // It did land: asked again, the claimer finds its own row.
/// assert!(matches!(store.insert(&claim).await?, Inserted::Existing(..)));
/// assert_eq!(store.calls(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FaultStore<S> {
    inner: S,
    state: Mutex<Faulty>,
}

#[derive(Default)]
struct Faulty {
    progress: Progress,
    calls: u64,
    injected: u64,
    /// Writes that are under way, with the number of the call before which they land.
    late: Vec<(u64, LateWrite)>,
}

enum LateWrite {
    Insert(Claim),
    Swap(Identity, Version, Change),
    Purge(PurgeOptions),
    Erase(Scope, Erase),
}

impl<S: Store> FaultStore<S> {
    /// Puts `inner` behind `plan`.
    #[must_use]
    pub fn new(inner: S, plan: FaultPlan) -> Self {
        let progress = Progress::new(plan);
        Self { inner, state: Mutex::new(Faulty { progress, ..Faulty::default() }) }
    }

    /// The store behind it, which does not fail.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Goes on with another plan, for which calls are counted from 1 again. Late writes stay under way.
    pub fn set_plan(&self, plan: FaultPlan) {
        self.state().progress = Progress::new(plan);
    }

    /// How many calls there were since this store was made.
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// How many calls of a kind there were since the plan was set.
    pub fn calls_of(&self, kind: CallKind) -> u64 {
        self.state().progress.count(kind)
    }

    /// How many calls were made to fail since this store was made.
    pub fn injected(&self) -> u64 {
        self.state().injected
    }

    /// Lets every write land that is still under way.
    ///
    /// # Cancel safety
    ///
    /// Writes that did not land when the future is dropped are lost.
    pub async fn land_all(&self) {
        let late = std::mem::take(&mut self.state().late);
        self.land(late.into_iter().map(|(_, write)| write).collect()).await;
    }

    fn state(&self) -> MutexGuard<'_, Faulty> {
        self.state.lock().expect("nothing panics while it holds the plan")
    }

    /// Counts a call, lets the writes land that are due before it, and says how it fails.
    async fn arrive(&self, kind: CallKind) -> Option<Injection> {
        let (injection, due) = {
            let mut state = self.state();
            state.calls += 1;
            let injection = state.progress.arrive(kind);
            state.injected += u64::from(injection.is_some());
            let calls = state.calls;
            let (due, late) = std::mem::take(&mut state.late).into_iter().partition(|(before, _)| *before <= calls);
            state.late = late;
            (injection, due)
        };
        let due: Vec<(u64, LateWrite)> = due;
        self.land(due.into_iter().map(|(_, write)| write).collect()).await;
        injection
    }

    async fn land(&self, writes: Vec<LateWrite>) {
        for write in writes {
            // Nobody waits for these answers any more.
            match write {
                LateWrite::Insert(claim) => drop(self.inner.insert(&claim).await),
                LateWrite::Swap(identity, expected, change) => {
                    drop(self.inner.swap(&identity, &expected, &change).await);
                }
                LateWrite::Purge(options) => drop(self.inner.purge(&options).await),
                LateWrite::Erase(scope, which) => drop(self.inner.erase(&scope, which).await),
            }
        }
    }

    async fn write<T>(
        &self,
        operation: &'static str,
        injection: Option<Injection>,
        late: impl FnOnce() -> LateWrite + Send,
        call: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        let unknown = || Error::new(ErrorKind::Timeout, operation, WriteOutcome::Unknown);
        match injection {
            None => call.await,
            Some(Injection::Refuse) => Err(Error::new(ErrorKind::Unavailable, operation, WriteOutcome::NotApplied)),
            Some(Injection::LoseRequest) => Err(unknown()),
            Some(Injection::LoseReply) => {
                call.await?;
                Err(unknown())
            }
            Some(Injection::LandLate { after_calls }) => {
                let mut state = self.state();
                let before = state.calls + after_calls.max(1);
                state.late.push((before, late()));
                Err(unknown())
            }
            Some(Injection::Hang) => std::future::pending().await,
            Some(Injection::HangAfter) => {
                call.await?;
                std::future::pending().await
            }
        }
    }

    async fn read<T>(
        &self,
        operation: &'static str,
        kind: CallKind,
        call: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        debug_assert!(kind.reads_only());
        match self.arrive(kind).await {
            None => call.await,
            Some(Injection::Hang | Injection::HangAfter) => std::future::pending().await,
            Some(Injection::Refuse | Injection::LoseRequest | Injection::LoseReply | Injection::LandLate { .. }) => {
                Err(Error::new(ErrorKind::Unavailable, operation, WriteOutcome::NotApplied))
            }
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<S: Store> Store for FaultStore<S> {
    async fn insert(&self, claim: &Claim) -> Result<Inserted, Error> {
        let injection = self.arrive(CallKind::Insert).await;
        let late = || LateWrite::Insert(claim.same_again());
        self.write("insert", injection, late, self.inner.insert(claim)).await
    }

    async fn swap(&self, identity: &Identity, expected: &Version, change: &Change) -> Result<Swapped, Error> {
        let injection = self.arrive(CallKind::SwapOf(change.event())).await;
        let late = || LateWrite::Swap(identity.clone(), *expected, change.clone());
        self.write("swap", injection, late, self.inner.swap(identity, expected, change)).await
    }

    async fn load(&self, identity: &Identity) -> Result<Loaded, Error> {
        self.read("load", CallKind::Load, self.inner.load(identity)).await
    }

    async fn purge(&self, options: &PurgeOptions) -> Result<Purged, Error> {
        let injection = self.arrive(CallKind::Purge).await;
        self.write("purge", injection, || LateWrite::Purge(options.clone()), self.inner.purge(options)).await
    }

    async fn stuck(&self, query: &StuckQuery) -> Result<StuckPage, Error> {
        self.read("stuck", CallKind::Stuck, self.inner.stuck(query)).await
    }

    async fn stats(&self) -> Result<Stats, Error> {
        self.read("stats", CallKind::Stats, self.inner.stats()).await
    }

    async fn erase(&self, scope: &Scope, which: Erase) -> Result<Erased, Error> {
        let injection = self.arrive(CallKind::Erase).await;
        self.write("erase", injection, || LateWrite::Erase(scope.clone(), which), self.inner.erase(scope, which)).await
    }
}

impl<S> fmt::Debug for FaultStore<S> {
    /// Shows the plan with its seed, and how far it has got.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("FaultStore");
        if let Ok(state) = self.state.try_lock() {
            shown.field("progress", &state.progress).field("calls", &state.calls).field("late", &state.late.len());
        }
        shown.finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::ReferenceStore;
    use crate::fingerprint::Fingerprint;
    use crate::key::Key;
    use crate::policy::Takeover;
    use std::time::Duration;

    fn claim() -> Claim {
        let identity = Identity::new(Scope::new("acct_1").unwrap(), Key::new("k").unwrap());
        let fingerprint = Fingerprint::builder("POST /charges").finish().unwrap();
        Claim::new(identity, fingerprint, Takeover::Resume)
    }

    async fn first_insert(injection: Injection) -> (FaultStore<ReferenceStore>, Claim, Option<Error>) {
        let plan = FaultPlan::none().on(CallKind::Insert, 1, injection);
        let (store, claim) = (FaultStore::new(ReferenceStore::default(), plan), claim());
        let answer = tokio::time::timeout(Duration::from_millis(1), store.insert(&claim)).await;
        let error = answer.ok().map(|answer| answer.expect_err("the first insert fails"));
        (store, claim, error)
    }

    async fn is_there(store: &FaultStore<ReferenceStore>, claim: &Claim) -> bool {
        store.inner().load(claim.identity()).await.unwrap().record.is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn every_failure_says_and_does_what_it_is_for() {
        use WriteOutcome::{NotApplied, Unknown};
        let late = Injection::LandLate { after_calls: 2 };
        for (injection, outcome, applied) in [
            (Injection::Refuse, Some(NotApplied), false),
            (Injection::LoseRequest, Some(Unknown), false),
            (Injection::LoseReply, Some(Unknown), true),
            (late, Some(Unknown), false),
            (Injection::Hang, None, false),
            (Injection::HangAfter, None, true),
        ] {
            let (store, claim, error) = first_insert(injection).await;
            assert_eq!(error.map(|error| error.write_outcome()), outcome, "{injection:?}");
            assert_eq!(is_there(&store, &claim).await, applied, "{injection:?}");
            assert_eq!((store.calls(), store.injected(), store.calls_of(CallKind::Insert)), (1, 1, 1));
        }
    }

    #[tokio::test]
    async fn a_late_write_lands_before_the_call_that_was_named() {
        let (store, claim, _) = first_insert(Injection::LandLate { after_calls: 2 }).await;
        assert!(store.load(claim.identity()).await.unwrap().record.is_none());
        let landed = store.load(claim.identity()).await.unwrap().record.expect("it landed");
        assert_eq!(landed.version.owner, claim.owner());

        let (store, claim, _) = first_insert(Injection::LandLate { after_calls: 99 }).await;
        store.land_all().await;
        assert!(is_there(&store, &claim).await);
    }

    #[tokio::test]
    async fn a_failed_read_is_never_unknown() {
        let claim = claim();
        for injection in [Injection::Refuse, Injection::LoseReply, Injection::LandLate { after_calls: 1 }] {
            let plan = FaultPlan::none().onward(CallKind::Any, 1, injection);
            let store = FaultStore::new(ReferenceStore::default(), plan);
            let error = store.load(claim.identity()).await.unwrap_err();
            assert_eq!(error.write_outcome(), WriteOutcome::NotApplied);
        }
    }
}
