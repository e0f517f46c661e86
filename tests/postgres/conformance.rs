//! The conformance suite, the same list, on every kind of server.

use crate::servers::{Shared, fresh, on_every_server};
use idem_core::conformance::{Fresh, Harness};
use idem_postgres::PostgresStore;

struct On(&'static Shared);

#[async_trait::async_trait]
impl Harness for On {
    type Store = PostgresStore;
    type Guard = ();

    async fn fresh(&self) -> Fresh<PostgresStore> {
        Fresh::new(fresh(self.0.config().await).await)
    }

    fn race_rounds(&self) -> usize {
        20
    }
}

on_every_server! {
    idem_core::conformance_suite!(On(&SHARED));
}
