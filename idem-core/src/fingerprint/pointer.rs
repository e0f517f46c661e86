//! Fields that a fingerprint leaves out, named by JSON pointers.

use std::fmt;

use thiserror::Error;

use super::json;

/// The place of a value in a JSON document (RFC 6901), such as `/metadata/sent_at`.
///
/// Given to [`FingerprintBuilder::without`](super::FingerprintBuilder::without), which tells what is left out. Made
/// once, with the rest of the configuration: a mistake in one shows when a process starts, not with a request.
///
/// The parts between the slashes are names of members, or indexes of elements where there is an array; `~1` stands for
/// a slash in them and `~0` for a tilde. The empty pointer, which is the whole document, is refused: a configuration
/// that was left empty would make all bodies equal. For a body that does not count give none.
///
/// ```
/// use idem_core::fingerprint::{JsonPointer, JsonPointerError};
///
/// assert_eq!(JsonPointer::new("/links/a~1b")?.as_str(), "/links/a~1b");
/// assert_eq!(JsonPointer::new("links"), Err(JsonPointerError::NoSlash));
/// assert_eq!(JsonPointer::new("/a~2"), Err(JsonPointerError::InvalidEscape));
/// assert_eq!(JsonPointer::new(""), Err(JsonPointerError::Root));
/// # Ok::<(), JsonPointerError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct JsonPointer {
    text: Box<str>,
    /// The parts, in the form that names have between the quotation marks of a canonical text.
    tokens: Box<[Box<[u8]>]>,
}

impl JsonPointer {
    /// Reads a pointer.
    ///
    /// # Errors
    ///
    /// [`JsonPointerError`] if the text is no pointer or points to the whole document.
    pub fn new(text: impl AsRef<str>) -> Result<Self, JsonPointerError> {
        let text = text.as_ref();
        if text.is_empty() {
            return Err(JsonPointerError::Root);
        }
        let parts = text.strip_prefix('/').ok_or(JsonPointerError::NoSlash)?;
        let tokens = parts.split('/').map(token).collect::<Result<_, _>>()?;
        Ok(Self { text: text.into(), tokens })
    }

    /// Returns the pointer as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for JsonPointer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("JsonPointer").field(&self.text).finish()
    }
}

/// Why a text is not a [`JsonPointer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum JsonPointerError {
    /// The text is empty: it points to the whole document.
    #[error("a JSON pointer to the whole document would make all bodies equal")]
    Root,
    /// The text does not begin with a slash.
    #[error("a JSON pointer must begin with a slash")]
    NoSlash,
    /// A tilde is not followed by 0 or 1.
    #[error("in a JSON pointer only 0 or 1 may follow a tilde")]
    InvalidEscape,
}

fn token(part: &str) -> Result<Box<[u8]>, JsonPointerError> {
    let mut name = String::with_capacity(part.len());
    let mut characters = part.chars();
    while let Some(character) = characters.next() {
        name.push(match character {
            '~' => match characters.next() {
                Some('0') => '~',
                Some('1') => '/',
                _ => return Err(JsonPointerError::InvalidEscape),
            },
            other => other,
        });
    }
    let mut escaped = Vec::with_capacity(name.len());
    json::write_escaped(&name, &mut escaped);
    Ok(escaped.into())
}

/// The tokens of a pointer.
type Tokens = [Box<[u8]>];

/// Copies `canonical`, a canonical text, without the members and elements that `pointers` point to.
///
/// All pointers look at the text as it is given, so their order does not matter. One that leads nowhere does nothing.
/// What is left is a canonical text again. The stack does not grow with the depth of the text.
pub(super) fn leave_out(canonical: &[u8], pointers: &[&JsonPointer]) -> Vec<u8> {
    let mut pointers: Vec<&Tokens> = pointers.iter().map(|pointer| &*pointer.tokens).collect();
    // Pointers into one value then stand side by side, the shortest first.
    pointers.sort_unstable();

    let mut walk = Walk { text: canonical, at: 0, open: Vec::new(), output: Vec::with_capacity(canonical.len()) };
    walk.value(&pointers);
    while walk.item() {}
    walk.output
}

struct Walk<'a> {
    text: &'a [u8],
    /// Where the next byte to look at stands in the text.
    at: usize,
    open: Vec<Container<'a>>,
    output: Vec<u8>,
}

/// An array or object that pointers lead into, and whose end has not been reached.
struct Container<'a> {
    /// These pointers, sorted. Each has at least as many tokens as containers are open, this one included.
    pointers: &'a [&'a Tokens],
    is_object: bool,
    /// The index of the next element of an array.
    index: usize,
    /// Whether an item has been copied.
    has_items: bool,
}

impl<'a> Walk<'a> {
    /// Begins the value that stands next and that `pointers` lead into.
    fn value(&mut self, pointers: &'a [&'a Tokens]) {
        let first = self.text[self.at];
        if matches!(first, b'[' | b'{') {
            self.copy_to(self.at + 1);
            self.open.push(Container { pointers, is_object: first == b'{', index: 0, has_items: false });
        } else {
            self.copy_to(value_end(self.text, self.at));
        }
    }

    /// Goes past one item of the innermost open container, or past its end. `false` if none is open.
    fn item(&mut self) -> bool {
        let depth = self.open.len();
        let Some(container) = self.open.last_mut() else {
            return false;
        };
        match self.text[self.at] {
            b']' | b'}' => {
                self.open.pop();
                self.copy_to(self.at + 1);
                return true;
            }
            b',' => self.at += 1,
            _ => {}
        }

        let (value, pointers) = if container.is_object {
            let name_end = string_end(self.text, self.at);
            (name_end + 1, narrow(container.pointers, depth - 1, &self.text[self.at + 1..name_end - 1]))
        } else {
            let index = container.index;
            container.index += 1;
            (self.at, narrow(container.pointers, depth - 1, index.to_string().as_bytes()))
        };
        if pointers.first().is_some_and(|pointer| pointer.len() == depth) {
            self.at = value_end(self.text, value);
            return true;
        }
        if container.has_items {
            self.output.push(b',');
        }
        container.has_items = true;
        if pointers.is_empty() {
            self.copy_to(value_end(self.text, value));
        } else {
            self.copy_to(value);
            self.value(pointers);
        }
        true
    }

    fn copy_to(&mut self, end: usize) {
        self.output.extend_from_slice(&self.text[self.at..end]);
        self.at = end;
    }
}

/// Those of the sorted `pointers`, equal up to the token at `depth`, that have `token` there.
fn narrow<'a>(pointers: &'a [&'a Tokens], depth: usize, token: &[u8]) -> &'a [&'a Tokens] {
    let start = pointers.partition_point(|pointer| *pointer[depth] < *token);
    let count = pointers[start..].partition_point(|pointer| *pointer[depth] == *token);
    &pointers[start..start + count]
}

/// The index after the value of a canonical text that begins at `start`.
fn value_end(text: &[u8], start: usize) -> usize {
    let mut open = 0_usize;
    let mut at = start;
    loop {
        at = match text[at] {
            b'"' => string_end(text, at),
            b'[' | b'{' => {
                open += 1;
                at + 1
            }
            b']' | b'}' => {
                open -= 1;
                at + 1
            }
            b',' | b':' => at + 1,
            _ => {
                let ends = |byte: &u8| matches!(byte, b',' | b']' | b'}');
                text[at..].iter().position(ends).map_or(text.len(), |length| at + length)
            }
        };
        if open == 0 {
            return at;
        }
    }
}

/// The index after the string that begins at `start`.
fn string_end(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    loop {
        at += match text[at] {
            b'"' => return at + 1,
            b'\\' => 2,
            _ => 1,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::json::{Limits, canonicalize};
    use super::{JsonPointer, JsonPointerError, leave_out};
    use proptest::prelude::*;
    use serde_json::Value;

    fn without(text: &str, pointers: &[&str]) -> String {
        let canonical = canonicalize(text.as_bytes(), Limits::default()).unwrap();
        let pointers: Vec<_> = pointers.iter().map(|pointer| JsonPointer::new(pointer).unwrap()).collect();
        String::from_utf8(leave_out(&canonical, &pointers.iter().collect::<Vec<_>>())).unwrap()
    }

    #[test]
    fn what_is_left() {
        let table: &[(&str, &[&str], &str)] = &[
            (r#"{"a":1,"b":2}"#, &[], r#"{"a":1,"b":2}"#),
            (r#"{"a":1,"b":2}"#, &["/a"], r#"{"b":2}"#),
            (r#"{"a":1,"b":2}"#, &["/b"], r#"{"a":1}"#),
            (r#"{"a":1,"b":2}"#, &["/b", "/a", "/b"], "{}"),
            (r#"{"a":1,"b":2,"c":3}"#, &["/b"], r#"{"a":1,"c":3}"#),
            (r#"{"a":1,"b":2,"c":3}"#, &["/a", "/c"], r#"{"b":2}"#),
            (r#"{"a":{"b":1,"c":[]},"b":2}"#, &["/a/b"], r#"{"a":{"c":[]},"b":2}"#),
            (r#"{"a":{"b":1},"b":2}"#, &["/a/b"], r#"{"a":{},"b":2}"#),
            (r#"{"a":{"b":1,"c":2},"b":2}"#, &["/a/b", "/a"], r#"{"b":2}"#),
            // Elements: those behind move up, and indexes count in the text as it was sent.
            ("[1,2,3]", &["/0"], "[2,3]"),
            ("[1,2,3]", &["/2"], "[1,2]"),
            ("[1,2,3]", &["/1", "/0"], "[3]"),
            ("[[1,2],[3,4]]", &["/1/0"], "[[1,2],[4]]"),
            ("[0,1,2,3,4,5,6,7,8,9,10,11]", &["/10", "/9"], "[0,1,2,3,4,5,6,7,8,11]"),
            (r#"[{"id":1,"at":2},{"id":3,"at":4}]"#, &["/0/at", "/1/at"], r#"[{"id":1},{"id":3}]"#),
            // Nothing is there.
            (r#"{"a":1}"#, &["/b", "/a/b", "/a/0", "/A", "/", "/a/"], r#"{"a":1}"#),
            ("[1,2]", &["/2", "/-", "/01", "/+1", "/-1", "/1.0", "/1e0", "/ 1", "/a"], "[1,2]"),
            ("1", &["/a", "/0"], "1"),
            (r#""abc""#, &["/0"], r#""abc""#),
            ("null", &["/"], "null"),
            // Names are compared as decoded.
            (r#"{"a/b":1,"m~n":2,"~1":3}"#, &["/a~1b"], r#"{"m~n":2,"~1":3}"#),
            (r#"{"a/b":1,"m~n":2,"~1":3}"#, &["/m~0n"], r#"{"a/b":1,"~1":3}"#),
            (r#"{"a/b":1,"m~n":2,"~1":3}"#, &["/~01"], r#"{"a/b":1,"m~n":2}"#),
            (r#"{"\u0061":1,"b":2}"#, &["/a"], r#"{"b":2}"#),
            (r#"{"\"\\\n":1,"b":2}"#, &["/\"\\\n"], r#"{"b":2}"#),
            (r#"{"\u00e4":1,"\ud83d\ude00":2}"#, &["/\u{1f600}", "/\u{e4}"], "{}"),
            (r#"{"":1," ":2}"#, &["/"], r#"{" ":2}"#),
            (r#"{"":{"":1}}"#, &["//"], r#"{"":{}}"#),
            (r#"{"0":1,"01":2,"-":3}"#, &["/01", "/-"], r#"{"0":1}"#),
            // Brackets, commas and quotation marks inside strings are text.
            (r#"{"a":"]},\"[{","b":["\\","}"],"c":0}"#, &["/a", "/c"], r#"{"b":["\\","}"]}"#),
            (r#"{"a":[{"x":"]"},[[]],{}],"b":true}"#, &["/a"], r#"{"b":true}"#),
        ];
        for (text, pointers, left) in table {
            assert_eq!(without(text, pointers), *left, "{text} without {pointers:?}");
        }
    }

    #[test]
    fn texts_that_are_no_pointers() {
        let table = [
            ("", JsonPointerError::Root),
            ("a", JsonPointerError::NoSlash),
            ("#/a", JsonPointerError::NoSlash),
            (" /a", JsonPointerError::NoSlash),
            ("/~", JsonPointerError::InvalidEscape),
            ("/a~2", JsonPointerError::InvalidEscape),
            ("/~/0", JsonPointerError::InvalidEscape),
            ("/a/b~", JsonPointerError::InvalidEscape),
        ];
        for (text, reason) in table {
            assert_eq!(JsonPointer::new(text), Err(reason), "{text}");
        }
        assert_eq!(JsonPointer::new("/a/~0~1/").unwrap().as_str(), "/a/~0~1/");
    }

    #[test]
    fn depth_needs_no_stack() {
        let run = || {
            let depth = 100_000;
            let text = |inner: &str| format!("{}{inner}{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
            let pointer = JsonPointer::new("/a".repeat(depth + 1)).unwrap();
            let left = leave_out(text(r#"{"a":1,"b":2}"#).as_bytes(), &[&pointer]);
            assert_eq!(String::from_utf8(left).unwrap(), text(r#"{"b":2}"#));
            let wide = JsonPointer::new("/b").unwrap();
            assert_eq!(leave_out(text("1").as_bytes(), &[&wide]), text("1").as_bytes());
        };
        let thread = std::thread::Builder::new().stack_size(256 * 1024);
        thread.spawn(run).unwrap().join().unwrap();
    }

    fn document() -> impl Strategy<Value = Value> {
        let leaf =
            prop_oneof![Just(Value::Null), any::<i8>().prop_map(Value::from), "[a,\\]}\"/]{0,3}".prop_map(Value::from)];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec(("[ab0/~\"]{0,2}", inner), 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    /// Removes what `pointers` point to from a parsed value.
    fn remove(value: &mut Value, place: &str, pointers: &[String]) {
        let here = |token: &str| format!("{place}/{}", token.replace('~', "~0").replace('/', "~1"));
        match value {
            Value::Array(elements) => {
                let mut index = 0;
                elements.retain_mut(|element| {
                    let place = here(&index.to_string());
                    index += 1;
                    remove(element, &place, pointers);
                    !pointers.contains(&place)
                });
            }
            Value::Object(members) => members.retain(|name, member| {
                remove(member, &here(name), pointers);
                !pointers.contains(&here(name))
            }),
            _ => {}
        }
    }

    proptest! {
        /// The same as removing from a parsed value.
        #[test]
        fn agrees_with_a_parsed_value(
            document in document(), pointers in prop::collection::vec("(/([ab0-3]|~0|~1|\"){0,2}){1,3}", 0..8),
        ) {
            let texts: Vec<&str> = pointers.iter().map(String::as_str).collect();
            let mut left = document.clone();
            remove(&mut left, "", &pointers);
            prop_assert_eq!(without(&document.to_string(), &texts), without(&left.to_string(), &[]));
        }
    }
}
