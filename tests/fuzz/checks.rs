//! What holds for any bytes: run by the fuzz targets of `fuzz/`, and over their corpora by the tests beside this file.

use http::{HeaderMap, HeaderValue};
use idem_core::fingerprint::BodyHasher;
use idem_core::fingerprint::json::{self, Limits};
use idem_core::{Fingerprint, Response};

/// Any text has a fingerprint as JSON; the canonical form of one that has a form is the form of itself and of every
/// text that differs from it in white space alone.
pub(crate) fn json_form(data: &[u8]) {
    let fingerprint = |body: &[u8]| Fingerprint::builder("fuzz").body_limit(usize::MAX).json(body).finish().unwrap();
    let of_data = fingerprint(data);
    let Ok(form) = json::canonicalize(data, Limits::default()) else {
        // Then it counts by its bytes.
        assert_eq!(of_data.current(), fingerprint(data).current());
        return;
    };
    assert!(std::str::from_utf8(&form).is_ok(), "a canonical form is UTF-8");
    assert_eq!(json::canonicalize(&form, Limits::default()).as_ref(), Ok(&form), "a form is its own form");
    let spaced = [b" \n", data, b"\t\r\n"].concat();
    assert_eq!(json::canonicalize(&spaced, Limits::default()).as_ref(), Ok(&form), "white space is nothing");
    for same in [&form, &spaced] {
        assert_eq!(of_data.current(), fingerprint(same).current());
    }
}

/// Any header values give a key or a reason; a key comes back from its quoted form.
pub(crate) fn key_header(data: &[u8]) {
    let mut headers = HeaderMap::new();
    for line in data.split(|byte| *byte == b'\n') {
        if let Ok(value) = HeaderValue::from_bytes(line) {
            headers.append("idempotency-key", value);
        }
    }
    let key = match idem_tower::header::key(&headers) {
        Ok(Some(key)) => key,
        Ok(None) => return assert!(headers.is_empty(), "no key from a header that is there"),
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    assert_eq!(headers.len(), 1, "one key from one header");
    let mut quoted = b"\"".to_vec();
    for byte in key.as_str().bytes() {
        if b"\"\\".contains(&byte) {
            quoted.push(b'\\');
        }
        quoted.push(byte);
    }
    quoted.push(b'"');
    let quoted =
        HeaderMap::from_iter([("idempotency-key".parse().unwrap(), HeaderValue::from_bytes(&quoted).unwrap())]);
    assert_eq!(idem_tower::header::key(&quoted).unwrap().unwrap(), key, "both forms are the same key");
}

/// Any bytes are the head of a response or not; what was read is written and read again as the same.
pub(crate) fn response_codec(data: &[u8]) {
    let Ok(response) = Response::decode(data, "body") else { return };
    let head = response.encode_head();
    assert!(head.len() <= data.len(), "nobody writes a head more shortly than the encoder");
    assert_eq!(Response::decode(&head, "body").as_ref(), Ok(&response));
}

/// Any boundary and body have a fingerprint, however the body is cut into pieces on its way; the first line is the
/// boundary.
pub(crate) fn multipart(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (boundary, body) = (&data[..end], data.get(end + 1..).unwrap_or_default());
    let finish =
        |hasher: BodyHasher| Fingerprint::builder("fuzz").body(hasher.finish()).finish().unwrap().current().clone();
    let mut whole = BodyHasher::multipart(boundary);
    whole.update(body);
    let whole = finish(whole);
    // Pieces of all lengths, the empty one too, in an order that the input itself gives.
    for start in 0..4 {
        let (mut pieces, mut rest) = (BodyHasher::multipart(boundary), body);
        let mut lengths = data.iter().skip(start).map(|byte| usize::from(byte % 9));
        while !rest.is_empty() {
            let (piece, left) = rest.split_at(lengths.next().unwrap_or(1 + start).min(rest.len()));
            pieces.update(piece);
            rest = left;
        }
        assert_eq!(finish(pieces), whole, "where a body is cut means nothing");
    }
}
