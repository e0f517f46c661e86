//! The cache: [`NegativeCache`].

use crate::config::CacheConfig;
use crate::link::{Link, Miss, now};
use crate::patience::Patience;
use crate::protocol::{self, READ_LENGTH, Seen};
use async_trait::async_trait;
use idem_core::machine::{Change, Decision, decide};
use idem_core::store::{Erase, Erased, Inserted, Loaded, PurgeOptions, Purged, Stats, StuckPage, StuckQuery, Swapped};
use idem_core::{Claim, Error, Identity, Record, Scope, Status, Store, Timestamp, Version};
use redis::{Pipeline, RedisResult, Value};
use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

/// When a caller should ask again at the latest, however long the entry lives yet: the first attempt may be done
/// sooner.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// A store with a negative cache in Redis in front: it answers retries of what still runs, so that the store sees one
/// of them in a while and not all.
///
/// Whatever Redis says or does not say, the same operations run and the same answers come back: it can only delay, by
/// answering "in progress" where the store would have said something else, and never for longer than the
/// [cap](CacheConfig::with_cap).
///
/// Cheap to clone if the store is.
///
/// # Examples
///
/// ```
/// use idem_core::Store;
/// use idem_memory::MemoryStore;
/// use idem_redis_cache::{CacheConfig, NegativeCache};
/// use std::sync::Arc;
///
/// let records = Arc::new(MemoryStore::default());
/// let store = NegativeCache::new(records, CacheConfig::from_url("redis://127.0.0.1/")?);
/// # fn is_store(_: &impl Store) {}
/// # is_store(&store);
/// # Ok::<(), idem_core::Error>(())
/// ```
#[derive(Clone)]
pub struct NegativeCache<S> {
    inner: S,
    link: Link,
    config: CacheConfig,
    counters: Arc<Counters>,
    patience: Arc<Mutex<Patience>>,
}

#[derive(Default)]
struct Counters {
    busy: AtomicU64,
    asked: AtomicU64,
    past: AtomicU64,
    failed: AtomicU64,
    strange: AtomicU64,
}

/// What the cache has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheCounts {
    /// Claims that were answered "in progress" without the store.
    pub busy: u64,
    /// Claims that Redis sent on to the store.
    pub asked: u64,
    /// Claims that went past Redis, since it is left alone for a while.
    pub past: u64,
    /// Calls to Redis that failed or took too long.
    pub failed: u64,
    /// Entries that nobody writes.
    pub strange: u64,
}

impl<S: Store> NegativeCache<S> {
    /// Puts the cache in front of `inner`. Redis is looked for when the first claim comes.
    pub fn new(inner: S, config: CacheConfig) -> Self {
        Self { inner, link: Link::new(config.clone()), config, counters: Arc::default(), patience: Arc::default() }
    }

    /// The store behind.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// What the cache has done so far. Where `failed` and `past` rise, the store does the work alone.
    #[must_use]
    pub fn counts(&self) -> CacheCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CacheCounts {
            busy: count(&self.counters.busy),
            asked: count(&self.counters.asked),
            past: count(&self.counters.past),
            failed: count(&self.counters.failed),
            strange: count(&self.counters.strange),
        }
    }

    /// Whether Redis is asked at the moment; if not, it is left alone for a while.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.link.is_up()
    }

    /// Announces a claim, and says what somebody else has announced before.
    async fn announce(&self, name: &str, claim: &Claim) -> Seen {
        let mut pipeline = redis::pipe();
        let cap = milliseconds(self.config.cap);
        pipeline.cmd("SET").arg(name).arg(&protocol::busy(claim.owner())).arg("NX").arg("PX").arg(cap);
        // Not `GET`: what somebody else wrote may be of any size.
        pipeline.cmd("GETRANGE").arg(name).arg(0).arg(READ_LENGTH - 1);
        pipeline.cmd("PTTL").arg(name);
        let counters = &self.counters;
        let answers = match self.link.ask(pipeline).await {
            Ok(answers) => answers,
            Err(miss) => {
                counters.count_miss(miss);
                counters.past.fetch_add(1, Ordering::Relaxed);
                return Seen::Ask;
            }
        };
        let seen = match <[RedisResult<Value>; 3]>::try_from(answers) {
            Ok([_, Ok(Value::BulkString(value)), Ok(Value::Int(lives))]) => {
                protocol::read(&value, lives, claim.owner(), self.config.cap)
            }
            Ok(_) | Err(_) => Seen::Strange,
        };
        let seen = match seen {
            // Not one entry: one after the other.
            Seen::Busy(_) if self.patience().is_over(name, now(), self.config.cap) => Seen::Ask,
            Seen::Busy(_) => seen,
            Seen::Ask | Seen::Strange => {
                self.patience().asked(name);
                seen
            }
        };
        let counter = match seen {
            Seen::Busy(_) => &counters.busy,
            Seen::Ask => &counters.asked,
            Seen::Strange => &counters.strange,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        seen
    }

    fn patience(&self) -> MutexGuard<'_, Patience> {
        // Nothing panics while it is held.
        self.patience.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the store, and takes an announcement back that turned out wrong.
    async fn ask_store(&self, name: &str, claim: &Claim) -> Result<Inserted, Error> {
        let inserted = self.inner.insert(claim).await;
        match &inserted {
            // The announcement has come true.
            Ok(Inserted::Won(_)) => {}
            Ok(Inserted::Existing(record, clock)) => match found(record, claim, *clock) {
                Found::Running => {}
                Found::Completed => self.mark_settled(name).await,
                Found::Standing => self.forget(name).await,
            },
            // Nobody knows more than before. Whoever comes next finds out for itself.
            Ok(Inserted::Busy { .. }) | Err(_) => self.forget(name).await,
        }
        inserted
    }

    /// Tells everybody that nobody works on it and there is an answer.
    async fn mark_settled(&self, name: &str) {
        let mut pipeline = redis::pipe();
        let lives = milliseconds(self.config.settled_for);
        pipeline.cmd("SET").arg(name).arg(&protocol::settled()).arg("PX").arg(lives);
        self.tell(pipeline).await;
    }

    /// Takes an entry away.
    async fn forget(&self, name: &str) {
        let mut pipeline = redis::pipe();
        pipeline.cmd("DEL").arg(name);
        self.tell(pipeline).await;
    }

    /// Sends what nobody waits for. It is on its way when this returns, so that it goes before what this process sends
    /// next.
    async fn tell(&self, pipeline: Pipeline) {
        let (link, counters) = (self.link.clone(), Arc::clone(&self.counters));
        let mut telling = Box::pin(async move {
            if let Err(miss) = link.ask(pipeline).await {
                counters.count_miss(miss);
            }
        });
        let told = poll_fn(|context| Poll::Ready(telling.as_mut().poll(context).is_ready())).await;
        if !told {
            tokio::spawn(telling);
        }
    }
}

impl Counters {
    fn count_miss(&self, miss: Miss) {
        match miss {
            Miss::Down => {}
            Miss::Failed => {
                self.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// What a claim found, as far as it matters to others.
enum Found {
    /// Somebody works on it, or the claimer is about to.
    Running,
    /// It is done, and there is an answer.
    Completed,
    /// Nobody works on it, and this claimer will not.
    Standing,
}

fn found(record: &Record, claim: &Claim, clock: Timestamp) -> Found {
    let own = matches!(decide(record, claim, clock), Decision::Acquired | Decision::Swap { .. });
    match record.status() {
        _ if own || record.is_live(clock) => Found::Running,
        Status::Completed => Found::Completed,
        Status::InProgress | Status::Failed => Found::Standing,
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<S: Store> Store for NegativeCache<S> {
    async fn insert(&self, claim: &Claim) -> Result<Inserted, Error> {
        // A claimer whose answer was lost would find its own row busy.
        if claim.was_asked_before() {
            return self.inner.insert(claim).await;
        }
        let name = protocol::name(&self.config.prefix, claim.identity());
        match self.announce(&name, claim).await {
            Seen::Busy(lives) => return Ok(Inserted::Busy { retry_after: lives.min(ASK_AGAIN) }),
            Seen::Ask => {}
            Seen::Strange => self.forget(&name).await,
        }
        self.ask_store(&name, claim).await
    }

    async fn swap(&self, identity: &Identity, expected: &Version, change: &Change) -> Result<Swapped, Error> {
        let swapped = self.inner.swap(identity, expected, change).await;
        let name = || protocol::name(&self.config.prefix, identity);
        match (&swapped, change) {
            (Ok(Swapped::Applied), Change::Complete { .. }) => self.mark_settled(&name()).await,
            (Ok(Swapped::Applied), Change::Fail { .. } | Change::Abandon) => self.forget(&name()).await,
            // It may have been applied.
            (Err(_), Change::Complete { .. } | Change::Fail { .. } | Change::Abandon) => self.forget(&name()).await,
            (Ok(Swapped::Applied | Swapped::Lost(..)) | Err(_), _) => {}
        }
        swapped
    }

    async fn load(&self, identity: &Identity) -> Result<Loaded, Error> {
        self.inner.load(identity).await
    }

    async fn purge(&self, options: &PurgeOptions) -> Result<Purged, Error> {
        self.inner.purge(options).await
    }

    async fn stuck(&self, query: &StuckQuery) -> Result<StuckPage, Error> {
        self.inner.stuck(query).await
    }

    async fn stats(&self) -> Result<Stats, Error> {
        self.inner.stats().await
    }

    async fn erase(&self, scope: &Scope, which: Erase) -> Result<Erased, Error> {
        self.inner.erase(scope, which).await
    }
}

impl<S: fmt::Debug> fmt::Debug for NegativeCache<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NegativeCache")
            .field("inner", &self.inner)
            .field("link", &self.link)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
