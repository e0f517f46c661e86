//! `payments` on a real PostgreSQL: several processes on one database, and the storms that kill and pause them.

mod rig;

use idem_tests::rig::postgres::{Database, Version, shared};
use idem_tests::rig::redis::{Flavour, Redis};
use rig::{Provider, Service, body, get, header, post, storm};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

async fn database() -> Database {
    shared(Version::Any).await.database().await
}

fn count(report: &Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or_else(|| panic!("{name} in {report}"))
}

/// Runs a storm that must find nothing.
fn calm(database: &Database, operations: u64, arguments: &[&str]) -> Value {
    let number = operations.to_string();
    let common = ["--operations", &number, "--concurrency", "32", "--seed", "7", "--database-url", database.url()];
    let (status, report) = storm(&[&common, arguments].concat());
    for zero in [
        "double_charges",
        "lost",
        "wrong_replays",
        "wedged",
        "served_impostors",
        "double_refunds",
        "lost_refunds",
        "wrong_states",
        "live_leases",
    ] {
        assert_eq!(report[zero], 0, "{zero} in {report}");
    }
    assert_eq!(report["charges"], operations, "{report}");
    assert_eq!(report["refunds"], report["refunds_wanted"], "{report}");
    for some in ["takeovers", "refused_impostors", "refunds", "resent_unseen"] {
        assert!(count(&report, some) > 0, "{some} in {report}");
    }
    assert!(status.success(), "{report}");
    report
}

#[tokio::test]
async fn what_one_process_did_another_one_answers() {
    let database = database().await;
    let provider = Provider::start();
    let arguments = ["--database-url", database.url(), "--provider-url", &provider.url];
    let (one, other) = (Service::start(&arguments), Service::start(&arguments));
    let charge = post("/v1/charges", &[b"idempotency-key: k"], br#"{"order":"o","amount":5,"currency":"usd"}"#);
    let (status, first) = one.raw(&charge);
    assert_eq!((status, header(&first, "idempotent-replayed")), (201, None), "{first}");
    let (status, second) = other.raw(&charge);
    assert_eq!((status, header(&second, "idempotent-replayed")), (201, Some("true")), "{second}");
    assert_eq!(body(&first), body(&second));

    // What is paid back here shows there.
    let refund = post("/v1/refunds", &[b"idempotency-key: r"], br#"{"charge":"ch_o","amount":5,"currency":"usd"}"#);
    let (status, answer) = other.raw(&refund);
    assert_eq!(status, 201, "{answer}");
    let (status, now) = one.raw(&get("/v1/charges/ch_o", &[]));
    assert_eq!(status, 200, "{now}");
    assert!(body(&now).contains("\"refunded\":5"), "{now}");
    // And not to a stranger, nor by a name that leads elsewhere.
    for (path, tenant) in [("/v1/charges/ch_o", "stranger"), ("/v1/charges/..%2Fledger", "demo")] {
        let tenant = format!("authorization: Bearer {tenant}");
        let (status, answer) = one.raw(&get(path, &[tenant.as_bytes()]));
        assert_eq!(status, 404, "{answer}");
    }

    // A restart forgets nothing.
    assert!(one.terminate().0.success());
    let one = Service::start(&arguments);
    let (status, again) = one.raw(&charge);
    assert_eq!((status, body(&again)), (201, body(&first)), "{again}");
    let (status, end, _) = other.terminate();
    assert!(status.success());
    assert_eq!(end["completed"], 2, "{end}");
}

#[tokio::test]
async fn a_storm_over_one_process_leaves_one_charge_for_each_operation() {
    let database = database().await;
    let report = calm(&database, 200, &[]);
    assert_eq!(
        count(&report, "handler_runs"),
        200 + count(&report, "takeovers") + count(&report, "retries"),
        "{report}"
    );
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM pg_tables WHERE tablename LIKE 'storm%'")
        .fetch_one(&mut database.client().await)
        .await
        .expect("the database answers");
    assert_eq!(left, 0, "the table of the storm goes with it");
}

/// Nothing but the table stands between two processes and two charges.
#[tokio::test]
async fn three_processes_do_without_the_providers_help() {
    let database = database().await;
    let arguments = ["--processes", "3", "--provider-dedupe", "off", "--no-panics"];
    let number = ["--operations", "150", "--concurrency", "32", "--seed", "7", "--database-url", database.url()];
    let (status, report) = storm(&[&number[..], &arguments].concat());
    assert_eq!((&report["charges"], &report["takeovers"]), (&150.into(), &0.into()), "{report}");
    assert!(status.success(), "{report}");
}

#[tokio::test]
async fn three_processes_that_are_killed_charge_once() {
    let database = database().await;
    let report = calm(&database, 300, &["--processes", "3", "--kill-every", "300ms"]);
    assert_eq!((&report["wrong_rows"], &report["processes"]), (&0.into(), &3.into()), "{report}");
    assert!(count(&report, "kills") > 1, "{report}");
    assert!(count(&report, "owners") >= 300 + count(&report, "takeovers"), "{report}");
}

#[tokio::test]
async fn three_processes_that_are_stopped_past_their_leases_charge_once() {
    let database = database().await;
    let report = calm(&database, 200, &["--processes", "3", "--pause-every", "200ms"]);
    assert!(count(&report, "pauses") > 0, "{report}");
}

/// Processes are killed, and so is the Redis in front of their database, again and again.
#[tokio::test(flavor = "multi_thread")]
async fn three_processes_with_a_redis_that_crashes_charge_once() {
    let database = database().await;
    let redis = Arc::new(Redis::own(Flavour::Any, &[]).await.expect("a Redis or a Valkey"));
    let url = redis.url().to_owned();
    // In how many of its lives it was asked.
    let lives = Arc::new(AtomicU64::new(0));
    let crashing = {
        let (redis, lives) = (Arc::clone(&redis), Arc::clone(&lives));
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(700)).await;
                let commands = redis.command(&["INFO", "commandstats"]).await.unwrap_or_default();
                lives.fetch_add(u64::from(commands.contains("cmdstat_getrange:")), Ordering::Relaxed);
                redis.crash().await;
                redis.start_again().await;
            }
        })
    };
    let arguments = ["--processes", "3", "--kill-every", "300ms", "--redis-url", &url];
    let report = tokio::task::block_in_place(|| calm(&database, 200, &arguments));
    crashing.abort();
    assert_eq!(report["wrong_rows"], 0, "{report}");
    assert!(count(&report, "kills") > 1, "{report}");
    let lives = lives.load(Ordering::Relaxed);
    assert!(lives > 1, "it was asked in {lives} of its lives");
}

#[tokio::test]
async fn the_claim_in_the_transaction_of_the_work_blocks_and_charges_twice() {
    let database = database().await;
    let arguments =
        ["--operations", "200", "--concurrency", "32", "--seed", "7", "--naive", "one-transaction", "--database-url"];
    let (status, report) = storm(&[&arguments[..], &[database.url()]].concat());
    assert_eq!(status.code(), Some(1), "{report}");
    assert_eq!(report["predicted"], "double_charges and blocked_requests", "{report}");
    assert_eq!(report["seen"], true, "{report}");
    assert!(count(&report, "longest_wait_ms") >= 50, "{report}");
}

/// Both ways to end a storm before its end; in the second nobody is left to clean up, and one process is stopped.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn no_server_process_outlives_its_storm() {
    use rig::{Running, children, state, until};
    for (signal, stopped) in [("INT", false), ("KILL", true)] {
        let database = database().await;
        let storm = Running::start(&[
            "storm",
            "--operations",
            "100000",
            "--database-url",
            database.url(),
            "--processes",
            "3",
            "--pause-every",
            "100ms",
        ]);
        until("three processes, one of them stopped as wanted", || {
            let children = children(storm.id());
            children.len() == 3 && (!stopped || children.iter().any(|child| state(*child) == Some('T')))
        });
        let children = children(storm.id());
        storm.signal(signal);
        until("the end of every process", || children.iter().all(|child| matches!(state(*child), None | Some('Z'))));
    }
}
