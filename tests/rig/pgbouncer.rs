//! PgBouncer pools transactions, not sessions and not statements.

use std::time::Duration;

use idem_tests::rig::pgbouncer::PgBouncer;
use idem_tests::rig::postgres::{Postgres, Version, shared};
use sqlx::{Connection, PgConnection, Row};

const SOON: Duration = Duration::from_secs(20);

/// The server process that answers this client now.
async fn backend(client: &mut PgConnection) -> i32 {
    sqlx::raw_sql("SELECT pg_backend_pid()").fetch_one(client).await.unwrap().get(0)
}

#[tokio::test]
async fn a_server_connection_is_lent_for_one_transaction() {
    let database = shared(Version::Any).await.database().await;
    let pooler = PgBouncer::options(shared(Version::Any).await).setting("default_pool_size", "1").start().await;
    let url = pooler.url_of(database.url());
    let mut one = PgConnection::connect(&url).await.unwrap();
    let mut two = PgConnection::connect(&url).await.unwrap();

    // Not sessions: two clients at a time have the one server connection by turns.
    let alone = backend(&mut one).await;
    assert_eq!(backend(&mut two).await, alone);
    assert_eq!(backend(&mut one).await, alone);

    // Not statements: a transaction keeps it, and the other client waits for its end.
    sqlx::raw_sql("BEGIN").execute(&mut one).await.unwrap();
    assert_eq!(backend(&mut one).await, alone);
    let mut waiting = Box::pin(backend(&mut two));
    assert!(tokio::time::timeout(Duration::from_millis(300), &mut waiting).await.is_err());
    assert_eq!(backend(&mut one).await, alone);
    sqlx::raw_sql("COMMIT").execute(&mut one).await.unwrap();
    assert_eq!(tokio::time::timeout(SOON, waiting).await.unwrap(), alone);

    let modes = pooler.admin("SHOW CONFIG").await;
    let mode = modes.iter().find(|row| row.get::<&str, _>(0) == "pool_mode").unwrap();
    assert_eq!(mode.get::<&str, _>(1), "transaction");
}

#[tokio::test]
async fn a_pooler_stops_crashes_starts_again_and_pauses() {
    let server = shared(Version::Any).await;
    let pooler = PgBouncer::start(server).await;
    for crash in [false, true] {
        let mut client = PgConnection::connect(&pooler.url()).await.unwrap();
        backend(&mut client).await;
        if crash {
            pooler.crash().await;
        } else {
            pooler.stop().await;
        }
        assert!(sqlx::raw_sql("SELECT 1").execute(&mut client).await.is_err());
        assert!(matches!(PgConnection::connect(&pooler.url()).await, Err(sqlx::Error::Io(_))));
        pooler.start_again().await;
    }
    let mut client = PgConnection::connect(&pooler.url()).await.unwrap();
    pooler.pause().await;
    let mut answer = Box::pin(backend(&mut client));
    assert!(tokio::time::timeout(Duration::from_millis(300), &mut answer).await.is_err());
    pooler.resume();
    tokio::time::timeout(SOON, answer).await.unwrap();
}

#[tokio::test]
async fn a_named_user_comes_through_with_its_own_rights() {
    let server = Postgres::options().own().start().await;
    let url = server.role("guest", "secret", "postgres").await;
    let pooler = PgBouncer::options(&server).user("guest", "secret").start().await;
    let mut client = PgConnection::connect(&pooler.url_of(&url)).await.unwrap();
    let row = sqlx::raw_sql("SELECT current_user::text").fetch_one(&mut client).await.unwrap();
    assert_eq!(row.get::<&str, _>(0), "guest");
    assert!(PgConnection::connect(&pooler.url_of("postgres://stranger@h/postgres")).await.is_err(), "{}", pooler.log());
}
