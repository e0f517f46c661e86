//! idem around a gRPC server: `cargo run --bin with-tonic` starts one and calls it.
//!
//! The key comes as the metadata `idempotency-key`. A replay has the first call's message and status, and the metadata
//! `idempotent-replayed`; a key of another call is the status `INVALID_ARGUMENT`. The answers are kept in this process;
//! to share them among many, give the engine `PostgresStore::connect(PostgresConfig::from_url(url)?).await?` of
//! `idem-postgres`.
#![expect(clippy::print_stdout, reason = "a command-line program: what it prints is its answer")]

use idem_core::{Engine, Operation, Takeover};
use idem_memory::MemoryStore;
use idem_tower::{Global, IdempotencyLayer, Meaning};
use payments::{Charge, Charges, Receipt};
use tokio::net::TcpListener;
use tonic::codegen::http;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};
use uuid::Uuid;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::builder(MemoryStore::default()).build()?;
    // A gRPC call is a POST: every one of them needs a key. A rule by path can exempt those that only read.
    let layer = IdempotencyLayer::new(engine, Global, Takeover::Resume).with_classifier(meaning);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let server = Server::builder().layer(layer).add_service(Charges);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));

    let channel = Channel::from_shared(url)?.connect().await?;
    let calls = [("order-7", 1000), ("order-7", 1000), ("order-7", 2000), ("order-8", 9000), ("order-8", 9000)];
    for (key, amount) in calls {
        let mut request = Request::new(Charge { amount });
        request.metadata_mut().insert("idempotency-key", key.parse()?);
        match payments::charge(&channel, request).await {
            Ok(response) => {
                let replayed = response.metadata().contains_key("idempotent-replayed");
                println!("{key} for {amount}: {}, replayed: {replayed}", response.get_ref().id);
            }
            Err(status) => println!("{key} for {amount}: {:?}, {}", status.code(), status.message()),
        }
    }
    Ok(())
}

/// What an answer means for its key. A [`Status`] cannot carry a [`Meaning`], so its code has to say it: all are answers
/// that a repeat gets too, but `UNAVAILABLE`, with which a retry may run.
fn meaning(head: &http::response::Parts, effect_may_have_begun: bool) -> Meaning {
    match head.headers.get(Status::GRPC_STATUS) {
        Some(code) if code == "14" && effect_may_have_begun => Meaning::Unknown,
        Some(code) if code == "14" => Meaning::NoEffect,
        _ => Meaning::Final,
    }
}

/// The method itself.
async fn charge(request: Request<Charge>) -> Result<Response<Receipt>, Status> {
    let operation = request.extensions().get::<Operation>();
    let operation = operation.ok_or_else(|| Status::internal("the server has no idempotency layer"))?;
    if request.get_ref().amount > 5000 && operation.attempt() == 1 {
        return Err(Status::unavailable("the bank is closed"));
    }
    operation.begin_effect("charge").await.map_err(|interrupted| Status::unavailable(interrupted.to_string()))?;
    // ... charge `request.get_ref().amount` at the provider, with this key ...
    let _provider_key = operation.derived_key("charge");
    Ok(Response::new(Receipt { id: format!("ch_{}", Uuid::new_v4().simple()) }))
}

/// What `tonic-prost-build` writes of a file, by hand and shorter, so that this example builds without `protoc`:
///
/// ```proto
/// package payments;
/// service Charges { rpc Create(Charge) returns (Receipt); }
/// message Charge { uint64 amount = 1; }
/// message Receipt { string id = 1; }
/// ```
mod payments {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use tonic::body::Body;
    use tonic::codegen::http;
    use tonic::server::NamedService;
    use tonic::transport::Channel;
    use tonic::{Request, Response, Status};
    use tonic_prost::ProstCodec;
    use tower::{Service, service_fn};

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Charge {
        #[prost(uint64, tag = "1")]
        pub(crate) amount: u64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Receipt {
        #[prost(string, tag = "1")]
        pub(crate) id: String,
    }

    /// The server's side.
    #[derive(Clone)]
    pub(crate) struct Charges;

    impl NamedService for Charges {
        const NAME: &'static str = "payments.Charges";
    }

    impl Service<http::Request<Body>> for Charges {
        type Response = http::Response<Body>;
        type Error = Infallible;
        type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: http::Request<Body>) -> Self::Future {
            Box::pin(async move {
                let mut server = tonic::server::Grpc::new(ProstCodec::default());
                Ok(match request.uri().path() {
                    "/payments.Charges/Create" => server.unary(service_fn(super::charge), request).await,
                    _ => Status::unimplemented("no such method").into_http(),
                })
            })
        }
    }

    /// The client's side.
    pub(crate) async fn charge(channel: &Channel, request: Request<Charge>) -> Result<Response<Receipt>, Status> {
        let mut client = tonic::client::Grpc::new(channel.clone());
        client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let path = http::uri::PathAndQuery::from_static("/payments.Charges/Create");
        client.unary(request, path, ProstCodec::default()).await
    }
}
