//! What a service must survive at its edge: keys and bodies of every kind, and nothing of them in its logs.

mod rig;

use rig::{Service, body, header, post};

const BODY: &[u8] = br#"{"order":"order-1","amount":5,"currency":"usd"}"#;

fn key_line(key: &[u8]) -> Vec<u8> {
    [b"idempotency-key: ", key].concat()
}

#[test]
fn a_key_that_is_none_is_refused_with_the_reason() {
    let service = Service::start(&[]);
    let long = [b'k'; 256];
    let cases: [(&str, Option<&[u8]>, &str); 9] = [
        ("missing", None, "key-missing"),
        ("empty", Some(b""), "is empty"),
        ("empty in quotes", Some(b"\"\""), "is empty"),
        ("256 bytes", Some(&long), "has 256 bytes"),
        ("not UTF-8", Some(b"\xff\xfe"), "is not UTF-8"),
        ("UTF-8 beyond ASCII", Some("a\u{2026}".as_bytes()), "visible ASCII"),
        ("a list", Some(b"a, b"), "visible ASCII"),
        ("an open quote", Some(b"\"a"), "structured-field string"),
        ("a control character in quotes", Some(b"\"a\tb\""), "structured-field string"),
    ];
    for (what, key, reason) in cases {
        let line = key.map(key_line);
        let lines: Vec<&[u8]> = line.iter().map(Vec::as_slice).collect();
        let (status, answer) = service.raw(&post("/v1/charges", &lines, BODY));
        assert_eq!(status, 400, "{what}: {answer}");
        assert_eq!(header(&answer, "content-type"), Some("application/problem+json"), "{what}");
        assert!(body(&answer).contains(reason), "{what}: {answer}");
    }
    let twice = post("/v1/charges", &[b"idempotency-key: a", b"Idempotency-Key: a"], BODY);
    let (status, answer) = service.raw(&twice);
    assert_eq!(status, 400);
    assert!(body(&answer).contains("sent 2 times"), "{answer}");
    // These are no header values at all: the HTTP parser refuses them.
    for key in [&b"a\0b"[..], b"a\rb", b"a\r\nb", b"a\r\n b", b"a\nb"] {
        let (status, answer) = service.raw(&post("/v1/charges", &[&key_line(key)], BODY));
        assert_eq!(status, 400, "{key:?}: {answer}");
    }
    let (_, end, _) = service.terminate();
    assert_eq!(end["completed"], 0, "nothing ran: {end}");
}

#[test]
fn the_longest_key_and_both_forms_of_a_key_work() {
    let service = Service::start(&[]);
    let long = [b'k'; 255];
    let (status, answer) = service.raw(&post("/v1/charges", &[&key_line(&long)], BODY));
    assert_eq!(status, 201, "{answer}");
    let quoted = [b"\"", &long[..], b"\""].concat();
    let (status, answer) = service.raw(&post("/v1/charges", &[&key_line(&quoted)], BODY));
    assert_eq!((status, header(&answer, "idempotent-replayed")), (201, Some("true")), "{answer}");
}

#[test]
fn a_body_that_is_none_is_refused_and_not_stored() {
    let service = Service::start(&[]);
    let every_byte: Vec<u8> = (0..=255).collect();
    let nul = br#"{"order":"o","amount":5,"currency":"usd","x":"\u0000"}"#;
    for (n, bad) in [&b""[..], &every_byte, b"null", b"[]", b"{}", b"{\"order\":", nul].into_iter().enumerate() {
        // Nothing happened, so the same request under the same key is looked at again; another one needs another key.
        for _ in 0..2 {
            let (status, answer) = service.raw(&post("/v1/charges", &[&key_line(format!("bad-{n}").as_bytes())], bad));
            assert_eq!((status, header(&answer, "idempotent-replayed")), (400, None), "{answer}");
            assert_eq!(header(&answer, "content-type"), Some("application/problem+json"));
        }
    }
    for length in [(1 << 20) + 1, 3 << 20] {
        let large = vec![b' '; length];
        let (status, answer) = service.raw(&post("/v1/charges", &[b"idempotency-key: k"], &large));
        assert_eq!(status, 413, "{answer}");
    }
    // At the limit it is still read, and the key is still free.
    let mut at_limit = BODY.to_vec();
    at_limit.resize(1 << 20, b' ');
    let (status, answer) = service.raw(&post("/v1/charges", &[b"idempotency-key: k"], &at_limit));
    assert_eq!(status, 201, "{answer}");
    let (status, answer) = service.raw(&post("/v1/charges", &[b"idempotency-key: k"], BODY));
    assert_eq!((status, header(&answer, "idempotent-replayed")), (201, Some("true")), "the same JSON: {answer}");
}

#[test]
fn another_request_under_a_key_is_told_what_differs_and_no_more() {
    let service = Service::start(&[]);
    let key: &[u8] = b"idempotency-key: k";
    let (status, first) = service.raw(&post("/v1/charges", &[key], BODY));
    assert_eq!(status, 201, "{first}");
    let other = br#"{"order":"order-1","amount":500000,"currency":"usd"}"#;
    let refund = br#"{"charge":"ch_order-1","amount":5,"currency":"usd"}"#;
    let cases: [(&str, &[u8], &str); 3] =
        [("/v1/charges", other, "body"), ("/v1/charges?x=1", BODY, "query"), ("/v1/refunds", refund, "operation")];
    for (path, bytes, part) in cases {
        let (status, answer) = service.raw(&post(path, &[key], bytes));
        assert_eq!(status, 422, "{answer}");
        assert!(body(&answer).contains(&format!("\"part\":\"{part}\"")), "{answer}");
        assert!(!body(&answer).contains("rcpt_"), "{answer}");
    }
    // Another tenant's key of the same name is another key.
    let (status, answer) = service.raw(&post("/v1/charges", &[key, b"authorization: Bearer other"], other));
    assert_eq!((status, header(&answer, "idempotent-replayed")), (201, None), "{answer}");
}

#[test]
fn no_key_scope_or_body_shows_in_the_logs() {
    let service = Service::start(&["--fault-seed", "7", "--lease-ms", "1000"]);
    let (key, scope): (&[u8], &[u8]) = (b"idempotency-key: canary-key", b"authorization: Bearer canary-scope");
    // Successes, faults of every kind, refusals: whatever may be logged.
    for n in 0..60 {
        let key = key_line(format!("canary-key-{n}").as_bytes());
        let wanted = format!(r#"{{"order":"canary-order-{n}","amount":5,"currency":"canary-currency"}}"#);
        for _ in 0..3 {
            let (status, _) = service.raw(&post("/v1/charges", &[&key, scope], wanted.as_bytes()));
            assert_ne!(status, 0);
        }
    }
    service.raw(&post("/v1/charges", &[key, scope], b"{\"canary-body\":"));
    service.raw(&post("/v1/charges", &[b"idempotency-key: \"canary-key", scope], BODY));
    service.raw(&post("/v1/charges", &[&key_line(b"canary-key-0"), scope], BODY));
    let (_, _, logs) = service.terminate();
    assert!(logs.contains("TRACE") || logs.contains("DEBUG"), "there are logs");
    let shown: Vec<_> = logs.lines().filter(|line| line.contains("canary")).take(3).collect();
    assert!(shown.is_empty(), "{shown:?}");
}
