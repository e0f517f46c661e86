//! The model test, the same list of commands, on PostgreSQL.

use crate::support::{Shared, fresh_table};
use idem_core::{ManualClock, Store};
use idem_postgres::{PostgresConfig, PostgresStore};
use idem_tests::model::OwnClock;
use idem_tests::rig::postgres::Version;
use idem_tests::stage::play;
use std::sync::Arc;

/// Lists of commands for each kind of server; `PROPTEST_CASES` overrules it.
const CASES: u32 = 48;

fn plays_like_the_model(shared: &'static Shared, simple: bool) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let url = runtime.block_on(shared.url()).to_owned();
    let make = |_: Option<ManualClock>| -> Arc<dyn Store> {
        let config = PostgresConfig::from_url(&url).unwrap().with_table(&fresh_table()).unwrap();
        let config = config.with_max_connections(1).with_transaction_pooler(simple);
        // The store connects when it is first used, on the runtime on which the commands are played.
        std::thread::scope(|scope| {
            scope.spawn(|| runtime.block_on(PostgresStore::migrate(&config)).unwrap());
        });
        Arc::new(PostgresStore::unchecked(config).unwrap())
    };
    play::<OwnClock>(&make, CASES).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn postgres_does_what_the_model_does() {
    static SHARED: Shared = Shared::new(Version::Any, None);
    plays_like_the_model(&SHARED, false);
}

#[test]
fn postgres_does_what_the_model_does_in_simple_queries() {
    static SHARED: Shared = Shared::new(Version::Any, None);
    plays_like_the_model(&SHARED, true);
}

#[test]
fn postgres_does_what_the_model_does_under_a_serializable_role() {
    static SHARED: Shared = Shared::new(Version::Any, Some("serializable"));
    plays_like_the_model(&SHARED, false);
}
