//! The corpora of the fuzz targets, replayed: what once broke a decoder, and what reaches its corners.

#![expect(clippy::unwrap_used, reason = "a failure ends the test")]

mod checks;

use std::fs;
use std::path::Path;

fn replay(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let mut inputs: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    inputs.sort();
    assert!(inputs.len() > 10, "a corpus in {}", folder.display());
    for input in inputs {
        let data = fs::read(&input).unwrap();
        if let Err(panic) = std::panic::catch_unwind(|| check(&data)) {
            let message = panic.downcast_ref::<String>().map_or("", String::as_str);
            panic!("{}: {message}", input.display());
        }
    }
}

#[test]
fn json_form() {
    replay("json_form", checks::json_form);
}

#[test]
fn key_header() {
    replay("key_header", checks::key_header);
}

#[test]
fn response_codec() {
    replay("response_codec", checks::response_codec);
}

#[test]
fn multipart() {
    replay("multipart", checks::multipart);
}
