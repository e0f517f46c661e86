//! Answers that say what went wrong, as `application/problem+json` (RFC 9457).

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use idem_core::http::ProblemKind;
use serde_json::{Value, json};
use std::time::Duration;

/// What went wrong, for a person and for a program. It never repeats what the client sent.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    kind: &'static str,
    detail: String,
    more: Option<(&'static str, Value)>,
    retry_after: Option<Duration>,
}

impl Problem {
    /// `kind` is the last part of the problem's type.
    pub(crate) fn new(status: StatusCode, kind: &'static str, detail: impl Into<String>) -> Self {
        Self { status, kind, detail: detail.into(), more: None, retry_after: None }
    }

    /// Adds a member.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.more = Some((name, value.into()));
        self
    }

    /// Says when to ask again, rounded up to seconds.
    pub(crate) fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let title = self.status.canonical_reason().unwrap_or_default();
        let mut body = json!({
            "type": uri(self.kind),
            "title": title,
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        if let Some((name, value)) = self.more {
            body[name] = value;
        }
        let mut response = (self.status, body.to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(after) = self.retry_after {
            headers.insert(
                header::RETRY_AFTER,
                after.as_millis().div_ceil(1_000).max(1).to_string().parse().unwrap_or(HeaderValue::from_static("1")),
            );
        }
        response
    }
}

/// What a client of idem knows has idem's name, and what only this service knows has one of its own.
fn uri(kind: &str) -> String {
    let known = ProblemKind::ALL.into_iter().find(|known| known.as_str() == kind);
    known.map_or_else(|| format!("urn:payments:problem:{kind}"), ProblemKind::uri)
}

pub(crate) async fn no_such_route() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "no-such-route", "there is nothing at this path")
}

pub(crate) async fn no_such_method() -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "no-such-method", "this path does not take this method")
}
