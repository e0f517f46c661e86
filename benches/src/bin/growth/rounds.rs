//! How long and how often something is measured: [`Pace`].

use idem_benches::load::{Load, Measured};
use idem_benches::median::median;
use serde::Serialize;
use std::time::Duration;

/// How long, and how often.
#[derive(clap::Args, Serialize, Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// How often everything is measured, in turn; figures are medians.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// How long each is measured, in seconds.
    #[arg(long, default_value_t = 5.0)]
    pub(crate) seconds: f64,
    /// How long each runs before it is measured, in seconds.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) warm_up: f64,
}

impl Pace {
    pub(crate) fn load(&self, callers: usize) -> Load {
        let (warm_up, counted) = (Duration::from_secs_f64(self.warm_up), Duration::from_secs_f64(self.seconds));
        Load { callers, warm_up, counted }
    }
}

/// The medians of each figure.
pub(crate) fn medians(rounds: &[Measured]) -> Measured {
    let of = |figure: fn(&Measured) -> f64| median(rounds.iter().map(figure));
    Measured {
        per_second: of(|measured| measured.per_second),
        p50_us: of(|measured| measured.p50_us),
        p99_us: of(|measured| measured.p99_us),
    }
}
