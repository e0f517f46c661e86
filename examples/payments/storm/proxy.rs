//! A proxy on a socket of its own that does what meshes are configured to do: when the connection to the service breaks after a POST was
//! sent, it sends the POST again. Here it breaks that connection itself. The client sees one request and one answer.

use super::roster::Roster;
use crate::AnyError;
use crate::fault::rng;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use rand::RngExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The longest that the service may take for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Proxy {
    upstream: Arc<Roster>,
    seed: u64,
    seen: AtomicU32,
    resent: AtomicU64,
}

impl Proxy {
    pub(crate) fn new(upstream: Arc<Roster>, seed: u64) -> Arc<Self> {
        Arc::new(Self { upstream, seed, seen: AtomicU32::new(0), resent: AtomicU64::new(0) })
    }

    pub(crate) fn router(self: &Arc<Self>) -> Router {
        Router::new().fallback(forward).with_state(Arc::clone(self))
    }

    /// How many requests it sent that no client knows of.
    pub(crate) fn resent(&self) -> u64 {
        self.resent.load(Ordering::Relaxed)
    }

    /// Sends one copy on a connection of its own, which is closed when this future is done or dropped.
    async fn send(&self, parts: &Parts, body: &Bytes) -> Result<Response, AnyError> {
        let stream = TcpStream::connect(self.upstream.next()).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let exchange = async {
            let request = Request::from_parts(parts.clone(), Full::new(body.clone()));
            let (parts, body) = sender.send_request(request).await?.into_parts();
            Ok::<_, hyper::Error>(Response::from_parts(parts, Body::from(body.collect().await?.to_bytes())))
        };
        tokio::select! {
            answer = exchange => Ok(answer?),
            broken = connection => {
                broken?;
                Err("the service closed the connection".into())
            }
        }
    }
}

async fn forward(State(proxy): State<Arc<Proxy>>, request: Request) -> Response {
    let bad_gateway = || (StatusCode::BAD_GATEWAY, "bad gateway\n").into_response();
    let (parts, body) = request.into_parts();
    let Ok(body) = body.collect().await else { return bad_gateway() };
    let body = body.to_bytes();
    let mut rng = rng(proxy.seed, "proxy", "", proxy.seen.fetch_add(1, Ordering::Relaxed));
    for _ in 0..rng.random_range(0..=2) {
        // The request is out, or most of it; whatever the answer, nobody reads it.
        let broken_after = Duration::from_micros(rng.random_range(300..15_000));
        let _ = timeout(broken_after, proxy.send(&parts, &body)).await;
        proxy.resent.fetch_add(1, Ordering::Relaxed);
    }
    match timeout(PATIENCE, proxy.send(&parts, &body)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) | Err(_) => bad_gateway(),
    }
}
