//! Answers that say what went wrong: [`Problem`].

use crate::grpc::{self, Protocol};
use crate::meaning::Meaning;
use crate::scope::ScopeError;
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use idem_core::fingerprint::{FingerprintError, Part};
use idem_core::http::ProblemKind;
use idem_core::machine::AbandonReason;
use idem_core::{Error, ErrorKind, Interrupted, StopReason};
use serde_json::{Value, json};
use std::fmt;
use std::time::Duration;

/// When to ask again if nothing better is known.
const SOON: Duration = Duration::from_secs(1);

/// What went wrong, as `application/problem+json` ([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)): its type says it
/// to programs, its `advice` what to do (`retry`, `new-key` or `stop`), its detail to people.
///
/// It never repeats what the client sent. The layer makes them; a handler makes one of a call to its
/// [`Operation`](idem_core::Operation) that says to stop, with `?` or [`From`]:
///
/// ```
/// use idem_core::Operation;
/// use idem_tower::Problem;
///
/// async fn charge(operation: Operation) -> Result<http::Response<String>, Problem> {
///     operation.begin_effect("charge").await?;
///     // ... call the provider with operation.derived_key("charge") ...
///     Ok(http::Response::new("charged".to_owned()))
/// }
/// ```
///
/// With the feature `axum` it is a response there; elsewhere [`into_response`](Self::into_response) makes one.
#[derive(Clone)]
pub struct Problem {
    kind: ProblemKind,
    status: StatusCode,
    detail: String,
    more: Option<(&'static str, Value)>,
    retry_after: Option<Duration>,
}

impl Problem {
    /// A problem of this kind. `detail` is for a person to read and must not repeat what the client sent.
    #[must_use]
    pub fn new(kind: ProblemKind, status: StatusCode, detail: impl Into<String>) -> Self {
        Self { kind, status, detail: detail.into(), more: None, retry_after: None }
    }

    /// Says when to ask again, rounded up to whole seconds, at least one. Defaults to not saying it.
    #[must_use]
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> ProblemKind {
        self.kind
    }

    /// Its status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The response that says it.
    ///
    /// A handler that answers with a problem has no answer to store, so the response carries a [`Meaning`]: of the kind
    /// [`NothingDone`](ProblemKind::NothingDone) that nothing happened, of any other that nobody knows.
    #[must_use]
    pub fn into_response<B: From<Bytes>>(self) -> http::Response<B> {
        let (body, retry_after) = (self.body(), self.retry_after);
        let mut response = http::Response::new(B::from(Bytes::from(body.to_string())));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        // An answer about this moment is nobody else's.
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(after) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds(after)));
        }
        response.extensions_mut().insert(match self.kind {
            ProblemKind::NothingDone => Meaning::NoEffect,
            _ => Meaning::Unknown,
        });
        response
    }

    /// The answer to a request: a gRPC client gets a status, not a body that it cannot read.
    pub(crate) fn answer(self, protocol: Protocol) -> http::Response<Bytes> {
        match protocol {
            Protocol::Http => self.into_response(),
            Protocol::Grpc => grpc::status(&self),
        }
    }

    fn body(&self) -> Value {
        let mut body = json!({
            "type": self.kind.uri(),
            "title": self.status.canonical_reason().unwrap_or("Problem"),
            "status": self.status.as_u16(),
            "detail": self.detail,
            "advice": self.kind.advice().as_str(),
        });
        if let Some((name, value)) = &self.more {
            body[*name] = value.clone();
        }
        body
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.more = Some((name, value.into()));
        self
    }

    pub(crate) fn key_missing() -> Self {
        let detail = "send an Idempotency-Key header: a new one for each operation, the same one for each retry of it";
        Self::new(ProblemKind::KeyMissing, StatusCode::BAD_REQUEST, detail)
    }

    pub(crate) fn key_malformed(error: crate::header::KeyHeaderError) -> Self {
        Self::new(ProblemKind::KeyMalformed, StatusCode::BAD_REQUEST, error.to_string())
    }

    pub(crate) fn body_too_large(limit: usize) -> Self {
        let detail = format!("a request with an Idempotency-Key has a body of at most {limit} bytes");
        Self::new(ProblemKind::BodyTooLarge, StatusCode::PAYLOAD_TOO_LARGE, detail)
    }

    pub(crate) fn no_fingerprint(error: &FingerprintError) -> Self {
        Self::new(ProblemKind::Internal, StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }

    pub(crate) fn body_too_slow() -> Self {
        let detail = "the body did not arrive in time: send the request again";
        Self::new(ProblemKind::BodyTooSlow, StatusCode::REQUEST_TIMEOUT, detail)
    }

    pub(crate) fn body_cut_off() -> Self {
        let detail = "the body ended before its end: send the request again";
        // A request that did not arrive whole (RFC 9110, section 15.5.9), which is what a client may send again.
        Self::new(ProblemKind::BodyCutOff, StatusCode::REQUEST_TIMEOUT, detail)
    }

    pub(crate) fn in_progress(retry_after: Duration) -> Self {
        let detail = "another request with this Idempotency-Key is in progress";
        Self::new(ProblemKind::InProgress, StatusCode::CONFLICT, detail).with_retry_after(retry_after)
    }

    /// Somebody else has the key, and there is no answer yet.
    pub(crate) fn overtaken() -> Self {
        Self::in_progress(SOON)
    }

    pub(crate) fn key_reused(part: Option<Part>) -> Self {
        let part = part.map_or_else(|| "request".to_owned(), |part| part.to_string());
        let detail = format!(
            "this Idempotency-Key belongs to another request: its {part} differs. Make a new key for a new operation"
        );
        Self::new(ProblemKind::KeyReused, StatusCode::UNPROCESSABLE_ENTITY, detail).with("part", part)
    }

    pub(crate) fn abandoned(reason: AbandonReason) -> Self {
        let detail =
            format!("an earlier attempt never came back, and is not run again: {reason}. Somebody has to look");
        Self::new(ProblemKind::Abandoned, StatusCode::SERVICE_UNAVAILABLE, detail)
    }

    pub(crate) fn answer_not_kept(length: u64, original: Option<u16>) -> Self {
        let detail = if length > 0 {
            format!("the operation is done; its answer of {length} bytes or more was not kept")
        } else {
            "the operation is done; its answer was not kept".to_owned()
        };
        Self::new(ProblemKind::AnswerNotKept, StatusCode::GONE, detail).with("original_status", original)
    }

    pub(crate) fn panicked() -> Self {
        let detail = "the operation was cut off and may have taken effect: retry with the same key";
        Self::new(ProblemKind::OutcomeUnknown, StatusCode::INTERNAL_SERVER_ERROR, detail).with_retry_after(SOON)
    }

    pub(crate) fn stopped(reason: StopReason) -> Self {
        let detail = match reason {
            StopReason::Drained => "this instance is stopping and gave the operation up, which may have taken effect",
            StopReason::LeaseLost | StopReason::MaxRun | StopReason::StoreFailed | StopReason::NotCommitted => {
                "the operation was stopped, and may have taken effect"
            }
        };
        Self::new(ProblemKind::Stopped, StatusCode::SERVICE_UNAVAILABLE, format!("{detail}: retry with the same key"))
            .with_retry_after(SOON)
    }
}

impl From<ScopeError> for Problem {
    fn from(error: ScopeError) -> Self {
        Self::new(ProblemKind::ScopeRefused, error.status(), error.to_string())
    }
}

impl From<&Error> for Problem {
    /// The text names the kind only: a source may tell more of the inside than a client should see.
    fn from(error: &Error) -> Self {
        let unavailable = StatusCode::SERVICE_UNAVAILABLE;
        let (kind, status) = match error.kind() {
            ErrorKind::Draining => (ProblemKind::Draining, unavailable),
            ErrorKind::Overloaded => (ProblemKind::Overloaded, unavailable),
            ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::Capacity => {
                (ProblemKind::StoreUnavailable, unavailable)
            }
            ErrorKind::UnknownFingerprint => (ProblemKind::LaterRelease, unavailable),
            ErrorKind::AnswerNotKept => return Self::answer_not_kept(0, None),
            _ => (ProblemKind::Internal, StatusCode::INTERNAL_SERVER_ERROR),
        };
        let problem = Self::new(kind, status, error.kind().to_string());
        if error.is_transient() || kind == ProblemKind::LaterRelease { problem.with_retry_after(SOON) } else { problem }
    }
}

impl From<Interrupted> for Problem {
    /// What a handler answers that was told to stop. The layer knows better whether there is another answer by now.
    fn from(interrupted: Interrupted) -> Self {
        Self::stopped(match interrupted {
            Interrupted::Fenced | Interrupted::LeaseLost => StopReason::LeaseLost,
            Interrupted::Store(_) => StopReason::StoreFailed,
        })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status, self.detail)
    }
}

impl fmt::Debug for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Problem").field("kind", &self.kind).field("status", &self.status).finish_non_exhaustive()
    }
}

impl std::error::Error for Problem {}

#[cfg(feature = "axum")]
impl axum_core::response::IntoResponse for Problem {
    fn into_response(self) -> axum_core::response::Response {
        Problem::into_response(self)
    }
}

/// As a header has it: whole seconds, and never zero, which would be an invitation to spin.
pub(crate) fn seconds(after: Duration) -> u64 {
    u64::try_from(after.as_millis().div_ceil(1_000)).unwrap_or(u64::MAX).max(1)
}
