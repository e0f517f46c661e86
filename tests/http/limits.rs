//! Bodies about as long as the limits, far longer, and without an end.

use crate::client::{Answer, BODY, KEY, charge, post, within};
use crate::server::{Outgoing, Server, boxed, full, respond, trailed};
use crate::stores::{Stored, layer, on_every_store};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body_util::channel::{Channel, Sender};
use http_body_util::{BodyExt, Full};
use idem_core::http::ProblemKind::{AnswerNotKept, BodyTooLarge};
use std::convert::Infallible;
use std::sync::Mutex;

const LIMIT: usize = 1_000;

on_every_store!(
    a_request_may_be_as_long_as_the_limit,
    an_answer_may_be_as_long_as_the_limit,
    an_endless_answer_reaches_its_first_caller_as_it_comes,
    an_event_stream_is_neither_held_nor_run_again,
);

async fn a_request_may_be_as_long_as_the_limit(stored: Stored) {
    let layer = stored.layer().with_request_limit(LIMIT);
    let server = Server::start(layer, |call| async move { respond(200).body(full(call.body)).unwrap() }).await;
    for length in [0, LIMIT - 1, LIMIT] {
        let request = || post("/blobs", &format!("{KEY}-{length}"), vec![b'x'; length]);
        let first = server.send(request()).await;
        assert_eq!((first.status, first.body.len()), (200, length));
        first.assert_replayed_by(&server.send(request()).await);
    }
    let runs = server.runs();
    for length in [LIMIT + 1, 100 * LIMIT, 3 << 20] {
        let request = post("/blobs", KEY, vec![b'x'; length]);
        server.send(request).await.assert_problem(BodyTooLarge, 413);
        // In pieces, and nobody says how much it will be.
        let (mut sender, body) = Channel::<Bytes, Infallible>::new(1);
        let pieces = tokio::spawn(async move {
            for _ in 0..length.div_ceil(500) {
                // Its reader may have heard enough.
                let _ = sender.send_data(Bytes::from_static(&[b'x'; 500])).await;
            }
        });
        server.send(post("/blobs", KEY, "").map(|_| body)).await.assert_problem(BodyTooLarge, 413);
        within(pieces).await.unwrap();
    }
    assert_eq!(server.runs(), runs);
    // What was refused left nothing behind: the key is free.
    assert_eq!(server.send(post("/blobs", KEY, "short")).await.status, 200);
}

/// The limit counts the stored header fields too.
async fn an_answer_may_be_as_long_as_the_limit(stored: Stored) {
    const FIELDS: usize = "content-type".len() + "text/plain".len();
    let server = Server::start(layer(stored.engine().with_response_limit(LIMIT)), |call| async move {
        let length: usize = call.head.uri.query().unwrap().parse().unwrap();
        respond(203).header("content-type", "text/plain").body(full(vec![b'x'; length])).unwrap()
    })
    .await;
    for length in [0, LIMIT - FIELDS - 1, LIMIT - FIELDS, LIMIT - FIELDS + 1, LIMIT - 1, LIMIT, LIMIT + 1, 9 * LIMIT] {
        let request = || post(&format!("/?{length}"), &format!("{KEY}-{length}"), BODY);
        let first = server.send(request()).await;
        assert_eq!((first.status, first.body.len()), (203, length));
        let again = server.send(request()).await;
        if length + FIELDS <= LIMIT {
            first.assert_replayed_by(&again);
        } else {
            let problem = again.assert_problem(AnswerNotKept, 410);
            assert_eq!(problem["original_status"], 203);
        }
    }
    assert_eq!(server.runs(), 8);
}

/// A handler that answers once with a stream that the test writes.
fn streaming(content_type: &'static str) -> (Sender<Bytes>, impl Fn() -> http::Response<Outgoing> + Send + Sync) {
    let (sender, body) = Channel::<Bytes, Infallible>::new(1);
    let body = Mutex::new(Some(body));
    let answer = move || {
        let body = body.lock().unwrap().take().expect("it runs once");
        respond(200).header("content-type", content_type).body(boxed(body)).unwrap()
    };
    (sender, answer)
}

/// Each piece is written only when the client has read the one before, so none can wait in a buffer for the next.
async fn an_endless_answer_reaches_its_first_caller_as_it_comes(stored: Stored) {
    const PIECES: usize = 50;
    let (mut sender, answer) = streaming("application/octet-stream");
    let layer = layer(stored.engine().with_response_limit(LIMIT));
    let server = Server::start(layer, move |_| std::future::ready(answer())).await;

    let mut connection = server.connect::<Full<Bytes>>().await;
    // Up to the limit it is held: more than that lets it go.
    let beginning = Bytes::from(vec![b'a'; LIMIT + 1]);
    within(sender.send_data(beginning.clone())).await.unwrap();
    let mut live = connection.begin(charge(KEY)).await;
    assert_eq!(read(&mut live, beginning.len()).await, beginning);
    for piece in 0..PIECES {
        let piece = Bytes::from(vec![piece as u8; 3 * LIMIT]);
        within(sender.send_data(piece.clone())).await.unwrap();
        assert_eq!(read(&mut live, piece.len()).await, piece);
        // It is done, whoever is still listening.
        if piece[0] == 0 {
            let problem = server.send(charge(KEY)).await.assert_problem(AnswerNotKept, 410);
            assert_eq!(problem["original_status"], 200);
        }
    }
    drop(sender);
    assert!(within(live.frame()).await.is_none(), "the stream has ended");
    server.send(charge(KEY)).await.assert_problem(AnswerNotKept, 410);
    assert_eq!(server.runs(), 1);
}

/// So many bytes of what comes.
async fn read(response: &mut http::Response<hyper::body::Incoming>, length: usize) -> Bytes {
    let mut read = Vec::new();
    while read.len() < length {
        let frame = within(response.frame()).await.expect("the stream goes on").unwrap();
        read.extend_from_slice(frame.data_ref().unwrap());
    }
    Bytes::from(read)
}

async fn an_event_stream_is_neither_held_nor_run_again(stored: Stored) {
    let (mut sender, answer) = streaming("text/event-stream; charset=utf-8");
    let server = Server::start(stored.layer(), move |_| std::future::ready(answer())).await;
    let mut connection = server.connect::<Full<Bytes>>().await;
    let mut live = connection.begin(charge(KEY)).await;
    assert_eq!(live.status(), 200);
    for event in ["data: 1\n\n", "data: 2\n\n", ": still here\n\n"] {
        within(sender.send_data(Bytes::from(event))).await.unwrap();
        assert_eq!(read(&mut live, event.len()).await, event);
        let problem = server.send(charge(KEY)).await.assert_problem(AnswerNotKept, 410);
        assert_eq!(problem["original_status"], 200);
    }
    drop(sender);
    assert!(within(live.frame()).await.is_none());
    assert_eq!(server.runs(), 1);
}

/// What breaks off while it is within the limit is not stored, and its first caller sees it break off.
#[tokio::test]
async fn an_answer_that_breaks_off_is_none() {
    let server = Server::start(Stored::in_memory().layer(), |call| async move {
        if call.run > 1 {
            return respond(200).body(full("all of it")).unwrap();
        }
        let (mut sender, body) = Channel::<Bytes, std::io::Error>::new(1);
        sender.send_data(Bytes::from("half of")).await.unwrap();
        sender.abort(std::io::Error::other("canary"));
        respond(200).body(boxed(body)).unwrap()
    })
    .await;
    let mut connection = server.connect::<Full<Bytes>>().await;
    // Whether the head was on its way by then is up to the server.
    if let Ok(live) = connection.try_begin(charge(KEY)).await {
        assert!(within(live.collect()).await.is_err(), "it breaks off for the caller too");
    }
    let again = server.send(charge(KEY)).await;
    assert!(!again.is_replay() && again.body == "all of it", "{again:?}");
    again.assert_replayed_by(&server.send(charge(KEY)).await);
    assert_eq!(server.runs(), 2);
}

/// Trailers behind more than the limit reach the first caller as they would without the layer.
#[tokio::test]
async fn the_trailers_of_a_long_answer_are_not_lost() {
    let layer = layer(Stored::in_memory().engine().with_response_limit(LIMIT));
    let server = Server::start(layer, |_| async {
        let trailers = HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_static("x"))]);
        let body = trailed(vec![b'x'; 2 * LIMIT], trailers);
        respond(200).header("trailer", "etag").body(body).unwrap()
    })
    .await;
    let whole = |answer: Answer| (answer.body.len(), answer.trailers.map(|trailers| trailers["etag"].clone()));
    assert_eq!(whole(server.send(charge(KEY)).await), (2 * LIMIT, Some(HeaderValue::from_static("x"))));
    server.send(charge(KEY)).await.assert_problem(AnswerNotKept, 410);
}
