//! What is stored of a response, and the response made of it again.

use crate::body::{Body, Read, read};
use crate::grpc::Protocol;
use crate::problem::Problem;
use bytes::Bytes;
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use http_body::Body as HttpBody;
use idem_core::Response;
use idem_core::http::IDEMPOTENT_REPLAYED;

/// Fields that are stored beside all that begin with `content-` or `grpc-`. HTTP/1.1 sends the trailers that `Trailer`
/// announces, and no others.
const KEPT: [HeaderName; 7] = [
    header::CACHE_CONTROL,
    header::ETAG,
    header::LAST_MODIFIED,
    header::LINK,
    header::LOCATION,
    header::TRAILER,
    header::VARY,
];

/// Fields about one connection or one message, never stored whatever the user names: the replay has its own.
const NEVER: [HeaderName; 8] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::DATE,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// A final response: what is stored of it, and what its first caller gets, which is all of it.
pub(crate) struct Kept<B: HttpBody> {
    /// `None` if the body broke off: then nobody can say what the answer is.
    pub(crate) stored: Option<Response>,
    pub(crate) live: http::Response<Body<B>>,
}

/// Reads a response as far as it may be stored.
///
/// More than `limit` bytes leave a tombstone, and so does an event stream, which has no end to wait for.
pub(crate) async fn keep<B: HttpBody>(head: Parts, body: B, limit: usize, named: &[HeaderName]) -> Kept<B> {
    let code = head.status.as_u16();
    let length = body.size_hint();
    if is_event_stream(&head.headers) {
        let stored = Some(Response::tombstone(Some(code), length.lower()));
        return Kept { stored, live: http::Response::from_parts(head, Body::through(body)) };
    }
    let (stored, body) = match read(body, limit).await {
        Read::Whole { data, trailers } => {
            let stored = stored(&head, data.clone(), trailers.as_ref(), named);
            (Some(stored), Body::whole(data, trailers))
        }
        Read::Over(body) => {
            let length = length.exact().unwrap_or(0).max(body.size_hint().lower());
            (Some(Response::tombstone(Some(code), length)), body)
        }
        Read::Broken(body) => (None, body),
    };
    Kept { stored, live: http::Response::from_parts(head, body) }
}

fn stored(head: &Parts, data: Bytes, trailers: Option<&HeaderMap>, named: &[HeaderName]) -> Response {
    let mut response = Response::new(head.status.as_u16(), data);
    for (name, value) in &head.headers {
        if is_kept(name, named) {
            response = response.with_header(name.as_str(), Bytes::copy_from_slice(value.as_bytes()));
        }
    }
    for (name, value) in trailers.into_iter().flatten() {
        response = response.with_trailer(name.as_str(), Bytes::copy_from_slice(value.as_bytes()));
    }
    response
}

fn is_kept(name: &HeaderName, named: &[HeaderName]) -> bool {
    let prefixed = ["content-", "grpc-"].iter().any(|prefix| name.as_str().starts_with(prefix));
    (prefixed || KEPT.contains(name) || named.contains(name)) && !NEVER.contains(name)
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
    essence.trim_ascii().eq_ignore_ascii_case(b"text/event-stream")
}

/// A stored response as an answer: verbatim, with the mark of a replay.
pub(crate) fn replay<B: HttpBody>(response: &Response, protocol: Protocol) -> http::Response<Body<B>> {
    let code = response.code();
    if let Some(length) = response.tombstone_length() {
        return Problem::answer_not_kept(length, code).answer(protocol).map(Body::from);
    }
    let mut answer = http::Response::new(Body::whole(response.body().clone(), fields(response.trailers())));
    // A row that was stored by something else than this layer may have no code.
    *answer.status_mut() = code.and_then(|code| StatusCode::from_u16(code).ok()).unwrap_or(StatusCode::OK);
    *answer.headers_mut() = fields(response.headers()).unwrap_or_default();
    answer.headers_mut().insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    answer
}

/// `None` if there are none.
fn fields<'a>(pairs: impl Iterator<Item = (&'a str, &'a [u8])>) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    Some(headers).filter(|headers| !headers.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{BodyExt, Full};

    #[tokio::test]
    async fn only_listed_fields_are_stored_in_order_and_with_their_repeats() {
        let response = http::Response::builder()
            .status(201)
            .header("content-type", "text/csv")
            .header("content-length", "4")
            .header("location", "/a")
            .header("link", "1")
            .header("link", "2")
            .header("trailer", "digest")
            .header("x-request-id", "r")
            .header("x-total", "7")
            .header("date", "now")
            .header("connection", "close")
            .header("transfer-encoding", "chunked")
            .header("set-cookie", "a=1")
            .header("set-cookie", "b=2")
            .header("www-authenticate", "Basic")
            .body(Full::<Bytes>::from("a,b\n"))
            .unwrap();
        let (head, body) = response.into_parts();
        let named = ["x-total", "connection", "date"].map(HeaderName::from_static);
        let kept = keep(head, body, 4, &named).await;
        let stored = kept.stored.unwrap();
        let names: Vec<_> = stored.headers().map(|(name, _)| name).collect();
        assert_eq!(names, ["content-type", "location", "link", "link", "trailer", "x-total"]);
        // The first caller gets everything.
        assert_eq!(kept.live.headers().get_all("set-cookie").iter().count(), 2);

        let replay = replay::<Full<Bytes>>(&stored, Protocol::Http);
        assert_eq!(replay.status(), 201);
        assert_eq!(replay.headers().get_all("link").iter().collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(replay.headers()["idempotent-replayed"], "true");
        assert_eq!(replay.into_body().collect().await.unwrap().to_bytes(), "a,b\n");
    }

    #[tokio::test]
    async fn what_is_too_long_or_has_no_end_leaves_a_tombstone() {
        let (head, body) = http::Response::new(Full::<Bytes>::from("12345")).into_parts();
        let kept = keep(head, body, 4, &[]).await;
        assert_eq!(kept.stored.unwrap().tombstone_length(), Some(5));
        assert_eq!(kept.live.into_body().collect().await.unwrap().to_bytes(), "12345");

        let events = http::Response::builder().header("content-type", "Text/Event-Stream; charset=utf-8");
        let (head, body) = events.body(Full::<Bytes>::from("data: 1\n\n")).unwrap().into_parts();
        let kept = keep(head, body, 100, &[]).await;
        assert!(kept.stored.unwrap().tombstone_length().is_some());
        assert_eq!(kept.live.into_body().collect().await.unwrap().to_bytes(), "data: 1\n\n");
    }
}
