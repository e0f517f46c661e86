//! The canonical form of JSON: RFC 8785, but with exact numbers.
//!
//! Hidden from the documentation: it is public for fuzzing, not for use. The
//! rules are told in the documentation of [the parent module](super).

use std::borrow::Cow;
use std::cmp::Ordering;

use hifijson::num::LexWrite as _;
use hifijson::str::LexAlloc as _;
use hifijson::token::Lex as _;
use hifijson::{Read as _, SliceLexer};
use thiserror::Error;

use super::number;

/// Limits of the canonical form, besides the length of the input.
///
/// They are part of the scheme: to change a default is to change fingerprints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    depth: usize,
}

impl Limits {
    /// Sets how many arrays and objects may be open at once. Defaults to 128.
    #[must_use]
    pub const fn with_depth(mut self, depth: usize) -> Self {
        self.depth = depth;
        self
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { depth: 128 }
    }
}

/// Why a text has no canonical form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NotCanonical {
    /// There is no value: the text is empty or all white space.
    #[error("the text holds no JSON value")]
    Empty,
    /// The text is not JSON of RFC 8259, or more follows the value.
    #[error("the text is not valid JSON")]
    Syntax,
    /// A string is not UTF-8.
    #[error("a string is not valid UTF-8")]
    InvalidUtf8,
    /// A string has half of a surrogate pair, as an escape.
    #[error("a string has a lone surrogate")]
    LoneSurrogate,
    /// An object has two members whose names are equal after unescaping.
    #[error("an object has two members of the same name")]
    DuplicateMember,
    /// More arrays and objects are open at once than [`Limits`] allow.
    #[error("the value is nested too deep")]
    TooDeep,
    /// A number's power of ten does not fit an `i64`.
    #[error("the exponent of a number is out of range")]
    ExponentOutOfRange,
}

/// Returns the canonical form of `input`.
///
/// The result is at most about five times as long as the input (`1e20` becomes
/// 21 digits); while it is made, a member of an open object takes about 40
/// bytes more. Time is linear in the input but for the sorting of members, and
/// the stack does not grow with the depth of the input.
///
/// # Errors
///
/// The reason why there is no canonical form, as [`NotCanonical`].
pub fn canonicalize(input: &[u8], limits: Limits) -> Result<Vec<u8>, NotCanonical> {
    Canonicalizer {
        lexer: SliceLexer::new(input),
        output: Vec::with_capacity(input.len()),
        limits,
        // Enough for most small bodies, whose time goes into allocations.
        open: Vec::with_capacity(8),
        members: Vec::with_capacity(16),
        spans: Vec::new(),
        reordered: Vec::new(),
    }
    .document()
}

/// An array or object whose end has not been read.
enum Container {
    Array,
    Object {
        /// Where its brace stands in the output.
        brace: usize,
        /// Where its members begin in [`Canonicalizer::members`].
        first_member: usize,
        /// Whether all names so far came in ascending order.
        sorted: bool,
    },
}

/// A member of an open object.
struct Member<'a> {
    name: Cow<'a, str>,
    span: Span,
}

/// A stretch of the output.
#[derive(Clone, Copy)]
struct Span {
    start: usize,
    end: usize,
}

/// A closed object whose members stand in the output in the input's order.
struct Reordered {
    /// The opening and the closing brace in the output.
    braces: Span,
    /// Its members in canonical order: a stretch of [`Canonicalizer::spans`].
    members: Span,
}

struct Canonicalizer<'a> {
    lexer: SliceLexer<'a>,
    output: Vec<u8>,
    limits: Limits,
    open: Vec<Container>,
    /// The members of all open objects, outermost object first.
    members: Vec<Member<'a>>,
    spans: Vec<Span>,
    /// Objects to be put in order when the whole text has been read. Doing it as
    /// each object closes would move the innermost bytes once per level.
    reordered: Vec<Reordered>,
}

impl Canonicalizer<'_> {
    fn document(mut self) -> Result<Vec<u8>, NotCanonical> {
        let mut next = self.lexer.ws_peek().ok_or(NotCanonical::Empty)?;
        while let Some(first_of_value) = self.value(next)? {
            next = first_of_value;
        }
        match self.lexer.ws_peek() {
            None if self.reordered.is_empty() => Ok(self.output),
            None => Ok(self.in_order()),
            Some(_) => Err(NotCanonical::Syntax),
        }
    }

    /// Reads on from a value's first byte to the first byte of the next value,
    /// which may be inside this one. `None` when the outermost value has ended.
    fn value(&mut self, next: u8) -> Result<Option<u8>, NotCanonical> {
        match next {
            b'"' => {
                self.string()?;
            }
            b'-' | b'0'..=b'9' => {
                let (text, _) = self.lexer.num_bytes().validated().map_err(|_| NotCanonical::Syntax)?;
                number::write(text, &mut self.output).map_err(|_| NotCanonical::ExponentOutOfRange)?;
            }
            b't' | b'f' | b'n' => {
                let literal: &[u8] = match self.lexer.null_or_bool() {
                    Some(None) => b"null",
                    Some(Some(true)) => b"true",
                    Some(Some(false)) => b"false",
                    None => return Err(NotCanonical::Syntax),
                };
                self.output.extend_from_slice(literal);
            }
            b'[' => {
                self.enter(Container::Array, b'[')?;
                match self.lexer.ws_peek() {
                    Some(b']') => self.leave(b']'),
                    next => return next.map(Some).ok_or(NotCanonical::Syntax),
                }
            }
            b'{' => {
                let object =
                    Container::Object { brace: self.output.len(), first_member: self.members.len(), sorted: true };
                self.enter(object, b'{')?;
                match self.lexer.ws_peek() {
                    Some(b'}') => self.leave(b'}'),
                    next => return self.member_name(next).map(Some),
                }
            }
            _ => return Err(NotCanonical::Syntax),
        }
        self.after_value()
    }

    /// Closes what ends here and goes on to the first byte of the next value.
    fn after_value(&mut self) -> Result<Option<u8>, NotCanonical> {
        while let Some(container) = self.open.last() {
            let next = self.lexer.ws_peek();
            match *container {
                Container::Array => match next {
                    Some(b',') => {
                        self.punctuation(b',');
                        return self.peek().map(Some);
                    }
                    Some(b']') => self.leave(b']'),
                    _ => return Err(NotCanonical::Syntax),
                },
                Container::Object { brace, first_member, sorted } => {
                    if let Some(member) = self.members.last_mut() {
                        member.span.end = self.output.len();
                    }
                    match next {
                        Some(b',') => {
                            self.punctuation(b',');
                            let next = self.lexer.ws_peek();
                            return self.member_name(next).map(Some);
                        }
                        Some(b'}') => {
                            if !sorted {
                                self.sort_members(brace, first_member)?;
                            }
                            self.members.truncate(first_member);
                            self.leave(b'}');
                        }
                        _ => return Err(NotCanonical::Syntax),
                    }
                }
            }
        }
        Ok(None)
    }

    fn enter(&mut self, container: Container, byte: u8) -> Result<(), NotCanonical> {
        if self.open.len() >= self.limits.depth {
            return Err(NotCanonical::TooDeep);
        }
        self.open.push(container);
        self.punctuation(byte);
        Ok(())
    }

    fn leave(&mut self, byte: u8) {
        self.open.pop();
        self.punctuation(byte);
    }

    fn punctuation(&mut self, byte: u8) {
        self.lexer.take_next();
        self.output.push(byte);
    }

    fn peek(&mut self) -> Result<u8, NotCanonical> {
        self.lexer.ws_peek().ok_or(NotCanonical::Syntax)
    }

    /// Reads a member's name and colon; returns the first byte of its value.
    fn member_name(&mut self, next: Option<u8>) -> Result<u8, NotCanonical> {
        if next != Some(b'"') {
            return Err(NotCanonical::Syntax);
        }
        let start = self.output.len();
        let name = self.string()?;
        if self.peek()? != b':' {
            return Err(NotCanonical::Syntax);
        }
        self.punctuation(b':');

        if let Some(Container::Object { first_member, sorted, .. }) = self.open.last_mut()
            && let Some(previous) = self.members[*first_member..].last()
        {
            match utf16_order(&previous.name, &name) {
                Ordering::Less => {}
                Ordering::Equal => return Err(NotCanonical::DuplicateMember),
                Ordering::Greater => *sorted = false,
            }
        }
        let span = Span { start, end: start };
        self.members.push(Member { name, span });
        self.peek()
    }

    fn sort_members(&mut self, brace: usize, first_member: usize) -> Result<(), NotCanonical> {
        let members = &mut self.members[first_member..];
        members.sort_unstable_by(|left, right| utf16_order(&left.name, &right.name));
        if members.windows(2).any(|pair| pair[0].name == pair[1].name) {
            return Err(NotCanonical::DuplicateMember);
        }
        let start = self.spans.len();
        self.spans.extend(members.iter().map(|member| member.span));
        self.reordered.push(Reordered {
            braces: Span { start: brace, end: self.output.len() },
            members: Span { start, end: self.spans.len() },
        });
        Ok(())
    }

    /// The output with the members of all reordered objects in their order.
    fn in_order(mut self) -> Vec<u8> {
        /// What is still to be written; the last one comes first.
        enum Rest {
            Output(Span),
            Members { first: usize, remaining: Span },
        }

        self.reordered.sort_unstable_by_key(|object| object.braces.start);
        let mut result = Vec::with_capacity(self.output.len());
        let mut rest = vec![Rest::Output(Span { start: 0, end: self.output.len() })];
        while let Some(task) = rest.pop() {
            match task {
                Rest::Output(Span { start, end }) => {
                    let next = self.reordered.partition_point(|object| object.braces.start < start);
                    match self.reordered.get(next) {
                        Some(object) if object.braces.start < end => {
                            result.extend_from_slice(&self.output[start..=object.braces.start]);
                            rest.push(Rest::Output(Span { start: object.braces.end, end }));
                            rest.push(Rest::Members { first: object.members.start, remaining: object.members });
                        }
                        _ => result.extend_from_slice(&self.output[start..end]),
                    }
                }
                Rest::Members { first, remaining: Span { start, end } } if start < end => {
                    if start > first {
                        result.push(b',');
                    }
                    rest.push(Rest::Members { first, remaining: Span { start: start + 1, end } });
                    rest.push(Rest::Output(self.spans[start]));
                }
                Rest::Members { .. } => {}
            }
        }
        result
    }
}

impl<'a> Canonicalizer<'a> {
    /// Copies a string, from its opening quotation mark, and returns its text.
    fn string(&mut self) -> Result<Cow<'a, str>, NotCanonical> {
        use hifijson::{escape, str};

        let text = self.lexer.discarded().str_string().map_err(|error| match error {
            str::Error::Utf8(_) => NotCanonical::InvalidUtf8,
            str::Error::Escape(escape::Error::InvalidChar(_) | escape::Error::ExpectedLowSurrogate) => {
                NotCanonical::LoneSurrogate
            }
            _ => NotCanonical::Syntax,
        })?;
        self.output.push(b'"');
        match &text {
            // A stretch of the input has no escapes, and so nothing to escape.
            Cow::Borrowed(text) => self.output.extend_from_slice(text.as_bytes()),
            Cow::Owned(text) => write_escaped(text, &mut self.output),
        }
        self.output.push(b'"');
        Ok(text)
    }
}

/// Appends `text` with the escapes of RFC 8785 section 3.2.2.2.
pub(super) fn write_escaped(text: &str, output: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    for byte in text.bytes() {
        let short = match byte {
            b'"' | b'\\' => byte,
            0x08 => b'b',
            b'\t' => b't',
            b'\n' => b'n',
            0x0c => b'f',
            b'\r' => b'r',
            0x00..=0x1f => {
                output.extend_from_slice(b"\\u00");
                output.push(HEX[usize::from(byte >> 4)]);
                output.push(HEX[usize::from(byte & 0x0f)]);
                continue;
            }
            _ => {
                output.push(byte);
                continue;
            }
        };
        output.extend_from_slice(&[b'\\', short]);
    }
}

/// Orders by UTF-16 code units (RFC 8785 section 3.2.3).
///
/// UTF-8 bytes have that order but in one place: characters beyond U+FFFF (lead
/// bytes F0 and up) are surrogates in UTF-16 and come before U+E000 to U+FFFF
/// (lead bytes EE and EF).
fn utf16_order(left: &str, right: &str) -> Ordering {
    let difference = left.bytes().zip(right.bytes()).find(|(left, right)| left != right);
    match difference {
        None => left.len().cmp(&right.len()),
        Some((left @ 0xee.., right @ 0xee..)) if (left < 0xf0) != (right < 0xf0) => right.cmp(&left),
        Some((left, right)) => left.cmp(&right),
    }
}

#[cfg(test)]
mod tests {
    use super::{Limits, NotCanonical, canonicalize, utf16_order};
    use proptest::prelude::*;
    use serde_json::Value;

    fn canonical(text: impl AsRef<[u8]>) -> Result<String, NotCanonical> {
        canonicalize(text.as_ref(), Limits::default()).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn known_texts() {
        let table = [
            ("null", "null"),
            (" true\n", "true"),
            ("\t[ ]\r\n", "[]"),
            ("{ }", "{}"),
            ("[1 , 2,[ ],{ }]", "[1,2,[],{}]"),
            (r#"{"b":1,"a":2}"#, r#"{"a":2,"b":1}"#),
            (r#"{"a":{"y":1,"x":[{"d":1,"c":{}}]},"A":0}"#, r#"{"A":0,"a":{"x":[{"c":{},"d":1}],"y":1}}"#),
            (
                r#"[{"b":{"d":1,"c":2},"a":{"b":1,"a":2}},{"b":0,"a":0}]"#,
                r#"[{"a":{"a":2,"b":1},"b":{"c":2,"d":1}},{"a":0,"b":0}]"#,
            ),
            (r#"{"c":1,"a":{"q":{"z":1,"y":2}},"b":[]}"#, r#"{"a":{"q":{"y":2,"z":1}},"b":[],"c":1}"#),
            (r#"{"":1,"\u0000":2}"#, r#"{"":1,"\u0000":2}"#),
            (r#"{"\u0062":1,"\u0061":2}"#, r#"{"a":2,"b":1}"#),
            // A name that is escaped in the output is sorted by what it stands for:
            // the quotation mark comes before #, and its escape would come after.
            ("{\"#\":1,\"\\\"\":2}", "{\"\\\"\":2,\"#\":1}"),
            (
                r#""\u0008\u0009\u000a\u000c\u000D\u001f\u007f\/\"\\\u00e4\u20ac""#,
                "\"\\b\\t\\n\\f\\r\\u001f\u{7f}/\\\"\\\\\u{e4}\u{20ac}\"",
            ),
            (r#""\ud83d\uDE00""#, "\"\u{1f600}\""),
            ("[1.0,-0,1E3,0.0000001,1e21]", "[1,0,1000,1e-7,1e+21]"),
        ];
        for (text, expected) in table {
            assert_eq!(canonical(text).as_deref(), Ok(expected), "{text}");
        }
    }

    /// The example of RFC 8785 section 3.2.3: names from five Unicode blocks.
    #[test]
    fn names_are_in_utf16_order() {
        let text = r#"{"\u20ac":0,"\r":1,"\ufb33":2,"1":3,"\ud83d\ude00":4,"\u0080":5,"\u00f6":6}"#;
        let expected = "{\"\\r\":1,\"1\":3,\"\u{80}\":5,\"\u{f6}\":6,\"\u{20ac}\":0,\"\u{1f600}\":4,\"\u{fb33}\":2}";
        assert_eq!(canonical(text).as_deref(), Ok(expected));
    }

    #[test]
    fn what_has_no_canonical_form() {
        use NotCanonical::{DuplicateMember, Empty, ExponentOutOfRange, InvalidUtf8, LoneSurrogate, Syntax, TooDeep};

        let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(canonical(deep(128)).as_deref(), Ok(deep(128).as_str()));
        let too_deep = deep(129);
        let table: &[(&[u8], NotCanonical)] = &[
            (b"", Empty),
            (b" \r\n\t", Empty),
            (b"\xef\xbb\xbf1", Syntax),
            (b"\xc2\xa01", Syntax),
            (b"\x0c1", Syntax),
            (b"1 2", Syntax),
            (b"1,", Syntax),
            (b"{}{}", Syntax),
            (b"[]]", Syntax),
            (b"]", Syntax),
            (b"[1,]", Syntax),
            (b"[,1]", Syntax),
            (b"[1 2]", Syntax),
            (b"[1", Syntax),
            (b"[", Syntax),
            (b"[}", Syntax),
            (b"{", Syntax),
            (b"{]", Syntax),
            (b"{\"a\"", Syntax),
            (b"{\"a\":", Syntax),
            (b"{\"a\":1", Syntax),
            (b"{\"a\":1]", Syntax),
            (b"{\"a\":1,}", Syntax),
            (b"{,\"a\":1}", Syntax),
            (b"{\"a\" 1}", Syntax),
            (b"{\"a\"::1}", Syntax),
            (b"{\"a\":1 \"b\":2}", Syntax),
            (b"{a:1}", Syntax),
            (b"{1:1}", Syntax),
            (b"'a'", Syntax),
            (b"// c\n1", Syntax),
            (b"nul", Syntax),
            (b"nullx", Syntax),
            (b"True", Syntax),
            (b"NaN", Syntax),
            (b"-Infinity", Syntax),
            (b"01", Syntax),
            (b"-01", Syntax),
            (b"00", Syntax),
            (b"+1", Syntax),
            (b"-", Syntax),
            (b"--1", Syntax),
            (b".5", Syntax),
            (b"1.", Syntax),
            (b"1.e5", Syntax),
            (b"1e", Syntax),
            (b"1e+", Syntax),
            (b"1e5.5", Syntax),
            (b"1.2.3", Syntax),
            (b"0x10", Syntax),
            (b"1_000", Syntax),
            (b"\"", Syntax),
            (b"\"a", Syntax),
            (b"\"a\nb\"", Syntax),
            (b"\"\x00\"", Syntax),
            (b"\"\x1f\"", Syntax),
            (b"\"\\x41\"", Syntax),
            (b"\"\\u12g4\"", Syntax),
            (b"\"\\u12", Syntax),
            (b"\"\\", Syntax),
            (b"\"\\u{61}\"", Syntax),
            (b"\"\xff\"", InvalidUtf8),
            (b"\"\xc0\x80\"", InvalidUtf8),
            (b"\"\xed\xa0\x80\"", InvalidUtf8),
            (b"\"\xf4\x90\x80\x80\"", InvalidUtf8),
            (b"\"\\n\xe2\x82\"", InvalidUtf8),
            (b"{\"\xff\":1}", InvalidUtf8),
            (b"\"\\ud800\"", LoneSurrogate),
            (b"\"\\udc00\"", LoneSurrogate),
            (b"\"\\ud800\\u0061\"", LoneSurrogate),
            (b"\"\\ud800\\ud800\"", LoneSurrogate),
            (b"\"\\udc00\\ud800\"", LoneSurrogate),
            (b"\"\\ud800x\"", LoneSurrogate),
            (b"{\"a\":1,\"a\":1}", DuplicateMember),
            (b"{\"a\":1,\"\\u0061\":2}", DuplicateMember),
            (b"{\"b\":1,\"a\":2,\"b\":3}", DuplicateMember),
            (b"{\"a\":1,\"c\":2,\"b\":3,\"a\":4}", DuplicateMember),
            (b"[{\"x\":{\"\":1,\"\":1}}]", DuplicateMember),
            (b"1e9223372036854775808", ExponentOutOfRange),
            (b"[-1e-99999999999999999999]", ExponentOutOfRange),
            (too_deep.as_bytes(), TooDeep),
        ];
        for (text, reason) in table {
            let shown = String::from_utf8_lossy(text);
            assert_eq!(canonical(text), Err(*reason), "{shown}");
        }
    }

    /// Members of one name may be in different objects.
    #[test]
    fn names_are_compared_within_their_object_only() {
        let text = r#"{"a":{"a":1,"b":{"a":1}},"b":[{"a":1},{"a":1}]}"#;
        assert_eq!(canonical(text).as_deref(), Ok(text));
    }

    #[test]
    fn depth_needs_no_stack() {
        let run = || {
            let depth = 1_000_000;
            let limits = Limits::default().with_depth(depth);
            let arrays = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
            assert_eq!(canonical(&arrays), Err(NotCanonical::TooDeep));
            assert_eq!(canonicalize(arrays.as_bytes(), limits).unwrap(), arrays.as_bytes());
            let depth = depth / 10;
            let objects = format!("{}1{}", r#"{"b":0,"a":"#.repeat(depth), "}".repeat(depth));
            let sorted = format!("{}1{}", r#"{"a":"#.repeat(depth), r#","b":0}"#.repeat(depth));
            assert_eq!(canonicalize(objects.as_bytes(), limits).unwrap(), sorted.as_bytes());
            assert_eq!(canonical("[".repeat(1_000_000)), Err(NotCanonical::TooDeep));
        };
        let thread = std::thread::Builder::new().stack_size(256 * 1024);
        thread.spawn(run).unwrap().join().unwrap();
    }

    #[test]
    fn many_members_in_reverse_order() {
        let members = |names: &mut dyn Iterator<Item = usize>| {
            let list: Vec<String> = names.map(|name| format!("\"{name:06}\":{name}")).collect();
            format!("{{{}}}", list.join(","))
        };
        let sorted = members(&mut (0..100_000));
        assert_eq!(canonical(members(&mut (0..100_000).rev())), Ok(sorted.clone()));
        assert_eq!(canonical(&sorted), Ok(sorted));
    }

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![
            "[a-c]{0,3}",
            "[\u{0}-\u{7f}]{0,6}",
            "[a\u{d7ff}\u{e000}\u{ff5e}\u{ffff}\u{10000}\u{10ffff}]{0,3}",
            any::<String>(),
        ]
    }

    proptest! {
        /// Bytes are accepted exactly when they are JSON, so that no laxness of
        /// a parser gets into fingerprints.
        #[test]
        fn accepts_what_is_json(bytes in "[\\[\\]{}:,\"\\\\u0-3dce+. tfnruelsa-]{0,12}") {
            // The other parser refuses numbers beyond the doubles, which need a
            // row of three digits here.
            let mut rows = bytes.as_bytes().windows(3);
            prop_assume!(!rows.any(|row| row.iter().all(u8::is_ascii_digit)));
            let expected = serde_json::from_str::<Value>(&bytes).is_ok();
            match canonical(&bytes) {
                Ok(_) => prop_assert!(expected),
                Err(NotCanonical::Syntax | NotCanonical::Empty) => prop_assert!(!expected),
                Err(_) => {}
            }
        }

        #[test]
        fn never_panics(bytes: Vec<u8>) {
            let _ = canonicalize(&bytes, Limits::default());
        }

        #[test]
        fn names_are_ordered_as_utf16(left in text(), right in text()) {
            let expected = left.encode_utf16().cmp(right.encode_utf16());
            prop_assert_eq!(utf16_order(&left, &right), expected);
        }
    }
}
