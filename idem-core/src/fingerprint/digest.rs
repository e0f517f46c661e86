//! SHA-256 and HMAC-SHA-256 over fields that cannot run into each other.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

/// A named secret that fingerprints are hashed with (HMAC-SHA-256).
///
/// Without a key, whoever can read a stored fingerprint can guess at what it was
/// made of, one part at a time; a short body is soon found. With a key they must
/// have the secret too. The name is stored in the fingerprint, so that keys can
/// be rotated: see
/// [`FingerprintBuilder::also_accept`](super::FingerprintBuilder::also_accept).
///
/// The id has 1 to 32 visible ASCII characters and stands for one secret for
/// ever; the secret has at least 16 bytes, and should have 32 random ones.
/// `Debug` shows the id only.
///
/// ```
/// use idem_core::fingerprint::HashKey;
///
/// let key = HashKey::new("2031-a", b"32 bytes from a secret store ...")?;
/// assert_eq!(key.id(), "2031-a");
/// assert_eq!(format!("{key:?}"), "HashKey(\"2031-a\")");
/// # Ok::<(), idem_core::fingerprint::HashKeyError>(())
/// ```
#[derive(Clone)]
pub struct HashKey {
    id: Box<str>,
    keyed: Hmac<Sha256>,
}

impl HashKey {
    /// The greatest length of an id, in bytes.
    pub const ID_LIMIT: usize = 32;

    /// The least length of a secret, in bytes.
    pub const SECRET_MINIMUM: usize = 16;

    /// Makes a key of its id and its secret.
    ///
    /// # Errors
    ///
    /// [`HashKeyError`] if the id or the secret breaks its rule.
    ///
    /// # Examples
    ///
    /// ```
    /// use idem_core::fingerprint::{HashKey, HashKeyError};
    ///
    /// assert_eq!(HashKey::new("a b", [0; 32]).unwrap_err(), HashKeyError::InvalidId);
    /// assert_eq!(HashKey::new("a", [0; 15]).unwrap_err(), HashKeyError::ShortSecret);
    /// ```
    pub fn new(id: impl AsRef<str>, secret: impl AsRef<[u8]>) -> Result<Self, HashKeyError> {
        let (id, secret) = (id.as_ref(), secret.as_ref());
        if !is_key_id(id.as_bytes()) {
            return Err(HashKeyError::InvalidId);
        }
        if secret.len() < Self::SECRET_MINIMUM {
            return Err(HashKeyError::ShortSecret);
        }
        let keyed = Hmac::new_from_slice(secret).map_err(|_| HashKeyError::ShortSecret)?;
        Ok(Self { id: id.into(), keyed })
    }

    /// Returns the id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl fmt::Debug for HashKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("HashKey").field(&self.id).finish()
    }
}

/// Why a [`HashKey`] could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HashKeyError {
    /// The id is not 1 to 32 visible ASCII characters.
    #[error("a hash key's id must have 1 to 32 visible ASCII characters")]
    InvalidId,
    /// The secret has fewer than 16 bytes.
    #[error("a hash key's secret must have at least 16 bytes")]
    ShortSecret,
}

pub(super) fn is_key_id(id: &[u8]) -> bool {
    (1..=HashKey::ID_LIMIT).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic)
}

/// A running hash that starts with a domain tag.
///
/// Every field of variable length follows its length (u64, big-endian), every
/// list its count; only what comes last may run to the end without. Given the
/// kinds of the fields, the bytes that are hashed thus read back in one way only.
#[derive(Clone)]
pub(super) enum Hasher {
    Plain(Sha256),
    Keyed(Hmac<Sha256>),
}

impl Hasher {
    pub(super) fn new(key: Option<&HashKey>, domain: &str) -> Self {
        let mut hasher = match key {
            None => Self::Plain(Sha256::new()),
            Some(key) => Self::Keyed(key.keyed.clone()),
        };
        hasher.field(domain.as_bytes());
        hasher
    }

    pub(super) fn count(&mut self, count: usize) {
        // A length in memory always fits 64 bits.
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.fixed(&count.to_be_bytes());
    }

    /// Adds bytes of any length.
    pub(super) fn field(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.fixed(bytes);
    }

    /// Adds bytes whose length the domain fixes.
    pub(super) fn fixed(&mut self, bytes: &[u8]) {
        match self {
            Self::Plain(hash) => hash.update(bytes),
            Self::Keyed(hash) => hash.update(bytes),
        }
    }

    /// Adds the next bytes of what comes last and runs to the end.
    pub(super) fn rest(&mut self, bytes: &[u8]) {
        self.fixed(bytes);
    }

    pub(super) fn finish(self) -> [u8; 32] {
        match self {
            Self::Plain(hash) => hash.finalize().into(),
            Self::Keyed(hash) => hash.finalize().into_bytes().into(),
        }
    }
}

/// Whether two digests are equal, in a time that depends on their lengths only.
pub(super) fn digests_equal(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && left.iter().zip(right).fold(0, |sum, (left, right)| sum | (left ^ right)) == 0
}

#[cfg(test)]
mod tests {
    use super::{HashKey, HashKeyError, Hasher, digests_equal};

    fn of(key: Option<&HashKey>, fields: &[&str]) -> [u8; 32] {
        let mut hasher = Hasher::new(key, "test");
        for field in fields {
            hasher.field(field.as_bytes());
        }
        hasher.finish()
    }

    #[test]
    fn fields_do_not_run_into_each_other() {
        assert_ne!(of(None, &["a", "bc"]), of(None, &["ab", "c"]));
        assert_ne!(of(None, &["abc"]), of(None, &["abc", ""]));
        assert_ne!(of(None, &["", "abc"]), of(None, &["abc", ""]));
    }

    #[test]
    fn keys_keep_their_rules() {
        let secret = [7; 16];
        for id in ["", "a b", "\u{e4}", "a\n", &"x".repeat(33)] {
            assert_eq!(HashKey::new(id, secret).unwrap_err(), HashKeyError::InvalidId);
        }
        for id in ["x", "~!", &"x".repeat(32)] {
            assert_eq!(HashKey::new(id, secret).unwrap().id(), id);
        }
        assert_eq!(HashKey::new("x", [7; 15]).unwrap_err(), HashKeyError::ShortSecret);
    }

    #[test]
    fn debug_shows_no_secret() {
        let key = HashKey::new("x", "a secret of some length").unwrap();
        assert_eq!(format!("{key:?}"), "HashKey(\"x\")");
    }

    #[test]
    fn every_byte_counts_in_a_comparison() {
        let digest = [5u8; 32];
        assert!(digests_equal(&digest, &digest));
        for index in 0..32 {
            let mut other = digest;
            other[index] ^= 1;
            assert!(!digests_equal(&digest, &other));
        }
        assert!(!digests_equal(&digest, &digest[..31]));
    }
}
