//! Idempotency keys that survive a crash.
//!
//! A client sends `POST /charges`, the answer never comes, the client retries. Did the first one succeed? idem makes
//! the retry safe: a key names the operation, the first attempt runs, every repeat gets the first answer, verbatim, and
//! nothing runs twice.
//!
//! This crate holds the rules: names, fingerprints, the state machine as pure functions, the contract of a store, and
//! the engine that runs a handler under a lease. Rows live in a back end: `idem-memory` for tests and one process, a
//! database for the rest.
//!
//! # Run an operation once
//!
//! ```
//! # use idem_core::conformance::ReferenceStore;
//! use idem_core::{Engine, Failure, Fingerprint, Key, Outcome, Request, Response, Scope, Takeover};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let store = ReferenceStore::default();
//! let engine = Engine::builder(store).build()?;
//!
//! let body = br#"{"amount":1000,"currency":"usd"}"#;
//! let request = Request::new(
//!     Scope::new("acct_42")?,                                              // whose key: required, always
//!     Key::new("a3f7b9d1-1c8c-4f8c-9e6e-1234abcd5678")?,                   // made by the client, once per operation
//!     Fingerprint::builder("POST /v1/charges").json(body).finish()?,       // what the request looks like
//!     Takeover::Resume,                                                    // what if the first attempt never came back
//! );
//! let outcome = engine
//!     .execute(request, |operation| async move {
//!         operation.begin_effect("charge").await?;
//!         // provider.charge(amount, operation.derived_key("charge")).await ...
//!         Ok::<_, Failure<String>>(Response::new(201, r#"{"id":"ch_1"}"#))
//!     })
//!     .await?;
//!
//! match outcome {
//!     Outcome::Executed { response, .. } | Outcome::Replayed(response) => assert_eq!(response.code(), Some(201)),
//!     Outcome::InProgress { retry_after, .. } => println!("409, retry after {retry_after:?}"),
//!     Outcome::Mismatch { part } => println!("422, another {part:?}"),
//!     Outcome::Abandoned { reason } => println!("503, somebody has to look: {reason}"),
//!     Outcome::Fenced { .. } | Outcome::Failed { .. } | Outcome::Panicked(_) | Outcome::Stopped { .. } => println!("503, retry"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Say what a failure means
//!
//! Whether a retry may run depends on whether anything may have happened, so a handler says it in its return type:
//! [`Failure`]. Mark the first external call with [`Operation::begin_effect`]; from there on `NoEffect` has to be
//! verified.
//!
//! # Survive a crash in the middle
//!
//! While a handler runs, its lease is renewed. If its process dies, the lease runs out, by the store's clock, and the
//! next request may take over: as its [`Takeover`] policy says, told [what is known](machine::Previous) and from the
//! last [checkpoint](Operation::checkpoint). Send [`Operation::derived_key`] with every external call, and the provider
//! recognises the repetition. The late owner, should it wake up, is fenced: what it wanted to store changes nothing.
//!
//! # Make several calls
//!
//! [`Operation::steps`] gives a handler [`Steps`]: each is committed with its result, and whoever takes over goes on behind
//! the last one.
//!
//! # Take the steps by hand, send at most once, return values
//!
//! [`Engine::begin`] gives a [`Lease`]; [`Engine::execute_at_most_once`] records first and acts afterwards;
//! [`Engine::execute_typed`] stores a value instead of a response; [`Engine::execute_inline`] runs handlers that
//! borrow.
//!
//! # Commit with your own work
//!
//! [`Operation::completion`] hands the completion to a transaction of the caller's: business rows and answer commit
//! together, or neither.
//!
//! # Find out what became of the rest
//!
//! What no policy runs again waits for somebody who looks: [`Engine::spawn_reconciler`].
//!
//! # Stop a process
//!
//! [`Engine::drain`] stops claiming, waits for what runs, and gives up the rest so that others can take over at once.
//!
//! # Be a client
//!
//! One key per operation, kept before the first attempt, and rules for sending it again: see [`client`].
//!
//! # Write a back end
//!
//! Implement [`Store`], a few primitives without a decision in them, and run the [conformance suite](conformance) over
//! it. Depend on this crate with `default-features = false`: then it has no runtime, no driver and no I/O.
//!
//! # What is promised, and what is not
//!
//! See [`docs::promises`]. In one sentence: one owner, one recorded answer, and a late owner is told so; but an
//! *effect* happens once only if the system that makes it checks the derived key or the fencing token, or if no owner
//! outlives its lease.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `engine` | yes | [`Engine`] and [`Sweeper`]; needs Tokio |
//! | `conformance` | no | the [conformance suite](conformance), its reference store and its fault stores; for dev-dependencies |

pub mod claim;
pub mod client;
#[cfg(feature = "conformance")]
pub mod conformance;
mod derived_key;
#[cfg(feature = "engine")]
pub mod docs;
#[cfg(feature = "engine")]
pub mod engine;
pub mod error;
pub mod fingerprint;
pub mod http;
pub mod key;
pub mod machine;
pub mod policy;
pub mod record;
pub mod response;
pub mod store;
#[cfg(feature = "engine")]
mod sweeper;
pub mod tag;
pub mod time;

pub use claim::Claim;
#[cfg(feature = "engine")]
pub use engine::{
    Begun, Disposition, Drained, Engine, EngineBuilder, Failure, Finding, Interrupted, Lease, Operation, Outcome,
    PanicPayload, ReconcileOptions, Reconciled, Reconciler, Recorded, Request, Settlement, Steps, StopReason,
    Unresolved,
};
pub use error::{Error, ErrorKind, WriteOutcome};
pub use fingerprint::Fingerprint;
pub use key::{Identity, Key, MAX_NAME_BYTES, NameError, NameKind, NameProblem, Scope};
pub use machine::{Completion, NotCompleted};
pub use policy::{Policy, PolicyBuilder, PolicyError, Takeover};
pub use record::{FencingToken, Owner, Record, RecoveryPoint, State, Status, Version};
pub use response::{DecodeResponseError, Response};
pub use store::Store;
#[cfg(feature = "engine")]
pub use sweeper::{Sweeper, SweeperOptions};
pub use tag::{Tag, TagKey};
pub use time::{Clock, LeaseLength, ManualClock, SystemClock, Timestamp};
