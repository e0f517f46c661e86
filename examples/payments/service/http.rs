//! How a request becomes one for the engine, and what comes of it becomes an answer.

use super::header;
use super::problem::Problem;
use axum::body::Body;
use axum::extract::Request as HttpRequest;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response as HttpResponse};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use idem_core::{
    Disposition, Engine, Error, ErrorKind, Failure, Fingerprint, Operation, Outcome, Request, Response, StopReason,
    Takeover,
};
use std::time::Duration;
use tokio::time::timeout;

/// The longest body that is taken.
pub(crate) const BODY_LIMIT: usize = 1 << 20;
/// How much of a longer one is read and thrown away, so that its sender sees the answer instead of a reset.
const DISCARDED: usize = 8 << 20;
/// How long a body may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// When to ask again if nothing better is known.
const SOON: Duration = Duration::from_secs(1);

/// Marks an answer that was stored, not made now.
pub(crate) const REPLAYED: &str = "idempotent-replayed";

/// Splits a request into its head and its whole body.
pub(crate) async fn read(request: HttpRequest) -> Result<(Parts, Bytes), Problem> {
    let (parts, body) = request.into_parts();
    match timeout(BODY_TIMEOUT, read_body(body)).await {
        Ok(body) => Ok((parts, body?)),
        Err(_) => Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "body-too-slow", "the body did not arrive in time")),
    }
}

async fn read_body(mut body: Body) -> Result<Bytes, Problem> {
    let mut taken = BytesMut::new();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let cut = |_| Problem::new(StatusCode::BAD_REQUEST, "body-cut-off", "the body ended before its end");
        let Ok(data) = frame.map_err(cut)?.into_data() else { continue };
        length += data.len();
        if length <= BODY_LIMIT {
            taken.extend_from_slice(&data);
        } else if length > BODY_LIMIT + DISCARDED {
            break;
        }
    }
    if length <= BODY_LIMIT {
        return Ok(taken.freeze());
    }
    let detail = format!("a body has at most {BODY_LIMIT} bytes");
    Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", detail))
}

/// What `route` is asked for, as the engine wants it: whose key, and what makes this request the one that it is.
pub(crate) fn request(parts: &Parts, body: &[u8], route: &str, takeover: Takeover) -> Result<Request, Problem> {
    let scope = header::tenant(&parts.headers)?;
    let key = header::key(&parts.headers)?;
    let mut fingerprint = Fingerprint::builder(format!("{} {route}", parts.method)).json(body);
    if let Some(query) = parts.uri.query() {
        // As it stands: these routes give no meaning to the order of parameters, and clients repeat what they sent.
        fingerprint = fingerprint.query("", query);
    }
    let too_large = |_| Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "request-too-large", "the request is too large");
    Ok(Request::new(scope, key, fingerprint.finish().map_err(too_large)?, takeover))
}

/// Runs `handler` unless this request was answered before, and answers.
pub(crate) async fn answer<E, H, F>(engine: &Engine, request: Request, handler: H) -> HttpResponse
where
    E: std::fmt::Display + Send + 'static,
    H: FnOnce(Operation) -> F + Send + 'static,
    F: Future<Output = Result<Response, Failure<E>>> + Send + 'static,
{
    match engine.execute(request, handler).await {
        Ok(outcome) => of_outcome(outcome),
        Err(error) => of_error(&error).into_response(),
    }
}

fn of_outcome<E: std::fmt::Display>(outcome: Outcome<Response, E>) -> HttpResponse {
    match outcome {
        // With `Recorded::Unknown` the answer is as true: a retry gets it, or takes over.
        Outcome::Executed { response, recorded: _ } => stored(&response, false),
        Outcome::Replayed(response) | Outcome::Fenced { response: Some(response) } => stored(&response, true),
        Outcome::InProgress { retry_after, .. } => in_progress(retry_after).into_response(),
        Outcome::Fenced { response: None } => in_progress(SOON).into_response(),
        Outcome::Mismatch { part } => {
            let part = part.map_or_else(|| "request".to_owned(), |part| part.to_string());
            let detail = format!(
                "this Idempotency-Key belongs to another request: its {part} differs. Make a new key for a new operation"
            );
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "key-reused", detail).with("part", part).into_response()
        }
        Outcome::Abandoned { reason } => {
            let detail =
                format!("an earlier attempt never came back, and is not run again: {reason}. Somebody has to look");
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "abandoned", detail).into_response()
        }
        Outcome::Failed { error, disposition: Disposition::Retryable } => {
            let detail = format!("{error}. Retry with the same key");
            let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "nothing-done", detail);
            problem.retry_after(SOON).into_response()
        }
        Outcome::Failed { error, disposition: Disposition::Unknown | Disposition::Refused(_) } => {
            unknown(StatusCode::INTERNAL_SERVER_ERROR, "outcome-unknown", &error.to_string())
        }
        Outcome::Panicked(_) => unknown(StatusCode::INTERNAL_SERVER_ERROR, "panicked", "the handler panicked"),
        Outcome::Stopped { reason: StopReason::Drained } => {
            unknown(StatusCode::SERVICE_UNAVAILABLE, "stopped", "this instance is stopping and gave the operation up")
        }
        Outcome::Stopped { reason: StopReason::LeaseLost | StopReason::MaxRun | StopReason::StoreFailed } => {
            unknown(StatusCode::SERVICE_UNAVAILABLE, "stopped", "the handler was stopped")
        }
    }
}

fn in_progress(retry_after: Duration) -> Problem {
    let detail = "another request with this Idempotency-Key is in progress";
    Problem::new(StatusCode::CONFLICT, "in-progress", detail).retry_after(retry_after)
}

/// An operation that may or may not have happened.
fn unknown(status: StatusCode, kind: &'static str, what: &str) -> HttpResponse {
    let detail = format!("{what}: it may have taken effect. Retry with the same key");
    Problem::new(status, kind, detail).retry_after(SOON).into_response()
}

fn of_error(error: &Error) -> Problem {
    let (status, kind) = match error.kind() {
        ErrorKind::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        ErrorKind::Overloaded => (StatusCode::SERVICE_UNAVAILABLE, "overloaded"),
        ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::Capacity => {
            (StatusCode::SERVICE_UNAVAILABLE, "store-unavailable")
        }
        ErrorKind::UnknownFingerprint => (StatusCode::SERVICE_UNAVAILABLE, "later-release"),
        ErrorKind::AnswerNotKept => (StatusCode::GONE, "answer-not-kept"),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
    };
    let problem = Problem::new(status, kind, error.to_string());
    if error.is_transient() { problem.retry_after(SOON) } else { problem }
}

/// An answer as the handler gave it, byte for byte.
fn stored(answer: &Response, replayed: bool) -> HttpResponse {
    let status = answer.code().and_then(|code| StatusCode::from_u16(code).ok());
    if let Some(length) = answer.tombstone_length() {
        let detail = format!("the operation is done; its answer of {length} bytes was too large to keep");
        let problem = Problem::new(StatusCode::GONE, "answer-not-kept", detail);
        return problem.with("original_status", status.map(|status| status.as_u16())).into_response();
    }
    let mut response = HttpResponse::new(Body::from(answer.body().clone()));
    *response.status_mut() = status.unwrap_or(StatusCode::OK);
    let headers = response.headers_mut();
    for (name, value) in answer.headers() {
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    if replayed {
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use idem_core::WriteOutcome;

    fn status(outcome: Outcome<Response, &str>) -> u16 {
        of_outcome(outcome).status().as_u16()
    }

    #[test]
    fn each_outcome_has_its_status() {
        assert_eq!(status(Outcome::Replayed(Response::tombstone(Some(201), 9))), 410);
        assert_eq!(status(Outcome::Mismatch { part: None }), 422);
        assert_eq!(status(Outcome::InProgress { since: None, retry_after: SOON }), 409);
        assert_eq!(status(Outcome::Fenced { response: None }), 409);
        assert_eq!(status(Outcome::Failed { error: "no", disposition: Disposition::Retryable }), 503);
        assert_eq!(status(Outcome::Failed { error: "no", disposition: Disposition::Unknown }), 500);
        let error = |kind| of_error(&Error::new(kind, "claim", WriteOutcome::NotApplied)).into_response();
        assert_eq!(error(ErrorKind::Unavailable).status(), 503);
        assert_eq!(error(ErrorKind::Draining).headers()["retry-after"], "1");
        assert_eq!(error(ErrorKind::Corrupt).status(), 500);
    }

    #[test]
    fn a_replay_has_every_stored_field_and_the_mark() {
        let answer = Response::new(299, "body").with_header("link", "a").with_header("link", "b");
        let replay = stored(&answer, true);
        assert_eq!(replay.status(), 299);
        assert_eq!(replay.headers().get_all("link").iter().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(replay.headers()[REPLAYED], "true");
        assert!(!stored(&answer, false).headers().contains_key(REPLAYED));
    }
}
