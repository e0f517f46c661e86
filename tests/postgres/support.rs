//! A store in a table of its own, on a server that the tests of this process share.

use idem_postgres::{PostgresConfig, PostgresStore};
use idem_tests::rig::postgres::{Database, Postgres, Version, shared};
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::OnceCell;

/// A name for a table that no other test of this process uses.
pub(crate) fn fresh_table() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// One database for all tests with one kind of server.
pub(crate) struct Shared {
    version: Version,
    /// The isolation that the role of the tests has by default.
    isolation: Option<&'static str>,
    database: OnceCell<(Database, String)>,
}

impl Shared {
    pub(crate) const fn new(version: Version, isolation: Option<&'static str>) -> Self {
        Self { version, isolation, database: OnceCell::const_new() }
    }

    pub(crate) async fn server(&self) -> &'static Postgres {
        shared(self.version).await
    }

    /// The URL of the database, under the role with this isolation.
    pub(crate) async fn url(&self) -> &str {
        let (_, url) = self
            .database
            .get_or_init(|| async {
                let server = self.server().await;
                let database = server.database().await;
                let Some(isolation) = self.isolation else {
                    let url = database.url().to_owned();
                    return (database, url);
                };
                let role = format!("role_{}_{}", database.name(), isolation.replace(' ', "_"));
                let url = server.role(&role, "secret", database.name()).await;
                database.execute(&format!("GRANT ALL ON DATABASE {} TO \"{role}\"", database.name())).await;
                server
                    .execute(&format!("ALTER ROLE \"{role}\" SET default_transaction_isolation = '{isolation}'"))
                    .await;
                (database, url)
            })
            .await;
        url
    }

    pub(crate) async fn config(&self) -> PostgresConfig {
        PostgresConfig::from_url(self.url().await).unwrap().with_table(&fresh_table()).unwrap()
    }
}

/// A store with a fresh table.
pub(crate) async fn fresh(config: PostgresConfig) -> PostgresStore {
    PostgresStore::migrate(&config).await.unwrap();
    PostgresStore::connect(config).await.unwrap()
}
