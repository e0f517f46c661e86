//! Building a fingerprint out of the parts of a request.

use std::borrow::Cow;
use std::fmt;

use thiserror::Error;

use super::digest::{HashKey, Hasher};
use super::json::{self, Limits};
use super::{Candidates, Fingerprint, Part};

/// Domain of a part's content: unkeyed, so that a body is read once however many
/// keys there are.
const CONTENT_DOMAIN: &str = "idem/fingerprint/v1/content";
/// Domain of the short digest that names the part that differs.
const PART_DOMAIN: &str = "idem/fingerprint/v1/part";
/// Domain of the digest that decides.
const TOTAL_DOMAIN: &str = "idem/fingerprint/v1";

/// Gathers the parts of a request and hashes them.
///
/// Made by [`Fingerprint::builder`]. Each part that is not given is absent, and
/// absent is not the same as empty. Of several bodies the last one counts.
///
/// ```
/// use idem_core::fingerprint::Fingerprint;
///
/// let first = Fingerprint::builder("POST /v1/charges")
///     .query("expand", "customer")
///     .header("Stripe-Account", "acct_1")
///     .json(br#"{"amount": 100, "currency": "eur"}"#)
///     .finish()?;
/// let retry = Fingerprint::builder("POST /v1/charges")
///     .query("expand", "customer")
///     .header("stripe-account", "acct_1")
///     .json(br#"{"currency":"eur","amount":1e2}"#)
///     .finish()?;
/// assert_eq!(first.current(), retry.current());
/// # Ok::<(), idem_core::fingerprint::FingerprintError>(())
/// ```
#[must_use = "a builder makes no fingerprint until `finish`"]
#[derive(Clone)]
pub struct FingerprintBuilder<'a> {
    operation: String,
    path: Vec<(String, Vec<u8>)>,
    query: Vec<(String, Vec<u8>)>,
    headers: Vec<(String, Vec<u8>)>,
    body: Option<Body<'a>>,
    body_limit: usize,
    key: Option<&'a HashKey>,
    also: Vec<Option<&'a HashKey>>,
}

#[derive(Clone, Copy)]
enum Body<'a> {
    Json(&'a [u8]),
    Bytes(&'a [u8]),
}

impl<'a> FingerprintBuilder<'a> {
    /// The greatest length of a JSON body, in bytes, unless
    /// [`body_limit`](Self::body_limit) says otherwise: 1 MiB.
    pub const DEFAULT_BODY_LIMIT: usize = 1 << 20;

    pub(super) fn new(operation: &str) -> Self {
        Self {
            operation: operation.to_owned(),
            path: Vec::new(),
            query: Vec::new(),
            headers: Vec::new(),
            body: None,
            body_limit: Self::DEFAULT_BODY_LIMIT,
            key: None,
            also: Vec::new(),
        }
    }

    /// Adds a value that the route took out of the path.
    ///
    /// The order among different names does not matter.
    pub fn path_parameter(mut self, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        self.path.push(pair(name.as_ref(), value.as_ref().as_bytes()));
        self
    }

    /// Adds a query parameter, decoded.
    ///
    /// Order matters: `a=1&b=2` and `b=2&a=1` are different requests here, since
    /// a server may read them differently. Sort them first where it does not.
    pub fn query(mut self, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        self.query.push(pair(name.as_ref(), value.as_ref().as_bytes()));
        self
    }

    /// Adds a header.
    ///
    /// The case of ASCII letters in the name does not matter, nor does the order
    /// among different names. The order of values under one name does, and so
    /// does every byte of a value.
    ///
    /// Leave out what a retry may change: dates, trace ids, signatures.
    pub fn header(mut self, name: impl AsRef<str>, value: impl AsRef<[u8]>) -> Self {
        let (mut name, value) = pair(name.as_ref(), value.as_ref());
        name.make_ascii_lowercase();
        self.headers.push((name, value));
        self
    }

    /// Takes the body as JSON: texts of one canonical form are the same body.
    ///
    /// The [module](super) tells the canonical form. A body that has none (it is
    /// not JSON, say, or names a member twice) is not an error: its bytes count
    /// as they stand, and differ from the same bytes given to
    /// [`bytes`](Self::bytes). Replaces a body given before.
    pub fn json(mut self, body: &'a [u8]) -> Self {
        self.body = Some(Body::Json(body));
        self
    }

    /// Takes the body as bytes, of which every one counts.
    ///
    /// An empty body differs from no body. Has no limit of length: the bytes are
    /// hashed and not copied. Replaces a body given before.
    pub fn bytes(mut self, body: &'a [u8]) -> Self {
        self.body = Some(Body::Bytes(body));
        self
    }

    /// Sets the greatest length of a JSON body, in bytes. Defaults to
    /// [`DEFAULT_BODY_LIMIT`](Self::DEFAULT_BODY_LIMIT).
    ///
    /// The canonical form of a body takes memory: mostly as much as the body
    /// has, at worst about fifteen times as much.
    pub const fn body_limit(mut self, bytes: usize) -> Self {
        self.body_limit = bytes;
        self
    }

    /// Hashes with `key` (HMAC-SHA-256). Defaults to no key (SHA-256).
    ///
    /// Replaces a key given before.
    pub const fn hash_key(mut self, key: &'a HashKey) -> Self {
        self.key = Some(key);
        self
    }

    /// Also makes the candidate that `key` gives, which is compared but not
    /// stored.
    ///
    /// To rotate keys, pass the old key here until all that was stored with it
    /// has expired. Processes that store with the new key must not start before
    /// all processes accept it, so roll out in two steps.
    ///
    /// # Examples
    ///
    /// ```
    /// use idem_core::fingerprint::{Comparison, Fingerprint, HashKey};
    ///
    /// let old = HashKey::new("2031-a", [1; 32])?;
    /// let new = HashKey::new("2031-b", [2; 32])?;
    /// let request = || Fingerprint::builder("POST /v1/charges").json(b"{}");
    ///
    /// let stored = request().hash_key(&old).finish()?;
    /// let retry = request().hash_key(&new).also_accept(&old).finish()?;
    /// assert_eq!(retry.compare(stored.current()), Comparison::Equal);
    /// assert_eq!(retry.current().key_id(), Some("2031-b"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn also_accept(mut self, key: &'a HashKey) -> Self {
        self.also.push(Some(key));
        self
    }

    /// Also makes the candidate without a key, which is compared but not stored.
    ///
    /// For the time after the first key was introduced.
    pub fn also_accept_unkeyed(mut self) -> Self {
        self.also.push(None);
        self
    }

    /// Hashes the parts.
    ///
    /// # Errors
    ///
    /// [`FingerprintError::BodyTooLarge`] if a JSON body is longer than the limit.
    pub fn finish(mut self) -> Result<Candidates, FingerprintError> {
        self.path.sort_by(|left, right| left.0.cmp(&right.0));
        self.headers.sort_by(|left, right| left.0.cmp(&right.0));

        let mut contents = Vec::with_capacity(5);
        let mut operation = content(Part::Operation);
        operation.field(self.operation.as_bytes());
        contents.push((Part::Operation, operation.finish()));
        for (part, pairs) in [(Part::Path, &self.path), (Part::Query, &self.query), (Part::Headers, &self.headers)] {
            if !pairs.is_empty() {
                contents.push((part, pairs_content(part, pairs)));
            }
        }
        if let Some(body) = self.body {
            contents.push((Part::Body, self.body_content(body)?));
        }

        let current = seal(self.key, &contents);
        let also = self.also.iter().map(|key| seal(*key, &contents));
        Ok(Candidates::new(current, also))
    }

    fn body_content(&self, body: Body<'a>) -> Result<[u8; 32], FingerprintError> {
        let (tag, bytes) = match body {
            Body::Bytes(bytes) => ("bytes", Cow::Borrowed(bytes)),
            Body::Json(text) if text.len() > self.body_limit => {
                return Err(FingerprintError::BodyTooLarge { length: text.len(), limit: self.body_limit });
            }
            Body::Json(text) => match json::canonicalize(text, Limits::default()) {
                Ok(canonical) => ("json", Cow::Owned(canonical)),
                Err(_) => ("json-not-canonical", Cow::Borrowed(text)),
            },
        };
        let mut hasher = content(Part::Body);
        hasher.field(tag.as_bytes());
        hasher.field(&bytes);
        Ok(hasher.finish())
    }
}

impl fmt::Debug for FingerprintBuilder<'_> {
    /// Shows what there is of each part, not what it is.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("FingerprintBuilder")
            .field("path", &self.path.len())
            .field("query", &self.query.len())
            .field("headers", &self.headers.len())
            .field("body", &self.body.is_some())
            .field("body_limit", &self.body_limit)
            .field("key", &self.key)
            .field("also", &self.also)
            .finish_non_exhaustive()
    }
}

/// Why a request has no fingerprint.
///
/// Only size is an error: whatever else is wrong with a body, it can be told
/// from other bodies.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FingerprintError {
    /// The JSON body is longer than
    /// [`body_limit`](FingerprintBuilder::body_limit) allows.
    #[error("the JSON body has {length} bytes, more than the limit of {limit}")]
    BodyTooLarge {
        /// The body's length, in bytes.
        length: usize,
        /// The limit, in bytes.
        limit: usize,
    },
}

fn pair(name: &str, value: &[u8]) -> (String, Vec<u8>) {
    (name.to_owned(), value.to_owned())
}

fn content(part: Part) -> Hasher {
    let mut hasher = Hasher::new(None, CONTENT_DOMAIN);
    hasher.fixed(&[part.code()]);
    hasher
}

fn pairs_content(part: Part, pairs: &[(String, Vec<u8>)]) -> [u8; 32] {
    let mut hasher = content(part);
    hasher.count(pairs.len());
    for (name, value) in pairs {
        hasher.field(name.as_bytes());
        hasher.field(value);
    }
    hasher.finish()
}

/// Makes the fingerprint under one key.
///
/// The total covers the full 32-byte content digests rather than the contents:
/// two requests with one total then have a collision of SHA-256 in a content or
/// in the total, so nothing is lost, and a body is hashed once for all keys and
/// for both digests. The 8-byte digests never decide equality.
fn seal(key: Option<&HashKey>, contents: &[(Part, [u8; 32])]) -> Fingerprint {
    let mut total = Hasher::new(key, TOTAL_DOMAIN);
    total.count(contents.len());
    let mut parts = Vec::with_capacity(contents.len());
    for (part, content) in contents {
        total.fixed(&[part.code()]);
        total.fixed(content);
        let mut short = Hasher::new(key, PART_DOMAIN);
        short.fixed(&[part.code()]);
        short.fixed(content);
        parts.push((*part, short.finish()));
    }
    Fingerprint::encode(key.map(HashKey::id), &total.finish(), &parts)
}

#[cfg(test)]
mod tests {
    use super::super::{Fingerprint, HashKey};
    use super::{FingerprintBuilder, FingerprintError};
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn request() -> FingerprintBuilder<'static> {
        Fingerprint::builder("POST /v1/charges")
    }

    fn fingerprint(builder: FingerprintBuilder<'_>) -> Fingerprint {
        builder.finish().unwrap().current().clone()
    }

    /// Golden values, made with another implementation of the module's table.
    /// They are stored in databases: if this test fails, the code is wrong.
    #[test]
    fn fingerprints_of_scheme_1_never_change() {
        let key = HashKey::new("2031-a", [7; 32]).unwrap();
        let full = || {
            request()
                .path_parameter("b", "2")
                .path_parameter("a", "1")
                .query("z", "\u{e4}")
                .query("a", "")
                .header("X-B", [0xff])
                .header("x-a", "2")
                .header("X-A", "1")
        };
        let table = [
            ("0100ead92477309f59300a47fe412f089e24e76848c1e0d2e4f8a1fd0daec2314c5a01010e5bc08ffca225c5", request()),
            (
                "01009f4203f178d7cd51e5ef93eae0862468a706e15c270cb12c6d9db7afcc1dd3cd02010e5bc08ffca225c505ce369e8af8731930",
                request().json(br#" { "b": 1.0, "a": "\u00e4" } "#),
            ),
            (
                "01006feb5c05e57ebb7ca112fc08f1fac9415e1fc1fc682af72e70ecbef3fe5a182202010e5bc08ffca225c50505c580a5a93aeb79",
                request().json(b"{"),
            ),
            (
                "0100d24310c540861ac3f2dd347e8bb2a864b972515c527e8c629c8bf4136cd7cd2602010e5bc08ffca225c505eaf9b44582984b56",
                request().bytes(b"{"),
            ),
            (
                "010023726b3016efb3b998d8454dc486543d4c66df5bc88f142a37ed21893a70f9d805010e5bc08ffca225c50286be4d694f96575703e5472ff542301a6b048d490bf959214f6f054eed64d73485c230",
                full().bytes(b""),
            ),
            (
                "0106323033312d618657d72bbe7b8aa544c128d08a74c0ab7889d7a7ee968b3f01ecf73d748f65b505012361b7eaea85ab7e0249b9d3b6bd78c9ec03235edfacad9b506a04ff36e09e1db44dd8054e7737f3b4aea2b5",
                full().json(b"[]").hash_key(&key),
            ),
        ];
        for (golden, builder) in table {
            assert_eq!(hex::encode(fingerprint(builder).to_bytes()), golden);
        }
    }

    #[test]
    fn bodies_of_different_modes_differ() {
        let mut seen = HashMap::new();
        let bodies = [
            ("none", request()),
            ("empty bytes", request().bytes(b"")),
            ("empty json", request().json(b"")),
            ("json", request().json(b"1")),
            ("bytes", request().bytes(b"1")),
            ("not json", request().json(b"{")),
            ("not json, as bytes", request().bytes(b"{")),
            ("json of the tag", request().json(b"\"json\"")),
            ("duplicate", request().json(br#"{"a":1,"a":1}"#)),
            ("duplicate in other words", request().json(br#"{"a":1, "a":1}"#)),
        ];
        for (name, builder) in bodies {
            assert_eq!(seen.insert(fingerprint(builder), name), None, "{name}");
        }
    }

    #[test]
    fn the_last_body_and_key_count() {
        let (one, two) = (HashKey::new("a", [1; 16]).unwrap(), HashKey::new("b", [2; 16]).unwrap());
        let last = fingerprint(request().json(b"1").bytes(b"2").hash_key(&one).hash_key(&two));
        assert_eq!(last, fingerprint(request().bytes(b"2").hash_key(&two)));
    }

    #[test]
    fn secrets_and_ids_make_different_fingerprints() {
        let a1 = HashKey::new("a", [1; 16]).unwrap();
        let a2 = HashKey::new("a", [2; 16]).unwrap();
        let digest = |key: &HashKey| fingerprint(request().hash_key(key)).to_bytes()[3..].to_vec();
        assert!(digest(&a1).iter().zip(digest(&a2)).filter(|(x, y)| *x != y).count() > 16);
        let keyed = digest(&a1);
        let plain = fingerprint(request()).to_bytes()[2..].to_vec();
        // The short digest is keyed as well as the total.
        assert_ne!(keyed[..32], plain[..32]);
        assert_ne!(keyed[33..], plain[33..]);
    }

    #[test]
    fn only_size_is_an_error() {
        let body = br#"{"a": 1}"#;
        assert!(request().json(body).body_limit(8).finish().is_ok());
        let error = request().json(body).body_limit(7).finish().unwrap_err();
        assert_eq!(error, FingerprintError::BodyTooLarge { length: 8, limit: 7 });
        let large = vec![b' '; FingerprintBuilder::DEFAULT_BODY_LIMIT + 1];
        assert!(request().json(&large).finish().is_err());
        assert!(request().json(&large[1..]).finish().is_ok());
        assert!(request().bytes(&large).body_limit(0).finish().is_ok());
    }

    /// Bodies that are equal up to their last byte, at lengths where buffers end.
    #[test]
    fn the_whole_body_counts() {
        for length in [1, 55, 56, 63, 64, 65, 4095, 4096, 65_537, 3 << 20] {
            let one = vec![b'a'; length];
            let mut two = one.clone();
            *two.last_mut().unwrap() = b'b';
            assert_ne!(fingerprint(request().bytes(&one)), fingerprint(request().bytes(&two)));
        }
    }

    #[test]
    fn order_matters_where_it_has_a_meaning() {
        let query = |one, two| fingerprint(request().query(one, "1").query(two, "2"));
        assert_ne!(
            fingerprint(request().query("a", "1").query("b", "2")),
            fingerprint(request().query("b", "2").query("a", "1")),
        );
        assert_ne!(query("a", "b"), query("b", "a"));
        assert_eq!(
            fingerprint(request().path_parameter("a", "1").path_parameter("b", "2")),
            fingerprint(request().path_parameter("b", "2").path_parameter("a", "1")),
        );
        assert_eq!(
            fingerprint(request().header("A", "1").header("b", "2").header("a", "3")),
            fingerprint(request().header("B", "2").header("a", "1").header("A", "3")),
        );
        assert_ne!(
            fingerprint(request().header("a", "1").header("a", "3")),
            fingerprint(request().header("a", "3").header("a", "1")),
        );
    }

    #[test]
    fn debug_shows_no_content() {
        let key = HashKey::new("k", "secretsecretsecret").unwrap();
        let builder = request().path_parameter("secret", "secret").query("secret", "secret");
        let builder = builder.header("secret", "secret").json(b"secret").hash_key(&key);
        let shown = format!("{builder:?} {:?}", builder.clone().finish());
        assert!(!shown.contains("secret") && !shown.contains("charges"), "{shown}");
    }

    /// What a request is made of, as data: parts that may easily run together.
    type Parts = (String, [Vec<(String, String)>; 3], Option<(bool, Vec<u8>)>);

    fn parts() -> impl Strategy<Value = Parts> {
        let text = || "[ab]{0,2}";
        let pairs = || prop::collection::vec((text(), text()), 0..3);
        let body = prop::option::of((any::<bool>(), prop::collection::vec(b'0'..=b'1', 0..2)));
        (text(), [pairs(), pairs(), pairs()], body)
    }

    fn build(parts: &Parts) -> FingerprintBuilder<'_> {
        let (operation, [path, query, headers], body) = parts;
        let mut builder = Fingerprint::builder(operation);
        for (name, value) in path {
            builder = builder.path_parameter(name, value);
        }
        for (name, value) in query {
            builder = builder.query(name, value);
        }
        for (name, value) in headers {
            builder = builder.header(name, value);
        }
        match body {
            Some((true, body)) => builder.json(body),
            Some((false, body)) => builder.bytes(body),
            None => builder,
        }
    }

    proptest! {
        #[test]
        fn different_parts_never_collide(mut one in parts(), mut two in parts(), mix in 0usize..6) {
            // Mostly different in one place, which two random requests seldom are.
            match mix {
                0 => two.1 = one.1.clone(),
                1 => two = (two.0, one.1.clone(), one.2.clone()),
                2 => two = (one.0.clone(), one.1.clone(), two.2),
                3 => two = (one.0.clone(), [one.1[1].clone(), one.1[0].clone(), one.1[2].clone()], one.2.clone()),
                4 => two = (one.0.clone(), two.1, one.2.clone()),
                _ => {}
            }
            let fingerprints = (fingerprint(build(&one)), fingerprint(build(&two)));
            for parts in [&mut one, &mut two] {
                parts.1[0].sort_by(|left, right| left.0.cmp(&right.0));
                parts.1[2].sort_by(|left, right| left.0.cmp(&right.0));
            }
            prop_assert_eq!(fingerprints.0 == fingerprints.1, one == two);
        }
    }
}
