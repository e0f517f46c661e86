//! Which attempt fails how. A fault is a function of (seed, order, attempt) and nothing else, so that a handler in any process
//! knows its own and a check can tell afterwards what was meant to happen.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::time::Duration;

/// From this attempt on nothing fails any more: every operation can end.
const FIRST_GOOD_ATTEMPT: u32 = 3;

/// A generator of its own for the `n`-th `purpose` of `name`.
pub(crate) fn rng(seed: u64, purpose: &str, name: &str, n: u32) -> StdRng {
    // FNV-1a, with a separator that no name contains; the generator's own seeding mixes the rest.
    let bytes = seed.to_be_bytes().into_iter().chain(purpose.bytes()).chain([0xff]).chain(name.bytes()).chain([0xff]);
    let hash = bytes
        .chain(n.to_be_bytes())
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    StdRng::seed_from_u64(hash)
}

/// What a handler does wrong, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// It says, rightly, that it did nothing.
    FailBeforeEffect,
    PanicBeforeEffect,
    /// The provider did it; nobody wrote that down.
    PanicAfterEffect,
    /// The provider did it, and that is written down.
    PanicAfterCheckpoint,
    /// The provider did it, then it hangs for as long as it is let.
    HangAfterEffect,
    /// The provider did it, what comes next fails, and that is the answer.
    FailAfterEffect,
}

/// Where a handler stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    BeforeEffect,
    AfterEffect,
    AfterCheckpoint,
    AtReceipt,
}

/// How a handler fails at a [`Point`], other than by panicking or hanging.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Struck {
    BeforeEffect,
    AfterEffect,
}

/// What a handler panics with when it was told to.
#[derive(Debug)]
struct PlannedPanic;

/// The faults of a service.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FaultPlan {
    seed: Option<u64>,
    no_unknown: bool,
}

impl FaultPlan {
    /// The faults of `seed`. With `no_unknown`, none that leaves an outcome unknown.
    pub(crate) fn new(seed: Option<u64>, no_unknown: bool) -> Self {
        Self { seed, no_unknown }
    }

    /// The fault of the `attempt`-th attempt, from 1.
    pub(crate) fn of(&self, order: &str, attempt: u32) -> Fault {
        let Some(seed) = self.seed else { return Fault::None };
        if attempt >= FIRST_GOOD_ATTEMPT {
            return Fault::None;
        }
        let fault = match rng(seed, "handler", order, attempt).random_range(0..1000) {
            0..60 => Fault::FailBeforeEffect,
            60..110 => Fault::PanicBeforeEffect,
            110..170 => Fault::PanicAfterEffect,
            170..210 => Fault::PanicAfterCheckpoint,
            210..215 => Fault::HangAfterEffect,
            215..275 => Fault::FailAfterEffect,
            _ => Fault::None,
        };
        match fault {
            Fault::PanicBeforeEffect
            | Fault::PanicAfterEffect
            | Fault::PanicAfterCheckpoint
            | Fault::HangAfterEffect
                if self.no_unknown =>
            {
                Fault::None
            }
            fault => fault,
        }
    }

    /// How long the receipt takes to make. An owner that is stopped there has nothing left to do but to answer, and does so as soon as it
    /// wakes: what it says then has to be refused.
    pub(crate) fn receipt_time(&self, order: &str, attempt: u32) -> Duration {
        let Some(seed) = self.seed else { return Duration::ZERO };
        let mut rng = rng(seed, "receipt", order, attempt);
        let slow = rng.random_range(0..4) == 0;
        if slow { Duration::from_micros(rng.random_range(1_000..30_000)) } else { Duration::ZERO }
    }
}

impl Fault {
    /// Comes over a handler that has got to `point`.
    pub(crate) async fn strike(self, point: Point) -> Result<(), Struck> {
        match (self, point) {
            (Self::FailBeforeEffect, Point::BeforeEffect) => Err(Struck::BeforeEffect),
            (Self::FailAfterEffect, Point::AtReceipt) => Err(Struck::AfterEffect),
            (Self::PanicBeforeEffect, Point::BeforeEffect)
            | (Self::PanicAfterEffect, Point::AfterEffect)
            | (Self::PanicAfterCheckpoint, Point::AfterCheckpoint) => {
                // A panic like any other, but for the panic hook: hundreds of reports of what was ordered help nobody.
                std::panic::resume_unwind(Box::new(PlannedPanic))
            }
            (Self::HangAfterEffect, Point::AfterEffect) => {
                tokio::time::sleep(Duration::from_secs(60)).await;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// What the provider does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProviderFault {
    None,
    /// 503, and it did nothing.
    Refuse,
    /// It did it, and closes the connection instead of answering.
    HangUp,
}

/// The faults and the latency of a card provider.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ProviderPlan {
    seed: Option<u64>,
    no_unknown: bool,
}

impl ProviderPlan {
    /// As [`FaultPlan::new`].
    pub(crate) fn new(seed: Option<u64>, no_unknown: bool) -> Self {
        Self { seed, no_unknown }
    }

    /// What happens to the `arrival`-th request for `order`, from 1.
    pub(crate) fn of(&self, order: &str, arrival: u32) -> ProviderFault {
        let Some(seed) = self.seed else { return ProviderFault::None };
        if arrival >= FIRST_GOOD_ATTEMPT {
            return ProviderFault::None;
        }
        match rng(seed, "provider", order, arrival).random_range(0..100) {
            0..5 => ProviderFault::Refuse,
            5..8 if !self.no_unknown => ProviderFault::HangUp,
            _ => ProviderFault::None,
        }
    }

    /// How long the answer to it takes.
    pub(crate) fn latency(&self, order: &str, arrival: u32) -> Duration {
        let mut rng = rng(self.seed.unwrap_or_default(), "latency", order, arrival);
        let slow = rng.random_range(0..20) == 0;
        Duration::from_micros(if slow { rng.random_range(20_000..80_000) } else { rng.random_range(500..15_000) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_depends_on_nothing_but_seed_order_and_attempt() {
        let (one, other) = (FaultPlan::new(Some(7), false), FaultPlan::new(Some(7), false));
        for order in (0..1_000).map(|n| format!("order-{n}")) {
            assert_eq!(one.of(&order, 1), other.of(&order, 1));
            assert_eq!(one.of(&order, FIRST_GOOD_ATTEMPT), Fault::None);
        }
        assert_eq!(FaultPlan::default().of("order", 1), Fault::None);
    }

    #[test]
    fn every_fault_comes_up_and_none_that_was_switched_off() {
        let faults = |no_unknown| {
            let plan = FaultPlan::new(Some(7), no_unknown);
            (0..2_000).map(move |n| plan.of(&format!("order-{n}"), 1))
        };
        for fault in [
            Fault::None,
            Fault::FailBeforeEffect,
            Fault::PanicBeforeEffect,
            Fault::PanicAfterEffect,
            Fault::PanicAfterCheckpoint,
            Fault::HangAfterEffect,
            Fault::FailAfterEffect,
        ] {
            let known = matches!(fault, Fault::None | Fault::FailBeforeEffect | Fault::FailAfterEffect);
            assert!(faults(false).any(|planned| planned == fault), "{fault:?}");
            assert_eq!(faults(true).any(|planned| planned == fault), known, "{fault:?}");
        }
    }
}
