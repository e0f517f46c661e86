//! A TCP proxy between a client and a server that does on command what networks do by chance.
//!
//! ```no_run
//! # use idem_tests::rig::proxy::{Cut, Direction, Proxy};
//! # async fn test(server: &idem_tests::rig::postgres::Postgres) {
//! let proxy = Proxy::start(&server.address()).await;
//! let url = proxy.url(server.url());
//! // ... connect to `url`, warm up ...
//! let before = proxy.counts();
//! // ... one claim ...
//! assert_eq!(proxy.counts().since(&before).requests(), 1);
//!
//! proxy.cut_after(Direction::ToClient, 17, Cut::Reset);
//! // ... the claim is done, 17 bytes of the reply arrive, and then the connection is reset ...
//! # }
//! ```
//!
//! Every command is in force when its call returns: not one byte passes afterwards that it forbids.
//!
//! | file | holds |
//! |---|---|
//! | `side.rs` | one direction: what is commanded, what passed |
//! | `link.rs` | one connection: the way of its bytes, and its end |
//! | `framing.rs` | finding PostgreSQL's messages in a stream of bytes |

mod framing;
mod link;
mod side;

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};

use self::side::Side;
pub use self::side::Traffic;
use super::{Error, must, port, url};

/// Where bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server: requests.
    ToServer,
    /// From the server to the client: replies.
    ToClient,
}

/// How a connection ends, for both of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// FIN: both read the end of the stream after what had passed; what they still write is swallowed.
    Finish,
    /// RST: both get "connection reset" after what had passed.
    Reset,
}

/// What has passed since the proxy started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests.
    pub to_server: Traffic,
    /// Replies.
    pub to_client: Traffic,
}

impl Counts {
    /// What has passed since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self { to_server: self.to_server.since(&before.to_server), to_client: self.to_client.since(&before.to_client) }
    }

    /// How often a PostgreSQL client asked and has to wait for an answer: `Sync` and `Query` messages.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.to_server.messages_of(b'S') + self.to_server.messages_of(b'Q')
    }

    /// How often a PostgreSQL server had answered: `ReadyForQuery` messages. The start of a connection ends with one
    /// too.
    #[must_use]
    pub fn answers(&self) -> u64 {
        self.to_client.messages_of(b'Z')
    }
}

/// A proxy in front of one server. Dropping it closes its port and its connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    doors: mpsc::UnboundedSender<Door>,
    acceptor: AbortHandle,
}

/// What the connections share.
#[derive(Debug, Default)]
struct Shared {
    target: String,
    to_server: Side,
    to_client: Side,
    links: Mutex<HashMap<u64, watch::Sender<Option<Cut>>>>,
    accepted: AtomicU64,
}

impl Shared {
    fn links(&self) -> MutexGuard<'_, HashMap<u64, watch::Sender<Option<Cut>>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A command to the acceptor, answered when it is in force.
#[derive(Debug)]
struct Door {
    open: bool,
    done: oneshot::Sender<()>,
}

impl Proxy {
    /// A proxy in front of `target`, a `host:port`. It lives in the runtime that starts it.
    ///
    /// # Panics
    ///
    /// If there is no port to listen on.
    pub async fn start(target: &str) -> Self {
        let (listener, address) = must(listen().await);
        let shared = Arc::new(Shared { target: target.to_owned(), ..Shared::default() });
        let (doors, commands) = mpsc::unbounded_channel();
        let acceptor = tokio::spawn(accept(listener, address, Arc::clone(&shared), commands)).abort_handle();
        Self { address, shared, doors, acceptor }
    }

    /// The `host:port` where the proxy listens.
    #[must_use]
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// A URL of the server, leading through the proxy.
    #[must_use]
    pub fn url(&self, server: &str) -> String {
        url::with_address(server, &self.address())
    }

    /// Ends the connection that brings the `bytes`-th byte from now in this direction, right after that byte has
    /// passed; with zero, the one that brings the next byte, which does not pass. Once: later connections are as
    /// before.
    ///
    /// With [`Cut::Reset`], what the receiver had no room for is lost too, as with a real reset; that takes some
    /// hundred kilobytes.
    pub fn cut_after(&self, direction: Direction, bytes: u64, how: Cut) {
        self.side(direction).set_trap(Some((bytes, how)));
    }

    /// Whether a [`cut_after`](Self::cut_after) still waits for its byte.
    #[must_use]
    pub fn is_armed(&self, direction: Direction) -> bool {
        self.side(direction).is_armed()
    }

    /// Forgets a [`cut_after`](Self::cut_after) that has not happened.
    pub fn disarm(&self, direction: Direction) {
        self.side(direction).set_trap(None);
    }

    /// Swallows what comes, on old connections and on new ones, which are accepted whether or not there is a server. A
    /// connection that lost a byte gets no later one either, also after [`heal`](Self::heal).
    pub fn black_hole(&self, direction: Direction) {
        self.side(direction).set_swallowing(true);
    }

    /// Lets each byte arrive so much later; the order stays, and so does the rate.
    pub fn delay(&self, direction: Direction, delay: Duration) {
        self.side(direction).set_delay(delay);
    }

    /// Holds back what comes until [`resume`](Self::resume).
    pub fn pause(&self, direction: Direction) {
        self.side(direction).set_paused(true);
    }

    /// Lets pass, in order, what was held back and what comes.
    pub fn resume(&self, direction: Direction) {
        self.side(direction).set_paused(false);
    }

    /// Resets every connection that there is now.
    pub fn reset_all(&self) {
        for cut in self.shared.links().values() {
            cut.send_replace(Some(Cut::Reset));
        }
    }

    /// Closes the port: new connections are refused by the system. Old ones live on.
    ///
    /// # Panics
    ///
    /// If the runtime in which the proxy was started is gone.
    pub async fn refuse(&self) {
        self.door(false).await;
    }

    /// Opens the port again.
    ///
    /// # Panics
    ///
    /// If the runtime in which the proxy was started is gone.
    pub async fn admit(&self) {
        self.door(true).await;
    }

    /// Undoes all but what connections have suffered already: admits, resumes, and forgets delays, black holes and
    /// cuts.
    ///
    /// # Panics
    ///
    /// If the runtime in which the proxy was started is gone.
    pub async fn heal(&self) {
        self.shared.to_server.heal();
        self.shared.to_client.heal();
        self.admit().await;
    }

    /// What has passed so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts { to_server: self.shared.to_server.traffic(), to_client: self.shared.to_client.traffic() }
    }

    /// How many connections were accepted so far.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// How many connections there are.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.links().len()
    }

    fn side(&self, direction: Direction) -> &Side {
        match direction {
            Direction::ToServer => &self.shared.to_server,
            Direction::ToClient => &self.shared.to_client,
        }
    }

    async fn door(&self, open: bool) {
        let (done, wait) = oneshot::channel();
        assert!(self.doors.send(Door { open, done }).is_ok(), "the proxy has ended with its runtime");
        assert!(wait.await.is_ok(), "the proxy has ended with its runtime");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.acceptor.abort();
    }
}

/// Not on a port that the system hands out by itself: while the proxy refuses, nobody else shall get it.
async fn listen() -> Result<(TcpListener, SocketAddr), Error> {
    let mut tries = 5;
    loop {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port::free()?));
        match TcpListener::bind(address).await {
            Ok(listener) => return Ok((listener, address)),
            Err(_) if tries > 0 => tries -= 1,
            Err(error) => return Err(Error::Io { what: format!("listening on {address}"), error }),
        }
    }
}

/// Owns the listener, and with it the tasks of the connections, which end when it does.
async fn accept(
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
    mut commands: mpsc::UnboundedReceiver<Door>,
) {
    let mut listener = Some(listener);
    let mut links = JoinSet::new();
    loop {
        let arrival = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            command = commands.recv() => {
                let Some(Door { open, done }) = command else { return };
                if open && listener.is_none() {
                    listener = TcpListener::bind(address).await.ok();
                } else if !open {
                    listener = None;
                }
                if !open || listener.is_some() {
                    let _nobody_waits = done.send(());
                }
            }
            arrival = arrival => {
                if let Ok((client, _)) = arrival {
                    let id = shared.accepted.fetch_add(1, Ordering::SeqCst);
                    let (cut, orders) = watch::channel(None);
                    shared.links().insert(id, cut);
                    links.spawn(link::serve(client, id, Arc::clone(&shared), orders));
                }
            }
            Some(_) = links.join_next() => {}
        }
    }
}
