//! gRPC calls, made by hand: messages in frames, the status in trailers.

use crate::client::{Answer, KEY};
use crate::server::{Call, Gate, Outgoing, Server, boxed, respond, trailed};
use crate::stores::{Stored, layer, on_every_store};
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body_util::{Empty, Full};
use std::sync::Arc;

on_every_store!(
    a_call_is_replayed_with_its_trailers,
    a_call_that_failed_in_its_head_is_replayed,
    a_reused_key_is_a_status,
    a_call_in_progress_says_when_to_come_again,
);

/// One message: not compressed, its length, itself.
fn framed(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(5 + message.len());
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap());
    frame.put_slice(message);
    frame.freeze()
}

fn call(key: Option<&str>, message: &[u8]) -> Request<Full<Bytes>> {
    let request = Request::post("/payments.Charges/Create").header("content-type", "application/grpc+proto");
    let request = request.header("te", "trailers");
    let request = if let Some(key) = key { request.header("idempotency-key", key) } else { request };
    request.body(Full::new(framed(message))).unwrap()
}

fn answer(message: &[u8], trailers: &[(&'static str, &'static str)]) -> Response<Outgoing> {
    let named =
        |(name, value): &(&'static str, &'static str)| (HeaderName::from_static(name), HeaderValue::from_static(value));
    let trailers: HeaderMap = trailers.iter().map(named).collect();
    respond(200).header("content-type", "application/grpc+proto").body(trailed(framed(message), trailers)).unwrap()
}

async fn a_call_is_replayed_with_its_trailers(stored: Stored) {
    let server = Server::start(stored.layer(), |call: Call| async move {
        assert_eq!(call.body, framed(b"\x08\xe8\x07"));
        answer(b"\x0a\x04ch_1", &[("grpc-status", "0"), ("x-charge-bin", "AAEC")])
    })
    .await;
    let first = server.send_h2(call(Some(KEY), b"\x08\xe8\x07")).await;
    assert_eq!(first.body, framed(b"\x0a\x04ch_1"));
    let trailers = first.trailers.as_ref().expect("the status is in the trailers");
    assert_eq!(
        (trailers.len(), &trailers["grpc-status"], &trailers["x-charge-bin"]),
        (2, &"0".parse().unwrap(), &"AAEC".parse().unwrap())
    );
    first.assert_replayed_by(&server.send_h2(call(Some(KEY), b"\x08\xe8\x07")).await);
    assert_eq!(server.runs(), 1);
}

async fn a_call_that_failed_in_its_head_is_replayed(stored: Stored) {
    let server = Server::start(stored.layer(), |_| async {
        let response = respond(200).header("content-type", "application/grpc").header("grpc-status", "5");
        response.header("grpc-message", "no such card").body(boxed(Empty::new())).unwrap()
    })
    .await;
    let first = server.send_h2(call(Some(KEY), b"")).await;
    assert!(first.is_head_only && first.trailers.is_none(), "{first:?}");
    first.assert_replayed_by(&server.send_h2(call(Some(KEY), b"")).await);
    assert_eq!((first.header("grpc-status"), server.runs()), (Some("5"), 1));
}

/// The answer is a status in the head, and repeats nothing of the request.
fn assert_status(answer: &Answer, status: &str) {
    let shown = format!("{answer:?}");
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/grpc")), "{shown}");
    assert_eq!(answer.header("grpc-status"), Some(status), "{shown}");
    assert!(answer.header("grpc-message").is_some_and(|message| !message.is_empty()), "{shown}");
    assert!(answer.is_head_only && answer.body.is_empty() && answer.trailers.is_none(), "{shown}");
    assert!(!answer.is_replay() && !shown.contains("canary"), "{shown}");
}

async fn a_reused_key_is_a_status(stored: Stored) {
    let ok = |_| async { answer(b"done", &[("grpc-status", "0")]) };
    let server = Server::start(stored.layer(), ok).await;
    let first = server.send_h2(call(Some(KEY), b"canary-1")).await;
    let reused = server.send_h2(call(Some(KEY), b"canary-2")).await;
    assert_status(&reused, "3");
    assert!(reused.header("grpc-message").unwrap().contains("body"), "{reused:?}");
    assert_status(&server.send_h2(call(None, b"canary-1")).await, "3");
    assert_status(&server.send_h2(call(Some("canary, canary"), b"canary-1")).await, "3");
    first.assert_replayed_by(&server.send_h2(call(Some(KEY), b"canary-1")).await);
    assert_eq!(server.runs(), 1);
}

async fn a_call_in_progress_says_when_to_come_again(stored: Stored) {
    let gate = Gate::new();
    let at = gate.clone();
    let server = Server::start(stored.layer(), move |_| {
        let at = at.clone();
        async move {
            at.pass().await;
            answer(b"done", &[("grpc-status", "0")])
        }
    });
    let server = Arc::new(server.await);
    let first = tokio::spawn({
        let server = Arc::clone(&server);
        async move { server.send_h2(call(Some(KEY), b"1")).await }
    });
    gate.reached().await;
    let busy = server.send_h2(call(Some(KEY), b"1")).await;
    assert_status(&busy, "10");
    assert!(busy.header("grpc-retry-pushback-ms").unwrap().parse::<u64>().unwrap() > 0);
    gate.open();
    first.await.unwrap().assert_replayed_by(&server.send_h2(call(Some(KEY), b"1")).await);
}

#[tokio::test]
async fn an_answer_too_long_to_keep_is_a_status() {
    let layer = layer(Stored::in_memory().engine().with_response_limit(4));
    let server = Server::start(layer, |_| async { answer(b"12345", &[("grpc-status", "0")]) }).await;
    let first = server.send_h2(call(Some(KEY), b"1")).await;
    assert_eq!((first.body.len(), first.trailers.unwrap().len()), (10, 1));
    assert_status(&server.send_h2(call(Some(KEY), b"1")).await, "6");
    assert_eq!(server.runs(), 1);
}
