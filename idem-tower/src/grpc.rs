//! What a gRPC client understands: problems as status codes in a response without a body.

use crate::problem::Problem;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use idem_core::http::ProblemKind;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// What a `grpc-message` may not hold as it is.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

/// What a client understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http,
    Grpc,
}

impl Protocol {
    /// The protocol of a request with these headers.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        if is_grpc(headers) { Self::Grpc } else { Self::Http }
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let rest = content_type.and_then(|value| value.strip_prefix(b"application/grpc"));
    // Not grpc-web, which has its trailers in the body: a translating proxy belongs outside the layer.
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// A response of headers alone that carries a problem as a
/// [status](https://grpc.github.io/grpc/core/md_doc_statuscodes.html).
pub(crate) fn status(problem: &Problem) -> http::Response<Bytes> {
    let mut response = http::Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from(code(problem)));
    let message = utf8_percent_encode(problem.detail(), ESCAPED).to_string();
    if let Ok(message) = HeaderValue::try_from(message) {
        headers.insert("grpc-message", message);
    }
    if let Some(after) = problem.retry_after() {
        headers.insert("grpc-retry-pushback-ms", HeaderValue::from(millis(after)));
    }
    response
}

fn millis(after: std::time::Duration) -> u64 {
    u64::try_from(after.as_millis()).unwrap_or(u64::MAX)
}

fn code(problem: &Problem) -> u16 {
    const UNKNOWN: u16 = 2;
    const INVALID_ARGUMENT: u16 = 3;
    const DEADLINE_EXCEEDED: u16 = 4;
    const ALREADY_EXISTS: u16 = 6;
    const PERMISSION_DENIED: u16 = 7;
    const RESOURCE_EXHAUSTED: u16 = 8;
    const FAILED_PRECONDITION: u16 = 9;
    const ABORTED: u16 = 10;
    const INTERNAL: u16 = 13;
    const UNAVAILABLE: u16 = 14;
    const UNAUTHENTICATED: u16 = 16;
    match problem.kind() {
        ProblemKind::KeyMissing | ProblemKind::KeyMalformed | ProblemKind::KeyReused | ProblemKind::BodyCutOff => {
            INVALID_ARGUMENT
        }
        ProblemKind::ScopeRefused => match problem.status() {
            StatusCode::UNAUTHORIZED => UNAUTHENTICATED,
            StatusCode::FORBIDDEN => PERMISSION_DENIED,
            _ => INVALID_ARGUMENT,
        },
        ProblemKind::InProgress => ABORTED,
        // What it is for: not to be retried until somebody has looked.
        ProblemKind::Abandoned => FAILED_PRECONDITION,
        ProblemKind::AnswerNotKept => ALREADY_EXISTS,
        ProblemKind::BodyTooLarge => RESOURCE_EXHAUSTED,
        ProblemKind::BodyTooSlow => DEADLINE_EXCEEDED,
        ProblemKind::OutcomeUnknown => UNKNOWN,
        ProblemKind::Internal => INTERNAL,
        ProblemKind::NothingDone
        | ProblemKind::Stopped
        | ProblemKind::Draining
        | ProblemKind::Overloaded
        | ProblemKind::StoreUnavailable
        | ProblemKind::LaterRelease => UNAVAILABLE,
        _ => UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn grpc_is_told_by_its_media_type() {
        let with = |value| HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(value))]);
        for grpc in ["application/grpc", "application/grpc+proto", "application/grpc;x=y"] {
            assert!(is_grpc(&with(grpc)), "{grpc}");
        }
        for other in ["application/grpc-web", "application/json", ""] {
            assert!(!is_grpc(&with(other)), "{other}");
        }
        assert!(!is_grpc(&HeaderMap::new()));
    }

    #[test]
    fn a_problem_becomes_a_status_with_a_message() {
        let response = status(&Problem::in_progress(Duration::from_millis(1_500)));
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["grpc-status"], "10");
        assert_eq!(response.headers()["grpc-message"], "another request with this Idempotency-Key is in progress");
        assert_eq!(response.headers()["grpc-retry-pushback-ms"], "1500");
        assert!(response.body().is_empty());
    }
}
