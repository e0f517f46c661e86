//! Idempotency keys that survive a crash.

pub mod claim;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod error;
pub mod fingerprint;
pub mod key;
pub mod machine;
pub mod policy;
pub mod record;
pub mod response;
pub mod store;
pub mod time;

pub use claim::Claim;
pub use error::{Error, ErrorKind, WriteOutcome};
pub use fingerprint::Fingerprint;
pub use key::{Identity, Key, MAX_NAME_BYTES, NameError, NameKind, NameProblem, Scope};
pub use policy::{Policy, PolicyBuilder, PolicyError, Takeover};
pub use record::{FencingToken, Owner, Record, RecoveryPoint, State, Status, Version};
pub use response::{DecodeResponseError, Response};
pub use store::Store;
pub use time::{Clock, LeaseLength, ManualClock, SystemClock, Timestamp};
