//! Nothing of a request is to be found in Redis: not in a dump, not in the log of commands, not on the way there.

use crate::support::{answer, connect, fresh_prefix, patient, reach};
use idem_core::machine::Change;
use idem_core::store::Inserted;
use idem_core::{Claim, Fingerprint, Identity, Key, LeaseLength, RecoveryPoint, Scope, Store, Takeover};
use idem_memory::MemoryStore;
use idem_redis_cache::{CacheConfig, NegativeCache};
use idem_tests::rig::redis::{Flavour, Redis};
use idem_tests::rig::wait::{PATIENCE, until};
use redis::cmd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const CANARIES: [&str; 6] =
    ["canary_scope", "canary_key", "canary_route", "canary_body", "canary_answer", "canary_state"];

/// A whole life of a key, with a canary wherever a request could be.
async fn live(store: &impl Store, key: &str, settlement: impl FnOnce(&idem_core::Record) -> Change) {
    let fingerprint = Fingerprint::builder("POST /canary_route").json(b"{\"a\":\"canary_body\"}").finish().unwrap();
    let identity = Identity::new(Scope::new("canary_scope").unwrap(), Key::new(key).unwrap());
    let claim = || Claim::new(identity.clone(), fingerprint.clone(), Takeover::Resume).with_lease(LeaseLength::MAX);
    let first = claim();
    let Inserted::Won(version) = store.insert(&first).await.unwrap() else { panic!("it is new") };
    store.insert(&claim()).await.unwrap();
    let record = first.first_record(version.locked_at);
    let point = RecoveryPoint { name: "canary_state".to_owned(), data: "canary_state".into() };
    let checkpoint = Change::Checkpoint { lease: record.lease.next(), recovery_point: point };
    store.swap(&identity, &version, &checkpoint).await.unwrap();
    store.swap(&identity, &version, &settlement(&record)).await.unwrap();
    store.insert(&claim()).await.unwrap();
}

/// The files below a folder that Redis writes.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Neither as it is nor in hexadecimal digits, and neither is a digest that anybody could make of the key alone.
fn shows_nothing(what: &str, bytes: &[u8]) {
    use sha2::{Digest, Sha256};
    for canary in CANARIES {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let digest = Sha256::digest(canary);
        for form in [canary.to_owned(), hex(canary.as_bytes()), hex(&digest[..8])] {
            assert!(!holds(bytes, &form), "{what} shows {canary} as {form}");
        }
        assert!(!bytes.windows(8).any(|window| window == &digest[..8]), "{what} shows a digest of {canary}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_request_is_in_a_dump_in_the_log_or_on_the_way() {
    let settings = [("rdbcompression", "no"), ("appendonly", "yes"), ("aof-use-rdb-preamble", "no")];
    let server = Redis::own(Flavour::Redis, &settings).await.unwrap();
    let mut monitor = TcpStream::connect(server.address()).await.unwrap();
    monitor.write_all(b"MONITOR\r\n").await.unwrap();
    let mut monitored = vec![0; 5];
    monitor.read_exact(&mut monitored).await.unwrap();
    assert_eq!(monitored, b"+OK\r\n");

    let prefix = fresh_prefix();
    let config = patient(CacheConfig::from_url(server.url()).unwrap()).with_prefix(&prefix);
    let cache = NegativeCache::new(MemoryStore::default(), config.with_cap(Duration::from_secs(60)));
    reach(&cache).await;
    live(&cache, "canary_key", |record| Change::Complete {
        response: answer("canary_answer"),
        expires_at: record.expires_at,
    })
    .await;
    live(&cache, "canary_key_2", |record| Change::Fail { clear_marks: false, expires_at: record.expires_at }).await;
    let counts = cache.counts();
    assert!(counts.busy >= 2 && counts.failed == 0, "{counts:?}");

    // Otherwise it would show nothing here, whatever was sent.
    let mut connection = connect(server.url()).await.unwrap();
    let here: Vec<String> = cmd("KEYS").arg(format!("{prefix}*")).query_async(&mut connection).await.unwrap();
    assert!(here.len() >= 2, "{here:?}");
    cmd("SET").arg("end").arg("a value in clear").exec_async(&mut connection).await.unwrap();
    cmd("SAVE").exec_async(&mut connection).await.unwrap();

    let mut found = Vec::new();
    files(server.folder().unwrap(), &mut found);
    for kind in [".rdb", ".aof"] {
        let named = |path: &&PathBuf| path.to_string_lossy().ends_with(kind);
        let there = until("everything is written", PATIENCE, || async {
            let bytes: Vec<u8> = found.iter().filter(named).flat_map(|path| std::fs::read(path).unwrap()).collect();
            (holds(&bytes, "a value in clear") && here.iter().all(|name| holds(&bytes, name))).then_some(())
        });
        there.await.unwrap();
    }
    for file in &found {
        shows_nothing(&file.display().to_string(), &std::fs::read(file).unwrap());
    }

    while !holds(&monitored, "a value in clear") {
        let mut more = vec![0; 65_536];
        let length = monitor.read(&mut more).await.unwrap();
        assert!(length > 0, "the monitor ended");
        monitored.extend_from_slice(&more[..length]);
    }
    for word in ["\"SET\"", "\"GETRANGE\"", "\"PTTL\"", "\"DEL\""] {
        assert!(holds(&monitored, word) && here.iter().all(|name| holds(&monitored, name)), "{word}");
    }
    shows_nothing("the output of MONITOR", &monitored);
}
