//! The consumer's side of a queue that delivers at least once: [`Inbox`].

use crate::error::translate;
use crate::store::PostgresStore;
use crate::transaction::ClaimedIn;
use idem_core::machine::NotCompleted;
use idem_core::{
    Claim, Error, ErrorKind, Fingerprint, Identity, Key, Policy, PolicyError, Response, Scope, Takeover, WriteOutcome,
};
use sqlx::PgPool;
use sqlx::postgres::PgConnection;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// What a consumer does with an event, in the transaction that it is given.
pub type Work<'c, T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'c>>;

/// Events that a consumer takes from a queue that delivers them at least once, each of them done once.
///
/// An event's mark and what is done about it are one transaction: whoever dies in the middle has done nothing, and
/// whoever gets the event again after the commit is told that it is a duplicate. Two consumers are two scopes: each does
/// every event. The work may write to this database and nowhere else; what calls anybody needs an
/// [engine](idem_core::Engine).
///
/// Acknowledge an event to the queue after [`Consumed::Done`] and [`Consumed::Duplicate`], and after nothing else.
///
/// # Examples
///
/// ```no_run
/// use idem_core::{Key, Scope};
/// use idem_postgres::{Consumed, Event, Inbox, PostgresStore};
/// use sqlx::PgPool;
///
/// async fn book(store: PostgresStore, pool: PgPool, id: &str, amount: i64) -> Result<(), Box<dyn std::error::Error>> {
///     let inbox = Inbox::new(store, pool, Scope::new("ledger")?);
///     let event = Event::new(Key::new(id)?);
///     let consumed = inbox
///         .consume(&event, |connection| {
///             Box::pin(async move {
///                 sqlx::query("UPDATE balances SET amount = amount + $1").bind(amount).execute(connection).await
///             })
///         })
///         .await?;
///     match consumed {
///         Consumed::Done(_) | Consumed::Duplicate => println!("acknowledge it"),
///         Consumed::Busy { retry_after } => println!("somebody is at it: take it again in {retry_after:?}"),
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct Inbox {
    store: PostgresStore,
    pool: PgPool,
    consumer: Scope,
    policy: Policy,
}

/// An event, by the name under which the queue delivers it again.
#[derive(Clone)]
pub struct Event {
    id: Key,
    payload: Option<Vec<u8>>,
}

/// What came of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Consumed<T> {
    /// It was done here and now, and that is committed.
    Done(T),
    /// It was done before.
    Duplicate,
    /// Another transaction is working on it: let the queue deliver it again.
    Busy {
        /// When to take it again.
        retry_after: Duration,
    },
}

/// Why an event was not done. Do not acknowledge it.
#[derive(Debug, thiserror::Error)]
pub enum ConsumeError<E> {
    /// The work failed; nothing of it happened.
    #[error("the work on an event failed: {0}")]
    Work(E),
    /// Another payload came under the same id before. Put the event aside: delivering it again changes nothing.
    #[error("another event has the same id: put this one aside for somebody to look at")]
    AnotherEvent,
    /// The store failed. After [`WriteOutcome::Unknown`] the event may be done: delivered again, it is a duplicate then.
    #[error(transparent)]
    Store(#[from] Error),
}

impl<E> From<NotCompleted> for ConsumeError<E> {
    fn from(not_completed: NotCompleted) -> Self {
        match not_completed {
            NotCompleted::Store(error) => Self::Store(error),
            // The claim is this transaction's own, and nobody can have seen it.
            NotCompleted::Fenced => Self::Store(Error::new(ErrorKind::Internal, "consume", WriteOutcome::NotApplied)),
        }
    }
}

impl Event {
    /// An event of which the id is all that counts.
    #[must_use]
    pub fn new(id: Key) -> Self {
        Self { id, payload: None }
    }

    /// Compares the payload, too: another one under the same id is refused instead of taken for a duplicate. Defaults to
    /// not looking. Only for queues that deliver the same bytes again.
    #[must_use]
    pub fn with_payload(mut self, payload: impl Into<Vec<u8>>) -> Self {
        self.payload = Some(payload.into());
        self
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("compares_payload", &self.payload.is_some()).finish_non_exhaustive()
    }
}

impl Inbox {
    /// The events of `consumer`, which are kept beside the records of `store`. `pool` is the one whose transactions do
    /// the work, in the same database.
    #[must_use]
    pub fn new(store: PostgresStore, pool: PgPool, consumer: Scope) -> Self {
        Self { store, pool, consumer, policy: Policy::default() }
    }

    /// For how long an event is remembered: longer than the queue may deliver it again. Defaults to 24 h.
    ///
    /// # Errors
    ///
    /// [`PolicyError`] if it is shorter than a policy's retention may be.
    pub fn with_retention(mut self, retention: Duration) -> Result<Self, PolicyError> {
        self.policy = Policy::builder().with_retention(retention).build()?;
        Ok(self)
    }

    /// Does `work` about an event, if it was not done before.
    ///
    /// # Errors
    ///
    /// [`ConsumeError`]: do not acknowledge the event.
    ///
    /// # Cancel safety
    ///
    /// Dropped half-way, the event is done as a whole or not at all.
    pub async fn consume<T, E, W>(&self, event: &Event, work: W) -> Result<Consumed<T>, ConsumeError<E>>
    where
        W: for<'c> FnOnce(&'c mut PgConnection) -> Work<'c, T, E>,
    {
        let mut transaction = self.pool.begin().await.map_err(|error| not_applied(&error))?;
        let consumed = self.consume_in(&mut transaction, event, work).await?;
        if let Consumed::Done(_) = consumed {
            // From here on nobody knows, until the server says.
            transaction.commit().await.map_err(|error| unknown(&error))?;
        }
        Ok(consumed)
    }

    /// The same for several events, in one transaction: for a queue that delivers them in batches.
    ///
    /// What comes of each is in its place. One whose work fails leaves no trace and does not disturb the others.
    ///
    /// # Errors
    ///
    /// If the transaction cannot be begun or committed; then none is done, or after [`WriteOutcome::Unknown`] all or none
    /// of those that would have been.
    ///
    /// # Cancel safety
    ///
    /// Dropped half-way, either none of them is done or all that could be.
    pub async fn consume_batch<T, E, W>(
        &self,
        events: &[Event],
        mut work: W,
    ) -> Result<Vec<Result<Consumed<T>, ConsumeError<E>>>, Error>
    where
        W: for<'c> FnMut(usize, &'c mut PgConnection) -> Work<'c, T, E>,
    {
        use sqlx::Connection as _;
        let mut transaction = self.pool.begin().await.map_err(|error| not_applied(&error))?;
        let mut outcomes = Vec::with_capacity(events.len());
        for (number, event) in events.iter().enumerate() {
            // Dropped without being released, it is rolled back.
            let mut part = transaction.begin().await.map_err(|error| not_applied(&error))?;
            let consumed = self.consume_in(&mut part, event, |connection| work(number, connection)).await;
            let ended = if consumed.is_ok() { part.commit().await } else { part.rollback().await };
            ended.map_err(|error| not_applied(&error))?;
            outcomes.push(consumed);
        }
        transaction.commit().await.map_err(|error| unknown(&error))?;
        Ok(outcomes)
    }

    /// The same in a transaction of the caller's, who commits it after [`Consumed::Done`] and rolls it back after an
    /// error.
    ///
    /// # Errors
    ///
    /// [`ConsumeError`]: roll back.
    ///
    /// # Cancel safety
    ///
    /// Dropped half-way, the transaction has to be rolled back, which its drop does.
    pub async fn consume_in<T, E, W>(
        &self,
        connection: &mut PgConnection,
        event: &Event,
        work: W,
    ) -> Result<Consumed<T>, ConsumeError<E>>
    where
        W: for<'c> FnOnce(&'c mut PgConnection) -> Work<'c, T, E>,
    {
        let held = match self.store.claim_in(connection, &self.claim(event)?).await? {
            ClaimedIn::Acquired(held) => held,
            ClaimedIn::Replayed(_) => return Ok(Consumed::Duplicate),
            ClaimedIn::InProgress { retry_after, .. } => return Ok(Consumed::Busy { retry_after }),
            ClaimedIn::Mismatch { .. } => return Err(ConsumeError::AnotherEvent),
            ClaimedIn::Abandoned { .. } => {
                let error = Error::new(ErrorKind::InvalidRequest, "consume", WriteOutcome::NotApplied);
                return Err(error
                    .with_source("an engine left this event's record unresolved: see to that first")
                    .into());
            }
        };
        let done = work(connection).await.map_err(ConsumeError::Work)?;
        self.store.complete_in(connection, &held.completion(Response::value(Vec::new()))).await?;
        Ok(Consumed::Done(done))
    }

    fn claim(&self, event: &Event) -> Result<Claim, Error> {
        let identity = Identity::new(self.consumer.clone(), event.id.clone());
        let fingerprint = Fingerprint::builder("event");
        let fingerprint = match &event.payload {
            Some(payload) => fingerprint.bytes(payload).finish(),
            None => fingerprint.finish(),
        };
        let fingerprint = fingerprint.map_err(|error| {
            Error::new(ErrorKind::InvalidRequest, "consume", WriteOutcome::NotApplied).with_source(error)
        })?;
        // Whatever became of an earlier attempt is in its transaction, or it never was.
        Ok(Claim::under(&self.policy, identity, fingerprint, Takeover::Resume))
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("policy", &self.policy).finish_non_exhaustive()
    }
}

fn not_applied(error: &sqlx::Error) -> Error {
    translate("consume", error).with_write_outcome(WriteOutcome::NotApplied)
}

/// For a commit: unless the server says that it was refused, it may have been done.
fn unknown(error: &sqlx::Error) -> Error {
    translate("consume", error)
}
