//! The service in the storm's own process, behind idem or behind the broken code of a control.

use super::traffic::Traffic;
use super::{DRAIN, LEASE};
use crate::AnyError;
use crate::cli::{StormArgs, Switch};
use crate::database::Table;
use crate::fault::FaultPlan;
use crate::naive::{self, Seen};
use crate::provider::client::Client as ProviderClient;
use crate::serve::{Server, engine, takeover};
use crate::service::{self, Desk, Service};
use idem_core::{Engine, Store};
use std::net::SocketAddr;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Here {
    engine: Engine,
    server: Server,
    pub(crate) desk: Arc<Desk>,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) seen: Seen,
}

impl Here {
    pub(crate) async fn start(
        args: &StormArgs,
        seed: u64,
        provider: &ProviderClient,
        store: Arc<dyn Store>,
        table: Option<&Table>,
    ) -> Result<Self, AnyError> {
        let desk = Arc::new(Desk::new(provider.clone(), FaultPlan::new(Some(seed), args.no_panics)));
        let engine = engine(store, LEASE)?;
        let seen = Seen::default();
        let router = match args.naive {
            Some(which) => naive::router(Arc::clone(&desk), which, &seen, table).await?,
            None => {
                let takeover = takeover(args.provider_dedupe == Switch::On);
                service::router(Service { engine: engine.clone(), desk: Arc::clone(&desk), takeover })
            }
        };
        let traffic = Arc::new(Traffic::default());
        let server = Server::start_anywhere(traffic.count(router)).await?;
        Ok(Self { engine, server, desk, traffic, seen })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// Lets what runs come to its end, and says whether all of it was settled.
    pub(crate) async fn stop(&self) -> bool {
        self.engine.drain(DRAIN).await.settled
    }
}
