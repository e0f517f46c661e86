//! The operation that is measured, byte for byte that of `benches/src/sample.rs`, which needs idem and cannot be
//! compiled here.

/// What is done.
pub(crate) const OPERATION: &str = "POST /v1/charges";
/// The body of the request.
pub(crate) const REQUEST: &[u8] = br#"{"amount":1000,"currency":"usd","customer":"cus_42","description":"order 7"}"#;
/// The status of the answer.
pub(crate) const STATUS: u16 = 201;
/// The type of the answer's body.
pub(crate) const CONTENT_TYPE: &str = "application/json";
/// The body of the answer.
pub(crate) const ANSWER: &[u8] =
    br#"{"id":"ch_1","amount":1000,"currency":"usd","customer":"cus_42","status":"succeeded"}"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operation_is_the_one_that_idem_is_measured_with() {
        let theirs = include_str!("../../src/sample.rs");
        let text = |bytes| std::str::from_utf8(bytes).expect("text");
        for ours in [OPERATION, text(REQUEST), text(ANSWER), CONTENT_TYPE, &STATUS.to_string()] {
            assert!(theirs.contains(ours), "another {ours}");
        }
    }
}
