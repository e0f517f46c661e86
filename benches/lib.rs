//! The benchmarks of idem: `cargo bench -p idem-benches`.
