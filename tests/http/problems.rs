//! Every kind of problem, provoked: all have one form, and each has its section in `docs/problems.md`.

use crate::client::{Answer, BODY, KEY, charge, post, within};
use crate::server::{Call, Gate, Server, charged, full, respond};
use crate::stores::{Stored, layer};
use bytes::Bytes;
use http::Request;
use http::request::Parts;
use http_body_util::Full;
use http_body_util::channel::Channel;
use idem_core::conformance::{CallKind, FaultPlan, FaultStore, Injection};
use idem_core::fingerprint::HashKey;
use idem_core::http::{Advice, ProblemKind};
use idem_core::{Engine, Scope, Takeover};
use idem_memory::MemoryStore;
use idem_postgres::{PostgresConfig, PostgresStore};
use idem_tests::rig::postgres::{Version, shared};
use idem_tower::fingerprint::standard;
use idem_tower::{Global, IdempotencyLayer, Problem, ScopeError};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn every_kind_has_the_same_form_and_advises_as_its_section_says() {
    let sections = sections();
    for kind in ProblemKind::ALL {
        let (answer, status) = provoke(kind).await;
        answer.assert_problem(kind, status);
        if kind.advice() != Advice::Retry {
            assert_eq!(answer.header("retry-after"), None, "{kind}");
        }
        let (_, text) = sections.iter().find(|(name, _)| *name == kind.as_str()).expect("every kind has a section");
        let line = text.lines().find(|line| line.starts_with("Status ")).expect("a section begins with its status");
        assert!(line.contains(&status.to_string()), "{kind} has the status {status}: {line}");
        assert!(line.ends_with(&format!("advice `{}`", kind.advice())), "{kind}: {line}");
    }
}

#[test]
fn every_section_is_a_kind() {
    let names: Vec<_> = sections().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ProblemKind::ALL.map(ProblemKind::as_str), "in the order of the enum");
}

/// The sections of the page to which the `type` of every problem leads, by their anchors.
fn sections() -> Vec<(&'static str, &'static str)> {
    let page = include_str!("../../docs/problems.md");
    let sections = page.split("\n## ").skip(1);
    sections.map(|section| section.split_once('\n').expect("a heading is a line")).collect()
}

async fn ok(call: Call) -> http::Response<crate::server::Outgoing> {
    charged(call.run)
}

/// An answer of this kind, and the status that it should have.
async fn provoke(kind: ProblemKind) -> (Answer, u16) {
    let stored = Stored::in_memory();
    match kind {
        ProblemKind::KeyMissing => {
            let without = Request::post("/charges").body(Full::<Bytes>::from(BODY)).unwrap();
            (Server::start(stored.layer(), ok).await.send(without).await, 400)
        }
        ProblemKind::KeyMalformed => {
            (Server::start(stored.layer(), ok).await.send(charge("canary, canary")).await, 400)
        }
        ProblemKind::KeyReused => {
            let server = Server::start(stored.layer(), ok).await;
            server.send(charge(KEY)).await;
            (server.send(post("/charges", KEY, "canary")).await, 422)
        }
        ProblemKind::InProgress => (while_one_runs(stored.layer(), KEY).await, 409),
        ProblemKind::Overloaded => {
            (while_one_runs(layer(stored.engine().with_max_in_flight(1)), "canary-2").await, 503)
        }
        ProblemKind::AnswerNotKept => {
            let server = Server::start(layer(stored.engine().with_response_limit(4)), ok).await;
            server.send(charge(KEY)).await;
            (server.send(charge(KEY)).await, 410)
        }
        ProblemKind::Abandoned => {
            let layer = IdempotencyLayer::new(stored.engine().build().unwrap(), Global, Takeover::Never);
            let server = Server::start(layer, |_| async { panic!("canary") }).await;
            server.send(charge(KEY)).await;
            (server.send(charge(KEY)).await, 503)
        }
        ProblemKind::NothingDone => {
            let answer =
                || Problem::new(ProblemKind::NothingDone, http::StatusCode::SERVICE_UNAVAILABLE, "the bank is closed");
            let server =
                Server::start(stored.layer(), move |_| async move { answer().into_response::<Bytes>().map(full) })
                    .await;
            (server.send(charge(KEY)).await, 503)
        }
        ProblemKind::OutcomeUnknown => {
            let server = Server::start(stored.layer(), |_| async { panic!("canary") }).await;
            (server.send(charge(KEY)).await, 500)
        }
        ProblemKind::Stopped => {
            let engine = stored.engine().build().unwrap();
            let gate = Gate::new();
            let at = gate.clone();
            let layer = IdempotencyLayer::new(engine.clone(), Global, Takeover::Resume);
            let server = Server::start(layer, move |call| {
                let at = at.clone();
                async move {
                    at.pass().await;
                    charged(call.run)
                }
            })
            .await;
            let drain = async {
                gate.reached().await;
                engine.drain(Duration::ZERO).await
            };
            let (answer, drained) = tokio::join!(server.send(charge(KEY)), drain);
            assert_eq!(drained.given_up, 1);
            (answer, 503)
        }
        ProblemKind::Draining => {
            let engine = stored.engine().build().unwrap();
            engine.drain(Duration::ZERO).await;
            let layer = IdempotencyLayer::new(engine, Global, Takeover::Resume);
            (Server::start(layer, ok).await.send(charge(KEY)).await, 503)
        }
        ProblemKind::StoreUnavailable => {
            let down = FaultPlan::none().onward(CallKind::Any, 1, Injection::Refuse);
            let stored = Stored::new(FaultStore::new(MemoryStore::default(), down));
            (Server::start(stored.layer(), ok).await.send(charge(KEY)).await, 503)
        }
        ProblemKind::LaterRelease => {
            let keyed = stored.layer().with_fingerprint(|head, body| {
                let key = HashKey::new("next", "a secret that the older release does not have").unwrap();
                standard(head, body).hash_key(&key).finish()
            });
            Server::start(keyed, ok).await.send(charge(KEY)).await;
            (Server::start(stored.layer(), ok).await.send(charge(KEY)).await, 503)
        }
        ProblemKind::BodyTooLarge => {
            (Server::start(stored.layer().with_request_limit(9), ok).await.send(charge(KEY)).await, 413)
        }
        ProblemKind::BodyTooSlow => {
            let (_never_sends, body) = Channel::<Bytes, Infallible>::new(1);
            let layer = stored.layer().with_body_timeout(Duration::from_millis(1));
            (Server::start(layer, ok).await.send(charge(KEY).map(|_| body)).await, 408)
        }
        ProblemKind::BodyCutOff => (cut_off(&Server::start(stored.layer(), ok).await).await, 408),
        ProblemKind::ScopeRefused => {
            let nobody = |_: &Parts| -> Result<Scope, _> { Err(ScopeError::unauthorized("log in")) };
            let layer = IdempotencyLayer::new(stored.engine().build().unwrap(), nobody, Takeover::Resume);
            (Server::start(layer, ok).await.send(charge(KEY)).await, 401)
        }
        ProblemKind::Internal => {
            // A store that nobody has set up.
            let database = shared(Version::Any).await.database().await;
            let store = PostgresStore::unchecked(PostgresConfig::from_url(database.url()).unwrap()).unwrap();
            let server = Server::start(layer(Engine::builder(store).without_sweeper()), ok).await;
            let answer = server.send(charge(KEY)).await;
            assert_eq!(server.runs(), 0);
            (answer, 500)
        }
        unknown => panic!("how to provoke {unknown} this test does not know"),
    }
}

/// The answer to `key` while an operation of [`KEY`] runs.
async fn while_one_runs(layer: IdempotencyLayer, key: &str) -> Answer {
    let gate = Gate::new();
    let at = gate.clone();
    let server = Server::start(layer, move |_| {
        let at = at.clone();
        async move {
            at.pass().await;
            respond(200).body(full("")).unwrap()
        }
    });
    let server = Arc::new(server.await);
    let first = tokio::spawn({
        let server = Arc::clone(&server);
        async move { server.send(charge(KEY)).await }
    });
    gate.reached().await;
    let answer = server.send(charge(key)).await;
    answer.retry_after();
    gate.open();
    first.await.unwrap();
    answer
}

/// The answer to a body in chunks of which one is none.
async fn cut_off(server: &Server) -> Answer {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let request = format!(
        "POST /charges HTTP/1.1\r\nhost: x\r\nidempotency-key: {KEY}\r\ntransfer-encoding: chunked\r\n\r\n\
         6\r\ncanary\r\nno chunk\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut read = Vec::new();
    within(stream.read_to_end(&mut read)).await.unwrap();
    let text = String::from_utf8(read).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let fields = lines.map(|line| line.split_once(": ").unwrap());
    let headers = fields.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
    Answer { status, headers, body: Bytes::from(body.to_owned()), trailers: None, is_head_only: false }
}
