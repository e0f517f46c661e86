//! Fingerprints: equal exactly when the requests are, however they are written and however they arrive.
//!
//! The generators print their seed. `IDEM_TEST_SEED` sets it.

#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed")]
#![expect(clippy::print_stdout, reason = "a failed test shows its seed")]

mod canonical;
mod collisions;
mod documents;
mod multipart;
mod numbers;
mod streaming;

use idem_core::fingerprint::{Fingerprint, FingerprintBuilder};
use rand::SeedableRng;
use rand::rngs::StdRng;

fn request() -> FingerprintBuilder<'static> {
    Fingerprint::builder("POST /v1/charges")
}

fn fingerprint(builder: FingerprintBuilder<'_>) -> Fingerprint {
    builder.finish().unwrap().current().clone()
}

/// A generator whose seed is shown if the test fails.
fn generator() -> StdRng {
    let seed = match std::env::var("IDEM_TEST_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => rand::random(),
    };
    println!("IDEM_TEST_SEED={seed}");
    StdRng::seed_from_u64(seed)
}
