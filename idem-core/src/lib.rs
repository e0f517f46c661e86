//! Idempotency keys that survive a crash.

pub mod claim;
#[cfg(feature = "conformance")]
pub mod conformance;
mod derived_key;
#[cfg(feature = "engine")]
pub mod engine;
pub mod error;
pub mod fingerprint;
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
    Begun, Disposition, Drained, Engine, EngineBuilder, Failure, Interrupted, Lease, Operation, Outcome, PanicPayload,
    Recorded, Request, Settlement, StopReason,
};
pub use error::{Error, ErrorKind, WriteOutcome};
pub use fingerprint::Fingerprint;
pub use key::{Identity, Key, MAX_NAME_BYTES, NameError, NameKind, NameProblem, Scope};
pub use policy::{Policy, PolicyBuilder, PolicyError, Takeover};
pub use record::{FencingToken, Owner, Record, RecoveryPoint, State, Status, Version};
pub use response::{DecodeResponseError, Response};
pub use store::Store;
#[cfg(feature = "engine")]
pub use sweeper::{Sweeper, SweeperOptions};
pub use tag::{Tag, TagKey};
pub use time::{Clock, LeaseLength, ManualClock, SystemClock, Timestamp};
