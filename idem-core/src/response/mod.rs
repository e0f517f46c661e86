//! The answer that is stored and replayed: [`Response`], and the codec of its head.

mod codec;

pub use codec::DecodeResponseError;

use bytes::Bytes;
use std::fmt;
use std::sync::Arc;

/// The outcome of an operation as it is stored: a status code, header fields, a body and trailer fields, verbatim.
///
/// Bytes in, bytes out: nothing is parsed, re-encoded or normalised except header names, which are lower-cased
/// (ASCII). Fields keep their order and their repeats. A response that is a plain value rather than an HTTP answer has
/// no code. Cheap to clone. `Debug` shows sizes, never content.
///
/// # Examples
///
/// ```
/// use idem_core::Response;
///
/// let created = Response::new(201, r#"{"id":"ch_1"}"#)
///     .with_header("Content-Type", "application/json")
///     .with_header("Location", "/v1/charges/ch_1");
///
/// assert_eq!(created.code(), Some(201));
/// assert_eq!(created.headers().next(), Some(("content-type", &b"application/json"[..])));
///
/// // A back end stores three columns and gets the same response back.
/// let restored = Response::decode(&created.encode_head(), created.body().clone())?;
/// assert_eq!(restored, created);
/// # Ok::<(), idem_core::DecodeResponseError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Response {
    head: Arc<Head>,
    body: Bytes,
}

/// Everything of a response but its body.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
struct Head {
    code: Option<u16>,
    headers: Vec<Field>,
    trailers: Vec<Field>,
    tombstone: Option<u64>,
    seal_key_id: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Field {
    name: String,
    value: Bytes,
}

impl Field {
    fn new(name: &str, value: Bytes) -> Self {
        Self { name: name.to_ascii_lowercase(), value }
    }

    fn as_pair(&self) -> (&str, &[u8]) {
        (&self.name, &self.value)
    }
}

impl Response {
    /// An answer with a status code, usually HTTP's.
    #[must_use]
    pub fn new(code: u16, body: impl Into<Bytes>) -> Self {
        Self { head: Arc::new(Head { code: Some(code), ..Head::default() }), body: body.into() }
    }

    /// A plain value without a status code.
    #[must_use]
    pub fn value(body: impl Into<Bytes>) -> Self {
        Self { head: Arc::default(), body: body.into() }
    }

    /// What is stored in place of an answer that is too large to keep: the operation is done, its answer is not kept.
    ///
    /// A retry learns just that, with the original `code`, and never runs again. `length` is the size of the answer
    /// in bytes: its body, header and trailer fields.
    #[must_use]
    pub fn tombstone(code: Option<u16>, length: u64) -> Self {
        Self { head: Arc::new(Head { code, tombstone: Some(length), ..Head::default() }), body: Bytes::new() }
    }

    /// Adds a header field after those that are there.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: impl Into<Bytes>) -> Self {
        Arc::make_mut(&mut self.head).headers.push(Field::new(name, value.into()));
        self
    }

    /// Adds a trailer field after those that are there.
    #[must_use]
    pub fn with_trailer(mut self, name: &str, value: impl Into<Bytes>) -> Self {
        Arc::make_mut(&mut self.head).trailers.push(Field::new(name, value.into()));
        self
    }

    /// Marks the body as sealed with a key that the caller knows by this name. idem stores the name beside the body
    /// and does nothing else with it.
    #[must_use]
    pub fn with_seal_key_id(mut self, id: impl Into<String>) -> Self {
        Arc::make_mut(&mut self.head).seal_key_id = Some(id.into());
        self
    }

    /// The status code, if this is not a plain value.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        self.head.code
    }

    /// Header fields in order, names in lower case.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.head.headers.iter().map(Field::as_pair)
    }

    /// Trailer fields in order, names in lower case.
    pub fn trailers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.head.trailers.iter().map(Field::as_pair)
    }

    /// The body, verbatim.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The size of the answer that was not kept, if this is a [tombstone](Response::tombstone).
    #[must_use]
    pub fn tombstone_length(&self) -> Option<u64> {
        self.head.tombstone
    }

    /// The name of the key that sealed the body, if any.
    #[must_use]
    pub fn seal_key_id(&self) -> Option<&str> {
        self.head.seal_key_id.as_deref()
    }

    /// Bytes that the answer takes: body, header and trailer names and values.
    #[must_use]
    pub fn size(&self) -> usize {
        let fields = self.head.headers.iter().chain(&self.head.trailers);
        self.body.len() + fields.map(|field| field.name.len() + field.value.len()).sum::<usize>()
    }

    /// What is kept of this response under a limit of `limit` bytes: itself, or its [tombstone](Response::tombstone).
    #[must_use]
    pub fn kept_within(&self, limit: usize) -> Self {
        let size = self.size();
        if size <= limit { self.clone() } else { Self::tombstone(self.code(), size as u64) }
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Response");
        shown.field("code", &self.head.code);
        shown.field("headers", &self.head.headers.len());
        shown.field("body_bytes", &self.body.len());
        if !self.head.trailers.is_empty() {
            shown.field("trailers", &self.head.trailers.len());
        }
        if let Some(length) = self.head.tombstone {
            shown.field("tombstone", &length);
        }
        shown.finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_content() {
        let response = Response::new(200, "canary-body").with_header("x-canary-name", "canary-value");
        let shown = format!("{response:?}");
        assert!(!shown.contains("canary"), "{shown}");
        assert!(shown.contains("body_bytes: 11"), "{shown}");
    }

    #[test]
    fn the_limit_is_inclusive_and_counts_fields() {
        let response = Response::new(200, vec![b'x'; 90]).with_header("name", "sixsix");
        assert_eq!(response.size(), 100);
        assert_eq!(response.kept_within(100), response);
        let tombstone = response.kept_within(99);
        assert_eq!((tombstone.tombstone_length(), tombstone.code()), (Some(100), Some(200)));
        assert!(tombstone.body().is_empty());
    }
}
