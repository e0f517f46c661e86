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
//! # When it pays
//!
//! A fresh claim asks Redis before it asks the store, one round trip more, and so does a replay. A retry of a running
//! key asks Redis instead of the store, which hears of such a key about once in a [cap](CacheConfig::with_cap) from
//! each process, however many retries there are. So it pays where running keys are retried, and costs where nearly
//! every claim is fresh.
//!
//! PostgreSQL 15 and Redis 7.0 on one machine with two cores, in µs, p50 and p99, the medians of 30 rounds:
//!
//! | a claim of | without | with |
//! |---|---|---|
//! | a new key | 324, 486 | 418, 610 |
//! | a running key | 286, 394 | 113, 171 |
//! | a key that is done | 277, 389 | 375, 529 |
//! | a running key, 64 callers at once | 632, 1541 (87,000 a second) | 424, 936 (134,000 a second) |
//!
//! So in time it is even where 35 % of all claims meet a running key: a new one costs 94 µs more, a running one 173 µs
//! less. Where the way to the servers is what takes the time, it is even at a half: one round trip more, or one instead
//! of two. In statements it pays from the first retry on, and there the difference is larger: 2,000 retries of one
//! running key were 4,000 statements without it, by PostgreSQL's own count, some 700 where callers go together, and none
//! with it. If your database has
//! statements to spare, or running keys are seldom retried, leave it out: nothing else changes.
//!
//! Measure with your servers: [`NegativeCache::counts`] says how many claims were answered without the store. The
//! figures above are from `IDEM_PRICE_ROUNDS=30 cargo test --release -p idem-tests --test redis price -- --nocapture`,
//! and with `storm` in place of `price`.
//!
//! # What Redis can do to you
//!
//! | Redis is | then |
//! |---|---|
//! | down, refusing, read-only or full | claims go past it; it is tried again in the background, at growing pauses |
//! | stalled | a claim waits for the [timeout](CacheConfig::with_timeout), the first few do; then claims go past it |
//! | a cluster, one node of which is stalled | claims of its keys wait for the timeout, until the cluster has found out |
//! | flushed, restarted or restored from an old dump | the store is asked more often, or retries are delayed as below |
//! | poisoned | somebody who writes entries of ours delays retries, by the cap |
//!
//! The cap holds in two ways. An entry that lives for longer is not believed, and taken away. And if one follows the
//! other, a process that has said "in progress" of a key for the cap asks the store, whatever Redis says.
//!
//! Nothing else: no entry can grant a key, replay an answer or acknowledge anything. Entries hold a hash of scope and
//! key and the random id of an attempt; whoever can guess both can tell from the hash that somebody is at work on them.
//!
//! # What "in progress" means then
//!
//! Somebody has announced a claim, not that the store has it. So it may be said
//!
//! * of a key whose owner has died, for the cap: choose one that is shorter than the lease;
//! * of a key whose owner has just settled, for the cap, if Redis was not told or not in time;
//! * to a request that is not the one that the key was claimed with, while the key runs. It is refused afterwards.
//!
//! # What it needs
//!
//! A Tokio runtime. Redis 6.2 and later or Valkey; single-key commands only, so a cluster will do.

mod cache;
mod config;
mod link;
mod patience;
mod protocol;

pub use cache::{CacheCounts, NegativeCache};
pub use config::CacheConfig;
