//! The load that every side of a comparison gets: so many callers, each in a loop, for so long.
//!
//! The peers' own workspace compiles this very file, so that a difference is never the driver's.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// How many callers, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// How many tasks call, each one call after the other.
    pub callers: usize,
    /// How long they call before anything is counted.
    pub warm_up: Duration,
    /// How long calls are counted that come back.
    pub counted: Duration,
}

/// Which call of which caller.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// The caller's number, from zero.
    pub caller: usize,
    /// How many calls it made before.
    pub number: u64,
}

/// What came of a load.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Calls that came back in a second.
    pub per_second: f64,
    /// What half of them took at most, in microseconds.
    pub p50_us: f64,
    /// What 99 of 100 took at most, in microseconds.
    pub p99_us: f64,
}

/// Drives `call` from tasks of the current runtime.
///
/// # Panics
///
/// If a call panics: a load that does not do its work measures nothing.
pub async fn drive<C, F>(load: Load, call: C) -> Measured
where
    C: Fn(Turn) -> F + Clone + Send + 'static,
    F: Future<Output = ()> + Send,
{
    let from = Instant::now() + load.warm_up;
    let until = from + load.counted;
    let callers: Vec<_> = (0..load.callers)
        .map(|caller| {
            let call = call.clone();
            tokio::spawn(async move {
                let mut times = Histogram::<u64>::new(3).expect("three digits");
                for number in 0.. {
                    let started = Instant::now();
                    if started >= until {
                        break;
                    }
                    call(Turn { caller, number }).await;
                    let ended = Instant::now();
                    if ended >= from && ended < until {
                        let nanoseconds = (ended - started).as_nanos().try_into().unwrap_or(u64::MAX);
                        times.record(nanoseconds).expect("it grows by itself");
                    }
                    // One whose calls never wait lets the others run, too.
                    tokio::task::coop::consume_budget().await;
                }
                times
            })
        })
        .collect();
    let mut times = Histogram::<u64>::new(3).expect("three digits");
    for caller in callers {
        times.add(caller.await.expect("a call failed")).expect("it grows by itself");
    }
    let microseconds = |quantile| times.value_at_quantile(quantile) as f64 / 1_000.0;
    Measured {
        per_second: times.len() as f64 / load.counted.as_secs_f64(),
        p50_us: microseconds(0.5),
        p99_us: microseconds(0.99),
    }
}
