//! A server whose disk is full says so, by a typed error that says what to do. Nothing is lost, nothing is granted that
//! is not there, and it heals.

use crate::load::Load;
use crate::startup::{assert_told, sqlstate};
use crate::support::{claim, identity, record};
use idem_core::machine::Change;
use idem_core::store::{Inserted, Swapped};
use idem_core::{Error, ErrorKind, Response, State, Status, Store, Timestamp, WriteOutcome};
use idem_postgres::{PostgresConfig, PostgresStore};
use idem_tests::rig::postgres::{Contents, Postgres, Version};
use idem_tests::rig::wait::until;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use sqlx::PgConnection;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(40);

const MIB: u64 = 1 << 20;

/// PostgreSQL 16 changed how a table grows, and with that where it meets the end of the disk.
const VERSIONS: [Version; 2] = [Version::Major(15), Version::Major(18)];

/// What a full disk says. A server that goes on has refused; one that goes down has not.
#[track_caller]
fn assert_full(error: &Error) {
    assert_told(error, ErrorKind::Unavailable, &["53100", "free space on the server's disk"]);
    assert_eq!(sqlstate(error), Some("53100"));
}

/// Two stores for [`Load`] and one to look.
async fn stores(server: &Postgres) -> ([PostgresStore; 2], PostgresStore) {
    let config = PostgresConfig::from_url(server.url()).unwrap().with_max_connections(4);
    PostgresStore::migrate(&config).await.unwrap();
    let store = || PostgresStore::unchecked(config.clone()).unwrap();
    ([store(), store()], store())
}

async fn more(load: &Load, by: usize) {
    let goal = load.told().completed.len() + by;
    let reached = || async { (load.told().completed.len() >= goal).then_some(()) };
    until("the clients get their answers", SOON, reached).await.unwrap();
}

async fn some_error(load: &Load) {
    let told = || async { (!load.told().errors.is_empty()).then_some(()) };
    until("the clients notice", SOON, told).await.unwrap();
}

/// An answer that no compression makes small: it needs new pages.
fn large(seed: u64) -> Response {
    let mut body = vec![0; 256 << 10];
    StdRng::seed_from_u64(seed).fill(&mut body[..]);
    Response::new(201, body)
}

fn completion(response: Response) -> Change {
    Change::Complete { response, expires_at: Timestamp::from_micros(i64::MAX / 4) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_data_disk_refuses_loses_nothing_and_heals_without_a_restart() {
    for version in VERSIONS {
        let options = Postgres::options().version(version).small_disk(Contents::Data, 128 * MIB);
        let Some(server) = options.start_if_allowed().await else { return };
        a_full_data_disk(&server).await;
    }
}

#[expect(clippy::print_stderr, reason = "how much was tried belongs to the test's output")]
async fn a_full_data_disk(server: &Postgres) {
    let (clients, direct) = stores(server).await;
    let Ok(Inserted::Won(version)) = direct.insert(&claim("before")).await else { panic!("a new key") };
    let load = Load::start(clients);
    more(&load, 100).await;
    assert!(load.told().errors.is_empty());

    server.fill_disk();
    some_error(&load).await;
    // A claim finds room in the pages that are there, until it does not.
    let mut won = Vec::new();
    let refused = loop {
        let key = format!("full_{}", won.len());
        match direct.insert(&claim(&key)).await {
            Ok(Inserted::Won(version)) => won.push((key, version)),
            Ok(other) => panic!("{key} is new: {other:?}"),
            Err(error) => {
                assert_full(&error);
                break key;
            }
        }
    };
    assert!(record(&direct, &refused).await.is_none(), "{refused} was refused");
    let change = completion(large(1));
    assert_full(&direct.swap(&identity("before"), &version, &change).await.unwrap_err());
    let untouched = record(&direct, "before").await.unwrap();
    assert_eq!((untouched.status(), untouched.version), (Status::InProgress, version));
    for error in &load.told().errors {
        assert_full(error);
    }

    server.free_disk();
    assert_eq!(direct.swap(&identity("before"), &version, &change).await.unwrap(), Swapped::Applied);
    assert_eq!(record(&direct, "before").await.unwrap().state, State::Completed(large(1)));
    assert!(matches!(direct.insert(&claim(&refused)).await, Ok(Inserted::Won(_))));
    more(&load, 100).await;
    let told = load.stop().await;
    eprintln!(
        "PostgreSQL {}: {} granted, {} completed, {} errors; {} claims found room on the full disk",
        server.major(),
        told.grants.len(),
        told.completed.len(),
        told.errors.len(),
        won.len()
    );
    told.verify(&direct).await;
    for (key, version) in won {
        assert_eq!(record(&direct, &key).await.unwrap().version, version, "{key}");
    }
    assert_eq!(server.log().matches("ready to accept connections").count(), 1, "it was never down");
}

/// A server whose log is full, and that frees no segment of it by itself.
async fn with_small_log(version: Version) -> Option<Postgres> {
    let options = Postgres::options().version(version).small_disk(Contents::Log, 32 * MIB);
    options.setting("wal_keep_size", "1GB").setting("checkpoint_timeout", "1h").start_if_allowed().await
}

/// It met the end of the disk while it wrote the log, which it does not survive.
async fn goes_down(server: &Postgres, times: usize) {
    let panicked = || async { (server.log().matches("PANIC").count() >= times).then_some(()) };
    until("the server goes down", SOON, panicked).await.unwrap();
    assert!(server.log().contains("No space left on device"), "{}", server.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stderr, reason = "how much was tried belongs to the test's output")]
async fn a_full_log_disk_loses_nothing_and_heals_with_a_start() {
    for version in VERSIONS {
        let Some(server) = with_small_log(version).await else { return };
        let (clients, direct) = stores(&server).await;
        let load = Load::start(clients);
        more(&load, 100).await;
        assert!(load.told().errors.is_empty());

        server.fill_disk();
        goes_down(&server, 1).await;
        some_error(&load).await;
        // Until then it tries to start by itself, again and again, or has given up.
        server.stop_immediate().await;
        server.free_disk();
        server.start_again().await;

        more(&load, 100).await;
        let told = load.stop().await;
        eprintln!(
            "PostgreSQL {}: {} granted, {} completed, {} errors",
            server.major(),
            told.grants.len(),
            told.completed.len(),
            told.errors.len()
        );
        told.verify(&direct).await;
    }
}

/// A commit is written together with what comes after it in the log. If that finds no room, the server says "disk full"
/// and goes down, but the commit may be there when it comes back: only an error after which the session goes on is a
/// refusal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stderr, reason = "how much was tried belongs to the test's output")]
async fn a_server_that_goes_down_over_a_full_log_has_not_refused() {
    for version in VERSIONS {
        let settings = [
            // Between a commit and its flush there is time for somebody else's records.
            ("commit_delay", "100000"),
            ("commit_siblings", "0"),
            // Nobody but the committing session writes the log.
            ("wal_writer_delay", "10s"),
            ("wal_buffers", "16MB"),
            ("restart_after_crash", "off"),
        ];
        let options = Postgres::options().version(version).small_disk(Contents::Log, 32 * MIB);
        let options = options.setting("wal_keep_size", "1GB").setting("checkpoint_timeout", "1h");
        let options = settings.iter().fold(options, |options, (name, value)| options.setting(name, value));
        let Some(server) = options.start_if_allowed().await else { return };
        let (_, direct) = stores(&server).await;
        let (mut told, mut last_words) = (Vec::new(), 0);
        for round in 1..=3 {
            let mut rival = server.client().await;
            // The connections of the round before are dead.
            let alive = || async { direct.check().await.ok() };
            until("the server answers", SOON, alive).await.unwrap();
            server.fill_disk();
            let error = loop {
                let key = format!("round_{round}_{}", told.len());
                let claim = claim(&key);
                let before = position(&mut rival).await.unwrap();
                let after = tokio::time::timeout(SOON, write_after(&mut rival, before));
                let (inserted, _) = tokio::join!(direct.insert(&claim), after);
                let error = inserted.err();
                told.push((key, error.as_ref().map(Error::write_outcome)));
                if let Some(error) = error {
                    break error;
                }
            };
            goes_down(&server, round).await;
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
            last_words += usize::from(sqlstate(&error) == Some("53100"));
            server.stop_immediate().await;
            server.free_disk();
            server.start_again().await;
        }
        let mut unknown_and_there = 0;
        for (key, failed) in told {
            let there = record(&direct, &key).await.is_some();
            match failed {
                None => assert!(there, "{key} was granted"),
                Some(WriteOutcome::NotApplied) => assert!(!there, "{key} was said to be refused"),
                Some(WriteOutcome::Unknown) => unknown_and_there += usize::from(there),
            }
        }
        let major = server.major();
        eprintln!("PostgreSQL {major}: {last_words} were told 53100, {unknown_and_there} are there that were unknown");
        // Otherwise this test could not fail.
        assert!(last_words > 0 && unknown_and_there > 0);
    }
}

/// Waits until somebody has written past this position of the log, then writes a good part of a segment after it,
/// without a flush.
async fn write_after(rival: &mut PgConnection, before: i64) -> Result<(), sqlx::Error> {
    while position(rival).await? == before {}
    sqlx::query("SELECT pg_logical_emit_message(false, '', repeat('x', 700000))").execute(rival).await?;
    Ok(())
}

async fn position(rival: &mut PgConnection) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint").fetch_one(rival).await
}
