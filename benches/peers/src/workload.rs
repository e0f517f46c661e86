//! Which keys the calls of a workload use, and what has to come of them.

use crate::load::Turn;
use clap::ValueEnum;
use uuid::Uuid;

/// How many keys are completed before the warm-up, for replays.
const COMPLETED: usize = 10_000;
/// How many callers share the keys of a storm.
const STORM: usize = 16;

/// What the callers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// Execute under a key of one's own, in one go.
    Execute,
    /// Begin under a key of one's own, and complete.
    Fresh,
    /// Ask for one of 10,000 keys that are completed beforehand.
    Replay,
    /// Begin under the key of this turn that 16 callers share; whoever comes first completes it.
    ConflictStorm,
    /// Of ten calls six fresh, three replays, and one under a key that two callers share.
    Mixed,
}

/// One call, with the text of its key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// In one go, and it has to run.
    Execute(String),
    /// In two steps, and it has to run.
    Fresh(String),
    /// It has to be replayed.
    Replay(String),
    /// It runs, is replayed, or is in flight.
    Shared(String),
}

impl Workload {
    /// The keys that have to be completed before the first call.
    pub(crate) fn completed(self) -> Vec<String> {
        let count = match self {
            Self::Replay | Self::Mixed => COMPLETED,
            Self::Execute | Self::Fresh | Self::ConflictStorm => 0,
        };
        (0..count).map(|_| fresh()).collect()
    }

    /// The call of `turn`, `completed` being what [`Workload::completed`] gave.
    pub(crate) fn call(self, turn: Turn, completed: &[String]) -> Call {
        match self {
            Self::Execute => Call::Execute(fresh()),
            Self::Fresh => Call::Fresh(fresh()),
            Self::Replay => Call::Replay(one_of(completed, turn)),
            Self::ConflictStorm => Call::Shared(shared(turn, STORM)),
            Self::Mixed => match turn.number % 10 {
                0..=5 => Call::Fresh(fresh()),
                6..=8 => Call::Replay(one_of(completed, turn)),
                _ => Call::Shared(shared(turn, 2)),
            },
        }
    }
}

/// A key that nobody used.
fn fresh() -> String {
    Uuid::new_v4().to_string()
}

/// Callers that start far from each other and each take one key after the other.
fn one_of(keys: &[String], turn: Turn) -> String {
    let started = turn.caller as u64 * 7919;
    keys[((started + turn.number) % keys.len() as u64) as usize].clone()
}

/// The key of this turn that so many neighbours share: as long as a fresh one, and never equal to one, as its version
/// is not theirs.
fn shared(turn: Turn, neighbours: usize) -> String {
    Uuid::from_u64_pair((turn.caller / neighbours) as u64, turn.number).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_callers_meet_at_one_key_and_the_next_sixteen_at_another() {
        let key = |caller, number| Workload::ConflictStorm.call(Turn { caller, number }, &[]);
        assert_eq!(key(0, 3), key(15, 3));
        assert_ne!(key(0, 3), key(16, 3));
        assert_ne!(key(0, 3), key(0, 4));
    }

    #[test]
    fn of_ten_calls_six_are_fresh_three_replays_and_one_is_shared() {
        let completed = Workload::Mixed.completed();
        let (mut fresh, mut replays, mut shared) = (0, 0, 0);
        for number in 0..10 {
            match Workload::Mixed.call(Turn { caller: 1, number }, &completed) {
                Call::Fresh(_) => fresh += 1,
                Call::Replay(key) => replays += usize::from(completed.contains(&key)),
                call @ Call::Shared(_) => {
                    shared += 1;
                    assert_eq!(call, Workload::Mixed.call(Turn { caller: 0, number }, &completed));
                    assert_ne!(call, Workload::Mixed.call(Turn { caller: 2, number }, &completed));
                }
                Call::Execute(_) => panic!("nothing is executed"),
            }
        }
        assert_eq!((fresh, replays, shared), (6, 3, 1));
    }
}
