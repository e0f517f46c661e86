//! PostgreSQL starts, gives databases, and does as it is told.

use idem_tests::rig::postgres::{Postgres, Version, shared};
use sqlx::Connection;

#[tokio::test]
async fn a_server_starts_and_is_gone_when_dropped() {
    let server = Postgres::options().own().start().await;
    let folder = server.data_dir().to_owned();
    assert!(folder.join("PG_VERSION").exists());
    let fsync: String = sqlx::query_scalar("SHOW fsync").fetch_one(&mut server.client().await).await.unwrap();
    assert_eq!(fsync, "on");
    drop(server);
    assert!(!folder.exists());
}

#[tokio::test]
async fn the_shared_server_gives_everybody_a_database() {
    let (one, two) = tokio::join!(shared(Version::Any), shared(Version::Any));
    assert_eq!(one.url(), two.url());
    let (a, b) = tokio::join!(one.database(), two.database());
    assert_ne!(a.name(), b.name());
    a.execute("CREATE TABLE here (a int)").await;
    b.execute("CREATE TABLE here (b int)").await;
    a.client().await.close().await.unwrap();
}
