//! What an event shows instead of a key: [`Tag`], a keyed hash of the identity.

use crate::key::Identity;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;

/// The secret under which tags are made.
///
/// Give every process of one service, and the operator's tool, the same secret: then the same record has the same tag
/// everywhere, and a line in a log leads to a row. `Debug` shows nothing of it.
#[derive(Clone)]
pub struct TagKey([u8; 32]);

impl TagKey {
    /// A key from a secret of 32 bytes.
    #[must_use]
    pub const fn new(secret: [u8; 32]) -> Self {
        Self(secret)
    }

    /// A key that no other process has.
    #[must_use]
    pub fn random() -> Self {
        let mut secret = [0; 32];
        let (left, right) = secret.split_at_mut(16);
        left.copy_from_slice(uuid::Uuid::new_v4().as_bytes());
        right.copy_from_slice(uuid::Uuid::new_v4().as_bytes());
        Self(secret)
    }

    /// The tag of a record.
    ///
    /// # Examples
    ///
    /// ```
    /// use idem_core::{Identity, Key, Scope, TagKey};
    ///
    /// let identity = Identity::new(Scope::new("acct_1")?, Key::new("k")?);
    /// let tags = TagKey::new([7; 32]);
    /// assert_eq!(tags.tag(&identity).to_string().len(), 16);
    /// assert_ne!(tags.tag(&identity), TagKey::random().tag(&identity));
    /// # Ok::<(), idem_core::NameError>(())
    /// ```
    #[must_use]
    pub fn tag(&self, identity: &Identity) -> Tag {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else { return Tag(0) };
        mac.update(b"idem/tag/v1");
        for part in [identity.scope().as_str(), identity.key().as_str()] {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part.as_bytes());
        }
        let digest = mac.finalize().into_bytes();
        Tag(digest.iter().take(8).fold(0, |tag, byte| tag << 8 | u64::from(*byte)))
    }
}

impl fmt::Debug for TagKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TagKey(..)")
    }
}

/// 64 bits that stand for an identity in events and metrics; shown as 16 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tag(u64);

impl Tag {
    /// The bits.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
