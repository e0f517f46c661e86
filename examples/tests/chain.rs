//! `chain storm` and its controls, shorter than a person runs them.

use std::process::Command;

/// What it said, and whether nothing was lost and nothing doubled.
fn storm(arguments: &[&str]) -> (bool, String) {
    let run = Command::new(env!("CARGO_BIN_EXE_chain")).arg("storm").args(arguments).output();
    let run = run.unwrap_or_else(|error| panic!("it does not run: {error}"));
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    let failed = String::from_utf8_lossy(&run.stderr);
    match run.status.code() {
        Some(0) => (true, said),
        Some(1) => (false, said),
        other => panic!("{other:?}: {said}{failed}"),
    }
}

/// The number behind `name` in what a storm said.
fn number(said: &str, name: &str) -> u64 {
    let rest = said.split_once(name).unwrap_or_else(|| panic!("no {name} in {said}")).1;
    let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("no number behind {name} in {said}"))
}

#[test]
fn every_answer_has_one_charge_and_one_entry_whoever_is_killed() {
    let (holds, said) = storm(&["--seed", "7", "--seconds", "8"]);
    assert!(holds, "{said}");
}

#[test]
fn a_completion_outside_the_transaction_loses_events() {
    let (holds, said) = storm(&["--seed", "7", "--seconds", "8", "--naive", "complete-outside"]);
    assert!(!holds && number(&said, "events lost") > 0, "{said}");
}

#[test]
fn a_consumer_without_an_inbox_doubles_them() {
    let (holds, said) = storm(&["--seed", "7", "--seconds", "8", "--naive", "no-inbox"]);
    let (_, events) = said.split_once("events lost").unwrap_or_else(|| panic!("no events in {said}"));
    assert!(!holds && number(events, "double") > 0, "{said}");
}
