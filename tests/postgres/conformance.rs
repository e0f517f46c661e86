//! The conformance suite, the same list, on every kind of server.

use crate::support::{Shared, fresh};
use idem_core::conformance::{Fresh, Harness};
use idem_postgres::PostgresStore;
use idem_tests::rig::postgres::Version;

/// A server, and whether calls go as simple queries, as they must behind a transaction pooler.
struct Setting {
    shared: &'static Shared,
    simple: bool,
}

#[async_trait::async_trait]
impl Harness for Setting {
    type Store = PostgresStore;
    type Guard = ();

    async fn fresh(&self) -> Fresh<PostgresStore> {
        let config = self.shared.config().await.with_transaction_pooler(self.simple);
        Fresh::new(fresh(config).await)
    }

    fn race_rounds(&self) -> usize {
        50
    }
}

mod any {
    use super::*;
    static SHARED: Shared = Shared::new(Version::Any, None);
    idem_core::conformance_suite!(Setting { shared: &SHARED, simple: false });
}

mod simple_queries {
    use super::*;
    static SHARED: Shared = Shared::new(Version::Any, None);
    idem_core::conformance_suite!(Setting { shared: &SHARED, simple: true });
}

mod serializable {
    use super::*;
    static SHARED: Shared = Shared::new(Version::Any, Some("serializable"));
    idem_core::conformance_suite!(Setting { shared: &SHARED, simple: false });
}

mod repeatable_read {
    use super::*;
    static SHARED: Shared = Shared::new(Version::Any, Some("repeatable read"));
    idem_core::conformance_suite!(Setting { shared: &SHARED, simple: false });
}
