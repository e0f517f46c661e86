//! The sweeper: on unless turned off, catches up in batches, warns when it does not, stops when told.

use crate::support::*;
use idem_core::conformance::{CallKind, FaultPlan, FaultStore, Injection, ReferenceStore};
use idem_core::store::PurgeOptions;
use idem_core::{Claim, Engine, Failure, Identity, Key, Outcome, Scope, Store, Sweeper, SweeperOptions, Takeover};
use std::sync::Arc;
use std::time::Duration;

async fn settled(store: &impl Store, keys: u32) {
    for number in 0..keys {
        let identity = Identity::new(Scope::new("s").unwrap(), Key::new(format!("k{number}")).unwrap());
        let claim = Claim::new(identity.clone(), fingerprint(b"1"), Takeover::Never).with_retention(Duration::ZERO);
        let idem_core::store::Inserted::Won(version) = store.insert(&claim).await.unwrap() else { panic!("new") };
        let record = store.load(&identity).await.unwrap().record.unwrap();
        let change = idem_core::machine::Ownership::new(*record).complete(answer(1), Duration::ZERO, Duration::ZERO);
        assert_eq!(store.swap(&identity, &version, &change).await.unwrap(), idem_core::store::Swapped::Applied);
    }
}

fn options() -> SweeperOptions {
    SweeperOptions::default().with_interval(Duration::from_secs(1)).with_purge(PurgeOptions::default().with_batch(7))
}

#[tokio::test(start_paused = true)]
async fn it_purges_until_it_has_caught_up_and_goes_on_after_an_error() {
    let plan = FaultPlan::none().on(CallKind::Purge, 1, Injection::Refuse).on(CallKind::Purge, 2, Injection::Hang);
    let store = Arc::new(FaultStore::new(ReferenceStore::with_clock(RuntimeClock::start()), plan));
    settled(store.inner(), 50).await;
    let sweeper = Sweeper::spawn(Arc::clone(&store) as Arc<dyn Store>, options());
    while store.inner().stats().await.unwrap().total() > 0 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // One refused, one that never came back, then eight for 50 records in batches of seven.
    assert_eq!(store.calls_of(CallKind::Purge), 10);
    sweeper.stop().await;
    let calls = store.calls();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(store.calls(), calls, "it has stopped");
}

#[tokio::test(start_paused = true)]
async fn an_engine_has_one_unless_it_is_turned_off() {
    for on in [true, false] {
        let store = Arc::new(ReferenceStore::with_clock(RuntimeClock::start()));
        settled(&*store, 1).await;
        let builder = Engine::builder(Arc::clone(&store));
        let engine = if on { builder.with_sweeper(options()) } else { builder.without_sweeper() }.build().unwrap();
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(store.stats().await.unwrap().total(), u64::from(!on));
        let outcome = engine.execute(request(), |_| async { Ok::<_, Failure<()>>(answer(1)) }).await.unwrap();
        assert!(matches!(outcome, Outcome::Executed { .. }));
        assert!(engine.drain(Duration::from_secs(1)).await.settled);
    }
}
