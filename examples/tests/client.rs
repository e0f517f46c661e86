//! The client that pays once: through answers that are lost, and through its own death.

mod rig;

use idem_core::http::ProblemKind;
use rig::{PATIENCE, Service, until};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A network that brings every request to the service and loses the first answers.
struct Lossy {
    address: SocketAddr,
    /// How many answers were on their way and did not arrive.
    lost: Arc<AtomicU32>,
}

impl Lossy {
    fn start(service: SocketAddr, answers_to_lose: u32) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let lost = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&lost);
        // Ends with the test's process.
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { continue };
                let server = TcpStream::connect(service).expect("the service listens");
                let (mut requests, mut to_server) =
                    (client.try_clone().expect("two"), server.try_clone().expect("two"));
                std::thread::spawn(move || std::io::copy(&mut requests, &mut to_server));
                if counter.load(Ordering::SeqCst) < answers_to_lose {
                    // The service has done its work when it begins to answer.
                    let _ = (&server).read(&mut [0]);
                    counter.fetch_add(1, Ordering::SeqCst);
                    let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
                } else {
                    let (mut answers, mut to_client) = (server, client);
                    std::thread::spawn(move || std::io::copy(&mut answers, &mut to_client));
                }
            }
        });
        Self { address, lost }
    }

    fn lost(&self) -> u32 {
        self.lost.load(Ordering::SeqCst)
    }
}

/// A folder for keys that is not there yet.
fn keys(test: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("idem-client-{}-{test}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

fn client(service: SocketAddr, keys: &Path, order: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_client"));
    command.args(["--service", &format!("http://{service}"), "--order", order, "--amount", "1000", "--timeout", "30s"]);
    command.arg("--keys").arg(keys).stdin(Stdio::null()).env("NO_PROXY", "*");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

fn paid(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    let body = text(&output.stdout);
    assert!(body.contains("\"amount\":1000"), "{body}");
    body
}

#[test]
fn answers_that_are_lost_cost_retries_and_no_second_charge() {
    let (service, keys) = (Service::start(&[]), keys("lost"));
    let network = Lossy::start(service.address, 3);
    let output = client(network.address, &keys, "order-1").output().expect("it runs");
    let body = paid(&output);
    assert_eq!(network.lost(), 3);
    let said = text(&output.stderr);
    assert_eq!(said.matches("no answer; the same again").count(), 3, "{said}");

    // Run again, it is the same operation.
    let again = client(service.address, &keys, "order-1").output().expect("it runs");
    assert_eq!(paid(&again), body);
    let other = client(service.address, &keys, "order-2").output().expect("it runs");
    assert_ne!(paid(&other), body);

    let kept = std::fs::read_to_string(keys.join("order-1")).expect("kept");
    let key = kept.trim_end().split_once(' ').expect("a time and a key").1;
    for output in [&output, &again] {
        assert!(!text(&output.stderr).contains(key) && !text(&output.stdout).contains(key), "the key is shown");
    }
    let (_, end, _) = service.terminate();
    assert_eq!(end["completed"], 2, "one for each order: {end}");
    std::fs::remove_dir_all(keys).expect("removed");
}

#[test]
fn a_client_that_is_killed_finds_its_key_again() {
    let (service, keys) = (Service::start(&[]), keys("killed"));
    let network = Lossy::start(service.address, u32::MAX);
    let mut victim: Child = client(network.address, &keys, "order-1").stderr(Stdio::null()).spawn().expect("it runs");
    until("the service has answered", || network.lost() > 0);
    victim.kill().expect("it runs");
    victim.wait().expect("it ends");
    paid(&client(service.address, &keys, "order-1").output().expect("it runs"));
    let (_, end, _) = service.terminate();
    assert_eq!(end["completed"], 1, "{end}");
    std::fs::remove_dir_all(keys).expect("removed");
}

/// A service that answers with one response to everything, and how often it was asked.
fn answering(responses: Vec<String>) -> (SocketAddr, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let (address, asked) = (listener.local_addr().expect("bound"), Arc::new(AtomicU32::new(0)));
    let counter = Arc::clone(&asked);
    std::thread::spawn(move || {
        for (response, client) in responses.iter().zip(listener.incoming()) {
            let mut client = client.expect("a client");
            client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            let mut request = Vec::new();
            let mut part = [0; 4096];
            while !request.ends_with(b"}") {
                let read = client.read(&mut part).expect("a request");
                assert!(read > 0, "the request ends with a body");
                request.extend_from_slice(&part[..read]);
            }
            counter.fetch_add(1, Ordering::SeqCst);
            client.write_all(response.as_bytes()).expect("the client reads");
        }
    });
    (address, asked)
}

fn response(status: &str, lines: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nconnection: close\r\n{lines}content-length: {}\r\n\r\n{body}", body.len())
}

fn problem(status: &str, kind: ProblemKind) -> String {
    let body = format!(r#"{{"type":"{}"}}"#, kind.uri());
    response(status, "content-type: application/problem+json\r\nretry-after: 0\r\n", &body)
}

#[test]
fn the_rules_hear_what_the_service_says() {
    let keys = keys("rules");
    // Busy twice, in its own words, then done.
    let done = response("201 Created", "", r#"{"amount":1000}"#);
    let busy =
        [problem("409 Conflict", ProblemKind::InProgress), problem("503 Service Unavailable", ProblemKind::Draining)];
    let (address, asked) = answering([&busy[..], &[done]].concat());
    paid(&client(address, &keys, "order-1").output().expect("it runs"));
    assert_eq!(asked.load(Ordering::SeqCst), 3);

    let cases = [
        (response("409 Conflict", "", "{}"), 1, "this is the answer"),
        (response("500 Internal Server Error", "idempotent-replayed: true\r\n", "{}"), 1, "this is the answer"),
        (response("422 Unprocessable Content", "", "{}"), 1, "needs a new key"),
        (problem("410 Gone", ProblemKind::AnswerNotKept), 1, "is done"),
        (problem("503 Service Unavailable", ProblemKind::Abandoned), 2, "somebody has to look"),
    ];
    for (answer, status, says) in cases {
        let (address, asked) = answering(vec![answer.clone(), answer.clone()]);
        let output = client(address, &keys, "order-2").output().expect("it runs");
        assert_eq!((output.status.code(), asked.load(Ordering::SeqCst)), (Some(status), 1), "{answer}: {output:?}");
        assert!(text(&output.stderr).contains(says), "{answer}: {output:?}");
    }
    std::fs::remove_dir_all(keys).expect("removed");
}

#[test]
fn a_key_that_the_service_may_have_forgotten_is_not_sent() {
    let keys = keys("old");
    std::fs::create_dir(&keys).expect("made");
    std::fs::write(keys.join("order-1"), "1000000000 8e03978e-40d5-43dd-bc93-6894a57f9324\n").expect("written");
    let (address, asked) = answering(vec![response("201 Created", "", "{}")]);
    let output = client(address, &keys, "order-1").output().expect("it runs");
    assert_eq!((output.status.code(), asked.load(Ordering::SeqCst)), (Some(2), 0), "{output:?}");
    assert!(text(&output.stderr).contains("look the operation up"), "{output:?}");
    std::fs::remove_dir_all(keys).expect("removed");
}
