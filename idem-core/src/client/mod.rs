//! The client's side: one [key per operation](OperationKey), and [when to send it again](RetryRules).
//!
//! A server that remembers keys can only help a client that keeps its side of the bargain:
//!
//! 1. One key per operation, made *and kept* before the first attempt, so that the client still has it after a crash of
//!    its own.
//! 2. Every retry sends the same request with the same key. A new key is a new operation.
//! 3. Only what may be retried is: [`RetryRules`] says what, and after which pause.
//! 4. Nothing is sent again once the server may have forgotten the key, since it would run a second time. Then the
//!    operation is looked up by what it made: an order's number, a charge's metadata.
//!
//! There is no I/O here and no runtime: which HTTP client sends, and how it waits, is the caller's. `examples/client`
//! of the repository does all of it with reqwest.
//!
//! # Examples
//!
//! ```
//! use idem_core::client::{Attempt, Next, OperationKey, Progress, RetryRules};
//! use std::time::Duration;
//!
//! # struct Order { key: Option<String> }
//! # fn keep(order: &mut Order, key: &str) { order.key = Some(key.to_owned()) }
//! # fn post(_key_header: &str) -> Attempt { Attempt::answered(201) }
//! # let mut order = Order { key: None };
//! // Before the first attempt, in the transaction that writes the order.
//! let key = match &order.key {
//!     Some(kept) => OperationKey::from_kept(kept)?,
//!     None => {
//!         let key = OperationKey::mint();
//!         keep(&mut order, key.as_str());
//!         key
//!     }
//! };
//!
//! let rules = RetryRules::default();
//! let mut attempts = 0;
//! loop {
//!     let attempt = post(&key.to_string());
//!     attempts += 1;
//!     let elapsed = Duration::from_secs(1); // since the first attempt, by the caller's clock
//!     match rules.next(&attempt, Progress::new(attempts, elapsed)) {
//!         Next::Retry { after } => std::thread::sleep(after),
//!         Next::Stop { reason } => break println!("{reason}"),
//!     }
//! }
//! # Ok::<(), idem_core::client::OperationKeyError>(())
//! ```

mod attempt;
mod operation_key;
mod rules;

pub use attempt::Attempt;
pub use operation_key::{OperationKey, OperationKeyError};
pub use rules::{Next, NoRetry, Progress, RetryRules};
