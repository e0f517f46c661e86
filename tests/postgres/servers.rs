//! The kinds of server that the tests run on, each shared by the tests of this process, and a table of its own for each test.

use idem_postgres::{PostgresConfig, PostgresStore};
use idem_tests::rig::pgbouncer::PgBouncer;
use idem_tests::rig::postgres::{Database, Postgres, Version, shared};
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::OnceCell;

/// A name for a table that no other test of this process uses.
pub(crate) fn fresh_table() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// How the server is reached.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Straight, with prepared statements.
    Direct,
    /// Straight, as the store speaks to a transaction pooler.
    SimpleQueries,
    /// Through PgBouncer in transaction mode.
    PgBouncer,
    /// Straight, every claim and completion in a group of at most so many.
    Together(usize),
    /// The same through PgBouncer.
    PgBouncerTogether(usize),
    /// Straight, as a role with this default isolation.
    Isolation(&'static str),
}

/// One database for all tests with one kind of server, reached in one way.
pub(crate) struct Shared {
    version: Version,
    way: Way,
    place: OnceCell<Place>,
}

struct Place {
    url: String,
    /// Nothing but kept: they stop when they are dropped, which for a static is never; the rig's watchdog ends them
    /// with the process.
    _database: Database,
    _pooler: Option<PgBouncer>,
}

impl Shared {
    pub(crate) const fn new(version: Version, way: Way) -> Self {
        Self { version, way, place: OnceCell::const_new() }
    }

    pub(crate) async fn server(&self) -> &'static Postgres {
        shared(self.version).await
    }

    /// The URL of the database.
    pub(crate) async fn url(&self) -> &str {
        &self.place.get_or_init(|| self.make()).await.url
    }

    async fn make(&self) -> Place {
        let server = self.server().await;
        let database = server.database().await;
        let (url, pooler) = match self.way {
            Way::Direct | Way::SimpleQueries | Way::Together(_) => (database.url().to_owned(), None),
            Way::PgBouncer | Way::PgBouncerTogether(_) => {
                let pooler = PgBouncer::start(server).await;
                (pooler.url_of(database.url()), Some(pooler))
            }
            Way::Isolation(isolation) => {
                let role = format!("role_{}_{}", database.name(), isolation.replace(' ', "_"));
                let url = server.role(&role, "secret", database.name()).await;
                database.execute(&format!("GRANT ALL ON DATABASE {} TO \"{role}\"", database.name())).await;
                server
                    .execute(&format!("ALTER ROLE \"{role}\" SET default_transaction_isolation = '{isolation}'"))
                    .await;
                (url, None)
            }
        };
        Place { url, _database: database, _pooler: pooler }
    }

    /// The name of a fresh table that is there.
    pub(crate) async fn table(&self) -> String {
        let table = fresh_table();
        let config = PostgresConfig::from_url(self.url().await).unwrap().with_table(&table).unwrap();
        PostgresStore::migrate(&config).await.unwrap();
        table
    }

    /// A configuration with a table of its own.
    pub(crate) async fn config(&self) -> PostgresConfig {
        let pooled = matches!(self.way, Way::SimpleQueries | Way::PgBouncer | Way::PgBouncerTogether(_));
        let config = PostgresConfig::from_url(self.url().await).unwrap().with_table(&fresh_table()).unwrap();
        let config = config.with_transaction_pooler(pooled);
        match self.way {
            Way::Together(limit) | Way::PgBouncerTogether(limit) => config.with_group_limit(limit).with_nobody_alone(),
            // The conformance of one statement a call; what concurrent callers do by default is in `groups.rs`.
            _ => config.with_group_limit(1),
        }
    }
}

/// A store with a fresh table.
pub(crate) async fn fresh(config: PostgresConfig) -> PostgresStore {
    PostgresStore::migrate(&config).await.unwrap();
    PostgresStore::connect(config).await.unwrap()
}

/// Every kind of server that the whole suites run on: a module each, with a `SHARED` in it, in which `$suite` is
/// written out.
macro_rules! on_every_server {
    (@list $suite:tt $($name:ident: ($version:literal, $way:ident $(($argument:literal))?),)*) => {
        $(on_every_server!(@one $suite $name $version $way $(($argument))?);)*
    };
    (@one {$($suite:tt)*} $name:ident $version:literal $way:ident $(($argument:literal))?) => {
        mod $name {
            use super::*;
            static SHARED: crate::servers::Shared = crate::servers::Shared::new(
                idem_tests::rig::postgres::Version::Major($version),
                crate::servers::Way::$way $(($argument))?,
            );
            $($suite)*
        }
    };
    ($($suite:tt)*) => {
        on_every_server!(@list {$($suite)*}
            pg15: (15, Direct), pg18: (18, Direct),
            pg15_pgbouncer: (15, PgBouncer), pg18_pgbouncer: (18, PgBouncer),
            pg15_serializable: (15, Isolation("serializable")), pg18_serializable: (18, Isolation("serializable")),
            pg15_repeatable_read: (15, Isolation("repeatable read")), pg18_repeatable_read: (18, Isolation("repeatable read")),
            pg18_simple_queries: (18, SimpleQueries),
            pg15_groups_of_256: (15, Together(256)), pg18_groups_of_256: (18, Together(256)),
            pg18_groups_of_1: (18, Together(1)), pg18_groups_of_2: (18, Together(2)),
            pg18_pgbouncer_groups: (18, PgBouncerTogether(256)),
        );
    };
}
pub(crate) use on_every_server;
