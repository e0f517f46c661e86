//! Claims and completions in a transaction of the caller's own: [`PostgresStore::complete_in`],
//! [`PostgresStore::claim_in`].

use crate::error::{Meaning, classify, translate};
use crate::row::{column, instant, record};
use crate::single::{ASK_AGAIN, Insertion, inserted};
use crate::statement::{Value, arguments, written_out};
use crate::store::PostgresStore;
use bytes::Bytes;
use idem_core::fingerprint::Part;
use idem_core::machine::{AbandonReason, Decision, NotCompleted, Ownership, Previous, decide};
use idem_core::store::Inserted;
use idem_core::{
    Claim, Completion, Error, ErrorKind, FencingToken, Identity, Record, RecoveryPoint, Response, Timestamp, Version,
    WriteOutcome,
};
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Executor as _};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use uuid::Uuid;

/// How often a claim decides anew because a rival was faster, before it says `InProgress`.
const MAX_ROUNDS: usize = 16;

/// What came of [`PostgresStore::claim_in`]. Whatever it is, the transaction can be used further.
#[derive(Debug)]
#[must_use]
pub enum ClaimedIn {
    /// The key is this transaction's: do the work in it, write the completion, commit.
    Acquired(HeldIn),
    /// The operation was done before; this is the stored answer, verbatim.
    Replayed(Response),
    /// Somebody else is working on it, in a transaction or not: ask again, in another transaction.
    InProgress {
        /// Since when, by the server's clock; `None` if a transaction has not committed its claim yet.
        since: Option<Timestamp>,
        /// When to ask again.
        retry_after: Duration,
    },
    /// The key belongs to a different request.
    Mismatch {
        /// The first part of the request that differs, if that can be told.
        part: Option<Part>,
    },
    /// An earlier attempt never came back, its outcome is unknown, and no policy allows running again.
    Abandoned {
        /// Why not.
        reason: AbandonReason,
    },
}

/// A key that a transaction holds, for as long as that lasts: it is free again at once when the transaction is rolled
/// back.
///
/// It has no lease to keep and nothing to give up: dropped, nothing happens. A transaction that is *committed* without
/// the completion leaves the key in progress until its lease is over.
#[derive(Debug)]
#[must_use = "write the completion with `complete_in`, then commit"]
pub struct HeldIn {
    identity: Identity,
    ownership: Ownership,
}

/// The values of [`PostgresStore::completion_statement`], in the order of its parameters, in types that every driver
/// knows.
#[derive(Clone)]
#[non_exhaustive]
pub struct CompletionValues {
    /// `$1`, text.
    pub scope: String,
    /// `$2`, text.
    pub key: String,
    /// `$3`, timestamptz: exact to the microsecond.
    pub locked_at: SystemTime,
    /// `$4`, uuid.
    pub owner: Uuid,
    /// `$5`, timestamptz.
    pub expires_at: SystemTime,
    /// `$6`, int4.
    pub response_code: Option<i32>,
    /// `$7`, bytea.
    pub response_head: Vec<u8>,
    /// `$8`, bytea.
    pub response_body: Bytes,
}

impl From<&Completion> for CompletionValues {
    fn from(completion: &Completion) -> Self {
        let response = completion.response();
        Self {
            scope: completion.identity().scope().as_str().to_owned(),
            key: completion.identity().key().as_str().to_owned(),
            locked_at: system_time(completion.version().locked_at),
            owner: *completion.version().owner.as_uuid(),
            expires_at: system_time(completion.expires_at()),
            response_code: response.code().map(i32::from),
            response_head: response.encode_head(),
            response_body: response.body().clone(),
        }
    }
}

impl fmt::Debug for CompletionValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Key, scope and body are nobody's to log.
        f.debug_struct("CompletionValues").field("owner", &self.owner).finish_non_exhaustive()
    }
}

impl HeldIn {
    /// Which attempt this is, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.ownership.record().attempt
    }

    /// What is known of the attempts before this one.
    #[must_use]
    pub fn previous(&self) -> Previous {
        self.ownership.previous()
    }

    /// The last phase that an earlier attempt committed.
    #[must_use]
    pub fn recovery_point(&self) -> Option<&RecoveryPoint> {
        self.ownership.record().recovery_point.as_ref()
    }

    /// The number to hand to a sink that can compare.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.ownership.version().fencing_token()
    }

    /// The completion with `response`, for [`complete_in`](PostgresStore::complete_in). The record is kept for the
    /// claim's retention.
    #[must_use]
    pub fn completion(&self, response: Response) -> Completion {
        let expires_at = self.ownership.settled_expiry(Duration::ZERO, Duration::ZERO);
        Completion::new(self.identity.clone(), self.ownership.version(), response, expires_at)
    }
}

impl PostgresStore {
    /// Writes a completion in the caller's transaction: answer, business rows and outbox rows commit together, or none
    /// of them.
    ///
    /// `connection` is a `&mut Transaction`, dereferenced, of the caller's own pool, at any isolation level. The
    /// transaction must have begun after the key was claimed if its level is above `READ COMMITTED`, or it cannot see the
    /// claim.
    ///
    /// # Errors
    ///
    /// Roll back, which `?` does by dropping the transaction. [`NotCompleted::Fenced`]: somebody else has the key, and
    /// what this transaction did must not happen. [`NotCompleted::Store`]: the server refused or could not be asked; as
    /// with every statement of a transaction, a serialization failure means to try the whole of it again.
    ///
    /// # Cancel safety
    ///
    /// Dropped half-way, the transaction has to be rolled back, which its drop does.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use idem_core::{Failure, Operation, Response};
    /// use idem_postgres::PostgresStore;
    /// use sqlx::PgPool;
    ///
    /// # struct Problem;
    /// # impl From<sqlx::Error> for Problem { fn from(_: sqlx::Error) -> Self { Problem } }
    /// async fn charge(store: PostgresStore, pool: PgPool, operation: Operation) -> Result<Response, Failure<Problem>> {
    ///     let nothing_yet = |error: sqlx::Error| Failure::NoEffect(Problem::from(error));
    ///     let mut transaction = pool.begin().await.map_err(nothing_yet)?;
    ///     sqlx::query("INSERT INTO charges (id, amount) VALUES ('ch_1', 1000)")
    ///         .execute(&mut *transaction)
    ///         .await
    ///         .map_err(nothing_yet)?;
    ///
    ///     let response = Response::new(201, r#"{"id":"ch_1"}"#);
    ///     store.complete_in(&mut transaction, &operation.completion(&response).await?).await?;
    ///     // Whether it was committed is what nobody knows if this fails.
    ///     transaction.commit().await.map_err(|error| Failure::Unknown(error.into()))?;
    ///     Ok(response)
    /// }
    /// ```
    pub async fn complete_in(
        &self,
        connection: &mut PgConnection,
        completion: &Completion,
    ) -> Result<(), NotCompleted> {
        let change = completion.change();
        let mut encoded = Vec::new();
        let (sql, values) =
            self.single().sql.change(completion.identity(), &completion.version(), &change, &mut encoded);
        let rows = self.run_in(connection, sql, &values).await.map_err(|error| refused("complete", &error))?;
        if !rows.is_empty() {
            return Ok(());
        }
        // Not this owner's any more, or not to be seen from here?
        let identity = completion.identity();
        let name = [Value::Text(identity.scope().as_str()), Value::Text(identity.key().as_str())];
        let (found, _) = self.read_in(connection, &name).await?;
        if found.is_none() && self.sees_only_its_snapshot(connection).await? {
            let error = Error::new(ErrorKind::InvalidRequest, "complete", WriteOutcome::NotApplied).with_source(
                "the record cannot be seen from this transaction: above READ COMMITTED, begin the transaction after the key \
                 was claimed",
            );
            return Err(NotCompleted::Store(error));
        }
        Err(NotCompleted::Fenced)
    }

    /// The statement of [`complete_in`](PostgresStore::complete_in), for transactions of other drivers.
    ///
    /// Bind [`CompletionValues`]. It returns one row if it applied, and none if somebody else has the key: then roll back.
    #[must_use]
    pub fn completion_statement(&self) -> &str {
        &self.single().sql.complete
    }

    /// Claims a key in the caller's transaction, for an operation that does nothing but write to this database: claim,
    /// work and completion commit together.
    ///
    /// Until then nobody else sees anything of it; who asks for the same key is told at once that it is in progress, and
    /// waits for nothing. Rolled back, or dropped, it never was. An operation that calls anybody else must not be claimed
    /// like this: its claim has to be committed before the call.
    ///
    /// `connection` must be in a transaction, at any isolation level. Policies apply as they do for an engine.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidRequest`] outside a transaction. Else what the server answers; the transaction can be used
    /// further if the server says that it can, and after a lost connection it is gone.
    ///
    /// # Cancel safety
    ///
    /// Dropped half-way, the transaction has to be rolled back, which its drop does.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use idem_core::{Claim, Fingerprint, Identity, Key, Response, Scope, Takeover};
    /// use idem_postgres::{ClaimedIn, PostgresStore};
    /// use sqlx::PgPool;
    ///
    /// async fn book(store: &PostgresStore, pool: &PgPool, event: &str) -> Result<(), Box<dyn std::error::Error>> {
    ///     let identity = Identity::new(Scope::new("ledger")?, Key::new(event)?);
    ///     let claim = Claim::new(identity, Fingerprint::builder("book").finish()?, Takeover::Resume);
    ///     let mut transaction = pool.begin().await?;
    ///     if let ClaimedIn::Acquired(held) = store.claim_in(&mut transaction, &claim).await? {
    ///         sqlx::query("UPDATE balances SET amount = amount + 1").execute(&mut *transaction).await?;
    ///         store.complete_in(&mut transaction, &held.completion(Response::new(200, "booked"))).await?;
    ///         transaction.commit().await?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub async fn claim_in(&self, connection: &mut PgConnection, claim: &Claim) -> Result<ClaimedIn, Error> {
        // A statement that fails ends a transaction, unless it is inside one of its own.
        if let Err(error) = connection.execute("SAVEPOINT idem_claim").await {
            return Err(match error.as_database_error().and_then(sqlx::error::DatabaseError::code).as_deref() {
                Some("25P01") => Error::new(ErrorKind::InvalidRequest, "claim", WriteOutcome::NotApplied)
                    .with_source("the connection is not in a transaction: begin one"),
                _ => translate("claim", &error).with_write_outcome(WriteOutcome::NotApplied),
            });
        }
        let claimed = self.claim_within(connection, claim).await;
        // What it did is kept only if the key is this transaction's; the lock goes with the rest.
        let end = match claimed {
            Ok(ClaimedIn::Acquired(_)) => "RELEASE SAVEPOINT idem_claim",
            _ => "ROLLBACK TO SAVEPOINT idem_claim; RELEASE SAVEPOINT idem_claim",
        };
        let ended = connection.execute(sqlx::raw_sql(end)).await;
        match claimed {
            Ok(claimed) => {
                ended.map_err(|error| translate("claim", &error).with_write_outcome(WriteOutcome::NotApplied))?;
                Ok(claimed)
            }
            // The row that is there cannot be seen from this transaction: somebody was faster.
            Err(Stopped::TryAgain) => Ok(ClaimedIn::InProgress { since: None, retry_after: ASK_AGAIN }),
            Err(Stopped::Error(error)) => Err(error.with_write_outcome(WriteOutcome::NotApplied)),
        }
    }

    async fn claim_within(&self, connection: &mut PgConnection, claim: &Claim) -> Result<ClaimedIn, Stopped> {
        let sql = &self.single().sql;
        let name = [Value::Text(claim.identity().scope().as_str()), Value::Text(claim.identity().key().as_str())];
        let locked = self.run_in(connection, &sql.try_lock, &name).await?;
        let locked = locked.first().map(|row| column::<bool>("claim", row, "free")).transpose()?;
        if locked != Some(true) {
            return Err(Stopped::TryAgain);
        }
        let insertion = Insertion::from(claim);
        let mut read = None;
        for _ in 0..MAX_ROUNDS {
            let (found, clock) = match read.take() {
                Some(seen) => seen,
                None => {
                    let rows = self.run_in(connection, &sql.insert_or_read, &insertion.values()).await?;
                    match rows.first().map(|row| inserted(row, claim.owner())).transpose()?.flatten() {
                        Some(Inserted::Won(version)) => return Ok(held(claim, claim.first_record(version.locked_at))),
                        Some(Inserted::Existing(record, clock)) => (record, clock),
                        // Whoever is in the way came after the statement's snapshot.
                        Some(Inserted::Busy { .. }) | None => match self.read_in(connection, &name).await? {
                            (Some(record), clock) => (record, clock),
                            (None, _) if self.sees_only_its_snapshot(connection).await? => {
                                return Err(Stopped::TryAgain);
                            }
                            // It was purged meanwhile.
                            (None, _) => continue,
                        },
                    }
                }
            };
            let (expected, change) = match decide(&found, claim, clock) {
                Decision::Swap { expected, change } => (expected, change),
                // An owner is minted for one claim, and this one holds nothing yet.
                Decision::Acquired => return Ok(held(claim, *found)),
                Decision::Replay(response) => return Ok(ClaimedIn::Replayed(response)),
                Decision::Mismatch { part } => return Ok(ClaimedIn::Mismatch { part }),
                Decision::Abandoned { reason } => return Ok(ClaimedIn::Abandoned { reason }),
                Decision::UnknownFingerprint => {
                    let error = Error::new(ErrorKind::UnknownFingerprint, "claim", WriteOutcome::NotApplied);
                    return Err(Stopped::Error(error));
                }
                Decision::InProgress { since, retry_after } => {
                    return Ok(ClaimedIn::InProgress { since: Some(since), retry_after });
                }
            };
            if self.swap_in(connection, claim.identity(), &expected, &change).await? {
                let record = change.apply(&found, &expected).ok_or_else(|| {
                    Stopped::Error(Error::new(ErrorKind::Internal, "claim", WriteOutcome::NotApplied))
                })?;
                return Ok(held(claim, record));
            }
            // Somebody was faster: what is there now decides.
            let (record, clock) = self.read_in(connection, &name).await?;
            read = record.map(|record| (record, clock));
        }
        Err(Stopped::TryAgain)
    }

    async fn read_in(
        &self,
        connection: &mut PgConnection,
        name: &[Value<'_>],
    ) -> Result<(Option<Box<Record>>, Timestamp), Stopped> {
        let rows = self.run_in(connection, &self.single().sql.load, name).await?;
        let row = rows.first().ok_or_else(|| Error::new(ErrorKind::Internal, "claim", WriteOutcome::NotApplied))?;
        Ok((record("claim", row)?, instant("claim", row, "clock")?))
    }

    async fn swap_in(
        &self,
        connection: &mut PgConnection,
        identity: &Identity,
        expected: &Version,
        change: &idem_core::machine::Change,
    ) -> Result<bool, Stopped> {
        let mut encoded = Vec::new();
        let (sql, values) = self.single().sql.change(identity, expected, change, &mut encoded);
        Ok(!self.run_in(connection, sql, &values).await?.is_empty())
    }

    async fn sees_only_its_snapshot(&self, connection: &mut PgConnection) -> Result<bool, Error> {
        let isolation = Arc::from("SELECT current_setting('transaction_isolation') AS isolation");
        let rows = self.run_in(connection, &isolation, &[]).await.map_err(|error| translate("claim", &error))?;
        let isolation = rows.first().map(|row| column::<String>("claim", row, "isolation")).transpose()?;
        Ok(isolation.is_some_and(|isolation| isolation != "read committed"))
    }

    /// Runs one of the store's statements on a connection of the caller's.
    async fn run_in(
        &self,
        connection: &mut PgConnection,
        sql: &Arc<str>,
        values: &[Value<'_>],
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        // Behind a transaction pooler, nothing is prepared that another session would not know.
        if self.shared.config.transaction_pooler {
            return connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(written_out(sql, values)))).await;
        }
        let arguments = arguments(values).map_err(sqlx::Error::Encode)?;
        connection.fetch_all(sqlx::query_with(AssertSqlSafe(Arc::clone(sql)), arguments)).await
    }
}

/// Why a claim in a transaction has no answer.
enum Stopped {
    /// A rival was faster, and this transaction cannot see what it did.
    TryAgain,
    Error(Error),
}

impl From<Stopped> for NotCompleted {
    fn from(stopped: Stopped) -> Self {
        Self::Store(match stopped {
            Stopped::TryAgain => Error::new(ErrorKind::Unavailable, "complete", WriteOutcome::NotApplied),
            Stopped::Error(error) => error.with_write_outcome(WriteOutcome::NotApplied),
        })
    }
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<sqlx::Error> for Stopped {
    fn from(error: sqlx::Error) -> Self {
        match classify(&error).0 {
            Meaning::Again | Meaning::RivalUncommitted => Self::TryAgain,
            Meaning::Is(..) => Self::Error(translate("claim", &error)),
        }
    }
}

fn held(claim: &Claim, record: Record) -> ClaimedIn {
    ClaimedIn::Acquired(HeldIn { identity: claim.identity().clone(), ownership: Ownership::new(record) })
}

/// Nothing is applied that the transaction did not commit, and it is not committed yet.
fn refused(operation: &'static str, error: &sqlx::Error) -> NotCompleted {
    NotCompleted::Store(translate(operation, error).with_write_outcome(WriteOutcome::NotApplied))
}

/// A store's instant is a number of microseconds; PostgreSQL knows none before the year -4713.
fn system_time(instant: Timestamp) -> SystemTime {
    let micros = instant.as_micros();
    let from_epoch = Duration::from_micros(micros.unsigned_abs());
    if micros < 0 { SystemTime::UNIX_EPOCH - from_epoch } else { SystemTime::UNIX_EPOCH + from_epoch }
}
