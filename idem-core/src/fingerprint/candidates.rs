//! Comparing a request with what is stored.

use super::digest::digests_equal;
use super::{Fingerprint, Part};

/// The fingerprints that one request may have been stored under.
///
/// There is always a [`current`](Self::current) one, which is stored when the
/// request is new. The others stand for keys and configurations that are still
/// accepted, so that a change of them turns no honest retry into a mismatch.
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
        candidates.extend(others);
        candidates
    }

    fn extend(&mut self, others: impl Iterator<Item = Fingerprint>) {
        for other in others {
            if self.iter().all(|known| *known != other) {
                self.others.push(other);
            }
        }
    }

    /// Also accepts what `earlier` accepts, which is compared but not stored.
    ///
    /// For a deploy that changes which parts, headers or fields count, the mode of the body or the key. Build the
    /// request a second time in the earlier configuration and accept that too, until all that was stored with it has
    /// expired. While processes of both configurations run, each must accept the other's rows, so roll out in two
    /// steps: first a release that stores as before and accepts the new configuration, then one that stores the new
    /// and accepts the earlier.
    ///
    /// A request is then the same as the stored one if it is so in either configuration. So for as long as one is
    /// accepted, what it does not look at may differ.
    ///
    /// # Examples
    ///
    /// ```
    /// use idem_core::fingerprint::{Comparison, Fingerprint, JsonPointer, Part};
    ///
    /// let earlier = |body| Fingerprint::builder("POST /v1/charges").json(body).finish();
    /// let sent_at = JsonPointer::new("/sent_at")?;
    /// let later = |body| Fingerprint::builder("POST /v1/charges").json(body).without(&sent_at).finish();
    ///
    /// let body = br#"{"amount": 100, "sent_at": "12:00:00"}"#;
    /// let stored = earlier(body)?;
    /// assert_eq!(later(body)?.compare(stored.current()), Comparison::Differs { part: Some(Part::Body) });
    ///
    /// let retry = later(body)?.also_accept(earlier(body)?);
    /// assert_eq!(retry.current(), later(body)?.current());
    /// assert_eq!(retry.compare(stored.current()), Comparison::Equal);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn also_accept(mut self, earlier: Self) -> Self {
        let Self { current, others } = earlier;
        self.extend(std::iter::once(current).chain(others));
        self
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
    /// over. Of several candidates the one that differs in the fewest parts is
    /// taken for this, as it is likely to be of the stored configuration.
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
        let mut nearest: Option<(usize, Option<Part>)> = None;
        // Several candidates fit if configurations are accepted, or if two secrets were given one id.
        for layout in self.iter().filter_map(Fingerprint::layout) {
            if layout.key_id != stored_layout.key_id {
                continue;
            }
            if digests_equal(layout.digest, stored_layout.digest) {
                return Comparison::Equal;
            }
            let count = differences(stored_layout.parts, layout.parts).count();
            if nearest.is_none_or(|(least, _)| count < least) {
                let part = differences(stored_layout.parts, layout.parts).find_map(Part::from_code);
                nearest = Some((count, part));
            }
        }
        match nearest {
            None => Comparison::UnknownScheme,
            Some((_, part)) => Comparison::Differs { part },
        }
    }
}

impl From<Fingerprint> for Candidates {
    fn from(fingerprint: Fingerprint) -> Self {
        Self::new(fingerprint, std::iter::empty())
    }
}

/// A part's code and short digest, as stored.
type Entry = [u8; super::ENTRY_LENGTH];

/// The codes of the parts that differ, or that one side lacks.
fn differences<'a>(stored: &'a [Entry], candidate: &'a [Entry]) -> impl Iterator<Item = u8> {
    let changed = stored.iter().filter(|entry| !candidate.contains(entry));
    let added = candidate.iter().filter(|entry| stored.iter().all(|known| known[0] != entry[0]));
    changed.chain(added).map(|entry| entry[0])
}

#[cfg(test)]
mod tests {
    use super::super::{FingerprintBuilder, HashKey, JsonPointer};
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
    fn an_earlier_configuration_is_accepted() {
        let (old, new) = (HashKey::new("old", [1; 16]).unwrap(), HashKey::new("new", [2; 16]).unwrap());
        let at = JsonPointer::new("/at").unwrap();
        let mut earlier: Vec<FingerprintBuilder<'_>> = vec![
            request(),
            request().hash_key(&old),
            request().bytes(b"{}"),
            request().form(b"{}"),
            request().multipart(b"x", b"{}"),
            request().header("extra", "1").query_string("q=2"),
            Fingerprint::builder("POST /v1/charges").json(br#"{"at":1}"#),
            Fingerprint::builder("POST /v1/charges").json(br#"{"at":1}"#).without(&at),
        ];
        let later = request().hash_key(&new);
        let mut candidates = later.clone().finish().unwrap();
        for builder in &earlier {
            candidates = candidates.also_accept(builder.clone().finish().unwrap());
        }
        assert_eq!(candidates.current(), &stored(later.clone()));
        earlier.push(later);
        for builder in earlier {
            assert_eq!(candidates.compare(&stored(builder.clone())), Comparison::Equal, "{builder:?}");
            let other = stored(builder.path_parameter("id", "2"));
            assert_eq!(candidates.compare(&other), differs(Part::Path));
        }
    }

    /// Of whom the accepted request accepts in turn, nobody is lost, and nobody is there twice.
    #[test]
    fn accepted_candidates_are_kept_once() {
        let key = HashKey::new("k", [1; 16]).unwrap();
        let earlier = request().hash_key(&key).also_accept_unkeyed().finish().unwrap();
        let candidates = request().finish().unwrap().also_accept(earlier.clone()).also_accept(earlier);
        assert_eq!(candidates.iter().count(), 2);
        assert_eq!(candidates.current(), &stored(request()));
        assert_eq!(candidates.compare(&stored(request().hash_key(&key))), Comparison::Equal);
    }

    /// A row of an earlier configuration with another body: that configuration names the body, the current one would
    /// name the headers.
    #[test]
    fn the_nearest_configuration_names_the_part() {
        let of = |body| request().json(body).finish().unwrap();
        let candidates = request().header("new", "1").finish().unwrap().also_accept(of(b"{}"));
        assert_eq!(candidates.compare(of(b"1").current()), differs(Part::Body));
    }

    #[test]
    fn a_later_scheme_is_unknown() {
        let candidates = request().also_accept_unkeyed().finish().unwrap();
        let candidates = candidates.also_accept(request().bytes(b"").finish().unwrap());
        // Bytes of its own, and bytes that would be equal in scheme 1.
        for scheme in 2..=u8::MAX {
            let mut alike = candidates.current().to_bytes();
            alike[0] = scheme;
            for bytes in [&[scheme][..], &[scheme, 1, 2, 3], &alike] {
                let later = Fingerprint::from_bytes(bytes).unwrap();
                assert_eq!(candidates.compare(&later), Comparison::UnknownScheme);
                assert_eq!(Candidates::from(later.clone()).compare(&later), Comparison::Equal);
                assert_eq!(Candidates::from(later).compare(candidates.current()), Comparison::UnknownScheme);
            }
        }
    }

    /// What a release does that knows a later scheme: it accepts both.
    #[test]
    fn schemes_are_accepted_side_by_side() {
        let later = Fingerprint::from_bytes(&[2, 1, 2, 3]).unwrap();
        let storing_first = request().finish().unwrap().also_accept(later.clone().into());
        let storing_second = Candidates::from(later.clone()).also_accept(request().finish().unwrap());
        for candidates in [storing_first, storing_second] {
            assert_eq!(candidates.compare(&later), Comparison::Equal);
            assert_eq!(candidates.compare(&stored(request())), Comparison::Equal);
            assert_eq!(candidates.compare(&stored(request().json(b"1"))), differs(Part::Body));
            assert_eq!(candidates.compare(&Fingerprint::from_bytes(&[2, 1, 2, 4]).unwrap()), Comparison::UnknownScheme);
        }
    }
}
