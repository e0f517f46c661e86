//! What an operation allocates is known, and does not grow unnoticed.

#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed")]

use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// The most allocations of each operation, on the null store and in memory. They are what there is, not a goal: whoever
/// takes one away lowers the bound, and one more has to be worth a line here.
const MOST: [(&str, &str, u64); 13] = [
    ("-", "fingerprint", 7),
    ("-", "request, with names and fingerprint", 9),
    ("-", "response", 3),
    // Two for each task (the runtime's, and what runs in it), one for each call to a store (it is `dyn`), and one for
    // the ownership.
    ("null", "begin and complete", 7),
    ("null", "execute", 5),
    // The claim is a task of its own here, too.
    ("null", "execute_inline", 5),
    // No ownership, and the record.
    ("null", "replay", 4),
    ("null", "in progress", 4),
    // The row.
    ("memory", "begin and complete", 8),
    ("memory", "execute", 6),
    ("memory", "execute_inline", 6),
    ("memory", "replay", 4),
    ("memory", "in progress", 4),
];

/// The figures, by way of a file of this name.
fn count(name: &str) -> Value {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let counted = Command::new(env!("CARGO_BIN_EXE_allocations")).arg("--json").arg(&path).output().unwrap();
    assert!(counted.status.success(), "{counted:?}");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn an_operation_allocates_no_more_than_it_did() {
    let report = count("allocations.json");
    let lines = report["operations"].as_array().unwrap();
    assert_eq!(lines.len(), MOST.len(), "every operation has a bound");
    for (line, (store, operation, most)) in lines.iter().zip(MOST) {
        let named = (line["store"].as_str().unwrap_or("-"), line["operation"].as_str().unwrap());
        assert_eq!(named, (store, operation));
        let found = line["allocations"].as_u64().unwrap();
        assert!(found <= most, "{operation}, store {store}: {found} allocations, and {most} are known");
    }
}

/// Bug: a record took more memory than the store's account said, so that a store held half as much again as it was
/// allowed. Cause: the fields of a response and the tables were guessed. Fix: they were measured, and here they are.
#[test]
fn a_record_takes_no_more_than_the_account_says() {
    let retained = &count("retained.json")["retained"];
    let [bytes, accounted] = ["bytes", "accounted"].map(|field| retained[field].as_u64().unwrap());
    assert!(bytes <= accounted, "{bytes} bytes, and the account says {accounted}");
}
