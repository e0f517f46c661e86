//! The small examples, run as a stranger runs them: start, paste what is printed.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A running example; dropped, it is killed.
struct Example {
    child: Child,
    /// The `curl` lines that it printed.
    curl: Vec<String>,
}

impl Example {
    fn start(binary: &str, lines: usize) -> Self {
        let mut child = Command::new(binary).stdout(Stdio::piped()).spawn().expect("the binary starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let printed = stdout.lines().map(|line| line.expect("text"));
        let curl: Vec<_> = printed.filter(|line| line.starts_with("curl ")).take(lines).collect();
        assert_eq!(curl.len(), lines, "it ended");
        Self { child, curl }
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn paste(line: &str) -> String {
    let output = Command::new("sh").args(["-c", &format!("{line} --silent --show-error")]).output().expect("sh runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// The answer without what differs between a first answer and its replay.
fn kept(answer: &str) -> Vec<&str> {
    let mut lines: Vec<_> = answer.lines().collect();
    lines.retain(|line| !line.starts_with("date: ") && *line != MARK);
    lines.sort_unstable();
    lines
}

const MARK: &str = "idempotent-replayed: true";

fn assert_replays(line: &str) {
    let (first, again) = (paste(line), paste(line));
    assert!(first.starts_with("HTTP/1.1 201 Created\r\n"), "{first}");
    assert!(!first.contains(MARK) && again.contains(MARK), "{first}{again}");
    assert_eq!(kept(&first), kept(&again));
}

#[test]
fn with_axum_each_route_has_its_rule() {
    let example = Example::start(env!("CARGO_BIN_EXE_with-axum"), 4);
    let [charge, closed, no_key, note] = &example.curl[..] else { panic!("four lines") };
    assert_replays(charge);
    for _ in 0..2 {
        let answer = paste(closed);
        assert!(answer.starts_with("HTTP/1.1 503") && !answer.contains(MARK), "{answer}");
    }
    // The key is free for a retry, not for another request.
    assert!(paste(&closed.replace("red", "blue")).starts_with("HTTP/1.1 422"));
    assert!(paste(no_key).contains("problems.md#key-missing"));
    assert!(paste(&charge.replace("alice", "mallory")).contains("problems.md#scope-refused"));
    assert_ne!(kept(&paste(note)), kept(&paste(note)));
    assert_replays(&format!("{note} -H 'Idempotency-Key: note-1'"));
}

#[test]
fn with_hyper_the_printed_line_replays() {
    let example = Example::start(env!("CARGO_BIN_EXE_with-hyper"), 1);
    assert_replays(&example.curl[0]);
    assert!(paste(&example.curl[0].replace("1000", "1")).starts_with("HTTP/1.1 422"));
}

#[test]
fn with_tonic_a_call_is_replayed() {
    let output = Command::new(env!("CARGO_BIN_EXE_with-tonic")).output().expect("the binary runs");
    let printed = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<_> = printed.lines().collect();
    let [first, again, reused, closed, retried] = &lines[..] else { panic!("five calls: {printed}") };
    assert!(first.ends_with("replayed: false"), "{printed}");
    assert_eq!(first.replace("replayed: false", "replayed: true"), **again);
    assert!(reused.contains("InvalidArgument"), "{printed}");
    assert!(closed.contains("Unavailable, the bank is closed"), "{printed}");
    assert!(retried.ends_with("replayed: false") && output.status.success(), "{printed}");
}
