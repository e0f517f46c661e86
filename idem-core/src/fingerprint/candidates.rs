//! Comparing a request with what is stored.

use super::digest::digests_equal;
use super::{Fingerprint, Part};

/// The fingerprints that one request may have been stored under.
///
/// There is always a [`current`](Self::current) one, which is stored when the
/// request is new. The others stand for keys that are still accepted, so that
/// the rotation of a key turns no honest retry into a mismatch.
#[derive(Clone, Debug)]
pub struct Candidates {
    current: Fingerprint,
    others: Vec<Fingerprint>,
}

/// The answer of [`Candidates::compare`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// The stored fingerprint is of this request.
    Equal,
    /// The stored fingerprint is of another request.
    Differs {
        /// The first part that differs, if it can be named.
        part: Option<Part>,
    },
    /// No candidate has the stored fingerprint's scheme and key: whether the
    /// request is the same cannot be known.
    UnknownScheme,
}

impl Candidates {
    pub(super) fn new(current: Fingerprint, others: impl Iterator<Item = Fingerprint>) -> Self {
        let mut candidates = Self { current, others: Vec::new() };
        for other in others {
            if candidates.iter().all(|known| *known != other) {
                candidates.others.push(other);
            }
        }
        candidates
    }

    /// Returns the fingerprint to store with a new request.
    #[must_use]
    pub const fn current(&self) -> &Fingerprint {
        &self.current
    }

    /// Returns all candidates, the current one first.
    pub fn iter(&self) -> impl Iterator<Item = &Fingerprint> {
        std::iter::once(&self.current).chain(&self.others)
    }

    /// Compares the request with a stored fingerprint.
    ///
    /// The 32-byte digests alone decide between `Equal` and `Differs`, in a time
    /// that does not depend on where they differ. The 8-byte digests of the
    /// parts then name the first part, in stored order, that differs or that one
    /// side lacks; parts with codes that this version does not know are passed
    /// over.
    ///
    /// # Examples
    ///
    /// ```
    /// use idem_core::fingerprint::{Comparison, Fingerprint, Part};
    ///
    /// let stored = Fingerprint::builder("POST /v1/charges")
    ///     .json(br#"{"amount": 100}"#)
    ///     .finish()?;
    /// let other = Fingerprint::builder("POST /v1/charges")
    ///     .json(br#"{"amount": 101}"#)
    ///     .finish()?;
    /// assert_eq!(stored.compare(stored.current()), Comparison::Equal);
    /// assert_eq!(
    ///     other.compare(stored.current()),
    ///     Comparison::Differs { part: Some(Part::Body) },
    /// );
    /// # Ok::<(), idem_core::fingerprint::FingerprintError>(())
    /// ```
    #[must_use]
    pub fn compare(&self, stored: &Fingerprint) -> Comparison {
        let Some(stored_layout) = stored.layout() else {
            // Of a scheme that is not understood, only the same bytes are known to be equal.
            return if self.iter().any(|candidate| candidate == stored) {
                Comparison::Equal
            } else {
                Comparison::UnknownScheme
            };
        };
        let mut comparison = Comparison::UnknownScheme;
        // More than one candidate fits if two secrets were given one id.
        for layout in self.iter().filter_map(Fingerprint::layout) {
            if layout.key_id != stored_layout.key_id {
                continue;
            }
            if digests_equal(layout.digest, stored_layout.digest) {
                return Comparison::Equal;
            }
            if comparison == Comparison::UnknownScheme {
                let part = first_difference(stored_layout.parts, layout.parts);
                comparison = Comparison::Differs { part };
            }
        }
        comparison
    }
}

impl From<Fingerprint> for Candidates {
    fn from(fingerprint: Fingerprint) -> Self {
        Self::new(fingerprint, std::iter::empty())
    }
}

/// A part's code and short digest, as stored.
type Entry = [u8; super::ENTRY_LENGTH];

fn first_difference(stored: &[Entry], candidate: &[Entry]) -> Option<Part> {
    let changed = stored.iter().filter(|entry| !candidate.contains(entry));
    let added = candidate.iter().filter(|entry| stored.iter().all(|known| known[0] != entry[0]));
    changed.chain(added).find_map(|entry| Part::from_code(entry[0]))
}

#[cfg(test)]
mod tests {
    use super::super::{FingerprintBuilder, HashKey};
    use super::{Candidates, Comparison, Fingerprint, Part};

    fn request() -> FingerprintBuilder<'static> {
        Fingerprint::builder("POST /v1/charges").path_parameter("id", "1").query("q", "1").header("h", "1").json(b"{}")
    }

    fn stored(builder: FingerprintBuilder<'_>) -> Fingerprint {
        builder.finish().unwrap().current().clone()
    }

    fn differs(part: Part) -> Comparison {
        Comparison::Differs { part: Some(part) }
    }

    #[test]
    fn the_first_part_that_differs_is_named() {
        let candidates = request().finish().unwrap();
        let table = [
            (request(), Comparison::Equal),
            (request().path_parameter("b", "2"), differs(Part::Path)),
            (request().query("b", "2"), differs(Part::Query)),
            (request().header("b", "2"), differs(Part::Headers)),
            (request().bytes(b"{}"), differs(Part::Body)),
            (request().query("b", "2").json(b"1"), differs(Part::Query)),
            (Fingerprint::builder("PUT /").json(b"1"), differs(Part::Operation)),
            (Fingerprint::builder("POST /v1/charges").json(b"{}"), differs(Part::Path)),
            (Fingerprint::builder("POST /v1/charges").json(b"1"), differs(Part::Body)),
        ];
        for (builder, expected) in table {
            assert_eq!(candidates.compare(&stored(builder)), expected);
        }
        let bare = Fingerprint::builder("POST /v1/charges").finish().unwrap();
        assert_eq!(bare.compare(&stored(request())), differs(Part::Path));
        assert_eq!(candidates.compare(bare.current()), differs(Part::Path));
    }

    #[test]
    fn keys_rotate_without_a_mismatch() {
        let old = HashKey::new("old", [1; 16]).unwrap();
        let new = HashKey::new("new", [2; 16]).unwrap();
        let rotated = request().hash_key(&new).also_accept(&old).also_accept_unkeyed();
        let rotated = rotated.finish().unwrap();
        assert_eq!(rotated.current().key_id(), Some("new"));
        assert_eq!(rotated.iter().count(), 3);
        for builder in [request(), request().hash_key(&old), request().hash_key(&new)] {
            assert_eq!(rotated.compare(&stored(builder.clone())), Comparison::Equal);
            assert_eq!(rotated.compare(&stored(builder.json(b"1"))), differs(Part::Body));
        }
        let third = HashKey::new("third", [2; 16]).unwrap();
        let unknown = stored(request().hash_key(&third));
        assert_eq!(rotated.compare(&unknown), Comparison::UnknownScheme);
    }

    #[test]
    fn an_id_with_two_secrets_is_equal_under_either() {
        let one = HashKey::new("k", [1; 16]).unwrap();
        let two = HashKey::new("k", [2; 16]).unwrap();
        let candidates = request().hash_key(&two).also_accept(&one).finish().unwrap();
        assert_eq!(candidates.compare(&stored(request().hash_key(&one))), Comparison::Equal);
    }

    #[test]
    fn a_candidate_is_kept_once() {
        let candidates = request().also_accept_unkeyed().also_accept_unkeyed().finish();
        assert_eq!(candidates.unwrap().iter().count(), 1);
    }

    #[test]
    fn codes_of_later_versions_do_not_break_a_comparison() {
        let candidates = request().finish().unwrap();
        let mut bytes = candidates.current().to_bytes();
        let count = bytes.len() - 5 * 9 - 1;
        bytes[count] += 1;
        bytes.extend_from_slice(&[200, 0, 0, 0, 0, 0, 0, 0, 0]);
        let same_digest = Fingerprint::from_bytes(&bytes).unwrap();
        assert_eq!(candidates.compare(&same_digest), Comparison::Equal);
        bytes[2] ^= 1;
        let other_digest = Fingerprint::from_bytes(&bytes).unwrap();
        let nameless = Comparison::Differs { part: None };
        assert_eq!(candidates.compare(&other_digest), nameless);
        *bytes.last_mut().unwrap() ^= 1;
        bytes[count + 1 + 4 * 9 + 1] ^= 1;
        let other_body = Fingerprint::from_bytes(&bytes).unwrap();
        assert_eq!(candidates.compare(&other_body), differs(Part::Body));
    }

    /// A part that cannot be named does not hide one that can.
    #[test]
    fn an_unknown_part_is_passed_over() {
        let mut bytes = stored(Fingerprint::builder("POST /v1/charges").json(b"1")).to_bytes();
        let body = bytes.len() - 9;
        bytes[body] = 200;
        let unknown = Fingerprint::from_bytes(&bytes).unwrap();
        let candidates = Fingerprint::builder("POST /v1/charges").json(b"2").finish().unwrap();
        assert_eq!(candidates.compare(&unknown), differs(Part::Body));
    }

    #[test]
    fn a_later_scheme_is_unknown() {
        let candidates = request().finish().unwrap();
        let later = Fingerprint::from_bytes(&[2, 1, 2, 3]).unwrap();
        assert_eq!(candidates.compare(&later), Comparison::UnknownScheme);
        assert_eq!(Candidates::from(later.clone()).compare(&later), Comparison::Equal);
        let from_later = Candidates::from(later);
        assert_eq!(from_later.compare(candidates.current()), Comparison::UnknownScheme);
    }
}
