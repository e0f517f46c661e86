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
