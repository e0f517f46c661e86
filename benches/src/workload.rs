//! What the callers of a load ask for: [`Workload`]. `benches/peers` compiles this file, too.

use crate::load::Turn;
use clap::ValueEnum;
use std::fmt;
use uuid::Uuid;

/// How many callers share a key in a storm.
const STORM: usize = 16;

/// What one call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// Runs a handler that answers at once, under a new key.
    Execute,
    /// Claims a new key and completes it, by hand.
    Fresh,
    /// Asks for a key that was completed before.
    Replay,
    /// Sixteen callers ask for the same new key: one runs, the others are told so or get its answer.
    ConflictStorm,
    /// Of ten calls six are new, three are replays, and one shares its key with a neighbour.
    Mixed,
}

/// One call of a workload.
#[derive(Debug, PartialEq, Eq)]
pub enum Call {
    /// In one go, under a key that nobody used.
    Execute(String),
    /// In two steps, under a key that nobody used.
    Fresh(String),
    /// Of the keys that were completed before, the one with this number.
    Replay(usize),
    /// Under a key that others ask for, too.
    Shared(String),
}

impl Workload {
    /// How many keys are completed before the load.
    #[must_use]
    pub fn completed_before(self) -> usize {
        match self {
            Self::Replay | Self::Mixed => 10_000,
            Self::Execute | Self::Fresh | Self::ConflictStorm => 0,
        }
    }

    /// The call of `turn`, in a run whose shared keys nobody else uses.
    #[must_use]
    pub fn call(self, run: Uuid, turn: Turn) -> Call {
        let Turn { caller, number } = turn;
        // Neighbouring calls ask for keys that lie far apart.
        let before = || (caller * 7_919 + number as usize * 104_729) % self.completed_before();
        // As long as a new key.
        let shared = |neighbours| {
            let place = u128::from(number) << 64 | (caller / neighbours) as u128;
            Call::Shared(Uuid::from_u128(run.as_u128() ^ place).to_string())
        };
        match self {
            Self::Execute => Call::Execute(new_key()),
            Self::Fresh => Call::Fresh(new_key()),
            Self::Replay => Call::Replay(before()),
            Self::ConflictStorm => shared(STORM),
            Self::Mixed => match number % 10 {
                0..6 => Call::Fresh(new_key()),
                6..9 => Call::Replay(before()),
                _ => shared(2),
            },
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Execute => "execute",
            Self::Fresh => "fresh",
            Self::Replay => "replay",
            Self::ConflictStorm => "conflict-storm",
            Self::Mixed => "mixed",
        })
    }
}

/// A key that nobody used.
#[must_use]
pub fn new_key() -> String {
    Uuid::new_v4().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_callers_meet_at_one_key_and_the_next_sixteen_at_another() {
        let run = Uuid::new_v4();
        let key = |caller, number| Workload::ConflictStorm.call(run, Turn { caller, number });
        assert_eq!(key(0, 3), key(15, 3));
        assert_ne!(key(0, 3), key(16, 3));
        assert_ne!(key(0, 3), key(0, 4));
        assert_ne!(key(0, 3), Workload::ConflictStorm.call(Uuid::new_v4(), Turn { caller: 0, number: 3 }));
    }

    #[test]
    fn of_ten_calls_six_are_fresh_three_replays_and_one_is_shared() {
        let run = Uuid::new_v4();
        let (mut fresh, mut replays, mut shared) = (0, 0, 0);
        for number in 0..10 {
            match Workload::Mixed.call(run, Turn { caller: 1, number }) {
                Call::Fresh(_) => fresh += 1,
                Call::Replay(key) => replays += usize::from(key < Workload::Mixed.completed_before()),
                call @ Call::Shared(_) => {
                    shared += 1;
                    assert_eq!(call, Workload::Mixed.call(run, Turn { caller: 0, number }));
                    assert_ne!(call, Workload::Mixed.call(run, Turn { caller: 2, number }));
                }
                Call::Execute(_) => panic!("nothing is executed"),
            }
        }
        assert_eq!((fresh, replays, shared), (6, 3, 1));
    }
}
