//! The same history with the cache and without, while the worst is done to Redis.
//!
//! A history is a list of the model test's commands, drawn from a seed: claims, completions, failures, takeovers,
//! expiries, purges, lost replies. It is played on the bare store and then on the store behind the cache, and each time
//! every answer and every row must be the model's. A claim that the cache answers `Busy` asks again, as a client does,
//! until it is not: [`Patient`] sees that it is never told so for longer than the cap from when an entry that may have
//! said so has landed in Redis.
//!
//! `PROPTEST_CASES=500 cargo test -p idem-tests --test redis history` plays more lists than the usual few;
//! `PROPTEST_RNG_SEED=<seed>` those of a seed that was printed.

use crate::servers::postgres_config;
use crate::support::{fresh_prefix, name, now, try_to_reach};
use crate::torments::{Kind, Torment};
use async_trait::async_trait;
use idem_core::conformance::{CASES, Fresh, Harness};
use idem_core::machine::Change;
use idem_core::store::{Erase, Erased, Inserted, Loaded, PurgeOptions, Purged, Stats, StuckPage, StuckQuery, Swapped};
use idem_core::{Claim, Error, Identity, ManualClock, Scope, Store, Version};
use idem_memory::{MemoryConfig, MemoryStore};
use idem_postgres::PostgresStore;
use idem_redis_cache::{CacheCounts, NegativeCache};
use idem_tests::model::{ExactClock, OwnClock};
use idem_tests::stage::{play_from, seed};
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

/// Short, so that a test that waits for the end of many entries is over soon.
pub(crate) const CAP: Duration = Duration::from_millis(40);
/// Redis counts in milliseconds.
const TICK: Duration = Duration::from_millis(3);
/// Lists of commands for each torment; `PROPTEST_CASES` overrules it.
const LISTS: u32 = 16;

/// When entries that may say "busy" have landed, at the latest.
#[derive(Debug, Default)]
pub(crate) struct Landings(Mutex<HashMap<String, Landing>>);

#[derive(Debug, Default)]
struct Landing {
    under_way: u32,
    last: Option<Instant>,
    /// When the last write of something that must not be believed began and ended.
    forged: Option<(Instant, Instant)>,
}

impl Landings {
    /// From now on, and until this is dropped, an entry of this name may land.
    pub(crate) fn under_way(self: &Arc<Self>, name: &str) -> UnderWay {
        self.change(name, |landing| landing.under_way += 1);
        UnderWay { landings: Arc::clone(self), name: name.to_owned(), landed: true }
    }

    /// Since `from`, what may have said so is overwritten with something that must not be believed.
    pub(crate) fn forged(&self, name: &str, from: Instant) {
        self.change(name, |landing| landing.forged = Some((from, now())));
    }

    fn change<T>(&self, name: &str, change: impl FnOnce(&mut Landing) -> T) -> T {
        let mut landings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(landings.entry(name.to_owned()).or_default())
    }

    /// Somebody who asked at `asked_at` was told "busy".
    fn check(&self, name: &str, asked_at: Instant) {
        self.change(name, |landing| {
            if landing.under_way > 0 {
                return;
            }
            let last = landing.last.expect("busy, and nobody ever wrote an entry");
            if let Some((from, to)) = landing.forged {
                assert!(asked_at < to || last > from, "nonsense was believed");
            }
            let late = asked_at.saturating_duration_since(last);
            assert!(late <= CAP + TICK, "busy {late:?} after the last entry has landed, and the cap is {CAP:?}");
        });
    }
}

#[derive(Debug)]
pub(crate) struct UnderWay {
    landings: Arc<Landings>,
    name: String,
    landed: bool,
}

impl UnderWay {
    /// It is known not to have landed.
    pub(crate) fn came_to_nothing(mut self) {
        self.landed = false;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.landings.change(&self.name, |landing| {
            landing.under_way -= 1;
            if self.landed {
                landing.last = Some(now());
            }
        });
    }
}

/// Asks again while the answer is `Busy`, and sees that it is not so for too long.
struct Patient {
    cache: NegativeCache<Arc<dyn Store>>,
    prefix: String,
    torment: Arc<Torment>,
    /// Where the cache lives: beside the commands, and not only while one is played.
    runtime: Handle,
    told: Arc<Mutex<Vec<CacheCounts>>>,
}

impl Patient {
    async fn in_front_of(inner: Arc<dyn Store>, torment: &Arc<Torment>, told: &Arc<Mutex<Vec<CacheCounts>>>) -> Self {
        let prefix = fresh_prefix();
        let cache = NegativeCache::new(inner, torment.config().with_prefix(&prefix).with_cap(CAP));
        // There are torments under which it never is.
        try_to_reach(&cache, Duration::from_millis(300)).await;
        torment.is_about(&prefix);
        let (torment, told) = (Arc::clone(torment), Arc::clone(told));
        Self { cache, prefix, torment, runtime: Handle::current(), told }
    }

    /// Awaits a call of the cache, whose timers and tasks are where it lives.
    async fn call<T>(&self, call: impl Future<Output = T> + Send) -> T {
        let mut call = pin!(call);
        poll_fn(|context| {
            let _entered = self.runtime.enter();
            call.as_mut().poll(context)
        })
        .await
    }
}

impl Drop for Patient {
    fn drop(&mut self) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).push(self.cache.counts());
    }
}

#[async_trait]
impl Store for Patient {
    async fn insert(&self, claim: &Claim) -> Result<Inserted, Error> {
        let name = name(&self.prefix, claim.identity());
        loop {
            let (asked_at, failed) = (now(), self.cache.counts().failed);
            let landing = self.torment.landings().under_way(&name);
            let answer = self.call(self.cache.insert(claim)).await;
            let Ok(Inserted::Busy { retry_after }) = answer else {
                if self.cache.counts().failed > failed {
                    // What was sent to Redis may land later.
                    self.torment.settle(landing);
                }
                return answer;
            };
            // It has met another entry, and left none.
            landing.came_to_nothing();
            assert!(!claim.was_asked_before(), "a claim that was asked before must reach the store");
            assert!(retry_after <= CAP, "to be asked again after {retry_after:?}, and the cap is {CAP:?}");
            self.torment.landings().check(&name, asked_at);
            sleep(Duration::from_millis(1)).await;
        }
    }

    async fn swap(&self, identity: &Identity, expected: &Version, change: &Change) -> Result<Swapped, Error> {
        self.call(self.cache.swap(identity, expected, change)).await
    }

    async fn load(&self, identity: &Identity) -> Result<Loaded, Error> {
        self.call(self.cache.load(identity)).await
    }

    async fn purge(&self, options: &PurgeOptions) -> Result<Purged, Error> {
        self.call(self.cache.purge(options)).await
    }

    async fn stuck(&self, query: &StuckQuery) -> Result<StuckPage, Error> {
        self.call(self.cache.stuck(query)).await
    }

    async fn stats(&self) -> Result<Stats, Error> {
        self.call(self.cache.stats()).await
    }

    async fn erase(&self, scope: &Scope, which: Erase) -> Result<Erased, Error> {
        self.call(self.cache.erase(scope, which)).await
    }
}

fn memory(clock: Option<ManualClock>) -> Arc<dyn Store> {
    let clock = clock.expect("the model moves the clock");
    Arc::new(MemoryStore::new(MemoryConfig::default().with_clock(Arc::new(clock))))
}

/// Many claimers at once, of the conformance suite.
struct Races<'a>(&'a Torment);

#[async_trait]
impl Harness for Races<'_> {
    type Store = NegativeCache<MemoryStore>;
    type Guard = ();

    async fn fresh(&self) -> Fresh<Self::Store> {
        let prefix = fresh_prefix();
        let cache = NegativeCache::new(MemoryStore::default(), self.0.config().with_prefix(&prefix).with_cap(CAP));
        try_to_reach(&cache, Duration::from_millis(300)).await;
        self.0.is_about(&prefix);
        Fresh::new(cache)
    }

    fn race_rounds(&self) -> usize {
        20
    }
}

/// The same history with the cache and without, and then races, under one torment.
#[expect(clippy::print_stderr, reason = "what was done, and the seed, for those who have to look into it")]
fn is_the_same_under(kind: Kind) {
    let seed = seed();
    eprintln!("{kind:?}: PROPTEST_RNG_SEED={seed}");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let played = |played: Result<(), String>| played.unwrap_or_else(|failure| panic!("{failure}"));
    played(play_from::<ExactClock>(seed, &memory, LISTS));

    let torment = runtime.block_on(Torment::begin(kind, seed));
    let told = Arc::default();
    let tormented =
        |clock| -> Arc<dyn Store> { Arc::new(runtime.block_on(Patient::in_front_of(memory(clock), &torment, &told))) };
    played(play_from::<ExactClock>(seed, &tormented, LISTS));
    for case in CASES.iter().filter(|case| case.subject == "races") {
        runtime.block_on(case.run(&Races(&torment)));
    }
    bears_witness(kind, runtime.block_on(torment.end()), &told.lock().unwrap());
}

/// The same over PostgreSQL, which keeps its own time, with one torment after the other.
#[test]
#[expect(clippy::print_stderr, reason = "what was done, and the seed, for those who have to look into it")]
fn over_postgres_a_redis_that_suffers_everything_changes_nothing() {
    let seed = seed();
    eprintln!("everything, over PostgreSQL: PROPTEST_RNG_SEED={seed}");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let postgres = || async { PostgresStore::connect(postgres_config().await).await.unwrap() };
    let torment = runtime.block_on(Torment::begin(Kind::Everything, seed));
    let told = Arc::default();
    let tormented = |_| -> Arc<dyn Store> {
        Arc::new(runtime.block_on(async { Patient::in_front_of(Arc::new(postgres().await), &torment, &told).await }))
    };
    // What is done when is drawn, and so is what a call meets: of one history in a few, nothing that nobody writes.
    for more in 0..8 {
        let played = play_from::<OwnClock>(seed.wrapping_add(more), &tormented, LISTS);
        played.unwrap_or_else(|failure| panic!("{failure}"));
        if told.lock().unwrap().iter().any(|counts: &CacheCounts| counts.strange > 0) {
            break;
        }
    }
    bears_witness(Kind::Everything, runtime.block_on(torment.end()), &told.lock().unwrap());
}

/// A torment that nobody noticed would show nothing.
#[expect(clippy::print_stderr, reason = "what was done, for those who have to look into it")]
fn bears_witness(kind: Kind, deeds: u64, told: &[CacheCounts]) {
    let sum = |count: fn(&CacheCounts) -> u64| told.iter().map(count).sum::<u64>();
    let (busy, asked) = (sum(|counts| counts.busy), sum(|counts| counts.asked));
    let (past, failed, strange) =
        (sum(|counts| counts.past), sum(|counts| counts.failed), sum(|counts| counts.strange));
    eprintln!("{kind:?}: {deeds} deeds; {asked} asked, {busy} busy, {past} past, {failed} failed, {strange} strange");
    let (gets_through, fails, is_strange) = kind.expects();
    assert!(deeds > 3, "{deeds} deeds");
    assert_eq!(asked > 0 && busy > 0, gets_through, "whether calls got through");
    assert!(!fails || past > 0, "calls failed, or were not tried");
    assert!(!is_strange || strange > 0, "entries that nobody writes were met");
}

macro_rules! whatever_is_done_to_redis {
    ($($name:ident: $kind:ident,)*) => {$(
        #[test]
        fn $name() {
            is_the_same_under(Kind::$kind);
        }
    )*};
}

whatever_is_done_to_redis! {
    a_redis_that_is_left_alone_changes_nothing: LeftAlone,
    a_redis_that_is_flushed_changes_nothing: Flushed,
    a_redis_that_is_paused_changes_nothing: Paused,
    a_redis_that_pauses_writes_changes_nothing: WritesPaused,
    a_redis_that_is_stopped_changes_nothing: Stopped,
    a_redis_that_crashes_changes_nothing: Crashing,
    a_redis_that_is_full_changes_nothing: Full,
    a_redis_that_is_read_only_changes_nothing: ReadOnly,
    a_redis_that_wants_a_password_changes_nothing: Locked,
    a_redis_with_believable_lies_changes_nothing: Lying,
    a_redis_with_nonsense_in_it_changes_nothing: Nonsense,
    a_redis_that_is_restored_from_old_dumps_changes_nothing: Restored,
    a_redis_that_babbles_changes_nothing: Babbling,
    a_redis_that_says_nothing_changes_nothing: Silent,
}
