//! What the tests of this folder share: names and values of entries as anybody can write them, claims, clocks.

use idem_core::store::{Erase, Inserted};
use idem_core::{Claim, Fingerprint, Identity, Key, LeaseLength, Owner, Record, Response, Scope, Store, Takeover};
use idem_redis_cache::{CacheConfig, NegativeCache};
use idem_tests::rig::wait::{PATIENCE, until};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisResult};
use sha2::{Digest, Sha256};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// A timeout for tests in which a call has to get through, however slow the machine is.
pub(crate) const PATIENT: Duration = Duration::from_secs(5);

/// A prefix that no other test of this process uses.
pub(crate) fn fresh_prefix() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test{}:", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The name of an entry, made without the crate under test: somebody who can write to Redis can make it, too.
pub(crate) fn name(prefix: &str, identity: &Identity) -> String {
    let mut hash = Sha256::new_with_prefix(b"idem/redis-cache/v1");
    for part in [identity.scope().as_str(), identity.key().as_str()] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let digits: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{prefix}{}", &digits[..32])
}

/// The value of a busy entry, made likewise.
pub(crate) fn busy(owner: Owner) -> Vec<u8> {
    [&b"1b"[..], owner.as_uuid().as_bytes()].concat()
}

pub(crate) fn identity(key: &str) -> Identity {
    Identity::new(Scope::new("acct_1").unwrap(), Key::new(key).unwrap())
}

/// A claim with a lease of an hour.
pub(crate) fn claim(key: &str) -> Claim {
    let fingerprint = Fingerprint::builder("POST /charges").json(b"{\"amount\":1}").finish().unwrap();
    Claim::new(identity(key), fingerprint, Takeover::Resume)
        .with_lease(LeaseLength::from_duration(Duration::from_secs(3_600)))
}

/// An owner that nobody is.
pub(crate) fn somebody() -> Owner {
    claim("somebody").owner()
}

pub(crate) fn answer(text: &str) -> Response {
    Response::new(201, text.to_owned())
}

/// Claims a new key, and gives the record of which it is the owner.
pub(crate) async fn win(store: &impl Store, claim: &Claim) -> Record {
    match store.insert(claim).await.unwrap() {
        Inserted::Won(version) => claim.first_record(version.locked_at),
        other => panic!("it is new: {other:?}"),
    }
}

/// Waits until the cache has found its Redis. Leaves nothing in the store.
pub(crate) async fn reach<S: Store>(cache: &NegativeCache<S>) {
    try_to_reach(cache, PATIENCE).await;
    assert!(cache.is_up(), "Redis is not reached within {PATIENCE:?}");
}

/// As [`reach`], where it may well not be found.
pub(crate) async fn try_to_reach<S: Store>(cache: &NegativeCache<S>, patience: Duration) {
    let scope = Scope::new("nobody").unwrap();
    let found = until("Redis is found", patience, || async {
        let key = Key::new(format!("reach-{}", somebody().as_uuid())).unwrap();
        let (claim, identity) = (claim("reach"), Identity::new(Scope::new("nobody").unwrap(), key));
        let claim = Claim::new(identity, claim.candidates().clone(), Takeover::Resume);
        cache.insert(&claim).await.unwrap();
        cache.is_up().then_some(())
    });
    let _not_found = found.await;
    cache.erase(&scope, Erase::Everything).await.unwrap();
}

/// A connection of a test's own, without limits.
pub(crate) async fn connect(url: &str) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
    redis::Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await
}

/// A configuration under which no call fails because the machine is slow.
pub(crate) fn patient(config: CacheConfig) -> CacheConfig {
    config.with_timeout(PATIENT).with_connect_timeout(PATIENT)
}

/// The time by which a test measures.
#[expect(clippy::disallowed_methods, reason = "real servers take real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
