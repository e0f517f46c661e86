//! Fingerprints: whether a retry is the request that it says it is.
//!
//! A client that sends an idempotency key again must send the same request
//! again. The fingerprint of the first request is stored with its key; a later
//! request is compared with it, and a mismatch names the [`Part`] that differs.
//! Which parts count is for the caller to choose, with a [`FingerprintBuilder`].
//!
//! ```
//! use idem_core::fingerprint::{Comparison, Fingerprint, Part};
//!
//! let first = Fingerprint::builder("POST /v1/accounts/{id}/charges")
//!     .path_parameter("id", "42")
//!     .json(br#"{"amount": 1999, "currency": "eur"}"#)
//!     .finish()?;
//! let stored: Vec<u8> = first.current().to_bytes();
//!
//! let retry = Fingerprint::builder("POST /v1/accounts/{id}/charges")
//!     .path_parameter("id", "42")
//!     .json(br#"{"currency": "eur", "amount": 2999}"#)
//!     .finish()?;
//! let stored = Fingerprint::from_bytes(&stored)?;
//! assert_eq!(retry.compare(&stored), Comparison::Differs { part: Some(Part::Body) });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Canonical JSON
//!
//! A body given as [`json`](FingerprintBuilder::json) counts in its canonical
//! form, which is that of RFC 8785 but for numbers:
//!
//! | In the text | In the canonical form |
//! |---|---|
//! | white space | none |
//! | order of members | by the UTF-16 code units of their names, at every depth |
//! | order of elements | as it stands |
//! | escapes in strings | only those that must be; `\u00e4` becomes `ä` |
//! | Unicode normalisation | none |
//! | numbers | their exact value: `1`, `1.0`, `1e0` and `10e-1` are `1`; `-0` is `0`; 9007199254740992 and 9007199254740993 differ |
//!
//! RFC 8785 rounds numbers to doubles first, and so calls two amounts equal that
//! are not. Where a number is the shortest text of a double, the forms are the
//! same.
//!
//! These have no canonical form: what is not JSON by RFC 8259 (an empty body, a
//! byte order mark, more text after the value), strings that are not UTF-8 or
//! have a lone surrogate, two members of one name, more than 128 arrays and
//! objects open at once, and a number whose power of ten, written as `d.ddd`
//! times that power, does not fit an `i64`. Of such a body every byte counts.
//!
//! [`without`](FingerprintBuilder::without) leaves fields out of the canonical
//! form, by JSON pointers.
//!
//! # Other bodies
//!
//! * [`form`](FingerprintBuilder::form): the decoded pairs count, in order. How
//!   they are escaped does not, nor do empty pieces between `&`.
//! * [`multipart`](FingerprintBuilder::multipart): of each part count, in order,
//!   its name, file name and other parameters, its media type and its content. The
//!   boundary does not, nor do other header fields, the case of the names of fields
//!   and parameters, and the order of parameters.
//! * [`bytes`](FingerprintBuilder::bytes): every byte counts.
//!
//! A multipart body is malformed, and counts byte by byte, unless it begins with
//! a delimiter, ends with the closing one and at most a line break, and has heads
//! of at most 8 KiB and 16 fields, each with one `Content-Disposition` of type
//! `form-data` that has a `name` and no parameter twice, at most one
//! `Content-Type`, and no `Content-Transfer-Encoding` that encodes. The boundary
//! has 1 to 70 bytes, and nothing but a line break or two hyphens follows it.
//!
//! A [`BodyHasher`] takes bodies in the last two modes chunk by chunk.
//!
//! # Speed
//!
//! With a JSON body a fingerprint takes less than half the time of parsing it into
//! a value, canonicalizing that and hashing the text (`serde_json`,
//! `serde_json_canonicalizer`, `sha2`). It is 2.4 times as fast for 200 bytes, 4.6
//! times for 10 kB and 4.4 times for 1 MB, by the medians of one run. The
//! command: `cargo bench -p idem-benches --bench fingerprint`.
//!
//! # Stored form
//!
//! [`Fingerprint::to_bytes`] gives these bytes in scheme 1, which never change:
//!
//! | Bytes | Content |
//! |---|---|
//! | 1 | scheme: 1 |
//! | 1 | length of the key's id, 0 to 32; 0 is no key |
//! | 0 to 32 | the key's id, visible ASCII |
//! | 32 | digest of all parts |
//! | 1 | number of parts |
//! | 9 each | code of the part, then 8 bytes of its digest; codes ascend |
//!
//! Other schemes keep the first byte and may differ in all else; 0 is none.
//!
//! The digests of scheme 1, where `H` is SHA-256, `K` is SHA-256 or with a key
//! HMAC-SHA-256, `count` is a u64 in big-endian order, `text(x)` is the `count`
//! of the bytes of `x` and then those bytes, and `code` is one byte:
//!
//! ```text
//! content(part) = H(text("idem/content/v1") code ...)
//!     operation    text(operation)
//!     path         count of pairs, then text(name) text(value) of each, by name
//!     query        the same, in the order given
//!     headers      the same, by name in lower case; one name's values in the order given
//!     body         text(mode), then to the end, as the mode says:
//!         "json"                     the canonical text, or what is left of it
//!         "json-not-canonical"       the bytes
//!         "form"                     text(name) text(value) of each pair
//!         "multipart"                of each part:
//!             count of parameters, then text(name in lower case) text(value) of each, by name
//!             00, or 01 text(media type)
//!             H(text("idem/file/v1") and the content), then the count of its bytes
//!         "multipart-not-canonical"  text(boundary), then the bytes
//!         "bytes"                    the bytes
//! short(part) = first 8 bytes of K(text("idem/part/v1") code content(part))
//! digest = K(text("idem/fingerprint/v1") count of parts, then code content(part) of each)
//! ```
//!
//! A part that was not given is not there. Without a [`HashKey`] whoever reads
//! the stored bytes can guess at the content of each part; with one they cannot.
//!
//! # A later scheme
//!
//! A scheme is never changed, only joined by another, in three releases:
//!
//! 1. One that makes both: [`finish`](FingerprintBuilder::finish) stores scheme 1
//!    as before and accepts scheme 2. Deploy it everywhere.
//! 2. One that stores scheme 2 and accepts scheme 1, as long as rows live that
//!    have it. The release before knows scheme 2, so both run side by side.
//! 3. One that may drop scheme 1, once the longest retention is over.
//!
//! A release that meets a scheme that it does not know answers
//! [`Comparison::UnknownScheme`], never that the request differs: it cannot know.

// A number that went through a float would be another number.
#![deny(clippy::float_arithmetic, clippy::lossy_float_literal)]

mod body;
mod builder;
mod candidates;
mod digest;
mod form;
#[doc(hidden)]
pub mod json;
mod multipart;
mod number;
mod part;
mod pointer;

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

pub use self::body::{BodyDigest, BodyHasher};
pub use self::builder::{FingerprintBuilder, FingerprintError};
pub use self::candidates::{Candidates, Comparison};
pub use self::digest::{HashKey, HashKeyError};
pub use self::part::Part;
pub use self::pointer::{JsonPointer, JsonPointerError};

/// The scheme that this version makes.
const SCHEME: u8 = 1;
/// A part's entry: its code and 8 bytes of its digest.
const ENTRY_LENGTH: usize = 9;
const DIGEST_LENGTH: usize = 32;

/// The digest of a request's chosen parts.
///
/// Cheap to clone. `Debug` shows the scheme, the key's id and the number of
/// parts, but no digest. `==` compares the stored bytes, so it tells apart one
/// request under two keys; [`Candidates::compare`] is the comparison that knows
/// about keys.
///
/// ```
/// use idem_core::fingerprint::Fingerprint;
///
/// let candidates = Fingerprint::builder("GET /").bytes(b"").finish()?;
/// let fingerprint = candidates.current();
/// assert_eq!(fingerprint.scheme(), 1);
/// assert_eq!(fingerprint.key_id(), None);
/// assert_eq!(format!("{fingerprint:?}"), "Fingerprint(v1, 2 parts)");
/// # Ok::<(), idem_core::fingerprint::FingerprintError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    /// Scheme 1 in valid form, or a scheme that is not understood.
    bytes: Arc<[u8]>,
}

impl Fingerprint {
    /// The greatest length of a stored fingerprint, in bytes, whatever its scheme.
    pub const MAX_LENGTH: usize = 4096;

    /// Starts the fingerprint of a request for `operation`: its method and route,
    /// such as `POST /v1/charges`.
    ///
    /// Give the route, not the path: the values in the path are
    /// [path parameters](FingerprintBuilder::path_parameter).
    pub fn builder<'a>(operation: impl AsRef<str>) -> FingerprintBuilder<'a> {
        FingerprintBuilder::new(operation.as_ref())
    }

    /// Returns the version of the scheme that made this fingerprint.
    #[must_use]
    pub fn scheme(&self) -> u8 {
        self.bytes.first().copied().unwrap_or_default()
    }

    /// Returns the id of the key that this fingerprint was made with.
    ///
    /// `None` if there was no key, or if the scheme is not understood.
    #[must_use]
    pub fn key_id(&self) -> Option<&str> {
        self.layout()?.key_id
    }

    /// Returns the bytes to store. The [module](self) has their layout.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.bytes.to_vec()
    }

    /// Returns the same bytes, borrowed.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Reads a fingerprint back from the bytes that were stored.
    ///
    /// Bytes of a later scheme are kept as they are, and compare as
    /// [`Comparison::UnknownScheme`].
    ///
    /// # Errors
    ///
    /// [`DecodeFingerprintError`] for bytes that no scheme can have made, and for
    /// bytes of scheme 1 that do not keep to its layout.
    ///
    /// # Examples
    ///
    /// ```
    /// use idem_core::fingerprint::{DecodeFingerprintError, Fingerprint};
    ///
    /// let later = Fingerprint::from_bytes(&[9, 8, 7])?;
    /// assert_eq!((later.scheme(), later.to_bytes()), (9, vec![9, 8, 7]));
    /// assert_eq!(Fingerprint::from_bytes(&[1, 0]), Err(DecodeFingerprintError::Truncated));
    /// # Ok::<(), DecodeFingerprintError>(())
    /// ```
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeFingerprintError> {
        if bytes.len() > Self::MAX_LENGTH {
            return Err(DecodeFingerprintError::TooLong);
        }
        match bytes.first() {
            None => return Err(DecodeFingerprintError::Truncated),
            Some(0) => return Err(DecodeFingerprintError::InvalidScheme),
            Some(&SCHEME) => {
                Layout::parse(bytes)?;
            }
            Some(_) => {}
        }
        Ok(Self { bytes: bytes.into() })
    }

    /// `parts` must have ascending codes, and `key_id` must be one of a [`HashKey`].
    fn encode(
        key_id: Option<&str>,
        digest: &[u8; DIGEST_LENGTH],
        parts: impl ExactSizeIterator<Item = (Part, [u8; DIGEST_LENGTH])>,
    ) -> Self {
        let key_id = key_id.unwrap_or_default().as_bytes();
        let mut bytes = Vec::with_capacity(3 + key_id.len() + DIGEST_LENGTH + parts.len() * ENTRY_LENGTH);
        bytes.push(SCHEME);
        bytes.push(length_byte(key_id.len()));
        bytes.extend_from_slice(key_id);
        bytes.extend_from_slice(digest);
        bytes.push(length_byte(parts.len()));
        for (part, digest) in parts {
            bytes.push(part.code());
            bytes.extend_from_slice(&digest[..ENTRY_LENGTH - 1]);
        }
        debug_assert!(Layout::parse(&bytes).is_ok());
        Self { bytes: bytes.into() }
    }

    /// `None` if the scheme is not understood.
    fn layout(&self) -> Option<Layout<'_>> {
        (self.scheme() == SCHEME).then(|| Layout::parse(&self.bytes).ok()).flatten()
    }
}

/// A length that the layout keeps below 256.
fn length_byte(length: usize) -> u8 {
    u8::try_from(length).unwrap_or(u8::MAX)
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.scheme();
        let Some(layout) = self.layout() else {
            return write!(formatter, "Fingerprint(v{scheme}, not understood)");
        };
        let parts = layout.parts.len();
        let plural = if parts == 1 { "" } else { "s" };
        match layout.key_id {
            Some(id) => write!(formatter, "Fingerprint(v{scheme}, key {id:?}, {parts} part{plural})"),
            None => write!(formatter, "Fingerprint(v{scheme}, {parts} part{plural})"),
        }
    }
}

/// Why stored bytes are not a fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeFingerprintError {
    /// The bytes end too early.
    #[error("the stored fingerprint is truncated")]
    Truncated,
    /// There are more than [`Fingerprint::MAX_LENGTH`] bytes, or bytes after the end.
    #[error("the stored fingerprint is too long")]
    TooLong,
    /// The scheme is 0, which no scheme has.
    #[error("the stored fingerprint has no valid scheme")]
    InvalidScheme,
    /// The key's id is not 0 to 32 visible ASCII characters.
    #[error("the stored fingerprint has an invalid key id")]
    InvalidKeyId,
    /// The codes of the parts do not ascend from 1.
    #[error("the stored fingerprint has its parts in disorder")]
    InvalidParts,
}

/// The fields of scheme 1.
struct Layout<'a> {
    key_id: Option<&'a str>,
    digest: &'a [u8; DIGEST_LENGTH],
    parts: &'a [[u8; ENTRY_LENGTH]],
}

impl<'a> Layout<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, DecodeFingerprintError> {
        use DecodeFingerprintError::{InvalidKeyId, InvalidParts, TooLong, Truncated};

        let [_scheme, key_length, rest @ ..] = bytes else {
            return Err(Truncated);
        };
        let key_length = usize::from(*key_length);
        if key_length > HashKey::ID_LIMIT {
            return Err(InvalidKeyId);
        }
        let (key_id, rest) = rest.split_at_checked(key_length).ok_or(Truncated)?;
        let key_id = match key_id {
            [] => None,
            id if digest::is_key_id(id) => Some(std::str::from_utf8(id).map_err(|_| InvalidKeyId)?),
            _ => return Err(InvalidKeyId),
        };
        let (digest, rest) = rest.split_first_chunk().ok_or(Truncated)?;
        let (count, rest) = rest.split_first().ok_or(Truncated)?;
        let (parts, remainder) = rest.as_chunks::<ENTRY_LENGTH>();
        let count = usize::from(*count);
        if parts.len() < count {
            return Err(Truncated);
        }
        if parts.len() > count || !remainder.is_empty() {
            return Err(TooLong);
        }
        let ascends = parts.windows(2).all(|pair| pair[0][0] < pair[1][0]);
        if !ascends || parts.first().is_none_or(|entry| entry[0] == 0) {
            return Err(InvalidParts);
        }
        Ok(Self { key_id, digest, parts })
    }
}

#[cfg(test)]
mod tests {
    use super::{Comparison, DecodeFingerprintError, Fingerprint, HashKey};
    use proptest::prelude::*;

    fn sample() -> Fingerprint {
        let key = HashKey::new("key", [1; 16]).unwrap();
        let builder = Fingerprint::builder("POST /").query("a", "1").bytes(b"");
        builder.hash_key(&key).finish().unwrap().current().clone()
    }

    #[test]
    fn stored_bytes_read_back() {
        let fingerprint = sample();
        let bytes = fingerprint.to_bytes();
        assert_eq!(bytes.len(), 1 + 1 + 3 + 32 + 1 + 3 * 9);
        let read = Fingerprint::from_bytes(&bytes).unwrap();
        assert_eq!(read, fingerprint);
        assert_eq!((read.scheme(), read.key_id()), (1, Some("key")));
        assert_eq!(format!("{read:?}"), "Fingerprint(v1, key \"key\", 3 parts)");
    }

    #[test]
    fn every_cut_is_refused() {
        let bytes = sample().to_bytes();
        for length in 0..bytes.len() {
            let error = Fingerprint::from_bytes(&bytes[..length]).unwrap_err();
            assert_eq!(error, DecodeFingerprintError::Truncated, "{length}");
        }
    }

    #[test]
    fn corrupt_bytes_are_refused() {
        use DecodeFingerprintError::{InvalidKeyId, InvalidParts, InvalidScheme, TooLong, Truncated};

        let bytes = sample().to_bytes();
        let with = |index: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[index] = byte;
            Fingerprint::from_bytes(&bytes).unwrap_err()
        };
        assert_eq!(with(0, 0), InvalidScheme);
        assert_eq!(with(1, 33), InvalidKeyId);
        assert_eq!(with(1, 255), InvalidKeyId);
        assert_eq!(with(2, b' '), InvalidKeyId);
        assert_eq!(with(2, 0x80), InvalidKeyId);
        assert_eq!(with(37, 4), Truncated);
        assert_eq!(with(37, 2), TooLong);
        assert_eq!(with(38, 0), InvalidParts);
        assert_eq!(with(38, 3), InvalidParts);
        assert_eq!(with(47, 1), InvalidParts);
        let longer = [bytes.as_slice(), &[0]].concat();
        assert_eq!(Fingerprint::from_bytes(&longer), Err(TooLong));
        let no_parts = [&[1, 0][..], &[0; 32], &[0]].concat();
        assert_eq!(Fingerprint::from_bytes(&no_parts), Err(InvalidParts));
    }

    #[test]
    fn later_schemes_are_kept_up_to_the_limit() {
        for scheme in 2..=u8::MAX {
            let bytes = vec![scheme; Fingerprint::MAX_LENGTH];
            let read = Fingerprint::from_bytes(&bytes).unwrap();
            assert_eq!((read.scheme(), read.key_id()), (scheme, None));
            assert_eq!(read.to_bytes(), bytes);
            assert_eq!(format!("{read:?}"), format!("Fingerprint(v{scheme}, not understood)"));
        }
        let too_long = vec![2; Fingerprint::MAX_LENGTH + 1];
        assert_eq!(Fingerprint::from_bytes(&too_long), Err(DecodeFingerprintError::TooLong));
    }

    proptest! {
        #[test]
        fn reading_never_panics(bytes: Vec<u8>, at in 0usize..80, byte: u8) {
            let candidates = super::Candidates::from(sample());
            let mut changed = sample().to_bytes();
            let at = at % changed.len();
            changed[at] = byte;
            for bytes in [bytes.clone(), [&[1, 0], bytes.as_slice()].concat(), changed] {
                if let Ok(read) = Fingerprint::from_bytes(&bytes) {
                    prop_assert_eq!(read.to_bytes(), bytes);
                    let _ = format!("{read:?}");
                    let equal = candidates.compare(&read) == Comparison::Equal;
                    prop_assert!(!equal || read.layout().unwrap().digest == sample().layout().unwrap().digest);
                }
            }
        }
    }
}
