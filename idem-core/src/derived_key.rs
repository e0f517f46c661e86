//! Keys for the systems behind a handler, derived from the caller's key.

use crate::key::Identity;
use sha2::{Digest, Sha256};

const DOMAIN: &[u8] = b"idem/derived-key/v1";
const HEX: &[u8; 16] = b"0123456789abcdef";

impl Identity {
    /// The key to send to a provider for the external call named `label`: 32 lower-case hexadecimal digits.
    ///
    /// The same for every attempt, process and release; different for another scope, key or label. Half a SHA-256 over
    /// a domain tag and the three names with their lengths, so it shows nothing of a key that cannot be guessed. It
    /// does not change when the key starts a new life after its retention, so that a provider that remembers longer
    /// than idem still helps.
    ///
    /// # Examples
    ///
    /// ```
    /// use idem_core::{Identity, Key, Scope};
    ///
    /// let identity = Identity::new(Scope::new("acct_1")?, Key::new("a3f7b9d1")?);
    /// assert_eq!(identity.derived_key("charge"), "6e7de40fa60bb4cf1dc558caf77a6509");
    /// assert_ne!(identity.derived_key("charge"), identity.derived_key("receipt"));
    /// # Ok::<(), idem_core::NameError>(())
    /// ```
    #[must_use]
    pub fn derived_key(&self, label: &str) -> String {
        let mut hash = Sha256::new();
        hash.update(DOMAIN);
        for part in [self.scope().as_str(), self.key().as_str(), label] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part.as_bytes());
        }
        let digest = hash.finalize();
        digest[..16]
            .iter()
            .flat_map(|byte| [byte >> 4, byte & 15])
            .map(|nibble| HEX[usize::from(nibble)] as char)
            .collect()
    }
}
