//! What this back end promises beyond the contract: exact limits, nothing alive evicted, an account that comes back to
//! zero.

use super::*;
use crate::Limit;
use crate::room::{FIELD_OVERHEAD, OVERHEAD};
use bytes::Bytes;
use futures_util::FutureExt;
use idem_core::machine::{Decision, Ownership, decide};
use idem_core::{Fingerprint, Key, LeaseLength, ManualClock, Record, RecoveryPoint, Response, Status, Takeover};
use std::error::Error as _;
use std::sync::Barrier;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const MICROSECOND: Duration = Duration::from_micros(1);

struct Bench {
    store: MemoryStore,
    clock: ManualClock,
}

fn bench(configure: impl FnOnce(MemoryConfig) -> MemoryConfig) -> Bench {
    let clock = ManualClock::new(Timestamp::from_micros(1_000_000));
    let config = configure(MemoryConfig::default().with_clock(Arc::new(clock.clone())));
    Bench { store: MemoryStore::new(config), clock }
}

/// Every future of this store is ready at its first poll.
fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("nothing in this store waits")
}

fn identity(scope: &str, key: usize) -> Identity {
    Identity::new(Scope::new(scope).unwrap(), Key::new(format!("key-{key}")).unwrap())
}

fn claim(key: usize) -> Claim {
    claim_in("scope", key)
}

fn claim_in(scope: &str, key: usize) -> Claim {
    let fingerprint = Fingerprint::builder("POST /").bytes(b"body").finish().unwrap();
    Claim::new(identity(scope, key), fingerprint, Takeover::Resume).with_retention(HOUR)
}

impl Bench {
    fn insert(&self, claim: &Claim) -> Result<Inserted, Error> {
        now(self.store.insert(claim))
    }

    /// Claims and gives what the owner holds.
    fn own(&self, claim: &Claim) -> Ownership {
        assert!(matches!(self.insert(claim), Ok(Inserted::Won(_))));
        Ownership::new(self.record(claim.identity()).unwrap())
    }

    fn record(&self, identity: &Identity) -> Option<Record> {
        now(self.store.load(identity)).unwrap().record.map(|record| *record)
    }

    fn swap(&self, identity: &Identity, owner: &Ownership, change: &Change) {
        assert_eq!(now(self.store.swap(identity, &owner.version(), change)).unwrap(), Swapped::Applied);
    }

    fn complete(&self, claim: &Claim, response: Response) {
        let owner = self.own(claim);
        self.swap(claim.identity(), &owner, &owner.complete(response, Duration::ZERO, Duration::ZERO));
    }

    fn fail(&self, claim: &Claim) {
        let owner = self.own(claim);
        self.swap(claim.identity(), &owner, &owner.fail(false, Duration::ZERO, Duration::ZERO).unwrap());
    }

    fn purge(&self, options: &PurgeOptions) -> Purged {
        let purged = now(self.store.purge(options)).unwrap();
        self.check();
        purged
    }

    /// The account says what the shards hold.
    fn check(&self) {
        let (mut records, mut bytes) = (0, 0);
        for shard in &self.store.shards {
            let (more_records, more_bytes) = lock(shard).check();
            records += more_records;
            bytes += more_bytes;
        }
        assert_eq!((self.store.records(), self.store.bytes()), (records, bytes));
    }
}

fn assert_full(answer: Result<Inserted, Error>, limit: Limit) {
    let error = answer.expect_err("there is no room");
    assert_eq!((error.kind(), error.write_outcome()), (ErrorKind::Capacity, WriteOutcome::NotApplied));
    let source = error.source().and_then(|source| source.downcast_ref::<CapacityError>()).unwrap();
    assert_eq!(source.limit(), limit);
}

#[test]
fn a_full_store_refuses_new_keys_and_keeps_what_it_has() {
    let bench = bench(|config| config.with_max_records(4));
    bench.complete(&claim(0), Response::value("answer"));
    bench.fail(&claim(1));
    let (live, unresolved) = (claim(2), claim(3).with_lease(LeaseLength::ZERO));
    let live_owner = bench.own(&live);
    bench.own(&unresolved);
    let before: Vec<_> = (0..4).map(|key| bench.record(&identity("scope", key)).unwrap()).collect();

    assert_full(bench.insert(&claim(4)), Limit::Records);

    let after: Vec<_> = (0..4).map(|key| bench.record(&identity("scope", key)).unwrap()).collect();
    assert_eq!(before, after);
    assert_eq!(bench.record(&identity("scope", 4)), None);
    // Keys that are known are answered as ever, and owners settle.
    assert!(matches!(bench.insert(&claim(0)), Ok(Inserted::Existing(..))));
    bench.swap(live.identity(), &live_owner, &live_owner.complete(Response::value("late"), HOUR, HOUR));
    bench.check();
}

#[test]
fn an_expired_record_makes_room_and_an_unresolved_one_never_does() {
    let bench = bench(|config| config.with_max_records(3).with_shards(2));
    bench.complete(&claim(0), Response::value("answer"));
    bench.fail(&claim(1));
    bench.own(&claim(2).with_lease(LeaseLength::ZERO));
    bench.clock.advance(HOUR - MICROSECOND);
    assert_full(bench.insert(&claim(3)), Limit::Records);

    // At the very instant of equality they are expired.
    bench.clock.advance(MICROSECOND);
    assert!(matches!(bench.insert(&claim(3)), Ok(Inserted::Won(_))));
    assert!(matches!(bench.insert(&claim(4)), Ok(Inserted::Won(_))));
    assert_full(bench.insert(&claim(5)), Limit::Records);
    assert_eq!(bench.record(&identity("scope", 2)).unwrap().status(), Status::InProgress);
    bench.check();
}

#[test]
fn room_is_made_in_whichever_shard_the_expired_records_are() {
    let bench = bench(|config| config.with_max_records(64).with_shards(64));
    for key in 0..64 {
        bench.complete(&claim(key).with_retention(Duration::ZERO), Response::value("answer"));
    }
    for key in 64..128 {
        assert!(matches!(bench.insert(&claim(key)), Ok(Inserted::Won(_))), "{key}");
    }
    assert_full(bench.insert(&claim(128)), Limit::Records);
    bench.check();
}

#[test]
fn bytes_are_a_limit_for_claims_and_never_for_completions() {
    let bench = bench(|config| config.with_max_bytes(2 * OVERHEAD + 500));
    let first = claim(0);
    let owner = bench.own(&first);
    bench.swap(
        first.identity(),
        &owner,
        &owner.complete(Response::value(vec![b'x'; 10_000]), Duration::ZERO, Duration::ZERO),
    );
    assert!(bench.store.bytes() > 10_000);
    assert_full(bench.insert(&claim(1)), Limit::Bytes);
    assert_eq!(bench.store.records(), 1, "a claim that was refused for its bytes holds no record");

    bench.clock.advance(HOUR);
    bench.own(&claim(1));
    bench.own(&claim(2));
    assert_full(bench.insert(&claim(3)), Limit::Bytes);
    bench.check();
}

#[test]
fn the_last_free_slots_are_given_out_exactly() {
    const THREADS: usize = 64;
    const FREE: usize = 10;
    for _ in 0..50 {
        let bench = bench(|config| config.with_max_records(FREE));
        let barrier = Barrier::new(THREADS);
        let won = std::thread::scope(|threads| {
            let racing: Vec<_> = (0..THREADS)
                .map(|key| {
                    let (bench, barrier) = (&bench, &barrier);
                    threads.spawn(move || {
                        let claim = claim(key);
                        barrier.wait();
                        match bench.insert(&claim) {
                            Ok(Inserted::Won(_)) => true,
                            refused => {
                                assert_full(refused, Limit::Records);
                                false
                            }
                        }
                    })
                })
                .collect();
            racing.into_iter().map(|thread| usize::from(thread.join().unwrap())).sum::<usize>()
        });
        assert_eq!((won, bench.store.records()), (FREE, FREE));
        bench.check();
    }
}

#[test]
fn the_account_comes_back_to_zero() {
    let bench = bench(|config| config);
    let with_everything = claim(0);
    let mut owner = bench.own(&with_everything);
    let point = RecoveryPoint { name: "charged".into(), data: Bytes::from_static(b"data") };
    let before = bench.store.bytes();
    let checkpoint = owner.checkpoint(point, Duration::ZERO, HOUR);
    bench.swap(with_everything.identity(), &owner, &checkpoint);
    assert_eq!(bench.store.bytes() - before, "charged".len() + "data".len());
    owner.landed(&checkpoint);
    let response = Response::new(200, "body").with_header("a", "b").with_trailer("c", "d").with_seal_key_id("seal");
    let complete = owner.complete(response, Duration::ZERO, Duration::ZERO);
    bench.swap(with_everything.identity(), &owner, &complete);
    let all = "charged".len() + "data".len() + "bodyabcdseal".len() + 2 * FIELD_OVERHEAD;
    assert_eq!(bench.store.bytes() - before, all);
    bench.check();

    bench.clock.advance(HOUR);
    // A new life forgets the response and the recovery point of the old one.
    let again = claim(0).with_retention(Duration::ZERO);
    let Inserted::Existing(found, clock) = bench.insert(&again).unwrap() else { panic!("it was not purged") };
    let Decision::Swap { expected, change } = decide(&found, &again, clock) else { panic!("it has expired") };
    assert_eq!(now(bench.store.swap(again.identity(), &expected, &change)).unwrap(), Swapped::Applied);
    assert_eq!(bench.store.bytes(), before);
    bench.check();

    bench.fail(&claim(1).with_retention(Duration::ZERO));
    assert_eq!(bench.purge(&PurgeOptions::default()).total(), 1);
    let erased = now(bench.store.erase(again.identity().scope(), Erase::Everything)).unwrap();
    assert_eq!((erased.deleted, erased.kept), (1, 0));
    bench.check();
    assert_eq!((bench.store.records(), bench.store.bytes()), (0, 0));
}

#[test]
fn a_purge_honours_its_batch_across_shards() {
    let bench = bench(|config| config.with_shards(8));
    for key in 0..20 {
        bench.complete(&claim(key).with_retention(Duration::ZERO), Response::value("answer"));
    }
    for key in 20..30 {
        bench.own(&claim(key).with_retention(Duration::ZERO).with_lease(LeaseLength::ZERO));
    }
    let options = PurgeOptions::default().with_batch(7);
    let kept: Vec<_> =
        (0..4).map(|_| bench.purge(&options)).map(|purged| (purged.settled, purged.unresolved)).collect();
    assert_eq!(kept, [(7, 0), (7, 0), (6, 0), (0, 0)]);
    let options = options.with_unresolved(UnresolvedRows::DropAfter(MICROSECOND));
    assert_eq!(bench.purge(&options).total(), 0);
    bench.clock.advance(MICROSECOND);
    let dropped: Vec<_> = (0..3).map(|_| bench.purge(&options).unresolved).collect();
    assert_eq!(dropped, [7, 3, 0]);
}

#[test]
fn a_record_expires_at_the_instant_of_equality() {
    let bench = bench(|config| config);
    bench.complete(&claim(0), Response::value("answer"));
    bench.clock.advance(HOUR - MICROSECOND);
    assert_eq!(bench.purge(&PurgeOptions::default()).total(), 0);
    assert_eq!(now(bench.store.stats()).unwrap().expired, 0);
    bench.clock.advance(MICROSECOND);
    assert_eq!(now(bench.store.stats()).unwrap().expired, 1);
    let purged = bench.purge(&PurgeOptions::default());
    assert_eq!((purged.settled, purged.oldest_expired), (1, Some(Duration::ZERO)));
}

#[test]
fn erasing_a_scope_leaves_its_neighbours() {
    let bench = bench(|config| config.with_shards(4));
    for scope in ["a", "a/b", "A", "ab"] {
        bench.complete(&claim_in(scope, 0), Response::value("answer"));
        bench.own(&claim_in(scope, 1));
    }
    let scope = Scope::new("a").unwrap();
    let settled = now(bench.store.erase(&scope, Erase::Settled)).unwrap();
    assert_eq!((settled.deleted, settled.kept), (1, 1));
    let rest = now(bench.store.erase(&scope, Erase::Everything)).unwrap();
    assert_eq!((rest.deleted, rest.kept), (1, 0));
    assert_eq!(bench.store.records(), 6);
    bench.check();
}

#[test]
fn a_panicking_clock_leaves_the_store_usable() {
    #[derive(Debug)]
    struct Broken(ManualClock);
    impl Clock for Broken {
        fn now(&self) -> Timestamp {
            assert!(self.0.now().as_micros() > 0, "the clock is broken");
            self.0.now()
        }
    }
    let clock = ManualClock::new(Timestamp::from_micros(0));
    let config = MemoryConfig::default().with_shards(1).with_clock(Arc::new(Broken(clock.clone())));
    let bench = Bench { store: MemoryStore::new(config), clock };
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bench.insert(&claim(0))));
    assert!(panicked.is_err());
    bench.clock.advance(HOUR);
    bench.own(&claim(0));
    bench.check();
}

#[test]
fn debug_shows_counts_only() {
    let bench = bench(|config| config.with_shards(3));
    bench.own(&claim_in("canary", 0));
    let shown = format!("{:?}", bench.store);
    assert!(shown.starts_with("MemoryStore { records: 1, bytes: ") && shown.contains("shards: 4"), "{shown}");
    assert!(!shown.contains("canary"));
}
