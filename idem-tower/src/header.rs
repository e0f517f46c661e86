//! The `Idempotency-Key` header of a request: [`key`].

use http::{HeaderMap, HeaderValue};
use idem_core::http::IDEMPOTENCY_KEY;
use idem_core::{Key, NameError};
use sfv::{BareItem, Item, Parser};

/// Why a request has no key that can be used. It never repeats what the client sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyHeaderError {
    /// The header was sent more than once.
    #[error("the Idempotency-Key header was sent {0} times: send it once")]
    Repeated(usize),
    /// The value begins with a quote and is not a structured-field string.
    #[error(
        "Idempotency-Key: a key in quotes is a structured-field string (RFC 9651): printable ASCII that ends with a \
         quote, with \\\" and \\\\ as the only escapes"
    )]
    NotAString,
    /// The value has no quotes and holds what only a value in quotes may.
    #[error("Idempotency-Key: a key without quotes holds visible ASCII without comma, quote and backslash")]
    NotBare,
    /// The key is empty, too long, or holds what no key may.
    #[error("Idempotency-Key: {0}")]
    Name(#[from] NameError),
}

/// Takes the key out of a request's headers; `None` if there is no such header.
///
/// The value is a structured-field string, `"a3f7b9d1"`, as
/// [draft-ietf-httpapi-idempotency-key-header](https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/)
/// has it, or the bare form that most clients send, `a3f7b9d1`: both are the same key. Parameters behind a string are
/// passed over (RFC 9651, section 2). A key has 1 to [`MAX_NAME_BYTES`](idem_core::MAX_NAME_BYTES) bytes.
///
/// # Errors
///
/// [`KeyHeaderError`]: the client has to send another header.
///
/// # Examples
///
/// ```
/// use http::{HeaderMap, HeaderValue};
///
/// let mut headers = HeaderMap::new();
/// assert_eq!(idem_tower::header::key(&headers)?, None);
/// headers.insert("idempotency-key", HeaderValue::from_static("\"a3f7b9d1\""));
/// assert_eq!(idem_tower::header::key(&headers)?.unwrap().as_str(), "a3f7b9d1");
/// # Ok::<(), idem_tower::header::KeyHeaderError>(())
/// ```
pub fn key(headers: &HeaderMap) -> Result<Option<Key>, KeyHeaderError> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    match values.count() {
        0 => of_value(value).map(Some),
        more => Err(KeyHeaderError::Repeated(more + 1)),
    }
}

fn of_value(value: &HeaderValue) -> Result<Key, KeyHeaderError> {
    let bytes = value.as_bytes();
    if bytes.first() == Some(&b'"') {
        return match Parser::new(bytes).parse::<Item>() {
            Ok(Item { bare_item: BareItem::String(content), params: _ }) => Ok(Key::new(content.as_str())?),
            Ok(_) | Err(_) => Err(KeyHeaderError::NotAString),
        };
    }
    // What no key may hold has the better message.
    let key = Key::from_bytes(bytes)?;
    let bare = |byte: &u8| byte.is_ascii_graphic() && !b"\",\\".contains(byte);
    if bytes.iter().all(bare) { Ok(key) } else { Err(KeyHeaderError::NotBare) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(values: &[&[u8]]) -> Result<Option<Key>, KeyHeaderError> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append("idempotency-key", HeaderValue::from_bytes(value).unwrap());
        }
        key(&headers)
    }

    #[test]
    fn quoted_and_bare_forms_name_the_same_key() {
        let bare = parse(&[b"abc"]).unwrap().unwrap();
        assert_eq!(parse(&[b"\"abc\""]).unwrap().unwrap(), bare);
        assert_eq!(parse(&[b"\"abc\";v=1"]).unwrap().unwrap(), bare);
        assert_eq!(parse(&[br#""a \"b\\""#]).unwrap().unwrap().as_str(), r#"a "b\"#);
    }

    #[test]
    fn what_is_not_one_key_is_refused() {
        let long = [b'k'; 256];
        let refused: [&[&[u8]]; 12] = [
            &[b""],
            &[b"\"\""],
            &[b"\"open"],
            &[b"\"a\"b"],
            &[b"\"a\", \"b\""],
            &[br#""\n""#],
            &[b"a, b"],
            &[b"a b"],
            &[b"a", b"a"],
            &["\u{2026}".as_bytes()],
            &[b"\xff"],
            &[&long],
        ];
        for values in refused {
            let error = parse(values).expect_err(&format!("{values:?}"));
            assert!(!error.to_string().contains("kkkk"), "{error}");
        }
        assert!(parse(&[&long[1..]]).unwrap().is_some());
        assert_eq!(parse(&[b"a", b"b", b"c"]), Err(KeyHeaderError::Repeated(3)));
    }
}
