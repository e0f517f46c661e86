//! One call, one statement: [`Single`].

use crate::blocked::{Blocked, Look};
use crate::config::PostgresConfig;
use crate::link::{Answer, Link, now};
use crate::row::{column, instant, record};
use crate::sql::Statements;
use crate::statement::Value;
use idem_core::machine::Change;
use idem_core::store::{Inserted, Loaded, Swapped};
use idem_core::{Claim, Error, ErrorKind, Identity, LeaseLength, Owner, Timestamp, Version, WriteOutcome};
use sqlx::postgres::PgRow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often an insert is repeated whose rival's row was gone when it was looked at.
const MAX_VANISHED: u32 = 16;
/// How often a write waits anew, a lock timeout each, for a rival that has not committed yet, before its caller is told that the store is unavailable.
const MAX_WAITS: u32 = 8;
/// When to ask again for a key whose claim a rival has not committed yet.
pub(crate) const ASK_AGAIN: Duration = Duration::from_secs(1);

/// What came of an insert, in its row; nothing if it did not win, and what is in its way was not read along.
pub(crate) fn inserted(row: &PgRow, owner: Owner) -> Result<Option<Inserted>, Error> {
    let won_at = column::<Option<i64>>("insert", row, "won_at")
        // The row is there, and nobody can say whose.
        .map_err(|error| error.with_write_outcome(WriteOutcome::Unknown))?;
    match won_at {
        Some(locked_at) => Ok(Some(Inserted::Won(Version { locked_at: Timestamp::from_micros(locked_at), owner }))),
        None => existing(row),
    }
}

/// The record that was there already.
pub(crate) fn existing(row: &PgRow) -> Result<Option<Inserted>, Error> {
    let Some(record) = record("insert", row)? else { return Ok(None) };
    Ok(Some(Inserted::Existing(record, instant("insert", row, "clock")?)))
}

/// The statements of a store, each sent for one caller.
pub(crate) struct Single {
    pub(crate) link: Link,
    pub(crate) sql: Statements,
    pub(crate) blocked: Blocked,
    /// Whether the last claim found a row in its way. Then the next one reads along, for retries come together; else it does without, which costs
    /// a new key less. Only a hint.
    retries: AtomicBool,
}

/// What an insert writes: a claim, without what the server need not know. Unlike the claim itself, which is one caller's, it may wait in a queue.
pub(crate) struct Insertion {
    pub(crate) identity: Identity,
    pub(crate) fingerprint: Vec<u8>,
    pub(crate) owner: Owner,
    pub(crate) lease: LeaseLength,
    pub(crate) retention: Duration,
    pub(crate) asked_before: bool,
}

impl From<&Claim> for Insertion {
    fn from(claim: &Claim) -> Self {
        Self {
            identity: claim.identity().clone(),
            fingerprint: claim.fingerprint().to_bytes(),
            owner: claim.owner(),
            lease: claim.lease(),
            retention: claim.retention(),
            asked_before: claim.was_asked_before(),
        }
    }
}

impl Insertion {
    /// The values of the statement `insert`.
    pub(crate) fn values(&self) -> [Value<'_>; 6] {
        [
            Value::Text(self.identity.scope().as_str()),
            Value::Text(self.identity.key().as_str()),
            Value::Bytes(&self.fingerprint),
            Value::Owner(self.owner),
            lease(self.lease),
            Value::Long(retention_micros(self.retention)),
        ]
    }
}

impl Single {
    pub(crate) fn new(config: &PostgresConfig) -> Result<Self, Error> {
        Ok(Self {
            link: Link::new(config)?,
            sql: Statements::new(config),
            blocked: Blocked::new(config.lock_timeout),
            retries: AtomicBool::new(false),
        })
    }

    /// Runs a statement whose rival, if it has one, is worth no answer of its own.
    pub(crate) async fn rows(
        &self,
        operation: &'static str,
        sql: &Arc<str>,
        values: &[Value<'_>],
    ) -> Result<Vec<PgRow>, Error> {
        match self.link.run(operation, sql, values).await? {
            Answer::Rows(rows) => Ok(rows),
            Answer::RivalUncommitted => Err(Error::new(ErrorKind::Unavailable, operation, WriteOutcome::NotApplied)),
        }
    }

    pub(crate) async fn find(&self, operation: &'static str, identity: &Identity) -> Result<Loaded, Error> {
        let values = [Value::Text(identity.scope().as_str()), Value::Text(identity.key().as_str())];
        let rows = self.rows(operation, &self.sql.load, &values).await?;
        let row = rows.first().ok_or_else(|| Error::new(ErrorKind::Internal, operation, WriteOutcome::NotApplied))?;
        Ok(Loaded { record: record(operation, row)?, clock: instant(operation, row, "clock")? })
    }

    /// What kept an insert from making its row; nothing if it is gone again.
    async fn in_the_way(&self, identity: &Identity) -> Result<Option<Inserted>, Error> {
        let values = [Value::Text(identity.scope().as_str()), Value::Text(identity.key().as_str())];
        let rows = self.rows("insert", &self.sql.in_the_way, &values).await?;
        let row = rows.first().ok_or_else(|| Error::new(ErrorKind::Internal, "insert", WriteOutcome::NotApplied))?;
        self.existing_or_busy(row, identity)
    }

    /// The record in a row that was read after an insert, or that a transaction claimed the key and has not committed.
    pub(crate) fn existing_or_busy(&self, row: &PgRow, identity: &Identity) -> Result<Option<Inserted>, Error> {
        if let Some(existing) = existing(row)? {
            return Ok(Some(existing));
        }
        let free: Option<bool> = column("insert", row, "free")?;
        Ok((free == Some(false)).then(|| self.busy(identity)))
    }

    /// Leave to ask for a claim's key. There is none while its rival is known not to have decided, unless the claim was asked
    /// before: then it may be its own rival, and has to be asked for.
    pub(crate) fn may_ask(&self, claim: &Claim) -> Result<Option<Look<'_>>, Inserted> {
        if claim.was_asked_before() {
            return Ok(None);
        }
        match self.blocked.may_look(claim.identity(), now()) {
            Some(look) => Ok(Some(look)),
            None => Err(Inserted::Busy { retry_after: ASK_AGAIN }),
        }
    }

    /// Somebody's claim of the key is on its way, and from now on that is known.
    pub(crate) fn busy(&self, identity: &Identity) -> Inserted {
        self.blocked.remember(identity, now());
        Inserted::Busy { retry_after: ASK_AGAIN }
    }

    pub(crate) async fn insert(&self, insertion: &Insertion) -> Result<Inserted, Error> {
        let (identity, values) = (&insertion.identity, insertion.values());
        let blocked = &self.blocked;
        let mut waits = MAX_WAITS;
        for _ in 0..MAX_VANISHED {
            let retries = self.retries.load(Ordering::Relaxed);
            let sql = if retries { &self.sql.insert_or_read } else { &self.sql.insert };
            match self.link.run("insert", sql, &values).await? {
                Answer::Rows(rows) => {
                    let row = rows.first().map(|row| inserted(row, insertion.owner)).transpose()?;
                    if let Some(inserted) = row.flatten() {
                        blocked.forget(identity);
                        if retries && matches!(inserted, Inserted::Won(_)) {
                            self.retries.store(false, Ordering::Relaxed);
                        }
                        return Ok(inserted);
                    }
                }
                // Somebody's claim is on its way. It may be this claim's own, whose reply was lost: then it has to be asked for again.
                Answer::RivalUncommitted if !insertion.asked_before => return Ok(self.busy(identity)),
                Answer::RivalUncommitted if waits > 0 => {
                    waits -= 1;
                    continue;
                }
                Answer::RivalUncommitted => {
                    return Err(Error::new(ErrorKind::Unavailable, "insert", WriteOutcome::NotApplied));
                }
            }
            // Whoever is in the way was not read along, or came after the statement's snapshot.
            let found =
                self.in_the_way(identity).await.map_err(|error| error.with_write_outcome(WriteOutcome::NotApplied))?;
            if let Some(Inserted::Existing(..)) = found {
                blocked.forget(identity);
                self.retries.store(true, Ordering::Relaxed);
            }
            // A transaction in the way may be this claim's own, as above, but not for long: no transaction of a caller's is this claim.
            if let Some(inserted) = found {
                return Ok(inserted);
            }
        }
        Err(Error::new(ErrorKind::Unavailable, "insert", WriteOutcome::NotApplied))
    }

    pub(crate) async fn swap(
        &self,
        identity: &Identity,
        expected: &Version,
        change: &Change,
    ) -> Result<Swapped, Error> {
        let mut encoded = Vec::new();
        let (statement, values) = self.sql.change(identity, expected, change, &mut encoded);
        for _ in 0..MAX_WAITS {
            let refused = match self.link.run("swap", statement, &values).await? {
                Answer::Rows(rows) if !rows.is_empty() => return Ok(Swapped::Applied),
                Answer::Rows(_) => true,
                Answer::RivalUncommitted => false,
            };
            // The statement is over without having written; what is there now is read by one of its own.
            let Loaded { record, clock } = self
                .find("swap", identity)
                .await
                .map_err(|error| error.with_write_outcome(WriteOutcome::NotApplied))?;
            let lost = record.as_deref().is_none_or(|record| change.apply(record, expected).is_none());
            if refused || lost {
                return Ok(Swapped::Lost(record, clock));
            }
        }
        Err(Error::new(ErrorKind::Unavailable, "swap", WriteOutcome::NotApplied))
    }
}

pub(crate) fn lease(length: LeaseLength) -> Value<'static> {
    Value::Int(lease_ms(length))
}

pub(crate) fn lease_ms(length: LeaseLength) -> i32 {
    i32::try_from(length.as_millis()).unwrap_or(i32::MAX)
}

pub(crate) fn count(number: u32) -> Value<'static> {
    Value::Int(i32::try_from(number).unwrap_or(i32::MAX))
}

/// A duration in microseconds to add to an instant, cut to about 8,000 years.
pub(crate) fn retention_micros(duration: Duration) -> i64 {
    micros_within(duration, 250_000_000_000_000_000)
}

/// A duration in microseconds to go back from an instant, cut to about 2,000 years.
pub(crate) fn micros_back(duration: Duration) -> Value<'static> {
    Value::Long(micros_within(duration, 63_000_000_000_000_000))
}

fn micros_within(duration: Duration, most: i64) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(most).min(most)
}

/// An instant that long before `clock`.
pub(crate) fn before(clock: Timestamp, duration: Duration) -> Timestamp {
    let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
    // No timestamptz is earlier than this by far; the year 1.
    const LEAST: i64 = -62_135_596_800_000_000;
    Timestamp::from_micros(clock.as_micros().saturating_sub(micros).max(LEAST))
}
