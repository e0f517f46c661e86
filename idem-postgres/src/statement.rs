//! A statement with its values, sent prepared or as one simple query.

use idem_core::{Owner, Timestamp};
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgArguments, PgHasArrayType, PgTypeInfo};
use sqlx::{Arguments, Encode, Postgres, Type};
use std::fmt::Write as _;
use uuid::Uuid;

/// Microseconds from the Unix epoch to PostgreSQL's, 2000-01-01.
const POSTGRES_EPOCH: i64 = 946_684_800_000_000;

/// A value to bind.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    Text(&'a str),
    OptionalText(Option<&'a str>),
    Bytes(&'a [u8]),
    Int(i32),
    OptionalInt(Option<i32>),
    Long(i64),
    Bool(bool),
    Owner(Owner),
    Instant(Timestamp),
    OptionalInstant(Option<Timestamp>),
    Texts(&'a [&'a str]),
    ByteStrings(&'a [&'a [u8]]),
    Ints(&'a [i32]),
    OptionalInts(&'a [Option<i32>]),
    Longs(&'a [i64]),
    Owners(&'a [Owner]),
    Instants(&'a [Timestamp]),
}

/// A `timestamptz` to the microsecond, past what a float could hold.
struct Instant(i64);

impl Type<Postgres> for Instant {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_name("timestamptz")
    }
}

impl PgHasArrayType for Instant {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_name("_timestamptz")
    }
}

impl Encode<'_, Postgres> for Instant {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        let since = self.0.checked_sub(POSTGRES_EPOCH).ok_or("an instant before the earliest timestamptz")?;
        buffer.extend_from_slice(&since.to_be_bytes());
        Ok(IsNull::No)
    }
}

/// The values as the arguments of a prepared statement.
pub(crate) fn arguments(values: &[Value<'_>]) -> Result<PgArguments, BoxDynError> {
    let mut arguments = PgArguments::default();
    for value in values {
        match *value {
            Value::Text(text) => arguments.add(text)?,
            Value::OptionalText(text) => arguments.add(text)?,
            Value::Bytes(bytes) => arguments.add(bytes)?,
            Value::Int(number) => arguments.add(number)?,
            Value::OptionalInt(number) => arguments.add(number)?,
            Value::Long(number) => arguments.add(number)?,
            Value::Bool(truth) => arguments.add(truth)?,
            Value::Owner(owner) => arguments.add(*owner.as_uuid())?,
            Value::Instant(instant) => arguments.add(Instant(instant.as_micros()))?,
            Value::OptionalInstant(instant) => {
                arguments.add(instant.map(|instant| Instant(instant.as_micros())))?;
            }
            Value::Texts(texts) => arguments.add(texts)?,
            Value::ByteStrings(strings) => arguments.add(strings)?,
            Value::Ints(numbers) => arguments.add(numbers)?,
            Value::OptionalInts(numbers) => arguments.add(numbers)?,
            Value::Longs(numbers) => arguments.add(numbers)?,
            Value::Owners(owners) => {
                arguments.add(owners.iter().map(|owner| *owner.as_uuid()).collect::<Vec<Uuid>>())?;
            }
            Value::Instants(instants) => {
                arguments.add(instants.iter().map(|instant| Instant(instant.as_micros())).collect::<Vec<_>>())?;
            }
        }
    }
    Ok(arguments)
}

/// The statement with its values written into it, for a simple query.
///
/// `sql` is one of ours: it has `$1` to `$n` where values go, and no dollar sign anywhere else.
pub(crate) fn written_out(sql: &str, values: &[Value<'_>]) -> String {
    let mut out = String::with_capacity(sql.len() + 64 * values.len());
    let mut rest = sql;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: usize = rest[..digits].parse().unwrap_or(0);
        rest = &rest[digits..];
        match number.checked_sub(1).and_then(|index| values.get(index)) {
            Some(value) => write_literal(&mut out, value),
            None => out.push_str("NULL"),
        }
    }
    out.push_str(rest);
    out
}

fn write_literal(out: &mut String, value: &Value<'_>) {
    match *value {
        Value::Text(text) | Value::OptionalText(Some(text)) => write_text(out, text),
        Value::Bytes(bytes) => write_bytes(out, bytes),
        Value::OptionalText(None) | Value::OptionalInt(None) | Value::OptionalInstant(None) => out.push_str("NULL"),
        Value::Int(number) | Value::OptionalInt(Some(number)) => write_number(out, i64::from(number)),
        Value::Long(number) => write_number(out, number),
        Value::Bool(truth) => out.push_str(if truth { "TRUE" } else { "FALSE" }),
        Value::Owner(owner) => write_uuid(out, *owner.as_uuid()),
        Value::Instant(instant) | Value::OptionalInstant(Some(instant)) => {
            // Exact at every size: an interval of whole microseconds is an integer.
            out.push_str("(timestamptz 'epoch' + interval '");
            let _ = write!(out, "{}", instant.as_micros());
            out.push_str(" microseconds')");
        }
        Value::Texts(texts) => write_array(out, "text", texts.iter().map(|text| Value::Text(text))),
        Value::ByteStrings(strings) => write_array(out, "bytea", strings.iter().map(|bytes| Value::Bytes(bytes))),
        Value::Ints(numbers) => write_array(out, "int", numbers.iter().map(|number| Value::Int(*number))),
        Value::OptionalInts(numbers) => {
            write_array(out, "int", numbers.iter().map(|number| Value::OptionalInt(*number)));
        }
        Value::Longs(numbers) => write_array(out, "bigint", numbers.iter().map(|number| Value::Long(*number))),
        Value::Owners(owners) => write_array(out, "uuid", owners.iter().map(|owner| Value::Owner(*owner))),
        Value::Instants(instants) => {
            write_array(out, "timestamptz", instants.iter().map(|instant| Value::Instant(*instant)));
        }
    }
}

#[expect(single_use_lifetimes, reason = "an `impl Trait` needs a name for it")]
fn write_array<'a>(out: &mut String, of: &str, values: impl Iterator<Item = Value<'a>>) {
    out.push_str("ARRAY[");
    for (index, value) in values.enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_literal(out, &value);
    }
    let _ = write!(out, "]::{of}[]");
}

/// A string in PostgreSQL's escape syntax, which no setting of the server changes.
fn write_text(out: &mut String, text: &str) {
    out.push_str(" E'");
    for character in text.chars() {
        match character {
            '\'' => out.push_str("''"),
            '\\' => out.push_str("\\\\"),
            // No name of idem holds one, and no text of PostgreSQL can; cut here, it could end the message.
            '\0' => {}
            other => out.push(other),
        }
    }
    out.push('\'');
}

fn write_bytes(out: &mut String, bytes: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push_str(" '\\x");
    out.reserve(bytes.len() * 2);
    for byte in bytes {
        out.push(char::from(HEX[usize::from(byte >> 4)]));
        out.push(char::from(HEX[usize::from(byte & 15)]));
    }
    out.push_str("'::bytea");
}

fn write_number(out: &mut String, number: i64) {
    // In parentheses, so that a minus sign never meets another one and begins a comment.
    let _ = write!(out, "({number})");
}

fn write_uuid(out: &mut String, uuid: Uuid) {
    let _ = write!(out, "'{uuid}'::uuid");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_where_their_numbers_stand() {
        let sql = "UPDATE t SET a = $2 WHERE b = $1 AND c = $10 AND d = $1";
        let values = [
            Value::Text("it's \\ $2"),
            Value::Int(-5),
            Value::Bool(true),
            Value::OptionalText(None),
            Value::Bytes(&[0, 255]),
            Value::Long(1),
            Value::OptionalInt(None),
            Value::OptionalInt(Some(3)),
            Value::Texts(&["a", "b'c"]),
            Value::Instant(Timestamp::from_micros(-7)),
        ];
        assert_eq!(
            written_out(sql, &values),
            "UPDATE t SET a = (-5) WHERE b =  E'it''s \\\\ $2' AND c = (timestamptz 'epoch' + interval '-7 microseconds') AND d =  E'it''s \\\\ $2'"
        );
        assert_eq!(written_out("$5 $9", &values), " '\\x00ff'::bytea ARRAY[ E'a', E'b''c']::text[]");
    }
}
