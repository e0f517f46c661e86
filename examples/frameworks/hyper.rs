//! idem around a plain hyper service: `cargo run --bin with-hyper`, then paste the line that it prints, twice.
//!
//! The answers are kept in this process; to share them among many, give the engine
//! `PostgresStore::connect(PostgresConfig::from_url(url)?).await?` of `idem-postgres`.
#![expect(clippy::print_stdout, reason = "a command-line program: what it prints is its answer")]

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use idem_core::{Engine, Operation, Takeover};
use idem_memory::MemoryStore;
use idem_tower::{Global, IdempotencyLayer, Problem};
use std::convert::Infallible;
use std::time::Duration;
use tokio::net::TcpListener;
use tower::{Layer, service_fn};
use uuid::Uuid;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::builder(MemoryStore::default()).build()?;
    // One scope for all callers, since this service knows only one. After an attempt that never came back, a retry may
    // run only if no charge had begun: this bank knows no keys.
    let layer = IdempotencyLayer::new(engine.clone(), Global, Takeover::OnlyBeforeEffect);
    let service = TowerToHyperService::new(layer.layer(service_fn(serve)));

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("Send this twice: the second answer is a replay. With another body it is refused.");
    println!("curl -i http://{}/charges -H 'Idempotency-Key: order-7' -d 'amount=1000'", listener.local_addr()?);
    let accept = async {
        loop {
            let (stream, _) = listener.accept().await?;
            let service = service.clone();
            tokio::spawn(async move {
                let server = auto::Builder::new(TokioExecutor::new());
                // A client that hangs up does not stop its charge: that runs in a task of its own.
                drop(server.serve_connection(TokioIo::new(stream), service).await);
            });
        }
    };
    tokio::select! {
        failed = accept => return failed,
        stop = tokio::signal::ctrl_c() => stop?,
    }
    // Waits for what still runs, and for its answers to be stored.
    engine.drain(Duration::from_secs(10)).await;
    Ok(())
}

/// The body is the one that the layer has read; what it lets through streams.
async fn serve(request: Request<idem_tower::Body<Incoming>>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    // There is one for each request that needs a key, which is every POST.
    let Some(operation) = head.extensions.get::<Operation>() else {
        return Ok(plain(StatusCode::METHOD_NOT_ALLOWED, "POST a charge\n"));
    };
    let Ok(body) = body.collect().await else {
        return Ok(plain(StatusCode::BAD_REQUEST, "the body broke off\n"));
    };
    Ok(charge(operation, &body.to_bytes()).await.unwrap_or_else(Problem::into_response))
}

async fn charge(operation: &Operation, order: &[u8]) -> Result<Response<Full<Bytes>>, Problem> {
    let Some(amount) = order.strip_prefix(b"amount=") else {
        // An answer too: a repeat of this request gets it without asking the handler again.
        return Ok(plain(StatusCode::BAD_REQUEST, "send `amount=1000`\n"));
    };
    operation.begin_effect("charge").await?;
    // ... the call to the bank ...
    let receipt = format!("charged {} as ch_{}\n", String::from_utf8_lossy(amount), Uuid::new_v4().simple());
    Ok(plain(StatusCode::CREATED, receipt))
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain"));
    response
}
