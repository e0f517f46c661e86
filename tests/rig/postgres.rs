//! PostgreSQL starts, gives databases, and does as it is told.

use std::collections::HashSet;
use std::time::Duration;

use idem_tests::rig::pgbouncer::PgBouncer;
use idem_tests::rig::postgres::{Contents, Database, Postgres, Version, shared};
use idem_tests::rig::proxy::Proxy;
use idem_tests::rig::redis::Redis;
use idem_tests::rig::url;
use idem_tests::rig::wait::until;
use sqlx::error::DatabaseError;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

const SOON: Duration = Duration::from_secs(20);

async fn ask(client: &mut PgConnection, sql: &str) -> String {
    sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(client).await.unwrap()
}

#[tokio::test]
async fn two_servers_at_a_time_start_and_are_gone_when_dropped() {
    let (one, two) = tokio::join!(Postgres::options().own().start(), Postgres::options().own().start());
    assert_ne!(one.address(), two.address());
    let folders = [&one, &two].map(|server| server.socket_dir().to_owned());
    for server in [&one, &two] {
        let mut client = server.client().await;
        // The promises are about durability.
        assert_eq!(ask(&mut client, "SHOW fsync").await, "on");
        assert_eq!(ask(&mut client, "SHOW max_connections").await, "200");
        let data = ask(&mut client, "SHOW data_directory").await;
        assert_eq!(data, server.data_dir().display().to_string());
        assert_eq!(server.version_num() / 10_000, server.major());
        assert!(server.socket_dir().join(format!(".s.PGSQL.{}", server.address().split(':').nth(1).unwrap())).exists());
    }
    drop((one, two));
    assert!(folders.iter().all(|folder| !folder.exists()));
}

#[tokio::test]
async fn everybody_shares_one_server_and_has_a_database_alone() {
    let server = shared(Version::Any).await;
    assert!(std::ptr::eq(server, shared(Version::Any).await));
    let mut databases = tokio::task::JoinSet::new();
    for _ in 0..50 {
        databases.spawn(async move {
            let database = server.database().await;
            database.execute("CREATE TABLE mine (a int)").await;
            database
        });
    }
    let databases: Vec<Database> = databases.join_all().await;
    let names: HashSet<&str> = databases.iter().map(Database::name).collect();
    assert_eq!(names.len(), 50);
    let urls: HashSet<&str> = databases.iter().map(Database::url).collect();
    assert_eq!(urls.len(), 50);
}

#[tokio::test]
async fn databases_go_together_when_there_is_no_room_for_more() {
    let server = Postgres::options().own().dropped_databases(2).start().await;
    let mut client = server.client().await;
    let mut count =
        async || ask(&mut client, "SELECT count(*)::text FROM pg_database WHERE datname LIKE 'idem_test_%'").await;
    let (a, b, c) = (server.database().await, server.database().await, server.database().await);
    // Also with a connection left.
    let _left = c.client().await;
    drop((a, b));
    assert_eq!(count().await, "3");
    drop(c);
    let gone = async {
        while count().await != "0" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(SOON, gone).await.expect("the databases go");
}

#[tokio::test]
async fn what_was_committed_survives_every_way_to_stop() {
    let server = Postgres::options().own().start().await;
    let database = server.database().await;
    database.execute("CREATE TABLE kept (way text)").await;
    for way in ["restart", "stop", "immediate", "crash"] {
        database.execute(&format!("INSERT INTO kept VALUES ('{way}')")).await;
        let mut old = database.client().await;
        if way == "restart" {
            server.restart().await;
        } else {
            match way {
                "stop" => server.stop().await,
                "immediate" => server.stop_immediate().await,
                _ => server.crash().await,
            }
            let down = PgConnection::connect(database.url()).await.unwrap_err();
            assert!(matches!(&down, sqlx::Error::Io(_)), "{way}: {down:?}");
            server.start_again().await;
        }
        assert!(old.ping().await.is_err(), "{way}: a connection outlived the server");
    }
    let kept = ask(&mut database.client().await, "SELECT string_agg(way, ' ') FROM kept").await;
    assert_eq!(kept, "restart stop immediate crash");
    // The two that leave no time to clean up were recovered from.
    assert_eq!(server.log().matches("automatic recovery in progress").count(), 2, "{}", server.log());
}

#[tokio::test]
async fn a_paused_server_answers_nobody_and_goes_on_when_resumed() {
    let server = Postgres::options().own().start().await;
    let mut client = server.client().await;
    server.pause().await;
    let mut answer = Box::pin(ask(&mut client, "SELECT 'late'::text"));
    assert!(tokio::time::timeout(Duration::from_millis(300), &mut answer).await.is_err());
    let connect = PgConnection::connect(server.url());
    assert!(tokio::time::timeout(Duration::from_millis(300), connect).await.is_err());
    server.resume();
    assert_eq!(tokio::time::timeout(SOON, answer).await.unwrap(), "late");
}

#[tokio::test]
async fn one_backend_is_paused_ended_or_killed() {
    let server = Postgres::options().own().start().await;
    let database = server.database().await;
    let (mut one, mut two) = (database.client().await, database.client().await);
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut one).await.unwrap();
    assert_eq!(server.backends(database.name()).await.len(), 2);
    assert!(server.backends(database.name()).await.contains(&pid));

    server.pause_backend(pid).await;
    let mut answer = Box::pin(ask(&mut one, "SELECT 'late'::text"));
    assert!(tokio::time::timeout(Duration::from_millis(300), &mut answer).await.is_err());
    assert_eq!(ask(&mut two, "SELECT 'other'::text").await, "other");
    server.resume_backend(pid);
    assert_eq!(tokio::time::timeout(SOON, answer).await.unwrap(), "late");

    assert_eq!(server.terminate_backends(database.name()).await, 2);
    assert!(one.ping().await.is_err() && two.ping().await.is_err());

    let mut three = database.client().await;
    three.ping().await.unwrap();
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut three).await.unwrap();
    let mut bystander = database.client().await;
    server.kill_backend(pid);
    // The postmaster cuts everybody and recovers.
    let cut = async {
        while bystander.ping().await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, cut).await.expect("the bystander is cut");
    let back = until("the server is back", SOON, || async { PgConnection::connect(database.url()).await.ok() });
    back.await.unwrap();
}

#[tokio::test]
#[should_panic(expected = "belongs to this server")]
async fn a_process_of_somebody_else_is_not_touched() {
    let server = Postgres::options().own().start().await;
    server.kill_backend(i32::try_from(std::process::id()).unwrap());
}

#[tokio::test]
async fn settings_are_given_changed_and_reset() {
    let server = Postgres::options().setting("work_mem", "5MB").setting("wal_level", "logical").start().await;
    let seen = async |name: &str| ask(&mut server.client().await, &format!("SHOW {name}")).await;
    assert_eq!((seen("work_mem").await, seen("wal_level").await), ("5MB".to_owned(), "logical".to_owned()));
    let becomes = async |value: &str| {
        until(value, SOON, || async { (seen("work_mem").await == value).then_some(()) }).await.unwrap();
    };
    server.set("work_mem", "7MB").await;
    becomes("7MB").await;
    server.reset("work_mem").await;
    becomes("5MB").await;
    server.set("max_connections", "50").await;
    server.restart().await;
    assert_eq!(seen("max_connections").await, "50");
}

#[tokio::test]
async fn a_role_needs_its_password() {
    let server = Postgres::options().own().start().await;
    let right = server.role("guest", "secret", "postgres").await;
    PgConnection::connect(&right).await.unwrap();
    let wrong = right.replace("secret", "guess");
    let refused = PgConnection::connect(&wrong).await.unwrap_err();
    assert_eq!(refused.as_database_error().and_then(DatabaseError::code).as_deref(), Some("28P01"));
    assert_eq!(url::credentials(&right), ("guest".into(), "secret".into()));
}

#[tokio::test]
async fn a_setting_that_the_server_refuses_is_an_error_with_its_log() {
    let error = Postgres::options().setting("shared_buffers", "many").try_start().await.unwrap_err().to_string();
    assert!(error.contains("shared_buffers") && error.contains("ended with"), "{error}");
}

#[tokio::test]
async fn a_version_that_is_not_here_is_missed_by_name() {
    let error = Postgres::options().own().version(Version::Major(99)).try_start().await.unwrap_err().to_string();
    assert!(error.contains("PostgreSQL 99") && error.contains("IDEM_TEST_POSTGRES_BIN"), "{error}");
}

#[cfg(feature = "containers")]
#[tokio::test]
async fn without_programs_a_container_engine_is_asked_and_its_answer_told() {
    // There is no image of it either.
    let error = Postgres::options().version(Version::Major(99)).try_start().await.unwrap_err().to_string();
    assert!(error.contains("PostgreSQL 99") && error.contains("no container engine helped out: "), "{error}");
    assert!(error.contains("apt-get install postgresql"), "{error}");
}

#[tokio::test]
async fn a_small_disk_is_filled_and_freed() {
    for contents in [Contents::Data, Contents::Log] {
        let options = Postgres::options().small_disk(contents, 96 << 20);
        let Some(server) = options.start_if_allowed().await else { return };
        let mounts = || std::fs::read_to_string("/proc/mounts").unwrap();
        let disk = server.socket_dir().join("disk").display().to_string();
        assert!(mounts().contains(&disk), "{disk} is not mounted");
        let mut client = server.client().await;
        let (data, log) = (ask(&mut client, "SHOW data_directory").await, server.data_dir().join("pg_wal"));
        let log = log.canonicalize().unwrap().display().to_string();
        assert_eq!(
            (data.starts_with(&disk), log.starts_with(&disk)),
            match contents {
                Contents::Data => (true, false),
                Contents::Log => (false, true),
            }
        );
        server.fill_disk();
        let one_byte = || std::fs::write(format!("{disk}/one"), "1").map_err(|error| error.kind());
        assert_eq!(one_byte(), Err(std::io::ErrorKind::StorageFull));
        server.free_disk();
        assert_eq!(one_byte(), Ok(()));
        drop(server);
        assert!(!mounts().contains(&disk), "{disk} is still mounted");
    }
}

/// What the rig gives can be awaited in spawned tasks too.
#[tokio::test]
async fn the_futures_can_be_sent() {
    fn send<T: Send>(future: T) -> T {
        future
    }
    let server = send(shared(Version::Any)).await;
    drop(send(server.database()).await);
    let own = send(Postgres::start()).await;
    drop(send(PgBouncer::start(&own)).await);
    drop(send(Redis::start()));
    drop(send(Proxy::start("127.0.0.1:1")));
    drop(send(own.restart()));
}
