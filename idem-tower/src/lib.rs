//! `Idempotency-Key` for any HTTP service, as one [tower](https://docs.rs/tower) layer over
//! [idem](idem_core).
//!
//! A client sends `POST /charges`, the answer never comes, the client retries with the same `Idempotency-Key`. Behind
//! this layer the first request runs; every repeat gets its answer, byte for byte, with `Idempotent-Replayed: true`;
//! nothing runs twice.
//!
//! # Add it to a service
//!
//! ```
//! use bytes::Bytes;
//! use http::{Request, Response};
//! use http_body_util::{BodyExt, Full};
//! # use idem_core::conformance::ReferenceStore;
//! use idem_core::{Engine, Takeover};
//! use idem_tower::{Global, IdempotencyLayer};
//! use std::convert::Infallible;
//! use tower::{Layer, Service, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let store = ReferenceStore::default();
//! let engine = Engine::builder(store).build()?;
//! let layer = IdempotencyLayer::new(
//!     engine,
//!     Global,           // whose key: everybody's, here; usually a closure that names the caller's account
//!     Takeover::Resume, // what if the first attempt never came back
//! );
//! let mut charges = layer.layer(service_fn(|request: Request<idem_tower::Body<Full<Bytes>>>| async move {
//!     let operation = request.extensions().get::<idem_core::Operation>();
//!     let key = operation.map(|operation| operation.derived_key("charge"));
//!     // ... charge the card at the provider, with that key ...
//!     Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(format!("charged under {key:?}"))))
//! }));
//!
//! let request = || {
//!     let body = Full::<Bytes>::from(r#"{"amount":1000}"#);
//!     Request::post("/charges").header("idempotency-key", "a3f7b9d1").body(body)
//! };
//! let first = charges.call(request()?).await?;
//! let again = charges.call(request()?).await?;
//! assert!(!first.headers().contains_key("idempotent-replayed"));
//! assert_eq!(again.headers()["idempotent-replayed"], "true");
//! assert_eq!(first.collect().await?.to_bytes(), again.collect().await?.to_bytes());
//! # Ok(())
//! # }
//! ```
//!
//! Examples for axum, plain hyper and tonic are in the repository.
//!
//! # What a client sees
//!
//! | it sent | it gets |
//! |---|---|
//! | a new key | the handler's answer, all of it |
//! | the same request again | the first answer, its [stored headers](IdempotencyLayer::with_stored_header), `Idempotent-Replayed: true` |
//! | the same while the first one runs | 409 and `Retry-After` |
//! | another request under the key | 422, which names the part that differs |
//! | no key where one is [needed](IdempotencyLayer::with_key_rule), or not one key | 400 |
//! | a body that is too long | 413 |
//! | a repeat of what was too long to store, or an event stream | 410 with the original status: it is done, and not run again |
//! | a repeat of what never came back and may not be run again | 503 of the type `abandoned` |
//! | anything while the store cannot be reached | 503; the handler did not run |
//!
//! What goes wrong is `application/problem+json` with a `type`, an `advice` (`retry`, `new-key`, `stop`) and a text
//! ([`Problem`]); a gRPC client gets a status instead. The client's side of it is [`idem_core::http`].
//!
//! # What a handler can say
//!
//! It finds its [`Operation`](idem_core::Operation) in the request's extensions: the derived keys for its own calls,
//! the mark before the first effect, checkpoints. What its response means for the key it says by a [`Meaning`] in the
//! response's extensions; by default 408, 425 and 429 mean that nothing happened and everything else is the answer,
//! a 500 too.
//!
//! # Limits
//!
//! * The body of a protected request is read and held in memory, up to a [limit](IdempotencyLayer::with_request_limit).
//! * An answer is held up to the engine's [limit](idem_core::EngineBuilder::with_response_limit); a longer one reaches
//!   its first caller whole, the rest of it unbuffered, and leaves a tombstone. An event stream is never held.
//! * A handler's answer reaches its caller when it is stored, so other streams that end within the limit arrive at
//!   their end.
//! * Keys are kept for the [policy's](idem_core::Policy) retention, 24 h unless changed: publish yours.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `axum` | no | [`Problem`] as an axum response |

mod body;
pub mod fingerprint;
mod grpc;
pub mod header;
mod keep;
mod layer;
mod meaning;
mod problem;
mod rule;
mod scope;
mod service;

pub use body::Body;
pub use layer::IdempotencyLayer;
pub use meaning::{Meaning, classify};
pub use problem::Problem;
pub use rule::{KeyRule, required_for_post_and_patch};
pub use scope::{Global, ScopeError, ScopeOf};
pub use service::{Idempotency, ResponseFuture};
