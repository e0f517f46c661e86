//! A cluster: three servers that share the slots.

use super::{Flavour, Redis};
use crate::rig::wait::{PATIENCE, until};
use crate::rig::{Error, must, port};
use std::sync::atomic::{AtomicU16, Ordering};

const SLOTS: u16 = 16_384;
const NODES: u16 = 3;

/// Three servers without replicas, each with a third of the slots. Dropping it stops them.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Redis>,
}

impl Cluster {
    /// Starts a cluster and waits until each node says that it is whole.
    ///
    /// # Panics
    ///
    /// If there is no program of this flavour, or they do not come together; the message says what to install.
    pub async fn start(flavour: Flavour) -> Self {
        must(Self::try_start(flavour).await)
    }

    /// Starts a cluster and waits until each node says that it is whole. Takes Redis 7.0 or later, or Valkey.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] without a program, [`Error::Program`] with the end of its log if one does not start,
    /// [`Error::Late`] if they do not come together.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops and removes what it had started.
    pub async fn try_start(flavour: Flavour) -> Result<Self, Error> {
        let mut nodes = Vec::new();
        let mut buses = Vec::new();
        for _ in 0..NODES {
            let bus = AtomicU16::new(0);
            // The bus would be 10,000 above the port, where systems take ports of outgoing connections from.
            let lines = || {
                let port = port::free()?;
                bus.store(port, Ordering::Relaxed);
                Ok(format!("cluster-enabled yes\ncluster-port {port}\ncluster-config-file nodes.conf\n"))
            };
            // Back in its place as soon as it is back, as in a cluster that has no replicas.
            nodes.push(Redis::launch(flavour, &[("cluster-node-timeout", "2000")], lines).await?);
            buses.push(bus.into_inner());
        }
        let cluster = Self { nodes };
        for (number, node) in (0_u16..).zip(&cluster.nodes) {
            let first = number * (SLOTS / NODES);
            let last = if number == NODES - 1 { SLOTS - 1 } else { first + SLOTS / NODES - 1 };
            node.told(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]).await?;
            // So that the nodes do not argue about who is who.
            node.told(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]).await?;
        }
        for (node, bus) in cluster.nodes.iter().zip(&buses).skip(1) {
            let address = node.address();
            let (host, port) = address.rsplit_once(':').unwrap_or((&address, ""));
            cluster.nodes[0].told(&["CLUSTER", "MEET", host, port, &bus.to_string()]).await?;
        }
        cluster.is_whole().await?;
        Ok(cluster)
    }

    /// The nodes.
    #[must_use]
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// Where a client finds each of the nodes.
    #[must_use]
    pub fn urls(&self) -> Vec<&str> {
        self.nodes.iter().map(Redis::url).collect()
    }

    /// Waits until each node knows all the others and every slot.
    ///
    /// # Errors
    ///
    /// [`Error::Late`] if they do not come together.
    pub async fn is_whole(&self) -> Result<(), Error> {
        until("the cluster is whole", PATIENCE, || async {
            for node in &self.nodes {
                let said = super::command(&node.address(), &["CLUSTER", "INFO"]).await.ok()??;
                let says = |what: &str| said.lines().any(|line| line == what);
                if !(says("cluster_state:ok") && says(&format!("cluster_known_nodes:{NODES}"))) {
                    return None;
                }
            }
            Some(())
        })
        .await
    }
}

impl Redis {
    async fn told(&self, words: &[&str]) -> Result<(), Error> {
        match super::command(&self.address(), words).await {
            Ok(Some(answer)) if answer == "+OK" => Ok(()),
            Ok(answer) => Err(Error::Program {
                program: "a node of the cluster".to_owned(),
                message: format!("{words:?}: {answer:?}"),
                log: String::new(),
            }),
            Err(error) => Err(Error::io(format!("{words:?}"))(error)),
        }
    }
}
