//! What is refused: before anything ran, or because something else runs or ran.

use crate::client::{BODY, KEY, charge, post};
use crate::server::{Gate, Server, charged};
use crate::stores::{Stored, on_every_store};
use bytes::Bytes;
use http::{HeaderValue, Request, header};
use http_body_util::Full;
use idem_core::http::ProblemKind::{InProgress, KeyMalformed, KeyMissing, KeyReused};
use std::sync::Arc;
use std::time::Duration;

on_every_store!(
    a_repeat_while_the_first_runs_is_told_when_to_come_again,
    a_repeat_can_wait_for_the_first,
    another_request_under_the_key_is_told_which_part_differs,
);

async fn a_repeat_while_the_first_runs_is_told_when_to_come_again(stored: Stored) {
    let gate = Gate::new();
    let at = gate.clone();
    let server = Arc::new(
        Server::start(stored.layer(), move |call| {
            let at = at.clone();
            async move {
                at.pass().await;
                charged(call.run)
            }
        })
        .await,
    );
    let first = tokio::spawn({
        let server = Arc::clone(&server);
        async move { server.send(charge(KEY)).await }
    });
    gate.reached().await;
    for answer in [server.send(charge(KEY)).await, server.send_h2(charge(KEY)).await] {
        answer.assert_problem(InProgress, 409);
        assert!(answer.retry_after() <= 600, "no longer than the lease");
    }
    let curl = server.curl("/charges", &["-H", &format!("Idempotency-Key: {KEY}"), "--json", BODY]).await;
    assert!(curl.starts_with(b"HTTP/1.1 409 Conflict\r\n"), "{}", String::from_utf8_lossy(&curl));
    // Another request is another matter, running or not.
    server.send(post("/charges", KEY, "{}")).await.assert_problem(KeyReused, 422);
    gate.open();
    first.await.unwrap().assert_replayed_by(&server.send(charge(KEY)).await);
    assert_eq!(server.runs(), 1);
}

async fn a_repeat_can_wait_for_the_first(stored: Stored) {
    let gate = Gate::new();
    let at = gate.clone();
    let layer = stored.layer().with_wait(Duration::from_secs(30));
    let server = Arc::new(
        Server::start(layer, move |call| {
            let at = at.clone();
            async move {
                at.pass().await;
                charged(call.run)
            }
        })
        .await,
    );
    let send = || {
        let server = Arc::clone(&server);
        tokio::spawn(async move { server.send(charge(KEY)).await })
    };
    let first = send();
    gate.reached().await;
    let again = send();
    gate.open();
    first.await.unwrap().assert_replayed_by(&again.await.unwrap());
    assert_eq!(server.runs(), 1);
}

async fn another_request_under_the_key_is_told_which_part_differs(stored: Stored) {
    let server = Server::start(stored.layer(), |call| async move { charged(call.run) }).await;
    let first = server.send(post("/charges?expand=card&currency=usd", KEY, BODY)).await;
    let path = "/charges?expand=card&currency=usd";
    let others = [
        ("body", post(path, KEY, r#"{"amount":1001,"note":"canary-body"}"#)),
        ("body", post(path, KEY, "")),
        ("body", post(path, KEY, format!("{BODY} {BODY}"))),
        ("query", post("/charges?expand=card&currency=eur", KEY, BODY)),
        ("query", post("/charges?expand=card", KEY, BODY)),
        ("query", post("/charges", KEY, BODY)),
        ("operation", post("/refunds?expand=card&currency=usd", KEY, BODY)),
        ("operation", post("/charges/?expand=card&currency=usd", KEY, BODY)),
        ("operation", {
            let mut patch = post(path, KEY, BODY);
            *patch.method_mut() = http::Method::PATCH;
            patch
        }),
        ("headers", {
            let mut text = post(path, KEY, BODY);
            text.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/vnd.canary+json"));
            text
        }),
    ];
    for (part, other) in others {
        let shown = format!("{} {}", other.method(), other.uri());
        let problem = server.send(other).await.assert_problem(KeyReused, 422);
        assert_eq!(problem["part"], part, "{shown}");
        assert!(problem["detail"].as_str().unwrap().contains(part), "{problem}");
    }
    first.assert_replayed_by(&server.send(post(path, KEY, BODY)).await);
    assert_eq!(server.runs(), 1);
}

#[tokio::test]
async fn what_is_not_one_key_is_refused_before_anything_runs() {
    let server = Server::start(Stored::in_memory().layer(), |call| async move { charged(call.run) }).await;
    let with = |values: &[&[u8]]| {
        let mut request = Request::post("/charges").body(Full::<Bytes>::from(BODY)).unwrap();
        for value in values {
            request.headers_mut().append("idempotency-key", HeaderValue::from_bytes(value).unwrap());
        }
        request
    };
    server.send(with(&[])).await.assert_problem(KeyMissing, 400);
    server.send_h2(with(&[])).await.assert_problem(KeyMissing, 400);

    let long = b"canary".repeat(11_000);
    let malformed: [&[&[u8]]; 15] = [
        &[b""],
        &[b"\"\""],
        &[&long[..256]],
        &[&long[..64 << 10]],
        &[b"canary", b"canary"],
        &[b"canary-1", b"canary-2", b"\"canary-3\""],
        &[b"canary-1, canary-2"],
        &[b"\"canary-1\", \"canary-2\""],
        &[b"\"canary"],
        &[b"canary\""],
        &[b"\"canary\" x"],
        &[br#""can\ary""#],
        &[b"canary canary"],
        &[b"canary\xff"],
        &["canary\u{2026}".as_bytes()],
    ];
    for values in malformed {
        let problem = server.send(with(values)).await.assert_problem(KeyMalformed, 400);
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("Idempotency-Key"), "{detail}");
    }
    // The longest key that there is.
    assert_eq!(server.send(with(&[&long[..255]])).await.status, 201);
    assert_eq!(server.runs(), 1);
}

/// curl is told the same, whatever it was asked to send.
#[tokio::test]
async fn curl_is_told_what_is_wrong_with_its_key() {
    let server = Server::start(Stored::in_memory().layer(), |call| async move { charged(call.run) }).await;
    let long = format!("Idempotency-Key: {}", "canary".repeat(11_000));
    let cases: [&[&str]; 5] = [
        &[],
        // The form in which curl sends a header without a value.
        &["-H", "Idempotency-Key;"],
        &["-H", "Idempotency-Key: canary", "-H", "idempotency-key: canary"],
        &["-H", "Idempotency-Key: \"canary"],
        &["-H", &long],
    ];
    for arguments in cases {
        let answer = server.curl("/charges", &[arguments, &["--json", BODY]].concat()).await;
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
        assert!(answer.contains("application/problem+json") && !answer.contains("canary"), "{answer}");
    }
    assert_eq!(server.runs(), 0);
}
