//! `payments serve` as a person and an orchestrator use it.

mod rig;

use rig::{Service, body, exchange, header, post, until};
use std::net::TcpListener;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

#[test]
fn the_two_printed_lines_charge_and_replay() {
    let curl = Command::new("curl").arg("--version").output();
    assert!(curl.is_ok_and(|output| output.status.success()), "this test runs curl: install it (apt-get install curl)");
    let service = Service::start(&[]);
    let lines = service.curl_lines();
    assert_eq!(lines.len(), 2);
    let paste = |line: &str| {
        let output = Command::new("sh").args(["-c", line]).output().expect("sh runs");
        String::from_utf8(output.stdout).expect("text")
    };

    let first = paste(&lines[0]);
    assert!(first.starts_with("HTTP/1.1 201 Created"), "{first}");
    assert_eq!(header(&first, "idempotent-replayed"), None);
    let location = header(&first, "location").expect("a location").to_owned();

    let second = paste(&lines[1]);
    assert!(second.starts_with("HTTP/1.1 201 Created"), "{second}");
    assert_eq!(header(&second, "idempotent-replayed"), Some("true"));
    assert_eq!(body(&second), body(&first));
    assert_eq!(header(&second, "location"), Some(&*location));

    let get = format!("GET {location} HTTP/1.1\r\nhost: payments\r\nconnection: close\r\n\r\n");
    let (status, now) = service.raw(get.as_bytes());
    assert_eq!(status, 200, "{now}");
    assert!(body(&now).contains("\"refunded\":0"), "{now}");

    let (status, end, _) = service.terminate();
    assert!(status.success());
    assert_eq!(end["completed"], 1);
}

#[test]
fn a_taken_port_is_no_reason_not_to_start() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    let service = Service::start_on(&address, &[]);
    assert_ne!(service.address.to_string(), address);
    assert!(service.greeting[0].starts_with(&format!("{address} is taken")), "{:?}", service.greeting);
    let (status, answer) = service.raw(b"GET /healthz HTTP/1.1\r\nhost: payments\r\nconnection: close\r\n\r\n");
    assert_eq!(status, 200, "{answer}");
}

/// Every thread keeps asking; in the middle of it the service is told to stop. Handlers that fail, panic and hang are among them.
#[test]
fn sigterm_under_load_leaves_no_lease_and_nobody_waiting() {
    let service = Service::start(&["--fault-seed", "7", "--lease-ms", "1000", "--drain-ms", "300"]);
    let address = service.address;
    let stopping = Arc::new(AtomicBool::new(false));
    let answered = Arc::new(AtomicU32::new(0));
    let statuses = Arc::new(Mutex::new(Vec::new()));
    let clients: Vec<_> = (0..32)
        .map(|client| {
            let (stopping, answered, statuses) = (stopping.clone(), answered.clone(), statuses.clone());
            std::thread::spawn(move || {
                for n in 0.. {
                    let key = format!("idempotency-key: {client}-{n}");
                    let body = format!(r#"{{"order":"{client}-{n}","amount":5,"currency":"usd"}}"#);
                    let last = stopping.load(Ordering::SeqCst);
                    // Ends with an answer or a closed connection, or the read times out, and that fails the test.
                    let (status, _) = exchange(address, &post("/v1/charges", &[key.as_bytes()], body.as_bytes()));
                    statuses.lock().expect("no client panics").push(status);
                    answered.fetch_add(1, Ordering::SeqCst);
                    if last {
                        break;
                    }
                }
            })
        })
        .collect();
    until("some load", || answered.load(Ordering::SeqCst) > 200);
    let (status, end, _) = service.terminate();
    stopping.store(true, Ordering::SeqCst);
    for client in clients {
        client.join().expect("every client comes to an end");
    }
    assert!(status.success(), "{end}");
    assert_eq!(end["live_leases"], 0, "{end}");
    assert_eq!(end["settled"], true, "{end}");
    let statuses = statuses.lock().expect("no client panics");
    // 0 is a closed connection.
    assert!(statuses.iter().all(|status| [0, 201, 409, 500, 503].contains(status)), "{statuses:?}");
    assert!(statuses.contains(&201));
}

/// A provider that takes the call and never answers: what runs then cannot end by itself before the patience of the stop does.
#[test]
fn what_hangs_at_sigterm_is_given_up_and_its_client_is_told() {
    const CLIENTS: u64 = 8;
    let provider = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let provider_url = format!("http://{}", provider.local_addr().expect("bound"));
    let called = Arc::new(AtomicU32::new(0));
    {
        let called = called.clone();
        // Ends with the test's process.
        std::thread::spawn(move || {
            let mut held = Vec::new();
            for connection in provider.incoming() {
                held.push(connection);
                called.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    let service = Service::start(&["--provider-url", &provider_url, "--drain-ms", "50"]);
    let address = service.address;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            std::thread::spawn(move || {
                let key = format!("idempotency-key: {client}");
                let body = format!(r#"{{"order":"{client}","amount":5,"currency":"usd"}}"#);
                exchange(address, &post("/v1/charges", &[key.as_bytes()], body.as_bytes()))
            })
        })
        .collect();
    until("every handler's call", || u64::from(called.load(Ordering::SeqCst)) == CLIENTS);
    let (status, end, _) = service.terminate();
    assert!(status.success(), "{end}");
    let counts = ["given_up", "unknown_outcomes", "live_leases"].map(|name| end[name].as_u64());
    assert_eq!(counts, [Some(CLIENTS), Some(CLIENTS), Some(0)], "{end}");
    for client in clients {
        let (status, answer) = client.join().expect("every client comes to an end");
        assert_eq!(status, 503, "{answer}");
        assert!(body(&answer).contains("problems.md#stopped"), "{answer}");
    }
}
