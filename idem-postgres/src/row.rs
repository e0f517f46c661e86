//! Rows as records.

use bytes::Bytes;
use idem_core::store::Stuck;
use idem_core::{
    Error, ErrorKind, Fingerprint, Identity, Key, LeaseLength, Owner, Record, RecoveryPoint, Response, Scope, State,
    Status, Timestamp, Version, WriteOutcome,
};
use sqlx::postgres::PgRow;
use sqlx::{Decode, Postgres, Row, Type};
use uuid::Uuid;

/// Why a stored row is no record. It quotes nothing of it.
#[derive(Debug, thiserror::Error)]
#[error("column {column} of a stored record cannot be read")]
struct Unreadable {
    column: &'static str,
}

fn corrupt(operation: &'static str, column: &'static str) -> Error {
    Error::new(ErrorKind::Corrupt, operation, WriteOutcome::NotApplied).with_source(Unreadable { column })
}

/// Reads one column.
pub(crate) fn column<'r, T>(operation: &'static str, row: &'r PgRow, name: &'static str) -> Result<T, Error>
where
    T: Decode<'r, Postgres> + Type<Postgres>,
{
    // sqlx's error may quote the value.
    row.try_get(name).map_err(|_| corrupt(operation, name))
}

pub(crate) fn instant(operation: &'static str, row: &PgRow, name: &'static str) -> Result<Timestamp, Error> {
    column(operation, row, name).map(Timestamp::from_micros)
}

fn count(operation: &'static str, row: &PgRow, name: &'static str) -> Result<u32, Error> {
    let number: i32 = column(operation, row, name)?;
    u32::try_from(number).map_err(|_| corrupt(operation, name))
}

fn status(operation: &'static str, row: &PgRow) -> Result<Status, Error> {
    let text: &str = column(operation, row, "status")?;
    Status::ALL.into_iter().find(|status| status.as_str() == text).ok_or_else(|| corrupt(operation, "status"))
}

fn version(operation: &'static str, row: &PgRow) -> Result<Version, Error> {
    let owner = Owner::from_uuid(column::<Uuid>(operation, row, "owner")?);
    Ok(Version { locked_at: instant(operation, row, "locked_at")?, owner })
}

/// The record in a row of `load`; `None` if the join found none.
pub(crate) fn record(operation: &'static str, row: &PgRow) -> Result<Option<Box<Record>>, Error> {
    let Some(fingerprint) = column::<Option<Vec<u8>>>(operation, row, "fingerprint")? else { return Ok(None) };
    let fingerprint = Fingerprint::from_bytes(&fingerprint)
        .map_err(|error| Error::new(ErrorKind::Corrupt, operation, WriteOutcome::NotApplied).with_source(error))?;
    let state = match status(operation, row)? {
        Status::InProgress => State::InProgress,
        Status::Failed => State::Failed,
        Status::Completed => State::Completed(response(operation, row)?),
    };
    let recovery_point = match column::<Option<String>>(operation, row, "recovery_point")? {
        None => None,
        Some(name) => {
            let data: Vec<u8> = column(operation, row, "recovery_data")?;
            Some(RecoveryPoint { name, data: Bytes::from(data) })
        }
    };
    Ok(Some(Box::new(Record {
        fingerprint,
        state,
        attempt: count(operation, row, "attempt")?,
        version: version(operation, row)?,
        lease: LeaseLength::from_millis(count(operation, row, "lease_ms")?),
        effect_begun: column(operation, row, "effect_begun")?,
        unresolved: count(operation, row, "unresolved")?,
        recovery_point,
        created_at: instant(operation, row, "created_at")?,
        expires_at: instant(operation, row, "expires_at")?,
    })))
}

fn response(operation: &'static str, row: &PgRow) -> Result<Response, Error> {
    // In text format bytes are hexadecimal, so none of them can be borrowed.
    let head: Vec<u8> = column(operation, row, "response_head")?;
    let body: Vec<u8> = column(operation, row, "response_body")?;
    Response::decode(&head, body)
        .map_err(|error| Error::new(ErrorKind::Corrupt, operation, WriteOutcome::NotApplied).with_source(error))
}

pub(crate) fn stuck(operation: &'static str, row: &PgRow) -> Result<Stuck, Error> {
    let scope = Scope::new(column::<&str>(operation, row, "scope")?).map_err(|_| corrupt(operation, "scope"))?;
    let key = Key::new(column::<&str>(operation, row, "key")?).map_err(|_| corrupt(operation, "key"))?;
    Ok(Stuck {
        identity: Identity::new(scope, key),
        status: status(operation, row)?,
        version: version(operation, row)?,
        lease: LeaseLength::from_millis(count(operation, row, "lease_ms")?),
        attempt: count(operation, row, "attempt")?,
        effect_begun: column(operation, row, "effect_begun")?,
        unresolved: count(operation, row, "unresolved")?,
        recovery_point: column(operation, row, "recovery_point")?,
        created_at: instant(operation, row, "created_at")?,
    })
}
