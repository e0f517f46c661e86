//! Two tenants with the same keys and the same bodies never meet.

use crate::client::{BODY, charge, within};
use crate::server::{Call, Server, full, respond};
use crate::stores::Stored;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use idem_core::http::IDEMPOTENT_REPLAYED;
use idem_core::{Scope, Takeover};
use idem_tower::{IdempotencyLayer, ScopeError};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio::task::JoinSet;

const TENANTS: [&str; 2] = ["acct_1", "acct_2"];
/// Rounds under way at a time.
const AT_A_TIME: usize = 16;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_never_meet_in_memory() {
    never_meet(&Stored::in_memory(), 10_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_never_meet_in_postgres() {
    never_meet(&Stored::in_postgres().await, 1_000).await;
}

/// The account behind a credential, as an authentication in front of the layer would have left it.
fn account(head: &Parts) -> Result<&'static str, ScopeError> {
    let credential = head.headers.get("authorization").map(HeaderValue::as_bytes);
    let tenant = TENANTS.into_iter().find(|tenant| credential == Some(format!("Bearer {tenant}").as_bytes()));
    tenant.ok_or_else(|| ScopeError::unauthorized("send a credential"))
}

/// How often each tenant's handler ran under each key.
type Runs = Arc<Mutex<HashMap<(&'static str, String), usize>>>;

/// Each round is one key, which both tenants send several times at once, in an order and with pauses by the seed.
#[expect(clippy::print_stderr, reason = "a failure is found again by its seed")]
async fn never_meet(stored: &Stored, rounds: usize) {
    let seed: u64 = rand::random();
    eprintln!("seed {seed}");
    let scope = |head: &Parts| Ok(Scope::new(account(head)?)?);
    let layer = IdempotencyLayer::new(stored.engine().build().unwrap(), scope, Takeover::Resume);
    let runs = Runs::default();
    let counted = Arc::clone(&runs);
    let server = Server::start(layer, move |call: Call| {
        let tenant = account(&call.head).unwrap();
        let key = call.head.headers["idempotency-key"].to_str().unwrap().to_owned();
        *counted.lock().unwrap().entry((tenant, key.clone())).or_default() += 1;
        let pauses = StdRng::seed_from_u64(seed ^ call.run as u64).random_range(0..4);
        async move {
            for _ in 0..pauses {
                tokio::task::yield_now().await;
            }
            respond(201).body(full(format!("{tenant} {key}"))).unwrap()
        }
    })
    .await;

    let client = Client::builder(TokioExecutor::new()).build_http();
    let mut busy = 0;
    let mut under_way = JoinSet::new();
    for number in 0..rounds {
        if under_way.len() == AT_A_TIME {
            busy += under_way.join_next().await.unwrap().unwrap();
        }
        let url = server.url("/charges").parse().unwrap();
        under_way.spawn(round(
            client.clone(),
            url,
            format!("key-{number}"),
            StdRng::seed_from_u64(seed ^ number as u64),
        ));
    }
    while let Some(done) = under_way.join_next().await {
        busy += done.unwrap();
    }
    eprintln!("{busy} requests came while another one of the same tenant ran");
    assert!(busy > 0, "nothing was interleaved");
    let runs = runs.lock().unwrap();
    assert_eq!(runs.len(), 2 * rounds);
    assert!(runs.values().all(|count| *count == 1), "{:?}", runs.iter().find(|(_, count)| **count > 1));
    assert_eq!(server.runs(), 2 * rounds);
}

/// Both tenants send a key once or twice, all at once, and once more in the end. Returns how often one was told to come
/// again.
async fn round(client: Client<HttpConnector, Full<Bytes>>, url: Uri, key: String, mut rng: StdRng) -> usize {
    let mut order: Vec<_> = TENANTS.into_iter().flat_map(|tenant| vec![tenant; rng.random_range(1..=2)]).collect();
    order.shuffle(&mut rng);
    let mut senders = JoinSet::new();
    for tenant in order {
        let request = request(&url, &key, tenant);
        let (client, expected, pauses) = (client.clone(), format!("{tenant} {key}"), rng.random_range(0..3));
        senders.spawn(async move {
            for _ in 0..pauses {
                tokio::task::yield_now().await;
            }
            let (status, _, body) = send(&client, request).await;
            assert!(status == 409 || status == 201 && body == expected, "{status} {body:?} for {expected}");
            usize::from(status == 409)
        });
    }
    let busy = senders.join_all().await.into_iter().sum();
    for tenant in TENANTS {
        let (status, is_replay, body) = send(&client, request(&url, &key, tenant)).await;
        assert_eq!((status, is_replay, body), (201, true, Bytes::from(format!("{tenant} {key}"))));
    }
    busy
}

fn request(url: &Uri, key: &str, tenant: &str) -> Request<Full<Bytes>> {
    let mut request = charge(key);
    assert!(!BODY.contains(tenant));
    *request.uri_mut() = url.clone();
    let credential = HeaderValue::try_from(format!("Bearer {tenant}")).unwrap();
    request.headers_mut().insert("authorization", credential);
    request
}

async fn send(client: &Client<HttpConnector, Full<Bytes>>, request: Request<Full<Bytes>>) -> (u16, bool, Bytes) {
    let response = within(client.request(request)).await.unwrap();
    let (status, is_replay) = (response.status().as_u16(), response.headers().contains_key(IDEMPOTENT_REPLAYED));
    (status, is_replay, within(response.collect()).await.unwrap().to_bytes())
}
