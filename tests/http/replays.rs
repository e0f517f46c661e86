//! A repeat gets the first answer, whatever it is made of.

use crate::client::{BODY, KEY, charge, post};
use crate::server::{Call, Outgoing, Server, boxed, charged, full, respond, trailed};
use crate::stores::{Stored, on_every_store};
use axum::Router;
use axum::routing::{get, post as on_post};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use http_body_util::channel::Channel;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::Frame;
use idem_core::http::IDEMPOTENT_REPLAYED;
use idem_tower::KeyRule;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

on_every_store!(
    a_repeat_gets_the_first_answer,
    curl_gets_the_same_bytes_again,
    an_answer_without_a_body_is_replayed,
    a_compressed_answer_stays_compressed,
    chunks_come_and_go,
    every_byte_survives,
    cookies_are_for_the_first_caller,
    cookies_are_replayed_if_that_is_asked_for,
    a_stored_500_is_an_answer,
    trailers_are_replayed_over_http_1,
);

/// An answer with every header that is stored unasked.
fn rich(run: usize) -> Response<Outgoing> {
    respond(201)
        .header("content-type", "application/json; charset=utf-8")
        .header("content-language", "de")
        .header("location", format!("/charges/{run}"))
        .header("etag", format!("\"{run}\""))
        .header("link", "</a>; rel=next")
        .header("link", "</b>; rel=prev")
        .header("last-modified", "Tue, 15 Nov 1994 12:45:26 GMT")
        .header("cache-control", "private")
        .header("vary", "accept")
        .body(full(format!("{{ \"id\" :\t\"ch_{run}\"\r\n}}")))
        .unwrap()
}

async fn a_repeat_gets_the_first_answer(stored: Stored) {
    let server = Server::start(stored.layer(), |call| async move { rich(call.run) }).await;
    let first = server.send(charge(KEY)).await;
    assert_eq!((first.status, first.headers("link").len()), (201, 2));
    first.assert_replayed_by(&server.send(charge(KEY)).await);
    first.assert_replayed_by(&server.send(charge(KEY)).await);
    // Formatted otherwise, it is the same JSON.
    first.assert_replayed_by(&server.send(post("/charges", KEY, BODY.replace(',', ",\n  "))).await);
    assert_eq!(server.runs(), 1);
    assert!(!server.send(charge("another-key")).await.is_replay());
    assert_eq!(server.runs(), 2);
}

#[tokio::test]
async fn http_2_and_http_1_share_their_answers() {
    let server = Server::start(Stored::in_memory().layer(), |call| async move { rich(call.run) }).await;
    let first = server.send_h2(charge(KEY)).await;
    first.assert_replayed_by(&server.send_h2(charge(KEY)).await);
    first.assert_replayed_by(&server.send(charge(KEY)).await);
    assert_eq!(server.runs(), 1);
}

async fn curl_gets_the_same_bytes_again(stored: Stored) {
    let server = Server::start(stored.layer(), |call| async move { rich(call.run) }).await;
    for (version, key) in [("--http1.1", "1"), ("--http2-prior-knowledge", "2")] {
        let key = format!("Idempotency-Key: {KEY}-{key}");
        let send = async || server.curl("/charges", &[version, "-H", &key, "--json", BODY]).await;
        let (first, again) = (send().await, send().await);
        assert_eq!(lines(&first, "idempotent-replayed"), [] as [&[u8]; 0]);
        assert_eq!(lines(&again, "idempotent-replayed"), [b"idempotent-replayed: true\r\n"]);
        assert_eq!(lines(&first, "link:").len(), 2);
        assert_eq!(sorted(&first), sorted(&again));
        let body = |answer: &[u8]| answer[answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap()..].to_vec();
        assert_eq!(body(&first), body(&again));
    }
    assert_eq!(server.runs(), 2);
}

/// The lines of an answer that begin like this.
fn lines<'a>(answer: &'a [u8], beginning: &str) -> Vec<&'a [u8]> {
    let lines = answer.split_inclusive(|byte| *byte == b'\n');
    lines.filter(|line| line.starts_with(beginning.as_bytes())).collect()
}

/// Every byte of an answer but the mark and the time of day. The server says its length before or after them.
fn sorted(answer: &[u8]) -> Vec<&[u8]> {
    let lines = answer.split_inclusive(|byte| *byte == b'\n');
    let mut lines: Vec<_> =
        lines.filter(|line| !line.starts_with(b"idempotent-replayed") && !line.starts_with(b"date:")).collect();
    lines.sort_unstable();
    lines
}

#[tokio::test]
async fn quoted_and_bare_forms_and_any_case_of_the_name_are_one_key() {
    let server = Server::start(Stored::in_memory().layer(), |call| async move { charged(call.run) }).await;
    let first = server.send(charge("canary-key")).await;
    first.assert_replayed_by(&server.send(charge("\"canary-key\"")).await);
    first.assert_replayed_by(&server.send(charge("\"canary-key\";v=2")).await);
    for name in ["IDEMPOTENCY-KEY", "idempotency-key", "iDEMPOTENCY-kEY"] {
        for value in ["canary-key", "\"canary-key\"", "  canary-key\t"] {
            let again = server.curl("/charges", &["-H", &format!("{name}: {value}"), "--json", BODY]).await;
            assert_eq!(lines(&again, "idempotent-replayed").len(), 1, "{name}: {value}");
        }
    }
    // Keys themselves have a case.
    assert!(!server.send(charge("Canary-Key")).await.is_replay());
    assert_eq!(server.runs(), 2);
}

#[tokio::test]
async fn what_needs_no_key_goes_through() {
    let optional = |head: &http::request::Parts| match head.uri.path() {
        "/optional" => KeyRule::Optional,
        "/ignored" => KeyRule::Ignored,
        _ => idem_tower::required_for_post_and_patch(head),
    };
    let layer = Stored::in_memory().layer().with_key_rule(optional);
    let server = Server::start(layer, |call: Call| async move {
        assert!(call.head.extensions.get::<idem_core::Operation>().is_none(), "nobody protects it");
        charged(call.run)
    })
    .await;
    let unprotected = [
        Request::post("/optional").body(Full::from(BODY)),
        Request::post("/ignored").header("idempotency-key", KEY).body(Full::from(BODY)),
        Request::get("/charges").header("idempotency-key", KEY).body(Full::default()),
        Request::put("/charges").header("idempotency-key", KEY).body(Full::from(BODY)),
        Request::delete("/charges").header("idempotency-key", "not, one").body(Full::<Bytes>::default()),
    ];
    for (count, request) in unprotected.into_iter().enumerate() {
        let request = request.unwrap();
        for run in [2 * count + 1, 2 * count + 2] {
            let answer = server.send(request.clone()).await;
            assert!(!answer.is_replay() && answer.body == format!(r#"{{"id":"ch_{run}"}}"#), "{answer:?}");
        }
    }
    assert_eq!(server.runs(), 10);
}

#[tokio::test]
async fn an_optional_key_protects() {
    let layer = Stored::in_memory().layer().with_key_rule(|_| KeyRule::Optional);
    let server = Server::start(layer, |call| async move { charged(call.run) }).await;
    let first = server.send(charge(KEY)).await;
    first.assert_replayed_by(&server.send(charge(KEY)).await);
    assert_eq!(server.runs(), 1);
}

async fn an_answer_without_a_body_is_replayed(stored: Stored) {
    let layer = stored.layer().with_key_rule(|_| KeyRule::Required);
    let server = Server::start(layer, |call: Call| async move {
        match call.head.method {
            // As routers answer it: what GET says, without its body.
            Method::HEAD => respond(200).header("etag", "\"7\"").body(boxed(Empty::new())).unwrap(),
            _ => respond(204).header("location", "/charges/1").body(boxed(Empty::new())).unwrap(),
        }
    })
    .await;
    for (method, status) in [(Method::POST, 204), (Method::HEAD, 200), (Method::DELETE, 204)] {
        let request = || {
            let request = Request::builder().method(method.clone()).uri("/charges/1");
            request.header("idempotency-key", method.as_str()).body(Empty::<Bytes>::new()).unwrap()
        };
        let first = server.send(request()).await;
        assert_eq!((first.status, first.body.len()), (status, 0));
        first.assert_replayed_by(&server.send(request()).await);
        first.assert_replayed_by(&server.send_h2(request()).await);
    }
    assert_eq!(server.runs(), 3);
}

/// `{"id":"ch_1"}`, compressed by gzip.
const GZIP: &[u8] =
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xab\x56\xca\x4c\x51\xb2\x52\x4a\xce\x88\x37\x54\xaa\x05\x00\
    \xda\x9b\x1d\xad\x0d\x00\x00\x00";

async fn a_compressed_answer_stays_compressed(stored: Stored) {
    let server = Server::start(stored.layer(), |_| async {
        respond(200).header("content-encoding", "gzip").body(full(GZIP)).unwrap()
    })
    .await;
    let first = server.send(charge(KEY)).await;
    let again = server.send(charge(KEY)).await;
    first.assert_replayed_by(&again);
    assert_eq!((again.header("content-encoding"), &again.body[..]), (Some("gzip"), GZIP));
    let header = format!("idempotency-key: {KEY}");
    let plain = server.curl("/charges", &["--compressed", "-H", &header, "--json", BODY]).await;
    assert_eq!(lines(&plain, "idempotent-replayed").len(), 1);
    assert!(plain.ends_with(b"\r\n\r\n{\"id\":\"ch_1\"}"), "{}", String::from_utf8_lossy(&plain));
}

async fn chunks_come_and_go(stored: Stored) {
    let server = Server::start(stored.layer(), |call: Call| async move {
        assert_eq!(call.body, BODY);
        let parts = ["the ", "", "charge ", "is made"].map(|part| Ok::<_, Infallible>(Frame::data(Bytes::from(part))));
        let stream = StreamBody::new(futures_util::stream::iter(parts));
        respond(200).header("content-type", "text/plain").body(boxed(stream)).unwrap()
    })
    .await;
    let (mut sender, body) = Channel::<Bytes, Infallible>::new(1);
    let pieces = tokio::spawn(async move {
        for piece in BODY.as_bytes().chunks(7) {
            sender.send_data(Bytes::from_static(piece)).await.unwrap();
        }
    });
    let first = server.send(charge(KEY).map(|_| body)).await;
    pieces.await.unwrap();
    assert_eq!((first.status, &first.body[..]), (200, &b"the charge is made"[..]));
    // Sent in one piece it is the same request.
    first.assert_replayed_by(&server.send(charge(KEY)).await);
    let header = format!("idempotency-key: {KEY}");
    let chunked = ["-H", &header, "-H", "transfer-encoding: chunked", "--json", BODY];
    assert_eq!(lines(&server.curl("/charges", &chunked).await, "idempotent-replayed").len(), 1);
    assert_eq!(server.runs(), 1);
}

async fn every_byte_survives(stored: Stored) {
    let every: Vec<u8> = (0..=255).collect();
    let server = Server::start(stored.layer(), |call: Call| async move {
        let turned: Vec<u8> = call.body.iter().rev().copied().collect();
        respond(200).header("content-type", "application/octet-stream").body(full(turned)).unwrap()
    })
    .await;
    let request = |body: &[u8]| {
        let request = post("/blobs", KEY, body.to_vec());
        let (mut head, body) = request.into_parts();
        head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        Request::from_parts(head, body)
    };
    let first = server.send(request(&every)).await;
    let turned: Vec<u8> = (0..=255).rev().collect();
    assert_eq!(first.body, turned);
    first.assert_replayed_by(&server.send(request(&every)).await);
    for at in [0, 128, 255] {
        let mut other = every.clone();
        other[at] ^= 1;
        assert_eq!(server.send(request(&other)).await.status, 422, "byte {at}");
    }
    assert_eq!(server.runs(), 1);
}

fn with_cookies() -> Response<Outgoing> {
    let response = respond(200).header("set-cookie", "session=1; HttpOnly").header("set-cookie", "theme=dark");
    response.header("www-authenticate", "Basic").header("x-request-id", "r1").body(full("done")).unwrap()
}

async fn cookies_are_for_the_first_caller(stored: Stored) {
    let server = Server::start(stored.layer(), |_| async { with_cookies() }).await;
    let first = server.send(charge(KEY)).await;
    assert_eq!(first.headers("set-cookie"), ["session=1; HttpOnly", "theme=dark"]);
    let again = server.send(charge(KEY)).await;
    first.without(&["set-cookie", "www-authenticate", "x-request-id"]).assert_replayed_by(&again);
}

async fn cookies_are_replayed_if_that_is_asked_for(stored: Stored) {
    let layer = stored.layer().with_stored_header(header::SET_COOKIE).with_stored_header(header::DATE);
    let server = Server::start(layer, |_| async { with_cookies() }).await;
    let first = server.send(charge(KEY)).await;
    let again = server.send(charge(KEY)).await;
    assert_eq!(again.headers("set-cookie"), ["session=1; HttpOnly", "theme=dark"]);
    first.without(&["www-authenticate", "x-request-id"]).assert_replayed_by(&again);
}

async fn a_stored_500_is_an_answer(stored: Stored) {
    let server = Server::start(stored.layer(), |call| async move {
        respond(500).body(full(format!("half of it is done, in run {}", call.run))).unwrap()
    })
    .await;
    let first = server.send(charge(KEY)).await;
    assert_eq!(first.status, 500);
    first.assert_replayed_by(&server.send(charge(KEY)).await);
    assert_eq!(server.runs(), 1);
}

/// HTTP/1.1 has trailers in chunks only, and only those that the header `Trailer` announces: an answer whose length was
/// said, or whose replay announced nothing, lost them.
async fn trailers_are_replayed_over_http_1(stored: Stored) {
    let server = Server::start(stored.layer(), |_| async {
        let mut trailers = HeaderMap::new();
        trailers.append("digest", HeaderValue::from_static("sha-256=abc"));
        trailers.append("server-timing", HeaderValue::from_static("db;dur=1"));
        respond(200).header("trailer", "digest, server-timing").body(trailed("charged", trailers)).unwrap()
    })
    .await;
    let first = server.send(charge(KEY)).await;
    assert_eq!(
        first.trailers.as_ref().map(|trailers| &trailers["digest"]),
        Some(&HeaderValue::from_static("sha-256=abc"))
    );
    first.assert_replayed_by(&server.send(charge(KEY)).await);
    first.without(&["transfer-encoding"]).assert_replayed_by(&server.send_h2(charge(KEY)).await);
    assert_eq!(server.runs(), 1);
}

/// A handler that hands on the headers of its own provider, which is behind such a layer too, had its first answer pass
/// for a replay.
#[tokio::test]
async fn the_mark_of_a_provider_is_not_ours() {
    let server = Server::start(Stored::in_memory().layer(), |_| async {
        respond(201).header(IDEMPOTENT_REPLAYED, "true").body(full("charged")).unwrap()
    })
    .await;
    let first = server.send(charge(KEY)).await;
    first.assert_replayed_by(&server.send(charge(KEY)).await);
}

/// A request may have trailers too: the handler gets them.
#[tokio::test]
async fn trailers_of_a_request_reach_the_handler() {
    let server = Server::start(Stored::in_memory().layer(), |call: Call| async move {
        let digest = call.trailers.expect("they were sent")["digest"].clone();
        respond(200).header("etag", digest).body(full("seen")).unwrap()
    })
    .await;
    let trailers = HeaderMap::from_iter([(header::HeaderName::from_static("digest"), HeaderValue::from_static("d"))]);
    let request = charge(KEY).map(|body| body.with_trailers(async move { Some(Ok(trailers)) }).boxed_unsync());
    assert_eq!(server.send_h2(request).await.header("etag"), Some("d"));
}

/// One layer for each group of routes, as an axum service has it.
#[tokio::test]
async fn routes_of_an_axum_router_have_layers_of_their_own() {
    let stored = Stored::in_memory();
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let count = async move || format!("run {}", counted.fetch_add(1, Ordering::SeqCst) + 1);
    let optional = stored.layer().with_key_rule(|_| KeyRule::Optional);
    let router = Router::new()
        .route("/charges", on_post(count.clone()).layer(stored.layer()))
        .route("/notes", on_post(count.clone()).layer(optional))
        .route("/charges/1", get(count));
    let server = Server::of(router).await;

    let first = server.send(charge(KEY)).await;
    assert_eq!(first.body, "run 1");
    first.assert_replayed_by(&server.send(charge(KEY)).await);
    assert_eq!(server.send(post("/notes", KEY, BODY)).await.status, 422, "the same store and scope: the same key");
    let (mut head, body) = post("/notes", KEY, BODY).into_parts();
    head.headers.remove("idempotency-key");
    assert_eq!(server.send(Request::from_parts(head, body)).await.body, "run 2");
    let read = || Request::get("/charges/1").body(Full::<Bytes>::default()).unwrap();
    assert_eq!(server.send(read()).await.body, "run 3");
    assert_eq!(runs.load(Ordering::SeqCst), 3);
}
