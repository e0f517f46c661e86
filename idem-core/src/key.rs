//! Names: [`Scope`], [`Key`] and the [`Identity`] that they make together.
//!
//! Nothing in idem looks a record up by key alone. A scope is the tenant, user or account that owns the key
//! (for a consumer: the consumer's name), so that two callers who pick the same key never meet.

use std::fmt;
use std::sync::Arc;

/// The longest [`Scope`] and the longest [`Key`], in bytes of UTF-8.
pub const MAX_NAME_BYTES: usize = 255;

/// Who a key belongs to: a tenant, a user, an account, or a consumer's name.
///
/// 1 to 255 bytes of UTF-8 without control characters, compared byte for byte (no case folding, no Unicode
/// normalisation). Use the principal, not the credential: a rotated API key must not become another scope.
/// `Debug` shows the length only.
///
/// # Examples
///
/// ```
/// use idem_core::Scope;
///
/// let scope = Scope::new("acct_42")?;
/// assert_eq!(scope.as_str(), "acct_42");
/// assert_eq!(format!("{scope:?}"), "Scope(7 bytes)");
/// # Ok::<(), idem_core::NameError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope(Arc<str>);

/// The idempotency key that the caller chose for one operation.
///
/// 1 to 255 bytes of UTF-8 without control characters, compared byte for byte. `Debug` shows the length only.
///
/// # Examples
///
/// ```
/// use idem_core::{Key, NameProblem};
///
/// let key = Key::new("a3f7b9d1-1c8c-4f8c-9e6e-1234abcd5678")?;
/// assert_eq!(format!("{key:?}"), "Key(36 bytes)");
///
/// let refused = Key::new("two\r\nlines").unwrap_err();
/// assert_eq!(refused.problem(), NameProblem::ControlCharacter);
/// # Ok::<(), idem_core::NameError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>);

impl Scope {
    /// Checks and keeps a scope.
    ///
    /// # Errors
    ///
    /// [`NameError`] if `name` is empty, longer than [`MAX_NAME_BYTES`] or holds a control character.
    pub fn new(name: impl AsRef<str>) -> Result<Self, NameError> {
        checked(NameKind::Scope, name.as_ref()).map(Self)
    }

    /// As [`Scope::new`], from bytes that may not be UTF-8 (a header, a message attribute).
    ///
    /// # Errors
    ///
    /// As [`Scope::new`], and [`NameProblem::NotUtf8`].
    pub fn from_bytes(name: &[u8]) -> Result<Self, NameError> {
        utf8(NameKind::Scope, name).and_then(Self::new)
    }

    /// Joins parts into one scope so that no two different lists of parts give the same scope.
    ///
    /// Parts are joined by `/`; inside a part `~` becomes `~0` and `/` becomes `~1`, as RFC 6901 escapes a JSON
    /// pointer. A part may be empty, the whole may not.
    ///
    /// # Errors
    ///
    /// As [`Scope::new`], for the joined and escaped name.
    ///
    /// # Examples
    ///
    /// ```
    /// use idem_core::Scope;
    ///
    /// let tenant_and_user = Scope::from_parts(["acme", "user/7"])?;
    /// assert_eq!(tenant_and_user.as_str(), "acme/user~17");
    /// assert_ne!(tenant_and_user, Scope::from_parts(["acme/user", "7"])?);
    /// # Ok::<(), idem_core::NameError>(())
    /// ```
    pub fn from_parts<I>(parts: I) -> Result<Self, NameError>
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        let mut joined = String::new();
        for (index, part) in parts.into_iter().enumerate() {
            if index > 0 {
                joined.push('/');
            }
            for character in part.as_ref().chars() {
                match character {
                    '~' => joined.push_str("~0"),
                    '/' => joined.push_str("~1"),
                    other => joined.push(other),
                }
            }
        }
        Self::new(joined)
    }

    /// The scope's text. It names a tenant: keep it out of logs.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Key {
    /// Checks and keeps a key.
    ///
    /// # Errors
    ///
    /// [`NameError`] if `name` is empty, longer than [`MAX_NAME_BYTES`] or holds a control character.
    pub fn new(name: impl AsRef<str>) -> Result<Self, NameError> {
        checked(NameKind::Key, name.as_ref()).map(Self)
    }

    /// As [`Key::new`], from bytes that may not be UTF-8 (a header, a message attribute).
    ///
    /// # Errors
    ///
    /// As [`Key::new`], and [`NameProblem::NotUtf8`].
    pub fn from_bytes(name: &[u8]) -> Result<Self, NameError> {
        utf8(NameKind::Key, name).and_then(Self::new)
    }

    /// The key's text. It is the caller's secret-ish handle on a stored response: keep it out of logs.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scope({} bytes)", self.0.len())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.0.len())
    }
}

/// The name of one record: a [`Key`] inside a [`Scope`]. Cheap to clone.
///
/// # Examples
///
/// ```
/// use idem_core::{Identity, Key, Scope};
///
/// let mine = Identity::new(Scope::new("acct_1")?, Key::new("k")?);
/// let yours = Identity::new(Scope::new("acct_2")?, Key::new("k")?);
/// assert_ne!(mine, yours);
/// # Ok::<(), idem_core::NameError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Identity {
    scope: Scope,
    key: Key,
}

impl Identity {
    /// Puts a key into its scope.
    #[must_use]
    pub fn new(scope: Scope, key: Key) -> Self {
        Self { scope, key }
    }

    /// Whose key it is.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The key itself.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }
}

/// Why a [`Scope`] or a [`Key`] was refused. It never holds the refused text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {problem}")]
pub struct NameError {
    kind: NameKind,
    problem: NameProblem,
}

impl NameError {
    /// Which of the two names was refused.
    #[must_use]
    pub fn kind(&self) -> NameKind {
        self.kind
    }

    /// What is wrong with it.
    #[must_use]
    pub fn problem(&self) -> NameProblem {
        self.problem
    }
}

/// The two kinds of name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameKind {
    /// A [`Scope`].
    #[error("scope")]
    Scope,
    /// A [`Key`].
    #[error("idempotency key")]
    Key,
}

/// What is wrong with a refused name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameProblem {
    /// No byte at all.
    #[error("is empty: send 1 to 255 bytes")]
    Empty,
    /// More than [`MAX_NAME_BYTES`] bytes.
    #[error("has {bytes} bytes: send at most 255, or a hash of the long value")]
    TooLong {
        /// How many bytes there were.
        bytes: usize,
    },
    /// A control character: NUL, CR, LF, DEL or another of Unicode's category Cc.
    #[error("holds a control character: send printable characters only")]
    ControlCharacter,
    /// The bytes are not UTF-8.
    #[error("is not UTF-8: send text, or hexadecimal of the binary value")]
    NotUtf8,
}

fn utf8(kind: NameKind, name: &[u8]) -> Result<&str, NameError> {
    // The length comes first, so that a hostile header is refused before anything walks it.
    if name.len() > MAX_NAME_BYTES {
        return Err(too_long(kind, name.len()));
    }
    std::str::from_utf8(name).map_err(|_| NameError { kind, problem: NameProblem::NotUtf8 })
}

fn checked(kind: NameKind, name: &str) -> Result<Arc<str>, NameError> {
    if name.is_empty() {
        return Err(NameError { kind, problem: NameProblem::Empty });
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(too_long(kind, name.len()));
    }
    if name.chars().any(char::is_control) {
        return Err(NameError { kind, problem: NameProblem::ControlCharacter });
    }
    Ok(Arc::from(name))
}

fn too_long(kind: NameKind, bytes: usize) -> NameError {
    NameError { kind, problem: NameProblem::TooLong { bytes } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn length_is_counted_in_bytes() {
        assert!(Key::new("k".repeat(255)).is_ok());
        assert_eq!(Key::new("k".repeat(256)).unwrap_err().problem(), NameProblem::TooLong { bytes: 256 });
        // 64 characters of four bytes each are 256 bytes.
        assert_eq!(Key::new("\u{1F980}".repeat(64)).unwrap_err().problem(), NameProblem::TooLong { bytes: 256 });
        assert_eq!(Key::new("").unwrap_err().problem(), NameProblem::Empty);
        assert_eq!(Key::from_bytes(&[b'x'; 65_536]).unwrap_err().problem(), NameProblem::TooLong { bytes: 65_536 });
    }

    #[test]
    fn control_characters_are_refused_wherever_they_stand() {
        for text in ["\0", "a\0", "a\r\nb", "\u{7f}", "a\u{85}"] {
            assert_eq!(Scope::new(text).unwrap_err().problem(), NameProblem::ControlCharacter, "{text:?}");
        }
    }

    #[test]
    fn bytes_that_are_not_text_are_refused_by_name() {
        let refused = Key::from_bytes(&[0xff, 0xfe]).unwrap_err();
        assert_eq!(refused.problem(), NameProblem::NotUtf8);
        assert_eq!(refused.to_string(), "idempotency key is not UTF-8: send text, or hexadecimal of the binary value");
    }

    #[test]
    fn composed_and_decomposed_text_are_different_keys() {
        assert_ne!(Key::new("\u{e9}").unwrap(), Key::new("e\u{301}").unwrap());
        assert_ne!(Key::new("K").unwrap(), Key::new("k").unwrap());
    }

    proptest! {
        #[test]
        fn joined_parts_are_unambiguous(
            left in prop::collection::vec("[a/~]{0,3}", 1..4),
            right in prop::collection::vec("[a/~]{0,3}", 1..4),
        ) {
            prop_assume!(left != right);
            if let (Ok(left), Ok(right)) = (Scope::from_parts(&left), Scope::from_parts(&right)) {
                prop_assert_ne!(left, right);
            }
        }
    }
}
