//! Where the service is: one address or several, of which some may be dead at the moment.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The addresses of the service's processes, as a client finds them in a name service: each asked in turn, none asked first whether it
/// is well.
#[derive(Debug)]
pub(crate) struct Roster {
    addresses: Mutex<Vec<SocketAddr>>,
    turn: AtomicUsize,
}

impl Roster {
    /// Of these processes, at least one.
    pub(crate) fn new(addresses: Vec<SocketAddr>) -> Self {
        Self { addresses: Mutex::new(addresses), turn: AtomicUsize::new(0) }
    }

    /// Whose turn it is. So two tries of one request, or two copies of it, go to different processes.
    pub(crate) fn next(&self) -> SocketAddr {
        let addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        addresses[self.turn.fetch_add(1, Ordering::Relaxed) % addresses.len()]
    }

    /// The `index`-th process is at another address now.
    pub(crate) fn replace(&self, index: usize, address: SocketAddr) {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)[index] = address;
    }
}
