//! The operation that is measured: a charge of a hundred bytes, answered with a hundred.

use idem_core::{Fingerprint, Key, Request, Response, Scope, Takeover};

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
    let fingerprint = Fingerprint::builder("POST /v1/charges").json(REQUEST).finish().expect("a small body");
    let scope = Scope::new("acct_1").expect("a scope");
    Request::new(scope, Key::new(key).expect("a key"), fingerprint, Takeover::Resume)
}

/// The answer.
#[must_use]
pub fn response() -> Response {
    Response::new(201, ANSWER).with_header("content-type", "application/json")
}
