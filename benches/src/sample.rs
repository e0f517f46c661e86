//! The operation that is measured: a charge of a hundred bytes, answered with a hundred.

use idem_core::fingerprint::FingerprintBuilder;
use idem_core::{Fingerprint, Key, Request, Response, Scope, Takeover};

/// What is done.
pub const OPERATION: &str = "POST /v1/charges";
/// The body of the request.
pub const REQUEST: &[u8] = br#"{"amount":1000,"currency":"usd","customer":"cus_42","description":"order 7"}"#;
/// The body of the answer: the one that the hand-written statements of `baseline/` store.
pub const ANSWER: &[u8] = br#"{"id":"ch_1","amount":1000,"currency":"usd","customer":"cus_42","status":"succeeded"}"#;

/// The request under `key`, as an application makes it for every call: checked, and its body hashed.
///
/// # Panics
///
/// If `key` is no key.
pub fn request(key: impl AsRef<str>) -> Request {
    sent(key, Fingerprint::builder(OPERATION).json(REQUEST))
}

/// The same, with every byte of the body counting: what other libraries do with a body, and less work.
///
/// # Panics
///
/// If `key` is no key.
pub fn request_of_bytes(key: impl AsRef<str>) -> Request {
    sent(key, Fingerprint::builder(OPERATION).bytes(REQUEST))
}

fn sent(key: impl AsRef<str>, fingerprint: FingerprintBuilder<'_>) -> Request {
    let scope = Scope::new("acct_1").expect("a scope");
    let fingerprint = fingerprint.finish().expect("a small body");
    Request::new(scope, Key::new(key).expect("a key"), fingerprint, Takeover::Resume)
}

/// The answer.
#[must_use]
pub fn response() -> Response {
    Response::new(201, ANSWER).with_header("content-type", "application/json")
}
