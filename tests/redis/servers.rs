//! Where Redis is in these tests, each place made once for this process; and the PostgreSQL behind.

use crate::support::{fresh_prefix, patient};
use idem_postgres::{PostgresConfig, PostgresStore};
use idem_redis_cache::CacheConfig;
use idem_tests::rig::postgres::{Database, Version, shared};
use idem_tests::rig::redis::{Cluster, Flavour, Redis};
use socket2::{Domain, Socket, Type};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::OnceCell;

/// A Redis of some kind, for all tests of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A healthy `redis-server`.
    Redis,
    /// A healthy `valkey-server`.
    Valkey,
    /// Three healthy nodes.
    Cluster,
    /// A server that crashes and comes back, several times a second.
    Crashing,
    /// A port on which nobody listens.
    Nowhere,
}

impl Place {
    /// Whether a call to Redis gets through.
    pub(crate) fn is_healthy(self) -> bool {
        matches!(self, Self::Redis | Self::Valkey | Self::Cluster)
    }

    /// A configuration with a prefix of its own.
    pub(crate) async fn config(self) -> CacheConfig {
        let config = match self {
            Self::Redis => patient(CacheConfig::from_url(redis().await.url()).unwrap()),
            Self::Valkey => patient(CacheConfig::from_url(valkey().await.url()).unwrap()),
            Self::Cluster => patient(CacheConfig::from_cluster_urls(cluster().await.urls()).unwrap()),
            // Looked for often, so that it is found while it is there.
            Self::Crashing => {
                CacheConfig::from_url(crashing().await.0.url()).unwrap().with_longest_pause(Duration::from_millis(20))
            }
            Self::Nowhere => CacheConfig::from_url(format!("redis://{}/", nowhere())).unwrap(),
        };
        config.with_prefix(fresh_prefix())
    }
}

pub(crate) async fn redis() -> &'static Redis {
    static SERVER: OnceCell<Redis> = OnceCell::const_new();
    SERVER.get_or_init(|| async { Redis::own(Flavour::Redis, &[]).await.unwrap() }).await
}

async fn valkey() -> &'static Redis {
    static SERVER: OnceCell<Redis> = OnceCell::const_new();
    SERVER.get_or_init(|| async { Redis::own(Flavour::Valkey, &[]).await.unwrap() }).await
}

pub(crate) async fn cluster() -> &'static Cluster {
    static SERVER: OnceCell<Cluster> = OnceCell::const_new();
    SERVER.get_or_init(|| Cluster::start(Flavour::Redis)).await
}

/// The server, and how often it has crashed.
pub(crate) async fn crashing() -> &'static (Arc<Redis>, Arc<AtomicU64>) {
    static SERVER: OnceCell<(Arc<Redis>, Arc<AtomicU64>)> = OnceCell::const_new();
    SERVER
        .get_or_init(|| async {
            let server = Arc::new(Redis::own(Flavour::Redis, &[]).await.unwrap());
            let crashes = Arc::new(AtomicU64::new(0));
            let shared = (Arc::clone(&server), Arc::clone(&crashes));
            // Beside every test, and until the process ends: a thread, since a runtime ends with its test.
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async move {
                    loop {
                        tokio::time::sleep(Duration::from_millis(150)).await;
                        server.crash().await;
                        crashes.fetch_add(1, Ordering::Relaxed);
                        server.start_again().await;
                    }
                });
            });
            shared
        })
        .await
}

/// An address that is taken, so that nobody else can, and where nobody listens.
pub(crate) fn nowhere() -> SocketAddr {
    static SOCKET: std::sync::OnceLock<Socket> = std::sync::OnceLock::new();
    let socket = SOCKET.get_or_init(|| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        socket
    });
    socket.local_addr().unwrap().as_socket().unwrap()
}

/// The machine's PostgreSQL: a database for all tests of this process. It does not wait for the disk, since none of
/// them is about what survives there.
pub(crate) async fn database() -> &'static Database {
    static DATABASE: OnceCell<Database> = OnceCell::const_new();
    DATABASE
        .get_or_init(|| async {
            let database = shared(Version::Any).await.database().await;
            database.execute(&format!("ALTER DATABASE {} SET synchronous_commit = off", database.name())).await;
            database
        })
        .await
}

/// The configuration of a store with a table of its own, which is there.
pub(crate) async fn postgres_config() -> PostgresConfig {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let table = format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let config = PostgresConfig::from_url(database().await.url()).unwrap().with_table(&table).unwrap();
    let config = config.allow_unsafe_durability(true);
    PostgresStore::migrate(&config).await.unwrap();
    config
}

pub(crate) async fn postgres() -> PostgresStore {
    PostgresStore::connect(postgres_config().await).await.unwrap()
}
