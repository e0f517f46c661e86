//! A body that is hashed as it arrives.

use std::fmt;

use super::Part;
use super::digest::Hasher;
use super::multipart::Splitter;

/// Domain of a part's content: unkeyed, so that a body is read once however many keys there are.
const CONTENT_DOMAIN: &str = "idem/content/v1";

/// Hashes a body chunk by chunk, in constant memory.
///
/// Made for one of the modes that need not see the whole body, fed with [`update`](Self::update), and turned by
/// [`finish`](Self::finish) into what [`FingerprintBuilder::body`](super::FingerprintBuilder::body) takes. The
/// fingerprint is the one of the whole body given at once, wherever the chunks begin and end. JSON and forms have no
/// canonical form before their last byte, so they are limited in length and given at once.
///
/// It does no I/O and does not wait: feed it from whatever reads the body. It takes a few hundred bytes of memory in
/// mode `bytes`, and about 32 KiB in mode `multipart`. Dropping it has no effect.
///
/// ```
/// use idem_core::fingerprint::{BodyHasher, Fingerprint};
///
/// let mut hasher = BodyHasher::bytes();
/// for chunk in ["one ", "", "two"] {
///     hasher.update(chunk.as_bytes());
/// }
/// let streamed = Fingerprint::builder("PUT /v1/files/{id}").body(hasher.finish()).finish()?;
/// let at_once = Fingerprint::builder("PUT /v1/files/{id}").bytes(b"one two").finish()?;
/// assert_eq!(streamed.current(), at_once.current());
/// # Ok::<(), idem_core::fingerprint::FingerprintError>(())
/// ```
#[must_use = "a hasher gives no digest until `finish`"]
#[derive(Clone)]
pub struct BodyHasher(Mode);

#[derive(Clone)]
enum Mode {
    Bytes(Hasher),
    Multipart {
        parts: Box<Splitter>,
        /// The whole body, in case it has no parts.
        whole: Hasher,
    },
}

impl BodyHasher {
    /// Hashes a body of which every byte counts, as [`bytes`](super::FingerprintBuilder::bytes) does.
    pub fn bytes() -> Self {
        Self(Mode::Bytes(mode("bytes")))
    }

    /// Hashes a body of `multipart/form-data` by its parts, as
    /// [`multipart`](super::FingerprintBuilder::multipart) does.
    ///
    /// `boundary` is the media type's parameter, without quotation marks.
    ///
    /// Every byte is hashed twice, as part of its part and for the case that the body turns out to be malformed, since
    /// by then it is gone.
    pub fn multipart(boundary: impl AsRef<[u8]>) -> Self {
        let boundary = boundary.as_ref();
        let mut whole = mode("multipart-not-canonical");
        whole.field(boundary);
        Self(Mode::Multipart { parts: Box::new(Splitter::new(boundary, mode("multipart"))), whole })
    }

    /// Adds the next bytes of the body.
    pub fn update(&mut self, chunk: &[u8]) {
        match &mut self.0 {
            Mode::Bytes(hasher) => hasher.rest(chunk),
            Mode::Multipart { parts, whole } => {
                parts.update(chunk);
                whole.rest(chunk);
            }
        }
    }

    /// Ends the body.
    #[must_use]
    pub fn finish(self) -> BodyDigest {
        BodyDigest::new(match self.0 {
            Mode::Bytes(hasher) => hasher,
            Mode::Multipart { parts, whole } => parts.finish().unwrap_or(whole),
        })
    }
}

impl fmt::Debug for BodyHasher {
    /// Shows the mode and nothing of the body.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self.0 {
            Mode::Bytes(_) => "BodyHasher(bytes)",
            Mode::Multipart { .. } => "BodyHasher(multipart)",
        })
    }
}

/// The digest of a whole body, made by a [`BodyHasher`].
///
/// It depends on the body and its mode, but on no [`HashKey`](super::HashKey): whoever sees it can check a guess at the
/// body. So it is not for storing, and `Debug` does not show it. Cheap to clone.
#[derive(Clone)]
pub struct BodyDigest([u8; 32]);

impl BodyDigest {
    /// `hasher` must have been made by [`mode`].
    pub(super) fn new(hasher: Hasher) -> Self {
        Self(hasher.finish())
    }

    pub(super) const fn content(&self) -> [u8; 32] {
        self.0
    }
}

impl fmt::Debug for BodyDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("BodyDigest(..)")
    }
}

/// A hash of the content of `part`.
pub(super) fn content(part: Part) -> Hasher {
    let mut hasher = Hasher::new(None, CONTENT_DOMAIN);
    hasher.fixed(&[part.code()]);
    hasher
}

/// A hash of the content of a body in `mode`.
pub(super) fn mode(mode: &str) -> Hasher {
    let mut hasher = content(Part::Body);
    hasher.field(mode.as_bytes());
    hasher
}
