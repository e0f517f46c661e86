//! `payments storm` and its controls, smaller than a person runs them.

mod rig;

use rig::storm;
use serde_json::Value;

const SMALL: [&str; 6] = ["--operations", "200", "--concurrency", "32", "--seed", "7"];

fn all_is_well(report: &Value) {
    for zero in
        ["double_charges", "lost", "wrong_replays", "wedged", "served_impostors", "double_refunds", "live_leases"]
    {
        assert_eq!(report[zero], 0, "{zero} in {report}");
    }
    assert_eq!(report["charges"], 200, "{report}");
    let count = |name: &str| report[name].as_u64().unwrap_or_else(|| panic!("{name} in {report}"));
    assert_eq!(count("handler_runs"), count("operations") + count("takeovers") + count("retries"), "{report}");
    for some in ["retries", "replays", "in_progress", "mismatches", "refunds", "resent_unseen"] {
        assert!(count(some) > 0, "{some} in {report}");
    }
}

#[test]
fn a_storm_leaves_one_charge_for_each_operation() {
    let (status, report) = storm(&SMALL);
    all_is_well(&report);
    assert!(report["takeovers"].as_u64() > Some(0) && report["panics"].as_u64() > Some(0), "{report}");
    assert!(status.success());
}

/// Nothing but idem stands between two copies of a request and two charges.
#[test]
fn without_the_providers_help_too() {
    let (status, report) = storm(&[&SMALL[..], &["--provider-dedupe", "off", "--no-panics"]].concat());
    all_is_well(&report);
    assert_eq!(report["panics"], 0, "{report}");
    assert_eq!(
        report["arrivals"].as_u64(),
        report["handler_runs"].as_u64().map(|_| 200 + refused(&report)),
        "{report}"
    );
    assert!(status.success());
}

/// Arrivals that the provider turned away: each made one retry, and no other arrival is explained.
fn refused(report: &Value) -> u64 {
    report["arrivals"].as_u64().unwrap_or_default() - report["charges"].as_u64().unwrap_or_default()
}

fn control(arguments: &[&str], predicted: &str) -> Value {
    let (status, report) = storm(&[&SMALL[..], arguments].concat());
    assert_eq!(status.code(), Some(1), "{report}");
    assert_eq!(report["predicted"], predicted, "{report}");
    assert_eq!(report["seen"], true, "{report}");
    report
}

#[test]
fn looking_first_and_storing_afterwards_charges_twice() {
    let report = control(&["--naive", "lookup"], "double_charges");
    assert!(report["double_charges"].as_u64() > Some(0), "{report}");
}

#[test]
fn locking_a_row_that_is_not_there_fails_the_second_and_charges_again_after_a_crash() {
    let report = control(&["--naive", "for-update"], "unique_violations and double_charges");
    assert!(report["unique_violations"].as_u64() > Some(0), "{report}");
}

#[test]
fn a_key_for_each_try_is_no_key() {
    control(&["--key-per-attempt"], "double_charges");
}
