//! What is wrong with a server, a table or a role is told at the start, by a typed error that says what to do and shows nothing secret; and a
//! server that goes down and comes back loses nothing that it acknowledged.

use crate::load::Load;
use crate::support::{Own, acquired, answer, claim, engine, record};
use idem_core::machine::Change;
use idem_core::store::{Erase, Inserted, PurgeOptions, StuckQuery, Swapped};
use idem_core::{Error, ErrorKind, Scope, Settlement, Status, Store, Timestamp, WriteOutcome};
use idem_postgres::{PostgresConfig, PostgresError, PostgresStore};
use idem_tests::rig::postgres::Postgres;
use idem_tests::rig::proxy::{Direction, Proxy};
use idem_tests::rig::url::with_database;
use idem_tests::rig::wait::until;
use std::error::Error as _;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::time::Duration;

/// Stands for everything that no error may show.
const SECRET: &str = "canary";

/// What a person sees of an error: itself, its sources, and what `Debug` says.
fn words(error: &Error) -> String {
    let mut words = format!("{error} | {error:?}");
    let mut source = error.source();
    while let Some(cause) = source {
        words += &format!(" | {cause}");
        source = cause.source();
    }
    words
}

/// The error has this kind, changed nothing, says all of this, and shows neither the secret nor where the server is.
#[track_caller]
pub(crate) fn assert_told(error: &Error, kind: ErrorKind, says: &[&str]) {
    let words = words(error);
    assert_eq!((error.kind(), error.write_outcome()), (kind, WriteOutcome::NotApplied), "{words}");
    for part in says {
        assert!(words.contains(part), "{part:?} is not in: {words}");
    }
    for part in [SECRET, "127.0.0.1", "localhost", "postgres://"] {
        assert!(!words.contains(part), "{part:?} is in: {words}");
    }
}

/// `connect` refuses, and says why.
async fn refused(config: PostgresConfig, kind: ErrorKind, says: &[&str]) {
    let error = PostgresStore::connect(config).await.unwrap_err();
    assert_told(&error, kind, says);
}

pub(crate) fn sqlstate(error: &Error) -> Option<&str> {
    error.source()?.downcast_ref::<PostgresError>()?.sqlstate()
}

/// A role of this database, without rights, that logs in by password.
async fn role(own: &Own) -> (String, String) {
    let name = format!("role_{}", own.database.name());
    let url = own.server.role(&name, SECRET, own.database.name()).await;
    (name, url)
}

async fn grant_all(own: &Own, role: &str) {
    let grants = format!(
        "GRANT USAGE ON SCHEMA idem TO \"{role}\"; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON idem.records TO \"{role}\"; \
         GRANT SELECT, UPDATE ON idem.records_meta TO \"{role}\""
    );
    own.database.execute(&grants).await;
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable() {
    let own = Own::new().await;
    let proxy = Proxy::start(&own.server.address()).await;
    proxy.refuse().await;
    let config = own.config_by(&proxy);
    refused(config.clone(), ErrorKind::Unavailable, &["unavailable", "retry"]).await;
    assert_told(&PostgresStore::migrate(&config).await.unwrap_err(), ErrorKind::Unavailable, &["retry"]);
    // A process may start without its database, and claims when it is there.
    let store = PostgresStore::unchecked(config).unwrap();
    let error = store.insert(&claim("key")).await.unwrap_err();
    assert_told(&error, ErrorKind::Unavailable, &["retry"]);
    proxy.admit().await;
    assert!(matches!(store.insert(&claim("key")).await.unwrap(), Inserted::Won(_)));

    let nowhere = PostgresConfig::from_url(&format!("postgres://{SECRET}:{SECRET}@{SECRET}.invalid/{SECRET}")).unwrap();
    refused(nowhere, ErrorKind::Unavailable, &["retry"]).await;
}

/// It accepts connections and says nothing: everything has an end, migrations too.
#[tokio::test]
async fn a_server_that_never_answers_is_a_timeout() {
    let own = Own::new().await;
    let proxy = Proxy::start(&own.server.address()).await;
    proxy.black_hole(Direction::ToClient);
    let config = own.config_by(&proxy).with_statement_deadline(Duration::from_millis(300));
    refused(config.clone(), ErrorKind::Timeout, &["in time"]).await;
    let migrated = tokio::time::timeout(Duration::from_secs(10), PostgresStore::migrate(&config)).await;
    assert_told(&migrated.expect("it ends").unwrap_err(), ErrorKind::Timeout, &["in time"]);
}

#[tokio::test]
async fn a_login_that_fails_is_a_misconfiguration() {
    let own = Own::new().await;
    let (name, url) = role(&own).await;
    let wrong = url.replacen(&format!(":{SECRET}@"), ":another-canary@", 1);
    refused(PostgresConfig::from_url(&wrong).unwrap(), ErrorKind::Misconfigured, &["28P01", "check user and password"])
        .await;
    let error = PostgresStore::migrate(&PostgresConfig::from_url(&wrong).unwrap()).await.unwrap_err();
    assert_told(&error, ErrorKind::Misconfigured, &["check user and password"]);

    let missing = with_database(own.database.url(), "no_such_database");
    refused(PostgresConfig::from_url(&missing).unwrap(), ErrorKind::Misconfigured, &["3D000", "create the database"])
        .await;

    let with_tls = format!("{}?sslmode=require", own.database.url());
    refused(PostgresConfig::from_url(&with_tls).unwrap(), ErrorKind::Misconfigured, &["TLS", "sslmode"]).await;

    own.server.execute(&format!("ALTER ROLE \"{name}\" CONNECTION LIMIT 0")).await;
    refused(PostgresConfig::from_url(&url).unwrap(), ErrorKind::Unavailable, &["53300", "pool"]).await;
}

#[tokio::test]
async fn a_table_that_is_missing_or_of_another_version_is_a_misconfiguration() {
    let own = Own::new().await;
    let config = own.config();
    refused(config.clone().with_table("others").unwrap(), ErrorKind::Misconfigured, &["42P01", "migrate"]).await;
    refused(config.clone().with_schema("others").unwrap(), ErrorKind::Misconfigured, &["42P01", "migrate"]).await;
    // Without a check, the first use tells.
    let store = PostgresStore::unchecked(config.clone().with_table("others").unwrap()).unwrap();
    assert_told(&store.insert(&claim("key")).await.unwrap_err(), ErrorKind::Misconfigured, &["42P01", "migrate"]);

    let store = PostgresStore::connect(config.clone()).await.unwrap();
    own.database.execute("UPDATE idem.records_meta SET schema_version = 0").await;
    refused(config.clone(), ErrorKind::Misconfigured, &["version 0", "migrate"]).await;
    own.database.execute("UPDATE idem.records_meta SET schema_version = 2").await;
    refused(config.clone(), ErrorKind::Misconfigured, &["version 2", "deploy the newer release"]).await;
    assert_told(&store.check().await.unwrap_err(), ErrorKind::Misconfigured, &["deploy the newer release"]);
    let error = PostgresStore::migrate(&config).await.unwrap_err();
    assert_told(&error, ErrorKind::Misconfigured, &["version 2", "deploy the newer release"]);
    own.database.execute("DELETE FROM idem.records_meta").await;
    refused(config, ErrorKind::Misconfigured, &["migrate"]).await;
}

#[test]
fn a_name_with_a_quote_is_refused() {
    let url = format!("postgres://{SECRET}:{SECRET}@127.0.0.1/{SECRET}");
    for name in ["rec\"ords", "records\"; DROP TABLE x; --", "r'", "r.x", ""] {
        let config = || PostgresConfig::from_url(&url).unwrap();
        for error in [config().with_table(name).unwrap_err(), config().with_schema(name).unwrap_err()] {
            assert_told(&error, ErrorKind::InvalidRequest, &["letters, digits and underscores"]);
            assert!(!words(&error).contains("DROP"));
        }
    }
}

#[tokio::test]
async fn a_role_without_rights_is_told_which() {
    let own = Own::new().await;
    let (name, url) = role(&own).await;
    let config = PostgresConfig::from_url(&url).unwrap();
    refused(config.clone(), ErrorKind::Misconfigured, &["42501", "grant the role USAGE"]).await;
    assert_told(
        &PostgresStore::migrate(&config.clone().with_schema("theirs").unwrap()).await.unwrap_err(),
        ErrorKind::Misconfigured,
        &["42501"],
    );

    own.database.execute(&format!("GRANT USAGE ON SCHEMA idem TO \"{name}\"")).await;
    refused(config.clone(), ErrorKind::Misconfigured, &["42501", "grant"]).await;
    own.database.execute(&format!("GRANT SELECT ON ALL TABLES IN SCHEMA idem TO \"{name}\"")).await;
    refused(config.clone(), ErrorKind::Misconfigured, &["INSERT, UPDATE, DELETE", "grant"]).await;
    let store = PostgresStore::unchecked(config.clone()).unwrap();
    assert_told(&store.insert(&claim("key")).await.unwrap_err(), ErrorKind::Misconfigured, &["42501", "grant"]);
    // All that traffic needs, but not what the sweeper does.
    own.database.execute(&format!("GRANT ALL ON idem.records TO \"{name}\"")).await;
    refused(config, ErrorKind::Misconfigured, &["UPDATE", "_meta", "grant"]).await;
}

/// What the documentation says that a role needs is enough for everything.
#[tokio::test]
async fn a_role_with_the_documented_rights_can_do_everything() {
    let own = Own::new().await;
    let (name, url) = role(&own).await;
    grant_all(&own, &name).await;
    let store = PostgresStore::connect(PostgresConfig::from_url(&url).unwrap()).await.unwrap();
    let lease = acquired(&engine(&store), "key").await;
    lease.begin_effect("charge").await.unwrap();
    assert_eq!(lease.complete(answer("key")).await.unwrap(), Settlement::Recorded);
    store.purge(&PurgeOptions::default()).await.unwrap();
    store.stuck(&StuckQuery::default()).await.unwrap();
    assert_eq!(store.stats().await.unwrap().completed, 1);
    assert_eq!(store.erase(&Scope::new("acct_1").unwrap(), Erase::Everything).await.unwrap().deleted, 1);
}

#[tokio::test]
async fn a_role_or_a_table_that_forgets_is_refused_unless_that_was_allowed() {
    let own = Own::new().await;
    let (name, url) = role(&own).await;
    grant_all(&own, &name).await;
    let config = PostgresConfig::from_url(&url).unwrap();
    for simple in [false, true] {
        let config = config.clone().with_transaction_pooler(simple);
        own.server.execute(&format!("ALTER ROLE \"{name}\" SET synchronous_commit = off")).await;
        refused(config.clone(), ErrorKind::Misconfigured, &["synchronous_commit", "switch it on"]).await;
        PostgresStore::connect(config.clone().allow_unsafe_durability(true)).await.unwrap();
        own.server.execute(&format!("ALTER ROLE \"{name}\" SET synchronous_commit = local")).await;
        PostgresStore::connect(config).await.unwrap();
    }
    own.database.execute("ALTER TABLE idem.records SET UNLOGGED").await;
    refused(config.clone(), ErrorKind::Misconfigured, &["unlogged", "SET LOGGED"]).await;
    PostgresStore::connect(config.allow_unsafe_durability(true)).await.unwrap();
}

#[tokio::test]
async fn a_server_without_fsync_is_refused_unless_that_was_allowed() {
    let server = Postgres::options().setting("fsync", "off").start().await;
    let config = PostgresConfig::from_url(server.url()).unwrap();
    PostgresStore::migrate(&config).await.unwrap();
    refused(config.clone(), ErrorKind::Misconfigured, &["fsync", "switch it on"]).await;
    let store = PostgresStore::connect(config.allow_unsafe_durability(true)).await.unwrap();
    assert!(matches!(store.insert(&claim("key")).await.unwrap(), Inserted::Won(_)));
}

/// The server becomes a standby of nobody, as it finds itself after a failover.
async fn a_standby_grants_nothing(server: &Postgres, before: &PostgresStore) {
    let Inserted::Won(version) = before.insert(&claim("before")).await.unwrap() else { panic!("a new key") };
    server.stop().await;
    let signal = server.data_dir().join("standby.signal");
    fs::write(&signal, "").unwrap();
    let owner = fs::metadata(server.data_dir()).unwrap();
    chown(&signal, Some(owner.uid()), Some(owner.gid())).unwrap();
    server.start_again().await;

    for simple in [false, true] {
        let config = PostgresConfig::from_url(server.url()).unwrap().with_transaction_pooler(simple);
        refused(config.clone(), ErrorKind::Misconfigured, &["standby", "connect to the primary"]).await;
        let unchecked = PostgresStore::unchecked(config).unwrap();
        let error = unchecked.insert(&claim("key")).await.unwrap_err();
        assert_told(&error, ErrorKind::Unavailable, &["connect to the primary"]);
        assert_eq!(sqlstate(&error), Some("25006"));
        let change = Change::Complete { response: answer("before"), expires_at: Timestamp::from_micros(i64::MAX / 4) };
        let error = unchecked.swap(claim("before").identity(), &version, &change).await.unwrap_err();
        assert_told(&error, ErrorKind::Unavailable, &["connect to the primary"]);
    }
    fs::remove_file(&signal).unwrap();
    server.restart().await;
    // Connections of before the failover: one call may find out, the engine's repetitions go on.
    let change = Change::Complete { response: answer("before"), expires_at: Timestamp::from_micros(i64::MAX / 4) };
    let swapped = || async { before.swap(claim("before").identity(), &version, &change).await.ok() };
    let swapped = until("the primary is back", Duration::from_secs(20), swapped).await.unwrap();
    assert_eq!(swapped, Swapped::Applied);
    assert_eq!(record(before, "before").await.unwrap().status(), Status::Completed);
    assert!(record(before, "key").await.is_none(), "the standby took nothing");
}

/// Goes down under load and comes back, in three ways; and once as a standby.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stderr, reason = "how much was tried belongs to the test's output")]
async fn a_server_that_goes_down_and_comes_back_loses_nothing() {
    let server = Postgres::options().own().start().await;
    let config = PostgresConfig::from_url(server.url()).unwrap().with_max_connections(4);
    PostgresStore::migrate(&config).await.unwrap();
    let stores = [(); 2].map(|()| PostgresStore::unchecked(config.clone()).unwrap());
    let load = Load::start(stores);
    for outage in ["restart", "stop_immediate", "crash"] {
        let more = async |by: usize| {
            let goal = load.told().completed.len() + by;
            let reached = || async { (load.told().completed.len() >= goal).then_some(()) };
            until("the clients get their answers", Duration::from_secs(40), reached).await.unwrap();
        };
        more(100).await;
        let errors = load.told().errors.len();
        match outage {
            "restart" => server.restart().await,
            "stop_immediate" => server.stop_immediate().await,
            _ => server.crash().await,
        }
        if outage != "restart" {
            // Clients that ask now get an error, and a typed one.
            let told = || async { (load.told().errors.len() > errors).then_some(()) };
            until("the clients notice", Duration::from_secs(20), told).await.unwrap();
            server.start_again().await;
        }
        more(100).await;
    }
    let told = load.stop().await;
    eprintln!("{} granted, {} completed, {} errors", told.grants.len(), told.completed.len(), told.errors.len());
    let direct = PostgresStore::connect(config).await.unwrap();
    told.verify(&direct).await;
    a_standby_grants_nothing(&server, &direct).await;
}
