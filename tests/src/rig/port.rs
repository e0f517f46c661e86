//! A free port of the loopback interface for a server that insists on being told one.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::{Ipv4Addr, TcpListener};

use super::Error;

/// Below the range from which systems take the ports of outgoing connections: while a server is down between two
/// starts, no client of anybody takes its port by accident.
const FIRST: u16 = 15_000;
const LAST: u16 = 32_000;

/// A port on which nobody listens now. Somebody may a moment later; whoever starts a server tries again with another
/// one.
pub(super) fn free() -> Result<u16, Error> {
    let span = u64::from(LAST - FIRST);
    for attempt in 0..1_000_u32 {
        let drawn = RandomState::new().hash_one(attempt) % span;
        let port = FIRST + u16::try_from(drawn).unwrap_or_default();
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(Error::Missing {
        what: format!("a free port of 127.0.0.1 between {FIRST} and {LAST}"),
        help: "end some of the programs that listen there".to_owned(),
    })
}
