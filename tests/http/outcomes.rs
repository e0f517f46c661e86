//! What comes of a run that does not simply end with an answer, and of a store that does not answer.

use crate::client::{BODY, KEY, charge, post, within};
use crate::server::{BoxError, Call, Gate, Server, charged, full, respond};
use crate::stores::{Stored, layer, on_every_store};
use bytes::Bytes;
use http_body_util::channel::Channel;
use idem_core::conformance::{CallKind, FaultPlan, FaultStore, Injection};
use idem_core::http::ProblemKind::{Abandoned, OutcomeUnknown, StoreUnavailable};
use idem_core::machine::{Event, Previous};
use idem_core::{Engine, Policy, Takeover};
use idem_memory::MemoryStore;
use idem_tower::{Global, IdempotencyLayer, Meaning};
use std::convert::Infallible;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

on_every_store!(
    who_hangs_up_after_the_charge_finds_its_answer,
    a_killed_curl_finds_its_answer,
    who_hangs_up_in_the_middle_of_a_request_leaves_nothing,
    too_many_requests_is_not_an_answer,
    too_many_requests_after_an_effect_is_one,
    a_meaning_counts_instead_of_the_status,
    a_panic_is_taken_over,
    a_panic_after_an_effect_is_left_to_a_person_if_that_is_the_policy,
    a_service_that_fails_is_taken_over,
);

/// A server whose first run waits at the gate, its charge made.
async fn gated(stored: &Stored) -> (Server, Gate) {
    let gate = Gate::new();
    let at = gate.clone();
    let layer = stored.layer().with_wait(Duration::from_secs(60));
    let server = Server::start(layer, move |call: Call| {
        let at = at.clone();
        async move {
            call.operation().begin_effect("charge").await.unwrap();
            at.pass().await;
            charged(call.run)
        }
    });
    (server.await, gate)
}

async fn who_hangs_up_after_the_charge_finds_its_answer(stored: Stored) {
    let (server, gate) = gated(&stored).await;
    let mut connection = server.connect().await;
    tokio::select! {
        _ = connection.begin(charge(KEY)) => panic!("the handler waits"),
        () = gate.reached() => {}
    }
    drop(connection);
    // The server has noticed: nobody waits for this answer any more.
    server.connection_closed().await;
    gate.open();
    let again = server.send(charge(KEY)).await;
    assert!(again.is_replay() && again.status == 201 && again.body == r#"{"id":"ch_1"}"#, "{again:?}");
    assert_eq!(server.runs(), 1);
}

async fn a_killed_curl_finds_its_answer(stored: Stored) {
    let (server, gate) = gated(&stored).await;
    let key = format!("idempotency-key: {KEY}");
    let arguments = ["--http2-prior-knowledge", "-H", &key, "--json", BODY];
    let mut curl = server.curl_command("/charges", &arguments).stdout(Stdio::null()).spawn().unwrap();
    gate.reached().await;
    curl.kill().await.unwrap();
    server.connection_closed().await;
    gate.open();
    let again = String::from_utf8(server.curl("/charges", &arguments).await).unwrap();
    assert!(again.contains("idempotent-replayed: true\r\n") && again.ends_with(r#"{"id":"ch_1"}"#), "{again}");
    assert_eq!(server.runs(), 1);
}

async fn who_hangs_up_in_the_middle_of_a_request_leaves_nothing(stored: Stored) {
    let server = Server::start(stored.layer(), |call| async move { charged(call.run) }).await;
    let (mut sender, body) = Channel::<Bytes, Infallible>::new(1);
    let mut connection = server.connect().await;
    let half = async {
        sender.send_data(Bytes::from(&BODY[..10])).await.unwrap();
        // Taken out of the channel, the first piece is on its way.
        sender.send_data(Bytes::from(&BODY[10..11])).await.unwrap();
        sender.send_data(Bytes::from(&BODY[11..12])).await.unwrap();
    };
    tokio::select! {
        _ = connection.begin(charge(KEY).map(|_| body)) => panic!("the request is not complete"),
        () = half => {}
    }
    drop(connection);
    server.connection_closed().await;
    assert_eq!(server.runs(), 0);
    assert!(!server.send(charge(KEY)).await.is_replay());
    assert_eq!(server.runs(), 1);
}

/// Answers with 429 in its first run.
async fn busy_at_first(call: Call) -> http::Response<crate::server::Outgoing> {
    match call.run {
        1 => respond(429).header("retry-after", "7").body(full("come back")).unwrap(),
        run => charged(run),
    }
}

async fn too_many_requests_is_not_an_answer(stored: Stored) {
    let server = Server::start(stored.layer(), busy_at_first).await;
    let busy = server.send(charge(KEY)).await;
    assert_eq!((busy.status, busy.retry_after(), &busy.body[..]), (429, 7, &b"come back"[..]));
    let second = server.send(charge(KEY)).await;
    assert_eq!((second.status, &second.body[..]), (201, &br#"{"id":"ch_2"}"#[..]));
    second.assert_replayed_by(&server.send(charge(KEY)).await);
    assert_eq!(server.runs(), 2);
}

async fn too_many_requests_after_an_effect_is_one(stored: Stored) {
    let server = Server::start(stored.layer(), |call: Call| async move {
        call.operation().begin_effect("charge").await.unwrap();
        busy_at_first(call).await
    })
    .await;
    let busy = server.send(charge(KEY)).await;
    busy.without(&["retry-after"]).assert_replayed_by(&server.send(charge(KEY)).await);
    assert_eq!((busy.status, server.runs()), (429, 1));
}

async fn a_meaning_counts_instead_of_the_status(stored: Stored) {
    // What the handler says of its first run, with this status, whether an effect had begun; whether a retry runs.
    let cases = [
        ("no-effect", Meaning::NoEffect, 503, false, true),
        ("final-429", Meaning::Final, 429, false, false),
        ("unknown", Meaning::Unknown, 500, true, true),
        ("verified", Meaning::VerifiedNoEffect, 503, true, true),
        // Not verified, it counts as unknown.
        ("claimed", Meaning::NoEffect, 503, true, true),
    ];
    for (key, meaning, status, effect, runs_again) in cases {
        let server = Server::start(stored.layer(), move |call: Call| async move {
            let operation = call.operation();
            if call.run == 1 {
                if effect {
                    operation.begin_effect("charge").await.unwrap();
                }
                return respond(status).extension(meaning).body(full("first")).unwrap();
            }
            let is_known = !matches!(operation.previous(), Previous::Unknown { .. });
            respond(201).body(full(if is_known { "nothing had happened" } else { "nobody knows" })).unwrap()
        })
        .await;
        let first = server.send(charge(key)).await;
        assert_eq!((first.status, &first.body[..]), (status, &b"first"[..]), "{key}");
        let again = server.send(charge(key)).await;
        if runs_again {
            let known = matches!(meaning, Meaning::VerifiedNoEffect) || !effect;
            assert_eq!(again.body, if known { "nothing had happened" } else { "nobody knows" }, "{key}");
            again.assert_replayed_by(&server.send(charge(key)).await);
        } else {
            first.assert_replayed_by(&again);
        }
        assert_eq!(server.runs(), 1 + usize::from(runs_again), "{key}");
    }
}

/// Panics in its first run, after `begin_effect` if the path says so.
async fn panicking_at_first(call: Call) -> http::Response<crate::server::Outgoing> {
    if call.head.uri.path() == "/marked" {
        call.operation().begin_effect("charge").await.unwrap();
    }
    assert!(call.run > 1, "canary: a bug in the handler");
    assert!(matches!(call.operation().previous(), Previous::Unknown { .. }));
    charged(call.run)
}

async fn a_panic_is_taken_over(stored: Stored) {
    let server = Server::start(stored.layer(), panicking_at_first).await;
    let panicked = server.send(post("/marked", KEY, BODY)).await;
    panicked.assert_problem(OutcomeUnknown, 500);
    assert_eq!(panicked.retry_after(), 1);
    let second = server.send(post("/marked", KEY, BODY)).await;
    assert_eq!((second.status, &second.body[..]), (201, &br#"{"id":"ch_2"}"#[..]));
    second.assert_replayed_by(&server.send(post("/marked", KEY, BODY)).await);
    assert_eq!(server.runs(), 2);
}

async fn a_panic_after_an_effect_is_left_to_a_person_if_that_is_the_policy(stored: Stored) {
    for (takeover, path, is_left) in [
        (Takeover::Resume, "/marked", false),
        (Takeover::OnlyBeforeEffect, "/unmarked", false),
        (Takeover::OnlyBeforeEffect, "/marked", true),
        (Takeover::Never, "/unmarked", true),
    ] {
        let layer = IdempotencyLayer::new(stored.engine().build().unwrap(), Global, takeover);
        let server = Server::start(layer, panicking_at_first).await;
        let key = format!("{KEY}-{takeover:?}{}", path.replace('/', "-"));
        server.send(post(path, &key, BODY)).await.assert_problem(OutcomeUnknown, 500);
        let again = server.send(post(path, &key, BODY)).await;
        if is_left {
            again.assert_problem(Abandoned, 503);
            assert_eq!(again.header("retry-after"), None, "it would not help");
        } else {
            assert_eq!((again.status, again.is_replay()), (201, false));
        }
        assert_eq!(server.runs(), if is_left { 1 } else { 2 }, "{takeover:?} {path}");
    }
}

/// hyper closes the connection of a service that fails, as it does without the layer.
async fn a_service_that_fails_is_taken_over(stored: Stored) {
    let server = Server::start_failing(stored.layer(), |call| async move {
        if call.run == 1 {
            return Err(BoxError::from("the database of the handler is gone"));
        }
        // What it had done by then, nobody knows.
        assert!(matches!(call.operation().previous(), Previous::Unknown { .. }));
        Ok(charged(call.run))
    })
    .await;
    let mut connection = server.connect().await;
    connection.try_begin(charge(KEY)).await.expect_err("the service failed");
    server.connection_closed().await;
    let second = server.send(charge(KEY)).await;
    assert_eq!(second.body, r#"{"id":"ch_2"}"#);
    second.assert_replayed_by(&server.send(charge(KEY)).await);
    assert_eq!(server.runs(), 2);
}

#[tokio::test]
async fn a_store_that_is_down_runs_nothing() {
    let down = FaultPlan::none().onward(CallKind::Any, 1, Injection::Refuse);
    let store = Arc::new(FaultStore::new(MemoryStore::default(), down));
    let server = Server::start(Stored::new(Arc::clone(&store)).layer(), |call| async move { charged(call.run) }).await;
    for answer in [server.send(charge(KEY)).await, server.send_h2(charge(KEY)).await] {
        answer.assert_problem(StoreUnavailable, 503);
        assert_eq!(answer.retry_after(), 1);
    }
    assert_eq!(server.runs(), 0);
    assert!(store.injected() > 0);
    store.set_plan(FaultPlan::none());
    let first = server.send(charge(KEY)).await;
    assert_eq!(first.status, 201);
    // Down again, it cannot say what it knows.
    store.set_plan(FaultPlan::none().onward(CallKind::Any, 1, Injection::LoseRequest));
    server.send(charge(KEY)).await.assert_problem(StoreUnavailable, 503);
    store.set_plan(FaultPlan::none());
    first.assert_replayed_by(&server.send(charge(KEY)).await);
    assert_eq!(server.runs(), 1);
}

#[tokio::test]
async fn a_postgres_that_is_down_runs_nothing() {
    let (stored, proxy) = Stored::behind_a_proxy().await;
    let server = Server::start(stored.layer(), |call| async move { charged(call.run) }).await;
    let before = server.send(charge("before")).await;
    proxy.refuse().await;
    proxy.reset_all();
    for key in ["before", KEY] {
        let answer = server.send(charge(key)).await;
        answer.assert_problem(StoreUnavailable, 503);
        assert_eq!(answer.retry_after(), 1);
    }
    assert_eq!(server.runs(), 1);
    proxy.admit().await;
    before.assert_replayed_by(&server.send(charge("before")).await);
    let first = server.send(charge(KEY)).await;
    first.assert_replayed_by(&server.send(charge(KEY)).await);
    assert_eq!(server.runs(), 2);
}

#[tokio::test]
async fn lost_replies_of_the_store_change_nothing_for_the_client() {
    for (event, number) in [(CallKind::Insert, 1), (CallKind::SwapOf(Event::Complete), 1), (CallKind::Any, 2)] {
        for injection in [Injection::LoseReply, Injection::LoseRequest, Injection::Refuse] {
            let store = FaultStore::new(MemoryStore::default(), FaultPlan::none().on(event, number, injection));
            let store = Arc::new(store);
            let stored = Stored::new(Arc::clone(&store));
            let server = Server::start(stored.layer(), |call| async move { charged(call.run) }).await;
            let first = server.send(charge(KEY)).await;
            assert_eq!((first.status, store.injected()), (201, 1), "{event:?} {injection:?}");
            first.assert_replayed_by(&server.send(charge(KEY)).await);
            assert_eq!(server.runs(), 1);
        }
    }
}

/// The handler's work is done: that it cannot be stored is no reason to keep its answer from the caller.
#[tokio::test]
async fn the_answer_is_given_even_if_it_cannot_be_stored() {
    let never = FaultPlan::none().onward(CallKind::SwapOf(Event::Complete), 1, Injection::Refuse);
    let store = Arc::new(FaultStore::new(MemoryStore::default(), never));
    let policy = Policy::builder().with_lease(2 * Policy::MIN_LEASE).build().unwrap();
    let engine = Engine::builder(Arc::clone(&store)).with_policy(policy).without_sweeper();
    // The lease ends a moment later by the store's clock than by the owner's.
    let layer = layer(engine).with_wait(Duration::from_secs(60));
    let server = Server::start(layer, |call: Call| async move {
        let attempt = call.operation().attempt();
        respond(201).header("x-attempt", attempt).body(full(call.operation().derived_key("charge"))).unwrap()
    })
    .await;
    let first = server.send(charge(KEY)).await;
    assert_eq!((first.status, first.header("x-attempt")), (201, Some("1")));
    store.set_plan(FaultPlan::none());
    // A retry takes over, and the provider recognises its key.
    let second = within(server.send(charge(KEY))).await;
    assert_eq!((second.status, second.header("x-attempt")), (201, Some("2")));
    assert_eq!(second.body, first.body);
    second.without(&["x-attempt"]).assert_replayed_by(&server.send(charge(KEY)).await);
}
