#![no_main]

#[path = "../../tests/fuzz/checks.rs"]
#[allow(dead_code, reason = "each target runs one check")]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::multipart(data));
