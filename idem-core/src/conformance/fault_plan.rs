//! Which calls of a [`FaultStore`](super::FaultStore) fail, and how: [`FaultPlan`].

use crate::machine::Event;
use std::collections::HashMap;

/// How one call to a store fails.
///
/// The calls that only read (`load`, `stuck`, `stats`) have no outcome to be unknown: for them everything but the two
/// hangs is an error that says *not applied*.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Injection {
    /// An error that says *not applied*: nothing happened.
    Refuse,
    /// An error that says *unknown*: the request was lost, nothing happened.
    LoseRequest,
    /// An error that says *unknown*: the call took effect, its reply was lost.
    LoseReply,
    /// An error that says *unknown*: the write is under way and takes effect just before a later call is served.
    LandLate {
        /// How many calls later: 1 is the next one. Zero is taken for 1.
        after_calls: u64,
    },
    /// The call never returns, and nothing happened.
    Hang,
    /// The call took effect and never returns.
    HangAfter,
}

/// Which calls are meant and counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// Every call.
    Any,
    /// [`Store::insert`](crate::Store::insert).
    Insert,
    /// [`Store::swap`](crate::Store::swap), whatever the change.
    Swap,
    /// [`Store::swap`](crate::Store::swap) with a change of this event.
    SwapOf(Event),
    /// [`Store::load`](crate::Store::load).
    Load,
    /// [`Store::purge`](crate::Store::purge).
    Purge,
    /// [`Store::stuck`](crate::Store::stuck).
    Stuck,
    /// [`Store::stats`](crate::Store::stats).
    Stats,
    /// [`Store::erase`](crate::Store::erase).
    Erase,
}

impl CallKind {
    /// Every kind under which a call of this one is counted.
    fn counted_as(self) -> impl Iterator<Item = Self> {
        let method = match self {
            Self::SwapOf(_) => Some(Self::Swap),
            Self::Any => None,
            other => Some(other),
        };
        let event = matches!(self, Self::SwapOf(_)).then_some(self);
        [Some(Self::Any), method, event].into_iter().flatten()
    }

    pub(super) fn reads_only(self) -> bool {
        match self {
            Self::Load | Self::Stuck | Self::Stats => true,
            Self::Any | Self::Insert | Self::Swap | Self::SwapOf(_) | Self::Purge | Self::Erase => false,
        }
    }
}

/// Which calls fail, and how. Scripted, drawn from a seed, or both: the script comes first.
///
/// The same plan and the same order of calls give the same failures. `Debug` shows the seed: print the plan when a run
/// fails.
///
/// # Examples
///
/// ```
/// use idem_core::conformance::{CallKind, FaultPlan, Injection};
/// use idem_core::machine::Event;
///
/// // The second insert is refused, and no completion ever gets a reply.
/// let plan = FaultPlan::none()
///     .on(CallKind::Insert, 2, Injection::Refuse)
///     .onward(CallKind::SwapOf(Event::Complete), 1, Injection::LoseReply);
///
/// // One call in ten fails.
/// let plan = FaultPlan::seeded(0xfeed, 0.1);
/// assert!(format!("{plan:?}").contains("seed: 65261"));
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "a plan does nothing until a FaultStore has it"]
pub struct FaultPlan {
    script: Vec<Line>,
    random: Option<Random>,
}

#[derive(Debug, Clone, Copy)]
struct Line {
    kind: CallKind,
    first: u64,
    last: u64,
    injection: Injection,
}

#[derive(Debug, Clone, Copy)]
struct Random {
    seed: u64,
    rate: f64,
}

impl FaultPlan {
    /// Nothing fails.
    pub fn none() -> Self {
        Self::default()
    }

    /// Every call fails with probability `rate`, 0 to 1, in a way drawn from `seed`. Nothing is made to hang.
    pub fn seeded(seed: u64, rate: f64) -> Self {
        Self { script: Vec::new(), random: Some(Random { seed, rate }) }
    }

    /// Makes the `nth` call of a kind fail, counted from 1.
    pub fn on(mut self, kind: CallKind, nth: u64, injection: Injection) -> Self {
        self.script.push(Line { kind, first: nth, last: nth, injection });
        self
    }

    /// Makes the `nth` call of a kind, counted from 1, and all that follow it fail.
    pub fn onward(mut self, kind: CallKind, nth: u64, injection: Injection) -> Self {
        self.script.push(Line { kind, first: nth, last: u64::MAX, injection });
        self
    }

    /// The seed that failures are drawn from, if they are.
    #[must_use]
    pub fn seed(&self) -> Option<u64> {
        self.random.map(|random| random.seed)
    }
}

/// A plan and how far it has got.
#[derive(Debug, Default)]
pub(super) struct Progress {
    plan: FaultPlan,
    counts: HashMap<CallKind, u64>,
}

impl Progress {
    pub(super) fn new(plan: FaultPlan) -> Self {
        Self { plan, counts: HashMap::new() }
    }

    pub(super) fn count(&self, kind: CallKind) -> u64 {
        self.counts.get(&kind).copied().unwrap_or(0)
    }

    /// Counts a call of `kind` and says how it fails.
    pub(super) fn arrive(&mut self, kind: CallKind) -> Option<Injection> {
        for counted in kind.counted_as() {
            *self.counts.entry(counted).or_insert(0) += 1;
        }
        let scripted = self.plan.script.iter().find(|line| {
            kind.counted_as().any(|counted| counted == line.kind)
                && (line.first..=line.last).contains(&self.count(line.kind))
        });
        match scripted {
            Some(line) => Some(line.injection),
            None => self.plan.random.and_then(|random| random.draw(self.count(CallKind::Any))),
        }
    }
}

impl Random {
    /// How the `nth` call fails. Drawn from the number of the call, so that it does not depend on what came before.
    fn draw(self, nth: u64) -> Option<Injection> {
        let mut state = self.seed ^ splitmix64(&mut nth.clone());
        // 53 bits are what a double holds exactly.
        let unit = (splitmix64(&mut state) >> 11) as f64 / (1_u64 << 53) as f64;
        if unit >= self.rate {
            return None;
        }
        Some(match splitmix64(&mut state) % 4 {
            0 => Injection::Refuse,
            1 => Injection::LoseRequest,
            2 => Injection::LoseReply,
            _ => Injection::LandLate { after_calls: 1 + splitmix64(&mut state) % 4 },
        })
    }
}

/// Sebastiano Vigna's splitmix64: <https://prng.di.unimi.it/splitmix64.c>.
fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_the_published_one() {
        let mut state = 1_234_567;
        assert_eq!(splitmix64(&mut state), 6_457_827_717_110_365_317);
        assert_eq!(splitmix64(&mut state), 3_203_168_211_198_807_973);
    }

    #[test]
    fn the_same_seed_gives_the_same_failures_at_about_the_rate() {
        let run = |seed| {
            let mut progress = Progress::new(FaultPlan::seeded(seed, 0.25));
            (0..4_000).map(|_| progress.arrive(CallKind::Insert)).collect::<Vec<_>>()
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
        let failed = run(7).into_iter().flatten().count();
        assert!((800..1_200).contains(&failed), "{failed} of 4,000 failed");
    }

    #[test]
    fn calls_are_counted_by_method_and_by_event() {
        let mut progress =
            Progress::new(FaultPlan::none().on(CallKind::SwapOf(Event::Complete), 2, Injection::Hang).onward(
                CallKind::Load,
                2,
                Injection::Refuse,
            ));
        let complete = CallKind::SwapOf(Event::Complete);
        let calls =
            [complete, CallKind::SwapOf(Event::Renew), complete, CallKind::Load, CallKind::Load, CallKind::Load];
        let failed = calls.map(|kind| progress.arrive(kind));
        let refused = Some(Injection::Refuse);
        assert_eq!(failed, [None, None, Some(Injection::Hang), None, refused, refused]);
        assert_eq!([CallKind::Any, CallKind::Swap, complete].map(|kind| progress.count(kind)), [6, 3, 2]);
    }
}
