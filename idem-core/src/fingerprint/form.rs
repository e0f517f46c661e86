//! The pairs of `application/x-www-form-urlencoded`, as bytes.

use std::borrow::Cow;

use percent_encoding::percent_decode;

/// Yields the decoded pairs of `raw`, in order.
///
/// Read as the URL standard reads it: pieces between `&`, of which empty ones do not count; a name up to the first `=`
/// and a value, empty if there is no `=`; `+` is a space; a `%` without two hexadecimal digits stands for itself. But
/// the result is bytes: a replacement character for what is not UTF-8 would make one of many.
pub(super) fn pairs(raw: &[u8]) -> impl Iterator<Item = (Cow<'_, [u8]>, Cow<'_, [u8]>)> {
    raw.split(|byte| *byte == b'&').filter(|piece| !piece.is_empty()).map(|piece| {
        let (name, value) = match memchr::memchr(b'=', piece) {
            Some(index) => (&piece[..index], &piece[index + 1..]),
            None => (piece, &piece[..0]),
        };
        (decode(name), decode(value))
    })
}

fn decode(text: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr2(b'+', b'%', text).is_none() {
        return Cow::Borrowed(text);
    }
    // Spaces first: a plus sign that was escaped must come out as one.
    let spaced: Vec<u8> = text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    Cow::Owned(percent_decode(&spaced).collect())
}

#[cfg(test)]
mod tests {
    use super::pairs;
    use proptest::prelude::*;

    fn decoded(raw: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        pairs(raw).map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
    }

    #[test]
    fn known_texts() {
        type Pairs<'a> = &'a [(&'a [u8], &'a [u8])];

        let table: [(&[u8], Pairs<'_>); 14] = [
            (b"", &[]),
            (b"&&", &[]),
            (b"a=1&b=2", &[(b"a", b"1"), (b"b", b"2")]),
            (b"&a=1&&b=2&", &[(b"a", b"1"), (b"b", b"2")]),
            (b"a", &[(b"a", b"")]),
            (b"a=", &[(b"a", b"")]),
            (b"=", &[(b"", b"")]),
            (b"=1", &[(b"", b"1")]),
            (b"a=b=c", &[(b"a", b"b=c")]),
            (b"a+b=c%20d%2B+", &[(b"a b", b"c d+ ")]),
            (b"%61=%c3%A4", &[(b"a", b"\xc3\xa4")]),
            (b"a=%ff&b=\xfe&c=%EF%BF%BD", &[(b"a", b"\xff"), (b"b", b"\xfe"), (b"c", b"\xef\xbf\xbd")]),
            (b"a=%&b=%4&c=%g1&d=%2%35", &[(b"a", b"%"), (b"b", b"%4"), (b"c", b"%g1"), (b"d", b"%25")]),
            (b"a%3db%26=c%26d%3D", &[(b"a=b&", b"c&d=")]),
        ];
        for (raw, expected) in table {
            let expected: Vec<_> = expected.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
            assert_eq!(decoded(raw), expected, "{}", String::from_utf8_lossy(raw));
        }
    }

    proptest! {
        /// Whatever the pairs are, and however they are escaped, they come back.
        #[test]
        fn pairs_survive(pairs: Vec<(Vec<u8>, Vec<u8>)>, plain: bool) {
            let escape = |bytes: &[u8]| -> String {
                let one = |byte: &u8| match byte {
                    b' ' if plain => "+".to_owned(),
                    b'a'..=b'z' if plain => char::from(*byte).to_string(),
                    byte => format!("%{byte:02x}"),
                };
                bytes.iter().map(one).collect()
            };
            let piece = |(name, value): &(Vec<u8>, Vec<u8>)| format!("{}={}", escape(name), escape(value));
            let pieces: Vec<_> = pairs.iter().map(piece).collect();
            prop_assert_eq!(decoded(pieces.join("&").as_bytes()), pairs);
        }
    }
}
