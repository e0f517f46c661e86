//! How the head of a [`Response`] is stored: one versioned, length-prefixed run of bytes.
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | version, now `1` |
//! | 1 | flags: bit 0 code, bit 1 tombstone, bit 2 seal key id; the others are zero |
//! | varint, if bit 0 | status code |
//! | varint, if bit 1 | length of the answer that was not kept |
//! | string, if bit 2 | seal key id |
//! | varint, then fields | header fields: name and value as strings |
//! | varint, then fields | trailer fields |
//!
//! A varint is an unsigned LEB128 number of at most 64 bits; a string is a varint length and that many bytes. Stored
//! rows outlive releases: version 1 is read for ever, and a golden file pins it.

use super::{Field, Head, Response};
use bytes::Bytes;
use std::sync::Arc;

const VERSION: u8 = 1;
const HAS_CODE: u8 = 1;
const HAS_TOMBSTONE: u8 = 1 << 1;
const HAS_SEAL: u8 = 1 << 2;
/// The fewest bytes that one field takes: two empty strings.
const LEAST_FIELD_BYTES: usize = 2;

/// Why stored bytes are not the head of a response. It holds no stored content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeResponseError {
    /// Written by a release that knows a later version of the codec.
    #[error(
        "stored response has codec version {0}, this build reads up to {VERSION}: deploy the newer release everywhere"
    )]
    UnknownVersion(u8),
    /// The bytes end too early.
    #[error("stored response is truncated: restore the row or delete it by hand")]
    Truncated,
    /// The bytes hold something that no encoder writes.
    #[error("stored response is corrupt: restore the row or delete it by hand")]
    Corrupt,
}

impl Response {
    /// The head as bytes for a column; [`Response::body`] goes beside it.
    ///
    /// # Examples
    ///
    /// ```
    /// use idem_core::Response;
    ///
    /// assert_eq!(Response::new(204, "").encode_head(), [1, 1, 204, 1, 0, 0]);
    /// ```
    #[must_use]
    pub fn encode_head(&self) -> Vec<u8> {
        let head = &*self.head;
        let mut out = Vec::with_capacity(64);
        out.push(VERSION);
        let mut flags = 0;
        flags |= if head.code.is_some() { HAS_CODE } else { 0 };
        flags |= if head.tombstone.is_some() { HAS_TOMBSTONE } else { 0 };
        flags |= if head.seal_key_id.is_some() { HAS_SEAL } else { 0 };
        out.push(flags);
        if let Some(code) = head.code {
            put_varint(&mut out, u64::from(code));
        }
        if let Some(length) = head.tombstone {
            put_varint(&mut out, length);
        }
        if let Some(id) = &head.seal_key_id {
            put_string(&mut out, id.as_bytes());
        }
        put_fields(&mut out, &head.headers);
        put_fields(&mut out, &head.trailers);
        out
    }

    /// Puts a stored response together again.
    ///
    /// Total: any bytes give a response or an error, without a panic and without reserving more memory than `head`
    /// has bytes.
    ///
    /// # Errors
    ///
    /// [`DecodeResponseError`] if `head` is not what [`Response::encode_head`] wrote.
    pub fn decode(head: &[u8], body: impl Into<Bytes>) -> Result<Self, DecodeResponseError> {
        let mut input = Input(head);
        match input.byte()? {
            VERSION => {}
            0 => return Err(DecodeResponseError::Corrupt),
            later => return Err(DecodeResponseError::UnknownVersion(later)),
        }
        let flags = input.byte()?;
        if flags & !(HAS_CODE | HAS_TOMBSTONE | HAS_SEAL) != 0 {
            return Err(DecodeResponseError::Corrupt);
        }
        let code = match flags & HAS_CODE {
            0 => None,
            _ => Some(u16::try_from(input.varint()?).map_err(|_| DecodeResponseError::Corrupt)?),
        };
        let tombstone = match flags & HAS_TOMBSTONE {
            0 => None,
            _ => Some(input.varint()?),
        };
        let seal_key_id = match flags & HAS_SEAL {
            0 => None,
            _ => Some(input.text()?),
        };
        let headers = input.fields()?;
        let trailers = input.fields()?;
        if !input.0.is_empty() {
            return Err(DecodeResponseError::Corrupt);
        }
        Ok(Self { head: Arc::new(Head { code, headers, trailers, tombstone, seal_key_id }), body: body.into() })
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_fields(out: &mut Vec<u8>, fields: &[Field]) {
    put_varint(out, fields.len() as u64);
    for field in fields {
        put_string(out, field.name.as_bytes());
        put_string(out, &field.value);
    }
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> Result<u8, DecodeResponseError> {
        let (first, rest) = self.0.split_first().ok_or(DecodeResponseError::Truncated)?;
        self.0 = rest;
        Ok(*first)
    }

    fn varint(&mut self) -> Result<u64, DecodeResponseError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(DecodeResponseError::Corrupt);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeResponseError::Corrupt)
    }

    fn bytes(&mut self) -> Result<&'a [u8], DecodeResponseError> {
        let length = usize::try_from(self.varint()?).map_err(|_| DecodeResponseError::Truncated)?;
        let (taken, rest) = self.0.split_at_checked(length).ok_or(DecodeResponseError::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    fn text(&mut self) -> Result<String, DecodeResponseError> {
        let text = std::str::from_utf8(self.bytes()?).map_err(|_| DecodeResponseError::Corrupt)?;
        Ok(text.to_owned())
    }

    fn fields(&mut self) -> Result<Vec<Field>, DecodeResponseError> {
        let count = usize::try_from(self.varint()?).map_err(|_| DecodeResponseError::Truncated)?;
        // A count that the rest cannot hold must not become an allocation.
        if count > self.0.len() / LEAST_FIELD_BYTES {
            return Err(DecodeResponseError::Truncated);
        }
        let mut fields = Vec::with_capacity(count);
        for _ in 0..count {
            let name = self.text()?;
            let value = Bytes::copy_from_slice(self.bytes()?);
            fields.push(Field { name, value });
        }
        Ok(fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn responses() -> impl Strategy<Value = Response> {
        let fields = || prop::collection::vec(("[a-z-]{0,12}", prop::collection::vec(any::<u8>(), 0..40)), 0..6);
        let body = prop::collection::vec(any::<u8>(), 0..300);
        let extras = (any::<Option<u16>>(), any::<Option<u64>>(), prop::option::of("[a-z0-9]{0,9}"));
        (extras, fields(), fields(), body).prop_map(|((code, tombstone, seal), headers, trailers, body)| {
            let mut response = Response::value(body);
            let head = Arc::make_mut(&mut response.head);
            head.code = code;
            head.tombstone = tombstone;
            head.seal_key_id = seal;
            for (name, value) in headers {
                response = response.with_header(&name, value);
            }
            for (name, value) in trailers {
                response = response.with_trailer(&name, value);
            }
            response
        })
    }

    proptest! {
        #[test]
        fn what_was_stored_comes_back(response in responses()) {
            let head = response.encode_head();
            prop_assert_eq!(Response::decode(&head, response.body().clone()), Ok(response));
        }

        #[test]
        fn every_cut_is_noticed(response in responses(), at in any::<prop::sample::Index>()) {
            let head = response.encode_head();
            let cut = &head[..at.index(head.len())];
            prop_assert_eq!(Response::decode(cut, Bytes::new()), Err(DecodeResponseError::Truncated));
        }

        #[test]
        fn any_bytes_give_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Response::decode(&bytes, Bytes::new());
        }
    }

    #[test]
    fn all_byte_values_survive_in_body_and_fields() {
        let every: Vec<u8> = (0..=255).collect();
        let response = Response::new(200, every.clone()).with_header("x", every.clone()).with_header("X", every);
        let restored = Response::decode(&response.encode_head(), response.body().clone()).unwrap();
        assert_eq!(restored, response);
        assert_eq!(restored.headers().count(), 2);
    }

    #[test]
    fn hostile_heads_are_typed_errors() {
        assert_eq!(Response::decode(&[255], ""), Err(DecodeResponseError::UnknownVersion(255)));
        assert_eq!(Response::decode(&[0, 0, 0, 0], ""), Err(DecodeResponseError::Corrupt));
        assert_eq!(Response::decode(&[1, 0x80, 0, 0], ""), Err(DecodeResponseError::Corrupt));
        // A count of 2^63 fields, and a varint of 11 bytes.
        let count = [1, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1];
        assert_eq!(Response::decode(&count, ""), Err(DecodeResponseError::Truncated));
        let long = [1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(Response::decode(&long, ""), Err(DecodeResponseError::Corrupt));
        let trailing = [1, 0, 0, 0, 9];
        assert_eq!(Response::decode(&trailing, ""), Err(DecodeResponseError::Corrupt));
    }
}
