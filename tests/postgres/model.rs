//! The model test, the same list of commands, on every kind of server.

use crate::servers::{Shared, on_every_server};
use idem_core::{ManualClock, Store};
use idem_postgres::PostgresStore;
use idem_tests::model::OwnClock;
use idem_tests::stage::play;
use std::sync::Arc;

/// Lists of commands for each kind of server; `PROPTEST_CASES` overrules it.
const CASES: u32 = 24;

fn plays_like_the_model(shared: &'static Shared) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let make = |_: Option<ManualClock>| -> Arc<dyn Store> {
        // A thread, since the commands are played on a runtime of their own, which this one must not meet.
        let config = std::thread::scope(|scope| {
            let made = scope.spawn(|| {
                runtime.block_on(async {
                    let config = shared.config().await.with_max_connections(1);
                    PostgresStore::migrate(&config).await.unwrap();
                    config
                })
            });
            made.join().unwrap()
        });
        // It connects when it is first used, on the runtime on which the commands are played.
        Arc::new(PostgresStore::unchecked(config).unwrap())
    };
    play::<OwnClock>(&make, CASES).unwrap_or_else(|failure| panic!("{failure}"));
}

on_every_server! {
    #[test]
    fn does_what_the_model_does() {
        plays_like_the_model(&SHARED);
    }
}
