//! The connection is cut at every byte of an exchange, in both directions, by FIN and by RST: the caller ends up knowing the truth.
//!
//! The claimer's store goes through the rig's proxy; a second store goes straight to the server, makes what was there before, and looks at
//! what came of it. An exchange's length and its message boundaries are learned once, on a warm connection. The fresh claim and the
//! completion are cut at every byte; the others at every message boundary, one byte before and after each, and a sample between them.

use crate::servers::{Shared, Way};
use crate::support::{LEASE, acquired, answer, claim, engine, record, request};
use crate::tap::{Heard, Tap, message_ends};
use idem_core::machine::{Change, Previous};
use idem_core::store::{Inserted, Swapped};
use idem_core::{
    Begun, Engine, Error, Lease, Record, RecoveryPoint, Settlement, State, Status, Store, Timestamp, WriteOutcome,
};
use idem_postgres::{PostgresConfig, PostgresStore};
use idem_tests::rig::postgres::Version;
use idem_tests::rig::proxy::{Cut, Direction, Proxy};
use idem_tests::rig::url::with_address;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

static SHARED: Shared = Shared::new(Version::Any, Way::Direct);

/// How many connections are cut at the same time, each by a proxy of its own.
const LANES: usize = 8;

/// What is done while the connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    FreshClaim,
    ClaimOfATakenKey,
    Takeover,
    Renewal,
    BeginEffect,
    Checkpoint,
    Completion,
    Fail,
    Abandon,
}

/// What the caller has in hand before the operation.
enum Ready {
    Key,
    Lease(Lease),
}

/// What the caller knows after it.
enum Known {
    Begun(Begun),
    Holds(Lease),
    Settled(Settlement),
}

/// One connection through a proxy or a tap, and a store that nobody disturbs, over the same table.
struct Lane {
    /// Behind what disturbs, as the engine over it.
    store: PostgresStore,
    engine: Engine,
    direct: PostgresStore,
    direct_engine: Engine,
}

impl Lane {
    async fn new(address: &str, table: &str, simple: bool) -> Self {
        let config =
            |url: &str| PostgresConfig::from_url(url).unwrap().with_table(table).unwrap().with_max_connections(1);
        let url = SHARED.url().await;
        let behind = config(&with_address(url, address)).with_transaction_pooler(simple);
        // Unchecked: the check would be one more statement.
        let store = PostgresStore::unchecked(behind).unwrap();
        let direct = PostgresStore::unchecked(config(url)).unwrap();
        Self { engine: engine(&store), direct_engine: engine(&direct), store, direct }
    }

    async fn record(&self, key: &str) -> Record {
        record(&self.direct, key).await.expect("the record is there")
    }

    /// Brings the key to where the operation begins.
    async fn prepare(&self, operation: Operation, key: &str) -> Ready {
        match operation {
            Operation::FreshClaim => Ready::Key,
            Operation::ClaimOfATakenKey => {
                let lease = acquired(&self.direct_engine, key).await;
                assert_eq!(lease.complete(answer(key)).await.unwrap(), Settlement::Recorded);
                Ready::Key
            }
            Operation::Takeover => {
                let lease = acquired(&self.direct_engine, key).await;
                assert_eq!(lease.abandon().await.unwrap(), Settlement::Recorded);
                Ready::Key
            }
            _ => Ready::Lease(acquired(&self.engine, key).await),
        }
    }

    /// The operation itself. Whatever happens to one connection, no error: the truth can be had.
    async fn run(&self, operation: Operation, key: &str, ready: Ready) -> Result<Known, String> {
        let words = |error: &dyn std::fmt::Debug| format!("{error:?}");
        let lease = match ready {
            Ready::Key => {
                let begun = self.engine.begin(request(key)).await;
                return begun.map(Known::Begun).map_err(|error| words(&error));
            }
            Ready::Lease(lease) => lease,
        };
        let settled = match operation {
            Operation::Renewal => {
                return lease.renew().await.map(|()| Known::Holds(lease)).map_err(|error| words(&error));
            }
            Operation::BeginEffect => {
                return lease.begin_effect("charge").await.map(|()| Known::Holds(lease)).map_err(|error| words(&error));
            }
            Operation::Checkpoint => {
                let done = lease.checkpoint("charged", "ch_1").await;
                return done.map(|()| Known::Holds(lease)).map_err(|error| words(&error));
            }
            Operation::Completion => lease.complete(answer(key)).await,
            Operation::Fail => lease.fail().await,
            Operation::Abandon => lease.abandon().await,
            Operation::FreshClaim | Operation::ClaimOfATakenKey | Operation::Takeover => {
                unreachable!("no lease before")
            }
        };
        settled.map(Known::Settled).map_err(|error| words(&error))
    }

    /// What the caller knows is what is there, and nobody else was told anything different.
    async fn verify(&self, operation: Operation, key: &str, known: Known, before: Option<&Record>) {
        let found = self.record(key).await;
        let attempt = if operation == Operation::Takeover { 2 } else { 1 };
        assert_eq!((found.attempt, found.unresolved), (attempt, attempt - 1), "no owner took over from itself");
        if operation != Operation::Takeover
            && let Some(before) = before
        {
            assert_eq!((found.version, found.created_at), (before.version, before.created_at), "one ownership");
        }
        let lease = match (operation, known) {
            (Operation::ClaimOfATakenKey, Known::Begun(Begun::Replayed(response))) => {
                assert_eq!(response, answer(key));
                assert_eq!(Some(&found), before, "nothing was written");
                return;
            }
            (Operation::FreshClaim, Known::Begun(Begun::Acquired(lease))) => {
                assert_eq!(lease.previous(), Previous::None);
                lease
            }
            (Operation::Takeover, Known::Begun(Begun::Acquired(lease))) => {
                assert_eq!(lease.previous(), Previous::Unknown { effect_begun: false });
                lease
            }
            (_, Known::Holds(lease)) => {
                let before = before.expect("a lease has a record");
                assert!(found.lease > before.lease, "the lease is longer");
                assert_eq!(found.effect_begun, operation == Operation::BeginEffect);
                let point = RecoveryPoint { name: "charged".into(), data: "ch_1".into() };
                assert_eq!(found.recovery_point, (operation == Operation::Checkpoint).then_some(point));
                lease
            }
            (_, Known::Settled(settlement)) => {
                assert_eq!(settlement, Settlement::Recorded);
                match operation {
                    Operation::Completion => {
                        assert_eq!(found.state, State::Completed(answer(key)));
                        self.replays(key).await;
                    }
                    Operation::Fail => assert_eq!(found.status(), Status::Failed),
                    _ => assert_eq!((found.status(), found.lease.as_millis()), (Status::InProgress, 0)),
                }
                return;
            }
            (_, Known::Begun(begun)) => panic!("it was to be granted or replayed: {begun:?}"),
        };
        // The one grant is this one, and it is as good as any.
        assert_eq!(found.status(), Status::InProgress);
        assert_eq!((lease.attempt(), lease.fencing_token()), (attempt, found.version.fencing_token()));
        assert!(lease.remaining() <= LEASE && !lease.remaining().is_zero());
        let rival = self.direct_engine.begin(request(key)).await.unwrap();
        assert!(matches!(rival, Begun::InProgress { .. }), "{rival:?}");
        assert_eq!(lease.complete(answer(key)).await.unwrap(), Settlement::Recorded);
        self.replays(key).await;
    }

    async fn replays(&self, key: &str) {
        let begun = self.direct_engine.begin(request(key)).await.unwrap();
        assert!(matches!(&begun, Begun::Replayed(response) if *response == answer(key)), "{begun:?}");
    }

    /// The operation on a key of its own, so that the connection lives and knows the statements.
    async fn warm_up(&self, operation: Operation, key: &str) -> Ready {
        for half in ["a", "b"] {
            let key = format!("{key}{half}");
            let ready = self.prepare(operation, &key).await;
            let known = self.run(operation, &key, ready).await.unwrap();
            if let Known::Begun(Begun::Acquired(lease)) | Known::Holds(lease) = known {
                assert_eq!(lease.complete(answer(&key)).await.unwrap(), Settlement::Recorded);
            }
        }
        self.prepare(operation, &format!("{key}c")).await
    }
}

/// The bytes of one operation on a warm connection.
async fn learn(operation: Operation, simple: bool) -> Heard {
    let tap = Tap::start(&SHARED.server().await.address()).await;
    let lane = Lane::new(&tap.address, &SHARED.table().await, simple).await;
    let ready = lane.warm_up(operation, "00000").await;
    tap.forget();
    let known = lane.run(operation, "00000c", ready).await.unwrap();
    let heard = tap.heard();
    drop(known);
    heard
}

/// After how many bytes to cut a stream: 0 to all of it, every `step`th, and whatever is next to the end of a message.
fn places(stream: &[u8], step: usize) -> BTreeSet<usize> {
    let mut places: BTreeSet<usize> = (0..=stream.len()).step_by(step).collect();
    for end in message_ends(stream) {
        places.extend([end - 1, end, end + 1]);
    }
    places.retain(|place| *place <= stream.len());
    places
}

/// Cuts an operation's connection everywhere, or at every `step`th byte.
#[expect(clippy::print_stderr, reason = "how much was cut belongs to the test's output")]
async fn cut_everywhere(operation: Operation, simple: bool, step: usize) {
    let heard = learn(operation, simple).await;
    let mut cases = Vec::new();
    for (direction, stream) in [(Direction::ToServer, &heard.to_server), (Direction::ToClient, &heard.to_client)] {
        for bytes in places(stream, step) {
            cases.extend([Cut::Finish, Cut::Reset].map(|how| (direction, bytes, how)));
        }
    }
    eprintln!(
        "{operation:?}: {} bytes there, {} back, {} cuts",
        heard.to_server.len(),
        heard.to_client.len(),
        cases.len()
    );
    let (cases, next) = (Arc::new(cases), Arc::new(AtomicUsize::new(0)));
    let table: Arc<str> = SHARED.table().await.into();
    let mut lanes = tokio::task::JoinSet::new();
    for _ in 0..LANES {
        let (cases, next, table) = (Arc::clone(&cases), Arc::clone(&next), Arc::clone(&table));
        lanes.spawn(async move {
            let proxy = Proxy::start(&SHARED.server().await.address()).await;
            let lane = Lane::new(&proxy.address(), &table, simple).await;
            loop {
                let number = next.fetch_add(1, Ordering::SeqCst);
                let Some((direction, bytes, how)) = cases.get(number).copied() else { return };
                let case = Case { operation, direction, bytes, how };
                let name = format!("{number:05}");
                let ready = lane.warm_up(operation, &name).await;
                case.cut(&proxy, &lane, &format!("{name}c"), ready).await;
            }
        });
    }
    while let Some(done) = lanes.join_next().await {
        if let Err(failed) = done {
            std::panic::resume_unwind(failed.into_panic());
        }
    }
}

#[derive(Debug)]
struct Case {
    operation: Operation,
    direction: Direction,
    bytes: usize,
    how: Cut,
}

impl Case {
    async fn cut(&self, proxy: &Proxy, lane: &Lane, key: &str, ready: Ready) {
        let before = record(&lane.direct, key).await;
        let accepted = proxy.accepted();
        proxy.cut_after(self.direction, self.bytes as u64, self.how);
        let known = lane.run(self.operation, key, ready).await;
        // A fault that did not happen would show nothing.
        assert!(!proxy.is_armed(self.direction), "{self:?}: the connection was not cut");
        let known = known.unwrap_or_else(|error| panic!("{self:?}: {error}"));
        // What fails from here on says in which case.
        let told = TellOnPanic(self);
        lane.verify(self.operation, key, known, before.as_ref()).await;
        drop(told);
        assert!(proxy.accepted() <= accepted + 2, "{self:?}: more new connections than cuts");
    }
}

struct TellOnPanic<'a>(&'a Case);

impl Drop for TellOnPanic<'_> {
    #[expect(clippy::print_stderr, reason = "a failed case has to be named")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in the case {:?}", self.0);
        }
    }
}

/// Between the boundaries of messages every so manieth byte.
const SAMPLE: usize = 29;

macro_rules! cuts {
    ($($name:ident: $operation:ident, $simple:expr, $step:expr;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            cut_everywhere(Operation::$operation, $simple, $step).await;
        }
    )*};
}

cuts! {
    a_fresh_claim: FreshClaim, false, 1;
    a_claim_of_a_taken_key: ClaimOfATakenKey, false, SAMPLE;
    a_takeover: Takeover, false, SAMPLE;
    a_renewal: Renewal, false, SAMPLE;
    a_mark: BeginEffect, false, SAMPLE;
    a_checkpoint: Checkpoint, false, SAMPLE;
    a_completion: Completion, false, 1;
    a_failure: Fail, false, SAMPLE;
    an_abandoned_lease: Abandon, false, SAMPLE;
    a_fresh_claim_as_a_simple_query: FreshClaim, true, SAMPLE;
    a_completion_as_a_simple_query: Completion, true, SAMPLE;
}

/// Without an engine: an error that says "not applied" is true, and an answer is too.
async fn a_stores_word_is_true(simple: bool) {
    let proxy = Proxy::start(&SHARED.server().await.address()).await;
    let lane = Lane::new(&proxy.address(), &SHARED.table().await, simple).await;
    let mut seen = BTreeSet::new();
    for operation in [Operation::FreshClaim, Operation::Completion] {
        let heard = learn(operation, simple).await;
        for (direction, stream) in [(Direction::ToServer, &heard.to_server), (Direction::ToClient, &heard.to_client)] {
            for bytes in places(stream, SAMPLE) {
                let key = format!("{operation:?}-{direction:?}-{bytes}");
                let _ready = lane.warm_up(operation, &key).await;
                let claim = claim(&key);
                let change = (operation == Operation::Completion).then(|| Change::Complete {
                    response: answer(&key),
                    expires_at: Timestamp::from_micros(i64::MAX / 4),
                });
                let mut expected = None;
                if change.is_some() {
                    let Inserted::Won(version) = lane.direct.insert(&claim).await.unwrap() else { panic!("{key}") };
                    expected = Some(version);
                }
                proxy.cut_after(direction, bytes as u64, Cut::Finish);
                let told = match (&change, &expected) {
                    (Some(change), Some(expected)) => {
                        let swapped = lane.store.swap(claim.identity(), expected, change).await;
                        swapped.map(|swapped| matches!(swapped, Swapped::Applied))
                    }
                    _ => lane.store.insert(&claim).await.map(|inserted| matches!(inserted, Inserted::Won(_))),
                };
                let found = record(&lane.direct, &key).await;
                let applied = match operation {
                    Operation::FreshClaim => found.is_some(),
                    _ => found.unwrap().status() == Status::Completed,
                };
                match &told {
                    Ok(told) => assert!(*told && applied, "{key}: told {told}, found {applied}"),
                    Err(error) if error.write_outcome() == WriteOutcome::NotApplied => {
                        assert!(!applied, "{key}: {error}");
                    }
                    Err(error) => assert!(error.is_transient(), "{key}: {error:?}"),
                }
                seen.insert((told_as(&told), applied));
            }
        }
    }
    // Cut after the last byte, before the commit, and after it.
    assert_eq!(seen, BTreeSet::from([("applied", true), ("unknown", false), ("unknown", true)]));
}

fn told_as(told: &Result<bool, Error>) -> &'static str {
    match told {
        Ok(_) => "applied",
        Err(error) if error.write_outcome() == WriteOutcome::NotApplied => "not applied",
        Err(_) => "unknown",
    }
}

#[tokio::test]
async fn a_stores_word_is_true_about_prepared_statements() {
    a_stores_word_is_true(false).await;
}

#[tokio::test]
async fn a_stores_word_is_true_about_simple_queries() {
    a_stores_word_is_true(true).await;
}
