//! Key and tenant, out of a request's headers.

use super::problem::Problem;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use idem_core::{Key, NameError, Scope};

/// The tenant of a request without an `Authorization` header, so that the first `curl` needs none.
const DEMO_TENANT: &str = "demo";

/// The one `Idempotency-Key`: a structured-field string in quotes, or the bare form that most clients send.
pub(crate) fn key(headers: &HeaderMap) -> Result<Key, Problem> {
    let malformed = |detail: String| Problem::new(StatusCode::BAD_REQUEST, "key-malformed", detail);
    let mut values = headers.get_all("idempotency-key").iter();
    let Some(value) = values.next() else {
        let detail = "send an Idempotency-Key header: a new one for each operation, the same one for each retry of it";
        return Err(Problem::new(StatusCode::BAD_REQUEST, "key-missing", detail));
    };
    if values.next().is_some() {
        return Err(malformed("the Idempotency-Key header was sent twice: send it once".into()));
    }
    let refused = |error: NameError| malformed(format!("Idempotency-Key: {error}"));
    match value.as_bytes() {
        [b'"', quoted @ ..] => {
            let detail = "Idempotency-Key: a quoted key ends with a quote and holds printable ASCII, with \\\" and \\\\ as the only escapes";
            Key::from_bytes(&unquoted(quoted).ok_or_else(|| malformed(detail.into()))?).map_err(refused)
        }
        bare if bare.iter().all(|byte| byte.is_ascii_graphic() && !b"\",\\".contains(byte)) => {
            Key::from_bytes(bare).map_err(refused)
        }
        bare => {
            // What idem itself refuses has the better message.
            Key::from_bytes(bare).map_err(refused)?;
            Err(malformed(
                "Idempotency-Key: a key without quotes holds visible ASCII without comma, quote and backslash".into(),
            ))
        }
    }
}

/// What stands between the quotes of a structured-field string (RFC 9651), given everything behind the first quote.
fn unquoted(quoted: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = quoted.iter().copied();
    let mut content = Vec::with_capacity(quoted.len());
    loop {
        match bytes.next()? {
            b'"' => return bytes.next().is_none().then_some(content),
            b'\\' => content.push(bytes.next().filter(|escaped| b"\"\\".contains(escaped))?),
            byte @ b' '..=b'~' => content.push(byte),
            _ => return None,
        }
    }
}

/// Whose request it is: the bearer token is the tenant's name. (A real service maps a credential to its principal, so that a new
/// credential does not make a new scope.)
pub(crate) fn tenant(headers: &HeaderMap) -> Result<Scope, Problem> {
    let refused = |detail| Problem::new(StatusCode::UNAUTHORIZED, "tenant-malformed", detail);
    let name = match headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes) {
        None => DEMO_TENANT.as_bytes(),
        Some(value) => {
            value.strip_prefix(b"Bearer ").ok_or_else(|| refused("send Authorization: Bearer <tenant>".to_owned()))?
        }
    };
    Scope::from_bytes(name).map_err(|error| refused(format!("tenant: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(values: &[&[u8]]) -> Option<Key> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append("idempotency-key", HeaderValue::from_bytes(value).unwrap());
        }
        key(&headers).ok()
    }

    #[test]
    fn quoted_and_bare_forms_name_the_same_key() {
        assert_eq!(parse(&[b"abc"]), parse(&[b"\"abc\""]));
        assert_eq!(parse(&[br#""a \"b\\""#]).unwrap().as_str(), r#"a "b\"#);
    }

    #[test]
    fn what_is_not_one_key_is_refused() {
        let long = [b'k'; 256];
        let refused: [&[&[u8]]; 12] = [
            &[],
            &[b""],
            &[b"\"\""],
            &[b"\"open"],
            &[b"\"a\"b"],
            &[b"\"a\";p=1"],
            &[br#""\n""#],
            &[b"a, b"],
            &[b"a", b"a"],
            &["\u{2026}".as_bytes()],
            &[b"\xff"],
            &[&long],
        ];
        for values in refused {
            assert_eq!(parse(values), None, "{values:?}");
        }
        assert!(parse(&[&long[1..]]).is_some());
    }
}
