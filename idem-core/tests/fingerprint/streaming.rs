//! Bodies that are hashed as they arrive.

use idem_core::fingerprint::{BodyDigest, BodyHasher};
use rand::RngExt;
use rand::rngs::StdRng;

use crate::{fingerprint, generator, request};

fn in_chunks(mut hasher: BodyHasher, body: &[u8], rng: &mut StdRng) -> BodyDigest {
    let mut rest = body;
    let longest = 1 << rng.random_range(0..=20);
    while !rest.is_empty() {
        let (chunk, more) = rest.split_at(rng.random_range(0..=longest).min(rest.len()));
        hasher.update(chunk);
        rest = more;
    }
    hasher.finish()
}

/// A body that is full of what may be the beginning of a delimiter.
fn multipart(rng: &mut StdRng) -> Vec<u8> {
    let mut body = Vec::new();
    for _ in 0..rng.random_range(0..6) {
        body.extend_from_slice(b"--x--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n");
        let longest = if rng.random_ratio(1, 10) { 40_000 } else { 40 };
        for _ in 0..rng.random_range(0..longest) {
            body.extend_from_slice(
                [&b"\r"[..], b"\n", b"\r\n", b"--", b"x", b"\r\n--x", b"\r\n--x-", b"y"][rng.random_range(0..8)],
            );
        }
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice([&b"--x--x--"[..], b"--x--x--\r\n", b"--x--x", b""][rng.random_range(0..4)]);
    body
}

#[test]
fn chunks_do_not_matter() {
    let mut rng = generator();
    for _ in 0..2_000 {
        let body = multipart(&mut rng);
        let bytes = in_chunks(BodyHasher::bytes(), &body, &mut rng);
        assert_eq!(fingerprint(request().body(bytes)), fingerprint(request().bytes(&body)));
        let parts = in_chunks(BodyHasher::multipart("x--x"), &body, &mut rng);
        assert_eq!(fingerprint(request().body(parts)), fingerprint(request().multipart(b"x--x", &body)));
    }
}

/// Every cut of a small body into two, and into single bytes.
#[test]
fn every_cut_is_the_same() {
    let body = b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n--\r\n--y\r\n--x\r\n\
        Content-Disposition: form-data; name=b; filename=c\r\nContent-Type: text/plain\r\n\r\n\r\n--x--\r\n";
    for hasher in [BodyHasher::multipart("x"), BodyHasher::multipart("y"), BodyHasher::bytes()] {
        let of = |chunks: &mut dyn Iterator<Item = &[u8]>| {
            let mut hasher = hasher.clone();
            chunks.for_each(|chunk| hasher.update(chunk));
            fingerprint(request().body(hasher.finish()))
        };
        let at_once = of(&mut std::iter::once(&body[..]));
        assert_eq!(of(&mut body.chunks(1)), at_once);
        for cut in 0..=body.len() {
            let (one, two) = body.split_at(cut);
            assert_eq!(of(&mut [one, two].into_iter()), at_once, "{cut}");
        }
    }
}
