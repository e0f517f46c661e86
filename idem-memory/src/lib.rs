//! The in-process back end of idem: for tests, and for services of one process.
//!
//! Everything is gone when the process ends, so a retry that reaches a restarted service runs again. For anything that
//! must survive that, or be shared by two processes, take `idem-postgres`. In every other respect this is a full back
//! end: it passes the same conformance suite, and it is the shortest correct reading of the [`Store`](idem_core::Store)
//! contract.
//!
//! # Claim a key, complete it, see the replay
//!
//! ```
//! use idem_core::machine::{Decision, Ownership, decide};
//! use idem_core::store::Inserted;
//! use idem_core::{Claim, Fingerprint, Identity, Key, Response, Scope, Store, Takeover};
//! use idem_memory::MemoryStore;
//! use std::time::Duration;
//!
//! # futures_util::future::FutureExt::now_or_never(async {
//! let store = MemoryStore::default();
//! let identity = Identity::new(Scope::new("acct_1")?, Key::new("order-7")?);
//! let fingerprint = Fingerprint::builder("POST /charges").json(br#"{"amount":100}"#).finish()?;
//!
//! let claim = Claim::new(identity.clone(), fingerprint.clone(), Takeover::OnlyBeforeEffect);
//! let Inserted::Won(_) = store.insert(&claim).await? else { panic!("the key is new") };
//! let record = store.load(&identity).await?.record.ok_or("it was just made")?;
//!
//! let owner = Ownership::new(*record);
//! let complete = owner.complete(Response::new(201, "charged"), Duration::ZERO, Duration::from_secs(3600));
//! store.swap(&identity, &owner.version(), &complete).await?;
//!
//! let retry = Claim::new(identity, fingerprint, Takeover::OnlyBeforeEffect);
//! let Inserted::Existing(record, clock) = store.insert(&retry).await? else { panic!("it is there") };
//! assert_eq!(decide(&record, &retry, clock), Decision::Replay(Response::new(201, "charged")));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).expect("a call to the store is ready at once")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Move time in a test
//!
//! A store reads one clock. Give it a [`ManualClock`](idem_core::ManualClock) and turn that: leases run out and records
//! expire without anybody sleeping.
//!
//! ```
//! use idem_core::{ManualClock, Timestamp};
//! use idem_memory::{MemoryConfig, MemoryStore};
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! let clock = ManualClock::new(Timestamp::from_micros(0));
//! let store = MemoryStore::new(MemoryConfig::default().with_clock(Arc::new(clock.clone())));
//! // ... claim with `&store` ...
//! clock.advance(Duration::from_secs(90));
//! // ... and now the lease of that claim is over.
//! # assert_eq!(store.records(), 0);
//! ```
//!
//! # Bound its memory
//!
//! A store holds at most [`max_records`](MemoryConfig::with_max_records) records and claims nothing more beyond
//! [`max_bytes`](MemoryConfig::with_max_bytes). When it is full it drops records that are settled and expired. When
//! there are none left it refuses *new* keys, with [`ErrorKind::Capacity`](idem_core::ErrorKind::Capacity) and a
//! [`CapacityError`] as the source, and goes on answering for the keys that it knows. It never evicts a claim that
//! somebody holds, an operation whose outcome is unknown, or an answer that has not expired: each of those would run
//! something twice. So run a purge now and then, and choose a retention that fits the traffic: a million records over
//! 24 hours are 11 new keys per second.
//!
//! # How it works
//!
//! Records lie in shards, each behind a mutex of its own; an identity is hashed once, which picks the shard and the
//! slot in it. A swap calls [`Change::apply`](idem_core::machine::Change::apply) under that mutex, and that is all.
//! Calls never wait for anything but a mutex, so their futures are ready at the first poll and need no runtime.

mod config;
mod error;
mod name;
mod room;
mod shard;
mod store;

pub use config::MemoryConfig;
pub use error::{CapacityError, Limit};
pub use store::MemoryStore;
