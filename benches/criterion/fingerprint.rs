//! The fingerprint of a JSON body beside what one would write without it: parse into a value, put that into the form of
//! RFC 8785, hash the text.
//!
//! `cargo bench -p idem-benches --bench fingerprint`. The machines differ, so compare the two lines of one size in one
//! run.

use std::fmt::Write as _;
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use idem_core::Fingerprint;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// A list of orders as a client would send it, `length` bytes long: members in no order, names repeated, amounts
/// with and without a fraction, an escape here and there.
fn body(length: usize) -> String {
    let mut text = String::from("{\"reference\": \"batch-2031-07\", \"currency\": \"eur\", \"orders\": [");
    let mut number = 0;
    while text.len() + 125 < length {
        let comma = if number == 0 { "" } else { ", " };
        let amount = 100 + number * 7919 % 90_000;
        write!(
            text,
            "{comma}{{\"id\": \"ord_{number:08}\", \"amount\": {amount}, \"customer\": \"cus_{amount:06}\", \
             \"tax\": 0.19, \"note\": \"floor\\n{number}\"}}"
        )
        .expect("a string takes all");
        number += 1;
    }
    text.push_str("], \"memo\": \"\"}");
    let memo = "m".repeat(length - text.len());
    text.insert_str(text.len() - 2, &memo);
    text
}

fn fingerprint(body: &[u8]) -> Vec<u8> {
    let candidates = Fingerprint::builder("POST /v1/orders").json(body).finish().expect("within the limit");
    candidates.current().to_bytes()
}

fn by_value(body: &[u8]) -> [u8; 32] {
    let value: Value = serde_json::from_slice(body).expect("JSON");
    let canonical = serde_json_canonicalizer::to_vec(&value).expect("a canonical form");
    Sha256::digest(&canonical).into()
}

fn fingerprints(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("json");
    for (name, length) in [("200 B", 200), ("10 kB", 10_000), ("1 MB", 1_000_000)] {
        let body = body(length);
        assert_eq!(body.len(), length);
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_with_input(BenchmarkId::new("idem", name), body.as_bytes(), |bencher, body| {
            bencher.iter(|| fingerprint(black_box(body)));
        });
        group.bench_with_input(BenchmarkId::new("serde_json", name), body.as_bytes(), |bencher, body| {
            bencher.iter(|| by_value(black_box(body)));
        });
    }
    group.finish();
}

criterion_group!(benches, fingerprints);
criterion_main!(benches);
