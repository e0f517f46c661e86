//! What of a multipart body counts.

use crate::{fingerprint, request};
use idem_core::Fingerprint;

fn of(boundary: &str, body: &str) -> Fingerprint {
    fingerprint(request().multipart(boundary.as_bytes(), body.as_bytes()))
}

/// A part with this disposition and these further fields, and an end.
fn part(boundary: &str, disposition: &str, fields: &str, content: &str) -> String {
    format!("--{boundary}\r\nContent-Disposition: {disposition}\r\n{fields}\r\n{content}\r\n--{boundary}--\r\n")
}

/// Whether a body counts by its parts: then another boundary does not matter.
fn has_parts(body: &str) -> bool {
    let (one, two) = ("--WebKitFormBoundary0a", "'other boundary'");
    of(one, &body.replace("BOUNDARY", one)) == of(two, &body.replace("BOUNDARY", two))
}

#[test]
fn what_does_not_count() {
    let plain = of("x", &part("x", r#"form-data; name="a"; filename="b""#, "Content-Type: text/plain\r\n", "1"));
    let same = [
        part("x", r#"form-data;name="a";filename="b""#, "content-type:text/plain \r\n", "1"),
        part("x", "Form-Data; FILENAME=b; Name=a", "CONTENT-TYPE: text/plain\r\n", "1"),
        part("x", "form-data ; name=a\t;\tfilename=b ", "X-Trace: 1\r\nContent-Type: text/plain\r\n", "1"),
        part("x", "form-data; name=a; filename=b", "Content-Length: 1\r\nContent-Type: text/plain\r\n", "1"),
        part(
            "x",
            "form-data; name=a; filename=b",
            "Content-Type: text/plain\r\nContent-Transfer-Encoding: 8BIT\r\n",
            "1",
        ),
    ];
    for body in same {
        assert_eq!(of("x", &body), plain, "{body}");
        assert_eq!(of("x", body.strip_suffix("\r\n").unwrap()), plain, "{body}");
    }
    let other = [
        part("x", "form-data; name=a; filename=b", "Content-Type: text/PLAIN\r\n", "1"),
        part("x", "form-data; name=a; filename=b", "Content-Type: text/plain; charset=utf-8\r\n", "1"),
        part("x", "form-data; name=a; filename=b", "", "1"),
        part("x", "form-data; name=a; filename=b", "Content-Type:\r\n", "1"),
        part("x", "form-data; name=a", "Content-Type: text/plain\r\n", "1"),
        part("x", "form-data; name=a; filename=", "Content-Type: text/plain\r\n", "1"),
        part("x", "form-data; name=a; filename=B", "Content-Type: text/plain\r\n", "1"),
        part("x", "form-data; name=a; filename=b; size=1", "Content-Type: text/plain\r\n", "1"),
        part("x", "form-data; name=a; filename*=b", "Content-Type: text/plain\r\n", "1"),
        part("x", "form-data; name=A; filename=b", "Content-Type: text/plain\r\n", "1"),
        part("x", "form-data; name=a; filename=b", "Content-Type: text/plain\r\n", "1\r\n"),
        part("x", "form-data; name=a; filename=b", "Content-Type: text/plain\r\n", ""),
    ];
    for body in other {
        assert_ne!(of("x", &body), plain, "{body}");
        assert!(has_parts(&body.replace("--x", "--BOUNDARY")), "{body}");
    }
}

#[test]
fn order_of_parts_counts() {
    let field = |name: &str| format!("--x\r\nContent-Disposition: form-data; name={name}\r\n\r\n1\r\n");
    let of = |names: &[&str]| of("x", &(names.iter().map(|name| field(name)).collect::<String>() + "--x--"));
    assert_ne!(of(&["a", "b"]), of(&["b", "a"]));
    assert_ne!(of(&["a", "a"]), of(&["a"]));
    assert_ne!(of(&["a"]), of(&[]));
}

#[test]
fn escapes_in_names_stay_as_they_are() {
    let names = [
        r#""a""#,
        r#""\a""#,
        r#""a\"""#,
        r#""a%22""#,
        r#""a\\""#,
        r#""a%5C""#,
        r#""a\\\"""#,
        "\"\u{e4}\"",
        "\"%C3%A4\"",
        r#""a; filename=b""#,
        r#""a\"; filename=\"b""#,
        r#"a; filename="b""#,
        r#""a " "#,
        "\"\"",
    ];
    for (left, one) in names.iter().enumerate() {
        let body = |name: &str| part("BOUNDARY", &format!("form-data; name={name}"), "", "1");
        assert!(has_parts(&body(one)), "{one}");
        for (right, two) in names.iter().enumerate() {
            assert_eq!(of("BOUNDARY", &body(one)) == of("BOUNDARY", &body(two)), left == right, "{one} and {two}");
        }
    }
}

#[test]
fn what_is_malformed_counts_byte_by_byte() {
    let good = part("BOUNDARY", "form-data; name=a", "", "1");
    assert!(has_parts(&good));
    assert!(has_parts("--BOUNDARY--"));
    let disposition = |disposition: &str| part("BOUNDARY", disposition, "", "1");
    let fields = |fields: &str| part("BOUNDARY", "form-data; name=a", fields, "1");
    let malformed = [
        String::new(),
        "--BOUNDARY".to_owned(),
        "--BOUNDARY-".to_owned(),
        "--BOUNDARY\r\n".to_owned(),
        "--BOUNDARY\r\n\r\n--BOUNDARY--".to_owned(),
        "--BOUNDARY\r\n\r\n\r\n--BOUNDARY--".to_owned(),
        format!("\r\n{good}"),
        format!("text\r\n{good}"),
        format!("{good}\r\n"),
        format!("{good}text"),
        good.replace("--\r\n", "--\n"),
        good.replace("--BOUNDARY\r\n", "--BOUNDARY \r\n"),
        good.replace("--BOUNDARY\r\n", "--BOUNDARY\n"),
        good.replace("--BOUNDARY--\r\n", "--BOUNDARY\r\n"),
        good.replace("--BOUNDARY--\r\n", ""),
        good.replace("1\r\n--BOUNDARY--", "1\n--BOUNDARY--"),
        good.replace("\r\n", "\n"),
        good.replace("name=a\r\n", "name=a\n"),
        good.replace("1\r\n", "\r\n--BOUNDARYX\r\n"),
        disposition(""),
        disposition("form-data"),
        disposition("form-data;"),
        disposition("form-data; name"),
        disposition("form-data; =a"),
        disposition("form-data; name=a;"),
        disposition("form-data; name=a; "),
        disposition("form-data; name=a b"),
        disposition("form-data; name=a\\b"),
        disposition("form-data; name=\"a"),
        disposition("form-data; name=\"a\\\""),
        disposition("form-data; name=\"a\"b"),
        disposition("form-data; name=\"a\"; filename"),
        disposition("form-data; name=a; name=a"),
        disposition("form-data; name=a; NAME=b"),
        disposition("form-data; filename=a"),
        disposition("form-data name=a"),
        disposition("attachment; name=a"),
        disposition("form-data; name=\"a\u{1}\""),
        fields("Content-Disposition: form-data; name=a\r\n"),
        fields("Content-Type: a\r\ncontent-type: a\r\n"),
        fields("Content-Transfer-Encoding: base64\r\n"),
        fields("Content-Transfer-Encoding: quoted-printable\r\n"),
        fields("no colon\r\n"),
        fields(": no name\r\n"),
        fields("X: folded\r\n line\r\n"),
        fields("X: bare\rreturn\r\n"),
    ];
    for body in malformed {
        assert!(!has_parts(&body), "{body}");
        // The boundary counts too, and the bytes are not those of another mode.
        let all = [of("BOUNDARY", &body), of("other", &body), fingerprint(request().bytes(body.as_bytes()))];
        assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2], "{body}");
    }
}

#[test]
fn limits_of_a_head() {
    let with_fields = |count: usize| part("BOUNDARY", "form-data; name=a", &"X: y\r\n".repeat(count), "1");
    assert!(has_parts(&with_fields(15)));
    assert!(!has_parts(&with_fields(16)));

    let with_length = |length: usize| {
        let line_breaks_and_fields = "\r\nContent-Disposition: form-data; name=a\r\nX: \r\n\r\n".len();
        let padding = "y".repeat(length - line_breaks_and_fields);
        part("BOUNDARY", "form-data; name=a", &format!("X: {padding}\r\n"), "1")
    };
    assert!(has_parts(&with_length(8 * 1024)));
    assert!(!has_parts(&with_length(8 * 1024 + 1)));

    let body = |boundary: &str| part(boundary, "form-data; name=a", "", "1");
    let longest = "b".repeat(70);
    assert_eq!(of(&longest, &body(&longest)), of("x", &body("x")));
    for boundary in ["", &"b".repeat(71)] {
        assert_ne!(of(boundary, &body(boundary)), of("x", &body("x")));
    }
}
