//! Calls at a fixed pace, beside what is measured: [`Paced`].

use crate::table::Table;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// How long calls took.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Times {
    pub(crate) count: u64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) most_us: f64,
}

/// Collects how long calls take. Clones share it.
#[derive(Clone)]
pub(crate) struct Recorder(Arc<Mutex<Histogram<u64>>>);

impl Recorder {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Histogram::new(3).expect("three digits"))))
    }

    pub(crate) fn record(&self, took: Duration) {
        let nanoseconds = took.as_nanos().try_into().unwrap_or(u64::MAX);
        self.histogram().record(nanoseconds).expect("it grows by itself");
    }

    /// What came since the last call of this, which is forgotten.
    pub(crate) fn take(&self) -> Times {
        let mut histogram = self.histogram();
        let microseconds = |nanoseconds: u64| nanoseconds as f64 / 1_000.0;
        let times = Times {
            count: histogram.len(),
            p50_us: microseconds(histogram.value_at_quantile(0.5)),
            p99_us: microseconds(histogram.value_at_quantile(0.99)),
            most_us: microseconds(histogram.max()),
        };
        histogram.reset();
        times
    }

    fn histogram(&self) -> MutexGuard<'_, Histogram<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Callers that claim and complete new keys, so many a second in all, each behind the other by an equal part of their
/// period. One that is late makes up for it.
pub(crate) struct Paced {
    claims: Recorder,
    completions: Recorder,
    lap_began: Instant,
    stop: Arc<AtomicBool>,
    callers: Vec<JoinHandle<()>>,
}

/// What paced callers saw since the last time they were asked.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Lap {
    pub(crate) per_second: f64,
    pub(crate) claims: Times,
    pub(crate) completions: Times,
}

impl Paced {
    pub(crate) fn start(table: &Table, callers: u32, per_second: u32) -> Self {
        let (claims, completions, stop) = (Recorder::new(), Recorder::new(), Arc::new(AtomicBool::new(false)));
        let period = Duration::from_secs(1) * callers / per_second;
        let began = Instant::now();
        let callers = (0..callers).map(|caller| {
            let (table, claims, completions) = (table.clone(), claims.clone(), completions.clone());
            let (stop, mut next) = (Arc::clone(&stop), began + period * caller / callers);
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    tokio::time::sleep_until(next.into()).await;
                    next += period;
                    let (claim, completion) = table.fresh_timed().await;
                    claims.record(claim);
                    completions.record(completion);
                }
            })
        });
        let callers = callers.collect();
        Self { claims, completions, lap_began: began, stop, callers }
    }

    /// What they saw since the last call of this.
    pub(crate) fn lap(&mut self) -> Lap {
        let took = self.lap_began.elapsed();
        self.lap_began = Instant::now();
        let claims = self.claims.take();
        let per_second = claims.count as f64 / took.as_secs_f64();
        Lap { per_second, claims, completions: self.completions.take() }
    }

    /// Stops them.
    ///
    /// # Panics
    ///
    /// If a call failed.
    pub(crate) async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        for caller in self.callers {
            caller.await.expect("a call failed");
        }
    }
}
