//! Where Redis is, and how much it may cost: [`CacheConfig`].

use idem_core::{Error, ErrorKind, WriteOutcome};
use redis::IntoConnectionInfo;
use redis::cluster::ClusterClient;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How a [`NegativeCache`](crate::NegativeCache) reaches Redis and what it may cost.
///
/// # Examples
///
/// ```
/// use idem_redis_cache::CacheConfig;
/// use std::time::Duration;
///
/// let config = CacheConfig::from_url("redis://127.0.0.1/")?.with_timeout(Duration::from_millis(10));
/// let cluster = CacheConfig::from_cluster_urls(["redis://10.0.0.1/", "redis://10.0.0.2/"])?;
/// # let _ = (config, cluster);
/// # Ok::<(), idem_core::Error>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct CacheConfig {
    pub(crate) servers: Servers,
    pub(crate) prefix: String,
    pub(crate) cap: Duration,
    pub(crate) settled_for: Duration,
    pub(crate) timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) max_in_flight: usize,
    pub(crate) failures: u32,
    pub(crate) longest_pause: Duration,
}

#[derive(Clone)]
pub(crate) enum Servers {
    One(redis::Client),
    Cluster(Arc<ClusterClient>),
}

impl CacheConfig {
    /// One server, by its URL: `redis://[user:password@]host[:port][/database]`, or `redis+unix:///path`. For
    /// `rediss://`, depend on the `redis` crate with the TLS of your choice.
    ///
    /// Nothing is connected yet: a Redis that is down when a process starts is no reason not to start.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Misconfigured`] if it is not such a URL. The error does not repeat it.
    pub fn from_url(url: impl IntoConnectionInfo) -> Result<Self, Error> {
        redis::Client::open(url).map(|client| Self::new(Servers::One(client))).map_err(|error| misconfigured(&error))
    }

    /// A cluster, by the URLs of some of its nodes.
    ///
    /// # Errors
    ///
    /// As [`from_url`](Self::from_url); and if there is none.
    pub fn from_cluster_urls<T: IntoConnectionInfo>(urls: impl IntoIterator<Item = T>) -> Result<Self, Error> {
        // What failed once is not tried again behind the caller's back: the store is asked instead.
        let client = ClusterClient::builder(urls).retries(1).build();
        client.map(|client| Self::new(Servers::Cluster(Arc::new(client)))).map_err(|error| misconfigured(&error))
    }

    fn new(servers: Servers) -> Self {
        Self {
            servers,
            prefix: "idem:".to_owned(),
            cap: Duration::from_secs(2),
            settled_for: Duration::from_secs(30),
            timeout: Duration::from_millis(20),
            connect_timeout: Duration::from_secs(1),
            max_in_flight: 1_024,
            failures: 3,
            longest_pause: Duration::from_secs(5),
        }
    }

    /// What the names of the entries begin with. Two stores that share a Redis need two of them: one's entries would
    /// delay the other's retries. Defaults to `idem:`.
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// For how long a busy entry lives, 1 ms to 1 min: the longest that anything wrong in Redis can delay a retry. The
    /// store is asked about a running key once in this time, by each process at the most. Best shorter than the lease:
    /// when an owner dies, its lease says who waits for how long. Defaults to 2 s.
    pub fn with_cap(mut self, cap: Duration) -> Self {
        self.cap = cap.clamp(Duration::from_millis(1), Duration::from_secs(60));
        self
    }

    /// For how long the mark of a settlement lives, 1 ms to 1 day. While it does, replays ask the store without
    /// announcing themselves, so that many at once do not stand in each other's way. Defaults to 30 s.
    pub fn with_settled_for(mut self, settled_for: Duration) -> Self {
        self.settled_for = settled_for.clamp(Duration::from_millis(1), Duration::from_secs(86_400));
        self
    }

    /// How long one call to Redis may take: the most that Redis can add to a claim. Defaults to 20 ms.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long connecting may take. No claim waits for it. Defaults to 1 s.
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How many calls to Redis may be under way at a time, at least 1; more go past it. Defaults to 1,024.
    pub fn with_max_in_flight(mut self, calls: usize) -> Self {
        self.max_in_flight = calls.clamp(1, tokio::sync::Semaphore::MAX_PERMITS);
        self
    }

    /// After how many failures in a row Redis is not asked for a while, at least 1. Defaults to 3.
    pub fn with_failures(mut self, failures: u32) -> Self {
        self.failures = failures.max(1);
        self
    }

    /// The longest pause before Redis is tried again; pauses begin at 100 ms and double. Defaults to 5 s.
    pub fn with_longest_pause(mut self, pause: Duration) -> Self {
        self.longest_pause = pause;
        self
    }
}

fn misconfigured(error: &redis::RedisError) -> Error {
    // Its text may hold the URL, and a password in it.
    let what =
        format!("the URL of Redis is not usable ({:?}): redis://[user:password@]host[:port][/database]", error.kind());
    Error::new(ErrorKind::Misconfigured, "configure", WriteOutcome::NotApplied).with_source(what)
}

impl fmt::Debug for CacheConfig {
    /// Without servers: a URL may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheConfig")
            .field("prefix", &self.prefix)
            .field("cap", &self.cap)
            .field("settled_for", &self.settled_for)
            .field("timeout", &self.timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("max_in_flight", &self.max_in_flight)
            .field("failures", &self.failures)
            .field("longest_pause", &self.longest_pause)
            .finish_non_exhaustive()
    }
}
