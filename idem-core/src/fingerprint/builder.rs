//! Building a fingerprint out of the parts of a request.

use std::borrow::Cow;
use std::fmt;

use thiserror::Error;

use super::body::{self, BodyDigest, BodyHasher};
use super::digest::{HashKey, Hasher};
use super::json::{self, Limits};
use super::pointer::{self, JsonPointer};
use super::{Candidates, Fingerprint, Part, form};

/// Domain of the short digest that names the part that differs. With a part's code and digest it fits one block of the
/// hash.
const PART_DOMAIN: &str = "idem/part/v1";
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
    path: Vec<Pair>,
    query: Vec<Pair>,
    headers: Vec<Pair>,
    body: Option<Body<'a>>,
    body_limit: usize,
    without: Vec<&'a JsonPointer>,
    key: Option<&'a HashKey>,
    also: Vec<Option<&'a HashKey>>,
}

/// A name and a value.
type Pair = (Vec<u8>, Vec<u8>);

#[derive(Clone)]
enum Body<'a> {
    Json(&'a [u8]),
    Form(&'a [u8]),
    Bytes(&'a [u8]),
    Multipart { boundary: &'a [u8], body: &'a [u8] },
    Hashed(BodyDigest),
}

impl<'a> FingerprintBuilder<'a> {
    /// The greatest length of a JSON body or a form, in bytes, unless
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
            without: Vec::new(),
            key: None,
            also: Vec::new(),
        }
    }

    /// Adds a value that the route took out of the path.
    ///
    /// The order among different names does not matter.
    pub fn path_parameter(mut self, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        self.path.push(pair(name.as_ref().as_bytes(), value.as_ref().as_bytes()));
        self
    }

    /// Adds a query parameter, decoded.
    ///
    /// Order matters: `a=1&b=2` and `b=2&a=1` are different requests here, since
    /// a server may read them differently. Sort them first where it does not.
    pub fn query(mut self, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        self.query.push(pair(name.as_ref().as_bytes(), value.as_ref().as_bytes()));
        self
    }

    /// Adds all parameters of a query as it stands in a URL, without the question mark.
    ///
    /// They are read as those of a [`form`](Self::form), in order, and count as if each had been given to
    /// [`query`](Self::query). An empty query adds none: it is the same as no query.
    ///
    /// ```
    /// use idem_core::Fingerprint;
    ///
    /// let raw = Fingerprint::builder("GET /v1/charges").query_string("expand=customer&note=a+b%21").finish()?;
    /// let decoded = Fingerprint::builder("GET /v1/charges").query("expand", "customer").query("note", "a b!");
    /// let decoded = decoded.finish()?;
    /// assert_eq!(raw.current(), decoded.current());
    /// # Ok::<(), idem_core::fingerprint::FingerprintError>(())
    /// ```
    pub fn query_string(mut self, raw: impl AsRef<[u8]>) -> Self {
        self.query.extend(form::pairs(raw.as_ref()).map(|(name, value)| (name.into_owned(), value.into_owned())));
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
        let (mut name, value) = pair(name.as_ref().as_bytes(), value.as_ref());
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

    /// Takes the body as a form (`application/x-www-form-urlencoded`): its decoded pairs count, in order.
    ///
    /// Pairs are read as the URL standard reads them, but stay bytes, so that no two values become one replacement
    /// character. Every body is a form; forms differ if and only if they decode differently. A form does not equal the
    /// JSON or the bytes that look like it. Replaces a body given before.
    ///
    /// ```
    /// use idem_core::Fingerprint;
    ///
    /// let of = |body| Fingerprint::builder("POST /v1/charges").form(body).finish();
    /// assert_eq!(of(b"amount=100&note=a+b")?.current(), of(b"&amount=%3100&note=a%20b")?.current());
    /// assert_ne!(of(b"note=%ff")?.current(), of(b"note=%fe")?.current());
    /// # Ok::<(), idem_core::fingerprint::FingerprintError>(())
    /// ```
    pub fn form(mut self, body: &'a [u8]) -> Self {
        self.body = Some(Body::Form(body));
        self
    }

    /// Takes the body as `multipart/form-data`: its parts count, in order, and the boundary does not.
    ///
    /// Of each part count its name, its file name (none is not the same as an empty one) and whatever other parameters
    /// its `Content-Disposition` has, its media type as it stands, present or absent, and its content, byte by byte.
    /// Names are the bytes between the quotation marks, escapes and all. Other header fields do not count, which
    /// RFC 7578 has readers ignore.
    ///
    /// `boundary` is the media type's parameter, without quotation marks. A body that is malformed is not an error: the
    /// boundary and every byte count, and it differs from the same bytes given to [`bytes`](Self::bytes). The
    /// [module](super) says what is malformed. Has no limit of length; [`BodyHasher::multipart`] takes a body that is
    /// not there all at once. Replaces a body given before.
    ///
    /// ```
    /// use idem_core::Fingerprint;
    ///
    /// let one = b"--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--x--\r\n";
    /// let two = b"--y2\r\ncontent-disposition: form-data; name=a\r\n\r\n1\r\n--y2--";
    /// let first = Fingerprint::builder("POST /v1/files").multipart(b"x", one).finish()?;
    /// let retry = Fingerprint::builder("POST /v1/files").multipart(b"y2", two).finish()?;
    /// assert_eq!(first.current(), retry.current());
    /// # Ok::<(), idem_core::fingerprint::FingerprintError>(())
    /// ```
    pub fn multipart(mut self, boundary: &'a [u8], body: &'a [u8]) -> Self {
        self.body = Some(Body::Multipart { boundary, body });
        self
    }

    /// Takes the body as bytes, of which every one counts.
    ///
    /// An empty body differs from no body. Has no limit of length: the bytes are
    /// hashed and not copied; [`BodyHasher::bytes`] takes a body that is not there
    /// all at once. Replaces a body given before.
    pub fn bytes(mut self, body: &'a [u8]) -> Self {
        self.body = Some(Body::Bytes(body));
        self
    }

    /// Takes a body that was hashed as it arrived.
    ///
    /// The same as giving the whole body in the mode of the [`BodyHasher`]. Replaces a body given before.
    pub fn body(mut self, digest: BodyDigest) -> Self {
        self.body = Some(Body::Hashed(digest));
        self
    }

    /// Sets the greatest length of a JSON body or a form, in bytes. Defaults to
    /// [`DEFAULT_BODY_LIMIT`](Self::DEFAULT_BODY_LIMIT).
    ///
    /// The canonical form of a JSON body takes memory: mostly as much as the body
    /// has, at worst about fifteen times as much.
    pub const fn body_limit(mut self, bytes: usize) -> Self {
        self.body_limit = bytes;
        self
    }

    /// Leaves out of a JSON body what `pointer` points to: what a retry may change, such as the time of sending.
    ///
    /// May be called several times. What is left is compared, as if the body had been sent like that: with `/b` left
    /// out `{"a":1,"b":2}` equals `{"a":1}`. So bodies are equal if and only if what is left of them is.
    ///
    /// * A member goes with its name. The name is compared as decoded: `/ä` hits `"\u00e4"`.
    /// * An element goes and those behind it move up; with `/0` left out `[1,2]` equals `[7,2]`. Indexes are decimal
    ///   without leading zeros and count in the body as it was sent, whatever else is left out.
    /// * A pointer that hits nothing leaves out nothing. So does `-`, which is the element behind the last.
    /// * A body that has no canonical form counts whole, even if what is wrong with it lies in what is left out.
    ///
    /// Bodies in other modes are not changed. To leave out something else later, or no more, is to change
    /// fingerprints: see [`Candidates::also_accept`].
    ///
    /// ```
    /// use idem_core::fingerprint::{Fingerprint, JsonPointer};
    ///
    /// let sent_at = JsonPointer::new("/metadata/sent_at")?;
    /// let of = |body| Fingerprint::builder("POST /v1/charges").json(body).without(&sent_at).finish();
    /// let first = of(br#"{"amount": 100, "metadata": {"order": 1, "sent_at": "12:00:00"}}"#)?;
    /// let retry = of(br#"{"amount": 100, "metadata": {"order": 1, "sent_at": "12:00:05"}}"#)?;
    /// assert_eq!(first.current(), retry.current());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn without(mut self, pointer: &'a JsonPointer) -> Self {
        self.without.push(pointer);
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
    /// [`FingerprintError::BodyTooLarge`] if a JSON body or a form is longer than the limit.
    pub fn finish(mut self) -> Result<Candidates, FingerprintError> {
        self.path.sort_by(|left, right| left.0.cmp(&right.0));
        self.headers.sort_by(|left, right| left.0.cmp(&right.0));

        let mut contents = Vec::with_capacity(5);
        let mut operation = body::content(Part::Operation);
        operation.field(self.operation.as_bytes());
        contents.push((Part::Operation, operation.finish()));
        for (part, pairs) in [(Part::Path, &self.path), (Part::Query, &self.query), (Part::Headers, &self.headers)] {
            if !pairs.is_empty() {
                contents.push((part, pairs_content(part, pairs)));
            }
        }
        if let Some(body) = &self.body {
            contents.push((Part::Body, self.body_content(body)?));
        }

        let current = seal(self.key, &contents);
        let also = self.also.iter().map(|key| seal(*key, &contents));
        Ok(Candidates::new(current, also))
    }

    fn body_content(&self, body: &Body<'a>) -> Result<[u8; 32], FingerprintError> {
        let digest = match body {
            Body::Json(text) => self.json_content(text)?,
            Body::Form(text) => self.form_content(text)?,
            Body::Bytes(bytes) => at_once(BodyHasher::bytes(), bytes),
            Body::Multipart { boundary, body } => at_once(BodyHasher::multipart(boundary), body),
            Body::Hashed(digest) => digest.clone(),
        };
        Ok(digest.content())
    }

    fn json_content(&self, text: &[u8]) -> Result<BodyDigest, FingerprintError> {
        self.within_limit(text)?;
        let (mode, text) = match json::canonicalize(text, Limits::default()) {
            Ok(canonical) if self.without.is_empty() => ("json", Cow::Owned(canonical)),
            Ok(canonical) => ("json", Cow::Owned(pointer::leave_out(&canonical, &self.without))),
            Err(_) => ("json-not-canonical", Cow::Borrowed(text)),
        };
        let mut hasher = body::mode(mode);
        hasher.rest(&text);
        Ok(BodyDigest::new(hasher))
    }

    fn form_content(&self, text: &[u8]) -> Result<BodyDigest, FingerprintError> {
        self.within_limit(text)?;
        let mut hasher = body::mode("form");
        for (name, value) in form::pairs(text) {
            hasher.field(&name);
            hasher.field(&value);
        }
        Ok(BodyDigest::new(hasher))
    }

    const fn within_limit(&self, body: &[u8]) -> Result<(), FingerprintError> {
        if body.len() > self.body_limit {
            return Err(FingerprintError::BodyTooLarge { length: body.len(), limit: self.body_limit });
        }
        Ok(())
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
            .field("without", &self.without)
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
    /// The JSON body or the form is longer than
    /// [`body_limit`](FingerprintBuilder::body_limit) allows.
    #[error("the body has {length} bytes, more than the limit of {limit}")]
    BodyTooLarge {
        /// The body's length, in bytes.
        length: usize,
        /// The limit, in bytes.
        limit: usize,
    },
}

fn pair(name: &[u8], value: &[u8]) -> Pair {
    (name.to_owned(), value.to_owned())
}

fn at_once(mut hasher: BodyHasher, body: &[u8]) -> BodyDigest {
    hasher.update(body);
    hasher.finish()
}

fn pairs_content(part: Part, pairs: &[Pair]) -> [u8; 32] {
    let mut hasher = body::content(part);
    hasher.count(pairs.len());
    for (name, value) in pairs {
        hasher.field(name);
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
    for (part, content) in contents {
        total.fixed(&[part.code()]);
        total.fixed(content);
    }
    let parts = contents.iter().map(|(part, content)| {
        let mut short = Hasher::new(key, PART_DOMAIN);
        short.fixed(&[part.code()]);
        short.fixed(content);
        (*part, short.finish())
    });
    Fingerprint::encode(key.map(HashKey::id), &total.finish(), parts)
}

#[cfg(test)]
mod tests {
    use super::super::{BodyHasher, Fingerprint, HashKey, JsonPointer};
    use super::{FingerprintBuilder, FingerprintError};
    use std::collections::HashMap;

    fn request() -> FingerprintBuilder<'static> {
        Fingerprint::builder("POST /v1/charges")
    }

    fn fingerprint(builder: FingerprintBuilder<'_>) -> Fingerprint {
        builder.finish().unwrap().current().clone()
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
            ("empty form", request().form(b"")),
            ("form", request().form(b"1")),
            ("empty multipart", request().multipart(b"1", b"")),
            ("malformed multipart", request().multipart(b"1", b"{")),
            ("malformed multipart, other boundary", request().multipart(b"2", b"{")),
            ("impossible boundary", request().multipart(b"", b"{")),
            ("multipart without parts", request().multipart(b"1", b"--1--")),
            ("the same as bytes", request().bytes(b"--1--")),
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
        assert!(request().form(&large).finish().is_err());
        assert!(request().form(&large[1..]).finish().is_ok());
        assert!(request().bytes(&large).body_limit(0).finish().is_ok());
        assert!(request().multipart(b"x", &large).body_limit(0).finish().is_ok());
    }

    #[test]
    fn what_is_left_out_does_not_count() {
        let (a, b) = (JsonPointer::new("/a").unwrap(), JsonPointer::new("/b").unwrap());
        let left = |body, pointers: &[&'static str]| {
            let pointers: Vec<_> = pointers.iter().map(|pointer| JsonPointer::new(pointer).unwrap()).collect();
            fingerprint(pointers.iter().fold(request().json(body), FingerprintBuilder::without))
        };
        let plain = fingerprint(request().json(br#"{"c":1}"#));
        assert_eq!(left(br#"{"c":1,"a":2}"#, &["/a"]), plain);
        assert_eq!(left(br#"{"c":1,"b":2}"#, &["/b"]), plain);
        assert_eq!(left(br#"{"c":1}"#, &["/a", "/b"]), plain);
        assert_ne!(left(br#"{"c":1,"a":2}"#, &["/b"]), plain);
        // Without a canonical form everything counts.
        assert_ne!(left(br#"{"a":1,"a":2}"#, &["/a"]), left(br#"{"a":1,"a":3}"#, &["/a"]));
        // Other modes look the same and are something else.
        for builder in [request().bytes(br#"{"a":1}"#), request().form(br#"{"a":1}"#)] {
            assert_eq!(fingerprint(builder.clone().without(&a).without(&b)), fingerprint(builder));
        }
    }

    #[test]
    fn a_query_string_is_its_parameters() {
        let decoded = request().query("a", "1").query("b c", "&").query("a", "");
        assert_eq!(fingerprint(request().query_string("a=1&&b+c=%26&a")), fingerprint(decoded));
        assert_eq!(fingerprint(request().query_string("")), fingerprint(request()));
        assert_ne!(fingerprint(request().query_string("a=%ff")), fingerprint(request().query_string("a=%fe")));
        assert_ne!(fingerprint(request().query_string("a=%ff")), fingerprint(request().query("a", "\u{fffd}")));
    }

    /// At the greatest depth that has a canonical form, and far beyond it.
    #[test]
    fn depth_needs_no_stack() {
        let run = || {
            let pointer = JsonPointer::new("/a".repeat(128)).unwrap();
            for depth in [128, 129, 300_000] {
                let body = format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
                let builder = || request().body_limit(body.len()).without(&pointer);
                assert_ne!(fingerprint(builder().json(body.as_bytes())), fingerprint(builder().bytes(body.as_bytes())));
                assert!(builder().form(body.as_bytes()).finish().is_ok());
                assert!(builder().multipart(b"{", body.as_bytes()).finish().is_ok());
            }
        };
        let thread = std::thread::Builder::new().stack_size(256 * 1024);
        thread.spawn(run).unwrap().join().unwrap();
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
        let builder = builder.header("secret", "secret").query_string("secret=secret").hash_key(&key);
        let mut hasher = BodyHasher::bytes();
        hasher.update(b"secret");
        let mut shown = format!("{hasher:?} {:?}", hasher.clone().finish());
        let bodies = [builder.clone().json(b"secret"), builder.clone().multipart(b"secret", b"secret")];
        for builder in bodies.into_iter().chain([builder.clone().form(b"secret"), builder.body(hasher.finish())]) {
            shown += &format!("{builder:?} {:?}", builder.clone().finish());
        }
        assert!(!shown.contains("secret") && !shown.contains("charges"), "{shown}");
    }
}
