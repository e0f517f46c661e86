//! The key that a client makes: [`OperationKey`].

use crate::key::{Key, NameError};
use std::fmt::{self, Write as _};
use uuid::Uuid;

/// The idempotency key of one operation, as its client makes, keeps and sends it.
///
/// Made once per operation and kept before the first attempt, in the same transaction as the order or the intent that
/// it belongs to: a client that makes it later, or only in memory, has none after a crash, makes another one, and pays
/// twice. [`as_str`](Self::as_str) is what to keep, [`from_kept`](Self::from_kept) reads it back, and `Display` gives
/// the value of the [`Idempotency-Key`](crate::http::IDEMPOTENCY_KEY) header: a quoted string, as its draft has it.
///
/// It has no default and is not `Clone`, so that no second operation gets it by accident; sending takes a reference.
/// `Debug` shows the length only: whoever knows a key may ask for the stored answer.
///
/// # Examples
///
/// ```
/// use idem_core::client::OperationKey;
///
/// let key = OperationKey::mint();
/// let kept = key.as_str().to_owned(); // UPDATE orders SET idempotency_key = $1, and commit, before the first attempt
/// assert_eq!(OperationKey::from_kept(&kept)?, key);
/// assert_ne!(OperationKey::mint(), key);
///
/// let key = OperationKey::from_kept("8e03978e-40d5-43dd-bc93-6894a57f9324")?;
/// assert_eq!(key.to_string(), r#""8e03978e-40d5-43dd-bc93-6894a57f9324""#);
/// assert_eq!(format!("{key:?}"), "OperationKey(36 bytes)");
/// # Ok::<(), idem_core::client::OperationKeyError>(())
/// ```
#[derive(PartialEq, Eq, Hash)]
pub struct OperationKey(Key);

/// Why a kept text cannot be sent as an `Idempotency-Key`. It does not show the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OperationKeyError {
    /// It is no key at all.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A header takes printable ASCII only.
    #[error("key holds characters beyond ASCII, which no Idempotency-Key header takes: was it made by OperationKey?")]
    NotAscii,
}

impl OperationKey {
    /// A key that nobody has had: 122 random bits, written as a version 4 UUID. Keep it before it is sent.
    #[must_use]
    pub fn mint() -> Self {
        match Key::new(Uuid::new_v4().to_string()) {
            Ok(key) => Self(key),
            Err(_) => unreachable!("a UUID is a key"),
        }
    }

    /// The key of an operation that was begun before, as [`as_str`](Self::as_str) gave it. Also takes a key that
    /// something else made.
    ///
    /// # Errors
    ///
    /// [`OperationKeyError::Name`] if the text is empty, longer than
    /// [`MAX_NAME_BYTES`](crate::key::MAX_NAME_BYTES) or holds a control character; [`OperationKeyError::NotAscii`] if
    /// it goes beyond ASCII.
    pub fn from_kept(text: &str) -> Result<Self, OperationKeyError> {
        let key = Key::new(text)?;
        if text.is_ascii() { Ok(Self(key)) } else { Err(OperationKeyError::NotAscii) }
    }

    /// The bare key: what to keep, and what the server calls the key. Keep it out of logs.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

/// The value of the header: a string of RFC 9651, in quotes.
impl fmt::Display for OperationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for character in self.as_str().chars() {
            if matches!(character, '"' | '\\') {
                f.write_char('\\')?;
            }
            f.write_char(character)?;
        }
        f.write_char('"')
    }
}

impl fmt::Debug for OperationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OperationKey({} bytes)", self.as_str().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_two_are_the_same_and_each_is_read_back() {
        let keys: Vec<OperationKey> = (0..1_000).map(|_| OperationKey::mint()).collect();
        let kept: HashSet<&str> = keys.iter().map(OperationKey::as_str).collect();
        assert_eq!(kept.len(), keys.len());
        for key in &keys {
            assert_eq!(OperationKey::from_kept(key.as_str()).unwrap(), *key);
        }
    }

    #[test]
    fn the_header_is_a_quoted_string() {
        for (kept, header) in [("abc", r#""abc""#), (r#"a "b\"#, r#""a \"b\\""#), ("a b", r#""a b""#)] {
            assert_eq!(OperationKey::from_kept(kept).unwrap().to_string(), header);
        }
    }

    #[test]
    fn what_no_header_takes_is_refused() {
        for text in ["", "two\nlines", "\u{7f}", &"k".repeat(256)] {
            assert!(matches!(OperationKey::from_kept(text), Err(OperationKeyError::Name(_))), "{text:?}");
        }
        assert_eq!(OperationKey::from_kept("caf\u{e9}"), Err(OperationKeyError::NotAscii));
    }

    #[test]
    fn debug_shows_nothing_of_it() {
        let shown = format!("{:?}", OperationKey::from_kept("canary").unwrap());
        assert_eq!(shown, "OperationKey(6 bytes)");
    }
}
