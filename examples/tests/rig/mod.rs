//! Runs the real `payments` binary and speaks to it over sockets.
#![allow(dead_code, reason = "each test file uses its own part")]

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Nothing here takes longer than this, on the slowest machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The binary under test.
pub(crate) fn payments() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_payments"));
    command.env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// Runs `payments storm` to its end: its exit status and its last line.
pub(crate) fn storm(arguments: &[&str]) -> (ExitStatus, Value) {
    let output = payments().arg("storm").args(arguments).output().expect("the binary runs");
    let stdout = String::from_utf8(output.stdout).expect("text");
    let last =
        stdout.lines().last().unwrap_or_else(|| panic!("no output; {}", String::from_utf8_lossy(&output.stderr)));
    let report = serde_json::from_str(last).unwrap_or_else(|error| panic!("{error} in {last}"));
    (output.status, report)
}

/// A `payments serve` that is running.
pub(crate) struct Service {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: Option<JoinHandle<String>>,
    pub(crate) address: SocketAddr,
    /// What it printed when it started, up to the second `curl` line.
    pub(crate) greeting: Vec<String>,
}

impl Service {
    /// Starts it on a free port, with everything it logs.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_on("127.0.0.1:0", arguments)
    }

    /// Starts it on this address, or on a free port if that is taken.
    pub(crate) fn start_on(listen: &str, arguments: &[&str]) -> Self {
        let mut command = payments();
        command.args(["serve", "--listen", listen]).args(arguments).env("RUST_LOG", "trace");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut stderr = child.stderr.take().expect("piped");
        let stderr = std::thread::spawn(move || {
            let mut text = Vec::new();
            stderr.read_to_end(&mut text).expect("stderr reads");
            String::from_utf8_lossy(&text).into_owned()
        });
        let mut greeting = Vec::new();
        while greeting.iter().filter(|line: &&String| line.starts_with("curl ")).count() < 2 {
            let mut line = String::new();
            assert!(stdout.read_line(&mut line).expect("text") > 0, "it ended: {greeting:?}");
            greeting.push(line.trim_end().to_owned());
        }
        let url = greeting.iter().find_map(|line| line.strip_prefix("payments on http://")).expect("an address");
        let address = url.split(',').next().expect("an address").parse().expect("an address");
        Self { child, stdout, stderr: Some(stderr), address, greeting }
    }

    pub(crate) fn curl_lines(&self) -> Vec<String> {
        self.greeting.iter().filter(|line| line.starts_with("curl ")).cloned().collect()
    }

    /// Sends SIGTERM and waits for the end: exit status, the last line, and all that it printed and logged.
    pub(crate) fn terminate(mut self) -> (ExitStatus, Value, String) {
        signal(self.child.id(), "TERM");
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).expect("text");
        let status = self.child.wait().expect("it ends");
        let last = rest.lines().last().expect("a last line");
        let end = serde_json::from_str(last).unwrap_or_else(|error| panic!("{error} in {last}"));
        let logs = self.stderr.take().expect("taken once").join().expect("stderr reads");
        (status, end, format!("{}\n{rest}\n{logs}", self.greeting.join("\n")))
    }

    /// Sends bytes as they are and reads until the service closes the connection: the status, 0 if there was none, and the whole answer.
    pub(crate) fn raw(&self, request: &[u8]) -> (u16, String) {
        exchange(self.address, request)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Only a failed test leaves it running.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A `payments` that is running and is not asked to stop; dropped, it is killed.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self(
            payments().args(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the binary starts"),
        )
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.id(), name);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A `payments provider` on a free port.
pub(crate) struct Provider {
    _running: Running,
    pub(crate) url: String,
}

impl Provider {
    pub(crate) fn start() -> Self {
        let mut running = Running::start(&["provider", "--listen", "127.0.0.1:0"]);
        let mut line = String::new();
        let stdout = running.0.stdout.as_mut().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("text");
        let url = line.strip_prefix("card provider on ").and_then(|rest| rest.split(',').next()).expect("an address");
        Self { url: url.to_owned(), _running: running }
    }
}

/// Sends a signal.
fn signal(id: u32, name: &str) {
    // The shell's own `kill`: a small Debian has no other.
    let kill = Command::new("sh").args(["-c", &format!("kill -{name} {id}")]).status().expect("sh runs");
    assert!(kill.success());
}

/// The processes that a process started, as Linux tells.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").expect("Linux").flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|id| stat(*id).is_some_and(|(_, its_parent)| its_parent == parent)).collect()
}

/// The letter of a process's state, if there is one; `T` is stopped.
pub(crate) fn state(id: u32) -> Option<char> {
    stat(id).map(|(state, _)| state)
}

fn stat(id: u32) -> Option<(char, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name stands in brackets and may hold anything, also brackets.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// Sends bytes and reads until the other side closes.
pub(crate) fn exchange(address: SocketAddr, request: &[u8]) -> (u16, String) {
    let Ok(mut stream) = TcpStream::connect(address) else { return (0, String::new()) };
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    // The service may answer and close before it has read everything.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    (status, answer)
}

/// A GET with these header lines; the connection closes after the answer.
pub(crate) fn get(path: &str, header_lines: &[&[u8]]) -> Vec<u8> {
    let mut request =
        format!("GET {path} HTTP/1.1\r\nhost: payments\r\nconnection: close\r\ncontent-type: application/json\r\n")
            .into_bytes();
    for line in header_lines {
        request.extend_from_slice(line);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    request
}

/// A POST with these header lines (bytes as they are) and this body; the connection closes after the answer.
pub(crate) fn post(path: &str, header_lines: &[&[u8]], body: &[u8]) -> Vec<u8> {
    let mut request =
        format!("POST {path} HTTP/1.1\r\nhost: payments\r\nconnection: close\r\ncontent-type: application/json\r\n")
            .into_bytes();
    for line in header_lines {
        request.extend_from_slice(line);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
    request.extend_from_slice(body);
    request
}

/// A header value of an answer.
pub(crate) fn header<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    let head = answer.split("\r\n\r\n").next()?;
    head.lines().find_map(|line| line.split_once(": ").filter(|(known, _)| *known == name).map(|(_, value)| value))
}

/// The body of an answer.
pub(crate) fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

/// Asks again and again until `ready`, for as long as patience lasts.
#[expect(clippy::disallowed_methods, reason = "the deadline of a test")]
pub(crate) fn until(what: &str, mut ready: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !ready() {
        assert!(Instant::now() < deadline, "{what} did not happen in time");
        std::thread::sleep(Duration::from_millis(5));
    }
}
