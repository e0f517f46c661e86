//! The in-process store alone, called by one thread: no engine, no runtime.
//!
//! * `insert and complete`: a new key, and the answer to it; two calls.
//! * `losing insert`: a claim that meets a completed record, which is what a replay is; or one in progress.
//! * `losing swap`: a completion that comes too late.
//! * `load`: of a completed record, and of one that is not there.
//!
//! Each group is a number of completed records that the store holds meanwhile. Lines of one name differ by what the
//! processor's caches no longer hold, for the number of steps hardly grows with the tables. Claims are made before the
//! clock runs, each call is for another key, and what was completed is purged after the clock has stopped.
//!
//! `cargo bench -p idem-benches --bench memory`. Compare with another commit on the same machine: `-- --save-baseline
//! before` there, `-- --baseline before` here.

use criterion::{Criterion, criterion_group, criterion_main};
use futures_util::FutureExt;
use idem_benches::sample::{REQUEST, response};
use idem_core::machine::{Change, Ownership};
use idem_core::store::{Inserted, PurgeOptions, Swapped};
use idem_core::{Claim, Fingerprint, Identity, Key, Scope, Store, Takeover, Timestamp, Version};
use idem_memory::{MemoryConfig, MemoryStore};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// How many completed records the store holds.
const HELD: [u64; 3] = [1_000, 100_000, 1_000_000];
/// How many claims are made before the clock runs.
const BATCH: u64 = 1_000;
/// A prime: so many keys farther is one that lies elsewhere.
const STRIDE: u64 = 7_919;
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Every future of this store is ready at its first poll.
fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("nothing in this store waits")
}

/// A claim with names and a fingerprint of its own, as one that came in with a request.
fn claim(kind: &str, number: u64) -> Claim {
    let fingerprint = Fingerprint::builder("POST /v1/charges").bytes(REQUEST).finish().expect("bytes have no limit");
    let identity =
        Identity::new(Scope::new("acct_1").expect("a scope"), Key::new(format!("{kind}-{number}")).expect("a key"));
    Claim::new(identity, fingerprint, Takeover::Resume)
}

fn insert(store: &MemoryStore, claim: &Claim) -> Version {
    match now(store.insert(claim)) {
        Ok(Inserted::Won(version)) => version,
        other => panic!("the key is new: {other:?}"),
    }
}

fn swap(store: &MemoryStore, claim: &Claim, expected: &Version, change: &Change) -> Swapped {
    now(store.swap(claim.identity(), expected, change)).expect("this store does not fail")
}

/// A store that holds so many completed records, and a batch of records in progress.
fn store(held: u64) -> MemoryStore {
    let store = MemoryStore::new(MemoryConfig::default().with_max_records(usize::MAX).with_max_bytes(usize::MAX));
    for number in 0..held {
        let claim = claim("held", number);
        let version = insert(&store, &claim);
        let owner = Ownership::new(claim.first_record(version.locked_at));
        let complete = owner.complete(response(), Duration::ZERO, DAY);
        assert_eq!(swap(&store, &claim, &version, &complete), Swapped::Applied);
    }
    for number in 0..BATCH {
        insert(&store, &claim("busy", number));
    }
    store
}

/// For how long `call` takes for `calls` claims in all, without the time in which they are made, and in which `after`
/// tidies up after each batch.
fn timed(calls: u64, make: impl Fn(u64) -> Claim, mut call: impl FnMut(&Claim), after: impl Fn()) -> Duration {
    let mut spent = Duration::ZERO;
    for first in (0..calls).step_by(usize::try_from(BATCH).expect("it is small")) {
        let claims: Vec<_> = (first..calls.min(first + BATCH)).map(&make).collect();
        let started = Instant::now();
        claims.iter().for_each(&mut call);
        spent += started.elapsed();
        after();
    }
    spent
}

fn calls(criterion: &mut Criterion) {
    for held in HELD {
        let store = store(held);
        let held_one = |number: u64| claim("held", number * STRIDE % held);
        let busy_one = |number: u64| claim("busy", number % BATCH);
        let new_one = |number: u64| claim("new", number);
        let nothing = || ();
        let mut group = criterion.benchmark_group(format!("{held} held"));

        group.bench_function("insert and complete", |bencher| {
            let response = response();
            let complete = |claim: &Claim| {
                let version = insert(&store, claim);
                let change = Change::Complete { response: response.clone(), expires_at: version.locked_at };
                assert_eq!(swap(&store, claim, &version, &change), Swapped::Applied);
            };
            let purge = || {
                now(store.purge(&PurgeOptions::default())).expect("this store does not fail");
            };
            bencher.iter_custom(|calls| timed(calls, new_one, complete, purge));
        });
        let lose = |claim: &Claim| {
            assert!(matches!(black_box(now(store.insert(claim))), Ok(Inserted::Existing(..))));
        };
        group.bench_function("losing insert, completed", |bencher| {
            bencher.iter_custom(|calls| timed(calls, held_one, lose, nothing));
        });
        group.bench_function("losing insert, in progress", |bencher| {
            bencher.iter_custom(|calls| timed(calls, busy_one, lose, nothing));
        });
        group.bench_function("losing swap", |bencher| {
            let change = Change::Complete { response: response(), expires_at: Timestamp::from_micros(0) };
            let lose = |claim: &Claim| {
                let mine = Version { locked_at: Timestamp::from_micros(0), owner: claim.owner() };
                assert!(matches!(black_box(swap(&store, claim, &mine, &change)), Swapped::Lost(Some(_), _)));
            };
            bencher.iter_custom(|calls| timed(calls, held_one, lose, nothing));
        });
        for (name, make) in [("load", &held_one as &dyn Fn(u64) -> Claim), ("load, absent", &new_one)] {
            group.bench_function(name, |bencher| {
                let load = |claim: &Claim| drop(black_box(now(store.load(claim.identity()))));
                bencher.iter_custom(|calls| timed(calls, make, load, nothing));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, calls);
criterion_main!(benches);
