//! Finding out what became of operations that nobody came back from: [`Engine::reconcile`], [`Reconciler`].

use super::claiming::{Seized, seize};
use super::clock::now;
use super::execute;
use super::operation::Operation;
use super::outcome::{Disposition, Failure, Outcome, Recorded};
use super::{Engine, calls};
use crate::error::{Error, ErrorKind, WriteOutcome};
use crate::key::Identity;
use crate::record::RecoveryPoint;
use crate::response::Response;
use crate::store::{Stuck, StuckQuery};
use crate::time::Timestamp;
use backon::{BackoffBuilder, ConstantBuilder};
use std::fmt;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{debug, warn};

/// An operation whose outcome is unknown and on which nobody is working, in the hands of whoever looks it up.
///
/// It is taken over first, so that a late owner can store nothing any more and can mark no effect that it had not
/// begun. Look the object up by what the operation wrote into it, its own identifier in the provider's metadata, say. Do
/// not call again to find out: whether the provider still knows the key is what is in question.
#[derive(Debug, Clone)]
pub struct Unresolved {
    operation: Operation,
    window_left: Duration,
}

impl Unresolved {
    /// Whose operation, under which key.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        self.operation.tenure().identity()
    }

    /// Whether an external call may have been made. If not, no call was begun by an attempt that keeps to
    /// [`begin_effect`](Operation::begin_effect).
    pub async fn effect_may_have_begun(&self) -> bool {
        self.operation.effect_may_have_begun().await
    }

    /// The last phase that an attempt committed.
    #[must_use]
    pub fn recovery_point(&self) -> Option<&RecoveryPoint> {
        self.operation.recovery_point()
    }

    /// The key that the external call named `label` was sent with.
    #[must_use]
    pub fn derived_key(&self, label: &str) -> String {
        self.operation.derived_key(label)
    }

    /// When the operation was first asked for, by the store's clock.
    #[must_use]
    pub fn created_at(&self) -> Timestamp {
        self.operation.tenure().granted().created_at
    }

    /// For how long the provider still knows its keys, by the policy's
    /// [provider window](crate::Policy::provider_window). Zero if it may have forgotten them.
    #[must_use]
    pub fn window_left(&self) -> Duration {
        self.window_left
    }
}

/// What a look at an [`Unresolved`] operation found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// It happened, and this is its answer: stored, and replayed from now on. Also the way to close an operation that did
    /// not happen and shall not: with an answer that says so.
    Completed(Response),
    /// It did not happen. A retry may run; after a mark that an effect had begun only as its takeover policy says, since
    /// a call that was on its way when it was looked up may still arrive.
    NothingHappened,
    /// Nobody can tell yet: it is looked at again later.
    StillUnknown,
}

/// What a pass over the unresolved operations did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Reconciled {
    /// Operations that were looked at.
    pub looked_at: u64,
    /// Whose answer is stored now.
    pub completed: u64,
    /// Which are known not to have happened.
    pub nothing_happened: u64,
    /// Of which nothing new is known, or for which the look failed or took too long.
    pub still_unknown: u64,
    /// Which somebody else took over, before or during the look.
    pub moved_on: u64,
    /// Which were looked at when the provider may have forgotten its keys already: look earlier, or more often.
    pub too_late: u64,
}

/// When unresolved operations are looked up.
///
/// # Examples
///
/// ```
/// use idem_core::ReconcileOptions;
/// use std::time::Duration;
///
/// let options = ReconcileOptions::default().with_after(Duration::from_secs(120));
/// assert_eq!(options.after(), Duration::from_secs(120));
/// ```
#[derive(Debug, Clone)]
pub struct ReconcileOptions {
    after: Duration,
    interval: Duration,
}

impl Default for ReconcileOptions {
    fn default() -> Self {
        Self { after: Duration::from_secs(10 * 60), interval: Duration::from_secs(60) }
    }
}

impl ReconcileOptions {
    /// For how long nobody must have worked on an operation before it is looked up, counted from the end of its last
    /// lease or from the last look. Longer than a call that was on its way may take to arrive. Defaults to 10 minutes.
    #[must_use]
    pub fn with_after(mut self, after: Duration) -> Self {
        self.after = after;
        self
    }

    /// How long a [`Reconciler`] pauses between passes; each pause is up to twice as long by chance. Defaults to a
    /// minute.
    #[must_use]
    pub fn with_interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// For how long nobody must have worked on an operation.
    #[must_use]
    pub fn after(&self) -> Duration {
        self.after
    }

    /// How long a pause is.
    #[must_use]
    pub fn interval(&self) -> Duration {
        self.interval
    }
}

impl Engine {
    /// Looks up, one after the other, every operation whose outcome is unknown and on which nobody is working: the
    /// oldest first.
    ///
    /// `look` gets each of them under a lease that is renewed while it looks, as a handler does, and says what it found.
    /// Several processes may do so at the same time: each operation is in the hands of one. Lease and provider window are
    /// those of the engine's own policy.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Misconfigured`] if `after` and one pause and a lease are not over well before the policy's provider
    /// window is: within half of it. [`ErrorKind::Draining`]; or what the store answers when it is asked for the list. What
    /// goes wrong with one operation is counted, reported as an event, and left to the next pass.
    ///
    /// # Cancel safety
    ///
    /// Dropped half-way, the operation that was being looked at is abandoned, best effort, and found again.
    pub async fn reconcile<L, F>(&self, options: &ReconcileOptions, mut look: L) -> Result<Reconciled, Error>
    where
        L: FnMut(Unresolved) -> F,
        F: Future<Output = Finding>,
    {
        self.check_window(options)?;
        let mut total = Reconciled::default();
        let mut query = StuckQuery::default().with_stale_for(options.after);
        loop {
            let ends = now() + self.shared.policy.statement_deadline();
            let page = calls::until(ends, "stuck", self.shared.store.stuck(&query)).await?;
            for stuck in &page.records {
                let _admission = self.admit()?;
                match self.look_up(stuck, &mut look, &mut total).await {
                    Ok(()) => {}
                    Err(error) => {
                        total.still_unknown += 1;
                        warn!(target: "idem", kind = ?error.kind(), "an unresolved operation could not be looked up");
                    }
                }
            }
            match page.next {
                Some(cursor) => query = query.after(cursor),
                None => break,
            }
        }
        if total.looked_at > 0 {
            debug!(target: "idem", ?total, "looked unresolved operations up");
        }
        Ok(total)
    }

    /// Does so in the background, again and again, until the [`Reconciler`] is stopped or dropped.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Misconfigured`], as [`reconcile`](Engine::reconcile), and outside a Tokio runtime.
    pub fn spawn_reconciler<L, F>(&self, options: ReconcileOptions, look: L) -> Result<Reconciler, Error>
    where
        L: FnMut(Unresolved) -> F + Send + 'static,
        F: Future<Output = Finding> + Send + 'static,
    {
        self.check_window(&options)?;
        let runtime = tokio::runtime::Handle::try_current().map_err(|no_runtime| {
            Error::new(ErrorKind::Misconfigured, "reconcile", WriteOutcome::NotApplied).with_source(no_runtime)
        })?;
        let stop = CancellationToken::new();
        let (engine, stopped) = (self.clone(), stop.clone());
        let task = runtime.spawn(async move {
            stopped.run_until_cancelled(engine.reconcile_for_ever(options, look)).await;
        });
        Ok(Reconciler { task, stop: stop.drop_guard() })
    }

    async fn reconcile_for_ever<L, F>(self, options: ReconcileOptions, mut look: L)
    where
        L: FnMut(Unresolved) -> F,
        F: Future<Output = Finding>,
    {
        let pauses = ConstantBuilder::default().with_delay(options.interval).with_jitter().without_max_times().build();
        for pause in pauses {
            sleep(pause).await;
            match self.reconcile(&options, &mut look).await {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Draining => return,
                Err(error) => {
                    warn!(target: "idem", kind = ?error.kind(), "unresolved operations could not be listed");
                }
            }
        }
    }

    async fn look_up<L, F>(&self, stuck: &Stuck, look: &mut L, total: &mut Reconciled) -> Result<(), Error>
    where
        L: FnMut(Unresolved) -> F,
        F: Future<Output = Finding>,
    {
        let Some(Seized { grant, clock }) = seize(&self.shared, &self.shared.policy, stuck).await? else {
            total.moved_on += 1;
            return Ok(());
        };
        let lease = super::lease(grant)?;
        let age = clock.saturating_duration_since(stuck.created_at);
        let window_left = self.shared.policy.provider_window().saturating_sub(age);
        total.looked_at += 1;
        total.too_late += u64::from(window_left.is_zero());
        let handler = |operation| async move {
            match look(Unresolved { operation, window_left }).await {
                Finding::Completed(response) => Ok(response),
                Finding::NothingHappened => Err(Failure::VerifiedNoEffect(())),
                Finding::StillUnknown => Err(Failure::Unknown(())),
            }
        };
        match execute::run(lease, handler).await? {
            Outcome::Executed { recorded: Recorded::Yes, .. } => total.completed += 1,
            Outcome::Failed { disposition: Disposition::Retryable, .. } => total.nothing_happened += 1,
            Outcome::Fenced { .. } => total.moved_on += 1,
            Outcome::Executed { recorded: Recorded::Unknown, .. }
            | Outcome::Failed { .. }
            | Outcome::Panicked(_)
            | Outcome::Stopped { .. }
            | Outcome::Replayed(_)
            | Outcome::InProgress { .. }
            | Outcome::Mismatch { .. }
            | Outcome::Abandoned { .. } => total.still_unknown += 1,
        }
        Ok(())
    }

    fn check_window(&self, options: &ReconcileOptions) -> Result<(), Error> {
        let policy = &self.shared.policy;
        // Pauses are up to twice as long by chance.
        let latest = policy.max_run() + policy.lease() + options.after + 2 * options.interval;
        if 2 * latest <= policy.provider_window() {
            return Ok(());
        }
        let window = policy.provider_window();
        Err(Error::new(ErrorKind::Misconfigured, "reconcile", WriteOutcome::NotApplied).with_source(format!(
            "an operation may be {latest:?} old when it is first looked up, and the provider forgets its keys after \
             {window:?}: look earlier, so that it is within half of that"
        )))
    }
}

/// A background task that looks unresolved operations up: see [`Engine::spawn_reconciler`]. Dropping it stops it.
///
/// # Examples
///
/// ```
/// # use idem_core::conformance::ReferenceStore;
/// use idem_core::{Engine, Finding, ReconcileOptions, Response, Unresolved};
///
/// # async fn find_charge(_by: String) -> Result<Option<String>, &'static str> { Ok(None) }
/// async fn look(unresolved: Unresolved) -> Finding {
///     // The charge was sent with this as its metadata.
///     match find_charge(unresolved.derived_key("charge")).await {
///         Ok(Some(charge)) => Finding::Completed(Response::new(201, charge)),
///         Ok(None) => Finding::NothingHappened,
///         Err(_unreachable) => Finding::StillUnknown,
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store = ReferenceStore::default();
/// let engine = Engine::builder(store).build()?;
/// let reconciler = engine.spawn_reconciler(ReconcileOptions::default(), look)?;
/// reconciler.stop().await;
/// # Ok(())
/// # }
/// ```
#[must_use = "a reconciler stops when it is dropped"]
pub struct Reconciler {
    task: JoinHandle<()>,
    stop: DropGuard,
}

impl Reconciler {
    /// Stops at once: an operation that is being looked at is abandoned, and found again by somebody else.
    ///
    /// # Cancel safety
    ///
    /// Dropped half-way, the reconciler stops all the same.
    pub async fn stop(self) {
        drop(self.stop);
        // The task does nothing but look; if it panicked there is nothing left to stop.
        let _ = self.task.await;
    }
}

impl fmt::Debug for Reconciler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reconciler").field("stopped", &self.task.is_finished()).finish()
    }
}
