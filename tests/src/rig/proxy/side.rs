//! One direction of the proxy: what is commanded for it, and what has passed.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::watch;

use super::Cut;
use super::framing::Framing;

/// What has passed in one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes that were handed to the receiver's connection.
    pub bytes: u64,
    /// Whole PostgreSQL messages by their type byte, those without one (the start of a connection) left out.
    pub messages: BTreeMap<u8, u64>,
}

impl Traffic {
    /// How many messages of one type have passed: `b'S'` for `Sync`, `b'Z'` for `ReadyForQuery`.
    #[must_use]
    pub fn messages_of(&self, kind: u8) -> u64 {
        self.messages.get(&kind).copied().unwrap_or_default()
    }

    pub(super) fn since(&self, before: &Self) -> Self {
        let messages = self.messages.iter().map(|(kind, count)| (*kind, count - before.messages_of(*kind)));
        Self { bytes: self.bytes - before.bytes, messages: messages.filter(|(_, count)| *count > 0).collect() }
    }
}

/// Commands and counts of one direction, for all connections. The one lock is what makes a command exact: bytes pass
/// only under it.
#[derive(Debug, Default)]
pub(super) struct Side {
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    paused: bool,
    swallowing: bool,
    delay: Duration,
    trap: Option<(u64, Cut)>,
    traffic: Traffic,
}

/// What became of some bytes.
#[derive(Debug)]
pub(super) enum Passed {
    /// So many are dealt with.
    Some(usize),
    /// None, since the receiver has no room.
    Full,
    /// None, since the direction is paused.
    Held,
    /// Its connection is to be cut now.
    Cut(Cut),
}

impl Side {
    /// Hands bytes to the receiver, as far as the commands allow.
    ///
    /// `lost` is whether this connection has lost bytes in this direction; it stays.
    pub(super) fn pass(
        &self,
        bytes: &[u8],
        receiver: &TcpStream,
        framing: &mut Framing,
        lost: &mut bool,
    ) -> io::Result<Passed> {
        let mut state = self.state();
        if state.paused {
            return Ok(Passed::Held);
        }
        if state.swallowing || *lost {
            *lost = true;
            return Ok(Passed::Some(bytes.len()));
        }
        let allowed = match state.trap {
            Some((0, how)) => {
                state.trap = None;
                return Ok(Passed::Cut(how));
            }
            Some((left, _)) => bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX)),
            None => bytes.len(),
        };
        let written = match receiver.try_write(&bytes[..allowed]) {
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Passed::Full),
            Err(error) => return Err(error),
        };
        state.traffic.bytes += written as u64;
        framing.read(&bytes[..written], |kind| *state.traffic.messages.entry(kind).or_default() += 1);
        if let Some((left, how)) = state.trap {
            let left = left - written as u64;
            state.trap = (left > 0).then_some((left, how));
            if left == 0 {
                return Ok(Passed::Cut(how));
            }
        }
        Ok(Passed::Some(written))
    }

    /// Tells of every command that was given after this call.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub(super) fn delay(&self) -> Duration {
        self.state().delay
    }

    pub(super) fn is_swallowing(&self) -> bool {
        self.state().swallowing
    }

    pub(super) fn is_armed(&self) -> bool {
        self.state().trap.is_some()
    }

    pub(super) fn traffic(&self) -> Traffic {
        self.state().traffic.clone()
    }

    pub(super) fn set_trap(&self, trap: Option<(u64, Cut)>) {
        self.command(|state| state.trap = trap);
    }

    pub(super) fn set_swallowing(&self, swallowing: bool) {
        self.command(|state| state.swallowing = swallowing);
    }

    pub(super) fn set_delay(&self, delay: Duration) {
        self.command(|state| state.delay = delay);
    }

    pub(super) fn set_paused(&self, paused: bool) {
        self.command(|state| state.paused = paused);
    }

    pub(super) fn heal(&self) {
        self.command(|state| *state = State { traffic: std::mem::take(&mut state.traffic), ..State::default() });
    }

    fn command(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.send_replace(());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
