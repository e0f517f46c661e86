//! A negative cache in Redis or Valkey, in front of any [idem](idem_core) store.
//!
//! Retry storms hit one key thousands of times while its first attempt still runs, and every one of them asks the
//! database the same question. [`NegativeCache`] answers those from Redis: "somebody is working on it". It holds no
//! answers, grants nothing and is never believed about anything else, so no state of Redis can change who runs what.
//!
//! ```
//! use idem_core::Engine;
//! use idem_memory::MemoryStore;
//! use idem_redis_cache::{CacheConfig, NegativeCache};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), idem_core::Error> {
//! let records = MemoryStore::default(); // PostgresStore::connect(..).await?, where it pays
//! let store = NegativeCache::new(records, CacheConfig::from_url("redis://127.0.0.1/")?);
//! let engine = Engine::builder(store).build()?;
//! # let _ = engine;
//! # Ok(())
//! # }
//! ```
//!
//! # What it costs and what it saves
//!
//! A fresh claim asks Redis before it asks the store: one more round trip. A retry of a running key asks Redis instead
//! of the store. So it pays where many retries meet running keys, and costs where nearly every claim is fresh.
//!
//! # What Redis can do to you
//!
//! | Redis is | then |
//! |---|---|
//! | down, refusing, read-only or full | claims go past it; it is tried again in the background, at growing pauses |
//! | stalled | a claim waits for the [timeout](CacheConfig::with_timeout), the first few do; then claims go past it |
//! | flushed, restarted or restored from an old dump | the store is asked more often |
//! | poisoned | somebody who writes entries of ours delays retries, each by the [cap](CacheConfig::with_cap) at the most |
//!
//! Nothing else: no entry can grant a key, replay an answer or acknowledge anything. Entries hold a hash of scope and
//! key and the random id of an attempt.
//!
//! It needs a Tokio runtime. Redis 6.2 and later or Valkey; single-key commands only, so a cluster will do.

mod cache;
mod config;
mod link;
mod patience;
mod protocol;

pub use cache::{CacheCounts, NegativeCache};
pub use config::CacheConfig;
