//! The service under test: a handler that a test writes, the layer around it, a port of its own.

use crate::client::within;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Body, Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use idem_core::Operation;
use idem_tower::IdempotencyLayer;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};
use tower::{Layer, Service, service_fn};

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// The body of a handler's response.
pub(crate) type Outgoing = UnsyncBoxBody<Bytes, BoxError>;

/// One run of a handler.
pub(crate) struct Call {
    pub(crate) head: http::request::Parts,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
    /// Which run of this server it is, from 1.
    pub(crate) run: usize,
}

impl Call {
    /// There is one behind the layer.
    pub(crate) fn operation(&self) -> Operation {
        self.head.extensions.get::<Operation>().expect("the request is protected").clone()
    }
}

/// A server on a port of its own; dropping it ends its connections.
pub(crate) struct Server {
    address: SocketAddr,
    runs: Arc<AtomicUsize>,
    closed: Arc<Semaphore>,
    acceptor: AbortHandle,
}

impl Server {
    /// `handle` behind `layer`.
    pub(crate) async fn start<H, F>(layer: IdempotencyLayer, handle: H) -> Self
    where
        H: Fn(Call) -> F + Send + Sync + 'static,
        F: Future<Output = Response<Outgoing>> + Send + 'static,
    {
        Self::start_failing(layer, move |call| {
            let response = handle(call);
            async move { Ok::<_, Infallible>(response.await) }
        })
        .await
    }

    /// The same for a service that has errors.
    pub(crate) async fn start_failing<H, F, E>(layer: IdempotencyLayer, handle: H) -> Self
    where
        H: Fn(Call) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Response<Outgoing>, E>> + Send + 'static,
        E: Into<BoxError> + Send + 'static,
    {
        let (handle, runs) = (Arc::new(handle), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&runs);
        let service = service_fn(move |request: Request<idem_tower::Body<Incoming>>| {
            let (handle, counted) = (Arc::clone(&handle), Arc::clone(&counted));
            async move {
                let run = counted.fetch_add(1, Ordering::SeqCst) + 1;
                let (head, body) = request.into_parts();
                let body = body.collect().await.expect("the layer has read it");
                let trailers = body.trailers().cloned();
                handle(Call { head, body: body.to_bytes(), trailers, run }).await
            }
        });
        let mut server = Self::of(layer.layer(service)).await;
        server.runs = runs;
        server
    }

    /// Any service.
    pub(crate) async fn of<S, B>(service: S) -> Self
    where
        S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Into<BoxError>,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let closed = Arc::new(Semaphore::new(0));
        let closing = Arc::clone(&closed);
        let accept = async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (service, closing) = (TowerToHyperService::new(service.clone()), Arc::clone(&closing));
                connections.spawn(async move {
                    let server = auto::Builder::new(TokioExecutor::new());
                    // How it ended its client sees.
                    let _ = server.serve_connection(TokioIo::new(stream), service).await;
                    closing.add_permits(1);
                });
            }
        };
        let acceptor = tokio::spawn(accept).abort_handle();
        Self { address, runs: Arc::default(), closed, acceptor }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// How often the handler has begun.
    pub(crate) fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    /// Waits until the server is done with one more connection.
    pub(crate) async fn connection_closed(&self) {
        within(self.closed.acquire()).await.unwrap().forget();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.acceptor.abort();
    }
}

/// Where handlers wait until the test lets one of them go on.
#[derive(Clone)]
pub(crate) struct Gate {
    reached: Arc<Semaphore>,
    open: Arc<Semaphore>,
}

impl Gate {
    pub(crate) fn new() -> Self {
        let closed = || Arc::new(Semaphore::new(0));
        Self { reached: closed(), open: closed() }
    }

    /// The handler's side.
    pub(crate) async fn pass(&self) {
        self.reached.add_permits(1);
        self.open.acquire().await.unwrap().forget();
    }

    /// Waits until one more handler is at the gate.
    pub(crate) async fn reached(&self) {
        within(self.reached.acquire()).await.unwrap().forget();
    }

    /// Lets one handler pass, now or when it comes.
    pub(crate) fn open(&self) {
        self.open.add_permits(1);
    }
}

/// A response to be.
pub(crate) fn respond(status: u16) -> http::response::Builder {
    Response::builder().status(status)
}

/// A body of one piece.
pub(crate) fn full(body: impl Into<Bytes>) -> Outgoing {
    boxed(Full::new(body.into()))
}

/// Any body.
pub(crate) fn boxed<B>(body: B) -> Outgoing
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    body.map_err(Into::into).boxed_unsync()
}

/// A body with trailers, which says its length to nobody: a server drops the trailers of one that does.
pub(crate) fn trailed(body: impl Into<Bytes>, trailers: HeaderMap) -> Outgoing {
    let frames = [Frame::data(body.into()), Frame::trailers(trailers)].map(Ok::<_, Infallible>);
    boxed(StreamBody::new(futures_util::stream::iter(frames)))
}

/// An answer that tells which run made it.
pub(crate) fn charged(run: usize) -> Response<Outgoing> {
    respond(201)
        .header("content-type", "application/json")
        .header("location", format!("/charges/{run}"))
        .body(full(format!(r#"{{"id":"ch_{run}"}}"#)))
        .unwrap()
}
