//! What an operation allocates is known, and does not grow unnoticed.

use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// The most allocations of each operation, on the null store and in memory. They are what there is, not a goal: whoever
/// takes one away lowers the bound, whoever adds one has to find it worth a line here. Of each call to a store one is
/// the future's box, since `Store` is for `dyn`; of each task one is the task.
const MOST: [(&str, &str, u64); 13] = [
    ("-", "fingerprint", 7),
    ("-", "request, with names and fingerprint", 9),
    ("-", "response", 3),
    // Claiming: a task, a box, the fingerprint's count, what the owner knows (2). Completing: a task, a box.
    ("null", "begin and complete", 7),
    ("null", "execute", 6),
    ("null", "execute_inline", 6),
    ("null", "replay", 4),
    ("null", "in progress", 4),
    // The row that is made.
    ("memory", "begin and complete", 8),
    ("memory", "execute", 7),
    ("memory", "execute_inline", 7),
    ("memory", "replay", 4),
    ("memory", "in progress", 4),
];

#[test]
fn an_operation_allocates_no_more_than_it_did() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("allocations.json");
    let counted = Command::new(env!("CARGO_BIN_EXE_allocations")).arg("--json").arg(&path).output().unwrap();
    assert!(counted.status.success(), "{counted:?}");
    let report: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();

    let lines = report["operations"].as_array().unwrap();
    assert_eq!(lines.len(), MOST.len(), "every operation has a bound");
    for (line, (store, operation, most)) in lines.iter().zip(MOST) {
        let named = (line["store"].as_str().unwrap_or("-"), line["operation"].as_str().unwrap());
        assert_eq!(named, (store, operation));
        let found = line["allocations"].as_u64().unwrap();
        assert!(found <= most, "{operation}, store {store}: {found} allocations, and {most} are known");
    }
}
