//! Bodies of any length are hashed in constant memory.
//!
//! One test and its own process, since it looks at the memory of the whole process. `IDEM_TEST_BODY_BYTES` sets the
//! length of each body: `IDEM_TEST_BODY_BYTES=1073741824 cargo test --release -p idem-core --test fingerprint_memory`.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed")]

use idem_core::Fingerprint;
use idem_core::fingerprint::BodyHasher;

const DEFAULT_BYTES: usize = 64 << 20;
/// What the process may grow by, in KiB: less than a hundredth of the shortest body.
const ALLOWED_KIBIBYTES: usize = 512;

/// The most memory that this process ever had, in KiB.
fn most_memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

/// Hashes `head`, `length` bytes of content, and `end`.
fn hash(mut hasher: BodyHasher, length: usize, block: &[u8], [head, end]: [&[u8]; 2]) -> Fingerprint {
    hasher.update(head);
    let mut rest = length;
    while rest > 0 {
        let chunk = &block[..block.len().min(rest)];
        hasher.update(chunk);
        rest -= chunk.len();
    }
    hasher.update(end);
    Fingerprint::builder("PUT /").body(hasher.finish()).finish().unwrap().current().clone()
}

#[test]
fn a_body_of_any_length_takes_constant_memory() {
    let length: usize = std::env::var("IDEM_TEST_BODY_BYTES").map_or(DEFAULT_BYTES, |bytes| bytes.parse().unwrap());
    assert!(length >= DEFAULT_BYTES);
    let block: Vec<u8> = b"\r\n--bound".iter().copied().cycle().take(9 * 7919).collect();
    let part = [&b"--boundary\r\nContent-Disposition: form-data; name=a\r\n\r\n"[..], b"\r\n--boundary--\r\n"];
    let parts: Vec<u8> = [part[0], b"1\r\n"].concat().repeat(1000);
    let parts_end = [&b""[..], b"--boundary--"];
    let whole_parts = length / parts.len() * parts.len();

    let run = |length: usize, whole_parts: usize| {
        // Blocks of two lengths: the content is the same.
        let bytes = [&block[..], &block[..9 * 101]].map(|block| hash(BodyHasher::bytes(), length, block, [b"", b""]));
        assert_eq!(bytes[0], bytes[1]);
        let one_part =
            [&block[..], &block[..9 * 101]].map(|block| hash(BodyHasher::multipart("boundary"), length, block, part));
        assert_eq!(one_part[0], one_part[1]);
        let many_parts = hash(BodyHasher::multipart("boundary"), whole_parts, &parts, parts_end);
        let malformed = hash(BodyHasher::multipart("boundary"), length, &block, [b"", b""]);
        assert!(many_parts != malformed && bytes[0] != malformed && one_part[0] != many_parts);
    };
    // What a first run needs, it needs once.
    run(1 << 20, parts.len());
    let before = most_memory();
    run(length, whole_parts);
    let grown = most_memory() - before;
    assert!(grown <= ALLOWED_KIBIBYTES, "{grown} KiB for bodies of {length} bytes");
}
