//! The parts of `multipart/form-data`, hashed as the body arrives.

use memchr::memmem::{self, Finder};

use super::digest::Hasher;

/// Domain of the content of one part.
const FILE_DOMAIN: &str = "idem/file/v1";

// The limits are part of the scheme: to change one is to change fingerprints.

/// The greatest length of a boundary (RFC 2046 section 5.1.1).
const BOUNDARY_LIMIT: usize = 70;
/// The greatest length of a part's head, in bytes: its header fields and the line breaks around them.
const HEAD_LIMIT: usize = 8 * 1024;
/// The most header fields that a part's head may have.
const FIELD_LIMIT: usize = 16;

/// The most bytes that are added to the window at once. No part of the scheme.
const STEP: usize = 16 * 1024;

/// Splits a body into its parts as it comes in, and adds them to a hash.
///
/// What is added, for each part: the parameters of its `Content-Disposition`, its `Content-Type`, the digest and the
/// length of its content. The boundary is not. Its memory is constant: a window of the body that holds a head, or what
/// may be the beginning of a delimiter. How the body is cut into chunks makes no difference, for each step looks at
/// what the window holds and not at where a chunk ended.
///
/// The grammar is that of RFC 7578 without what no form has: text before the first delimiter or after the last, and
/// padding behind a delimiter. Whatever a lenient reader could take for something else is refused.
#[derive(Clone)]
pub(super) struct Splitter {
    /// Finds a delimiter: CRLF, two hyphens and the boundary.
    delimiter: Finder<'static>,
    state: State,
    window: Vec<u8>,
    /// How much of the window is done with.
    taken: usize,
    hasher: Hasher,
}

#[derive(Clone)]
enum State {
    /// Nothing has been read. The window begins with a CRLF that the body does not have, so that the first delimiter
    /// is like all others.
    Start,
    /// Behind a delimiter.
    Delimited,
    /// The window begins with the CRLF that ends a delimiter's line.
    Head,
    Content {
        hasher: Hasher,
        length: u64,
    },
    /// Behind the last delimiter.
    Closed,
    Malformed,
}

impl Splitter {
    /// Adds the parts of a body to `hasher`.
    pub(super) fn new(boundary: &[u8], hasher: Hasher) -> Self {
        let possible = (1..=BOUNDARY_LIMIT).contains(&boundary.len());
        Self {
            delimiter: Finder::new(&[b"\r\n--", boundary].concat()).into_owned(),
            state: if possible { State::Start } else { State::Malformed },
            window: b"\r\n".to_vec(),
            taken: 0,
            hasher,
        }
    }

    pub(super) fn update(&mut self, chunk: &[u8]) {
        for bytes in chunk.chunks(STEP) {
            self.window.extend_from_slice(bytes);
            while self.step() {}
            self.window.drain(..self.taken);
            self.taken = 0;
        }
    }

    /// Returns the hash with all parts, or `None` if the body is malformed.
    pub(super) fn finish(self) -> Option<Hasher> {
        let closed = matches!(self.state, State::Closed) && matches!(&*self.window, b"" | b"\r\n");
        closed.then_some(self.hasher)
    }

    /// Takes from the window what can be told for certain. `false` if more bytes are needed.
    fn step(&mut self) -> bool {
        let window = &self.window[self.taken..];
        let delimiter = self.delimiter.needle();
        match &mut self.state {
            State::Start => match window.get(..delimiter.len()) {
                None => return false,
                Some(start) if start == delimiter => {
                    self.taken += delimiter.len();
                    self.state = State::Delimited;
                }
                Some(_) => self.state = State::Malformed,
            },
            State::Delimited => match window.get(..2) {
                None => return false,
                Some(b"\r\n") => self.state = State::Head,
                Some(b"--") => {
                    self.taken += 2;
                    self.state = State::Closed;
                }
                Some(_) => self.state = State::Malformed,
            },
            State::Head => {
                let searched = &window[..window.len().min(HEAD_LIMIT)];
                match memmem::find(searched, b"\r\n\r\n") {
                    Some(index) => {
                        let end = index + 4;
                        self.state = match read_head(&window[2..end], &mut self.hasher) {
                            Some(()) => State::Content { hasher: Hasher::new(None, FILE_DOMAIN), length: 0 },
                            None => State::Malformed,
                        };
                        self.taken += end;
                    }
                    None if searched.len() == HEAD_LIMIT => self.state = State::Malformed,
                    None => return false,
                }
            }
            State::Content { hasher, length } => {
                let found = self.delimiter.find(window);
                // The tail may be the beginning of a delimiter.
                let known = found.unwrap_or_else(|| window.len().saturating_sub(delimiter.len() - 1));
                hasher.rest(&window[..known]);
                *length += known as u64;
                self.taken += known;
                if found.is_none() {
                    return false;
                }
                self.hasher.fixed(&hasher.clone().finish());
                self.hasher.fixed(&length.to_be_bytes());
                self.taken += delimiter.len();
                self.state = State::Delimited;
            }
            // A line break may still come; nothing else, so three bytes are as wrong as a million.
            State::Closed => {
                self.window.truncate(self.taken + 3);
                return false;
            }
            State::Malformed => {
                self.taken = self.window.len();
                return false;
            }
        }
        true
    }
}

/// Adds the head of a part, with the empty line that ends it. `None` if it is malformed.
fn read_head(head: &[u8], hasher: &mut Hasher) -> Option<()> {
    // The parser takes a line feed for the end of a line; other readers do not.
    if memchr::memchr_iter(b'\n', head).any(|index| index == 0 || head[index - 1] != b'\r') {
        return None;
    }
    let mut fields = [httparse::EMPTY_HEADER; FIELD_LIMIT];
    let Ok(httparse::Status::Complete((length, fields))) = httparse::parse_headers(head, &mut fields) else {
        return None;
    };
    if length != head.len() {
        return None;
    }
    let is_encoded = |field: &httparse::Header<'_>| {
        field.name.eq_ignore_ascii_case("content-transfer-encoding")
            && ![&b"7bit"[..], b"8bit", b"binary"].iter().any(|identity| field.value.eq_ignore_ascii_case(identity))
    };
    if fields.iter().any(is_encoded) {
        return None;
    }
    let disposition = only(fields, "content-disposition").ok()??;
    let parameters = parameters_of_form_data(disposition)?;
    hasher.count(parameters.len());
    for (name, value) in &parameters {
        hasher.field(name);
        hasher.field(value);
    }
    match only(fields, "content-type").ok()? {
        None => hasher.fixed(&[0]),
        Some(media_type) => {
            hasher.fixed(&[1]);
            hasher.field(media_type);
        }
    }
    Some(())
}

struct Repeated;

/// The value of the one field of this name, if there is one.
fn only<'a>(fields: &[httparse::Header<'a>], name: &str) -> Result<Option<&'a [u8]>, Repeated> {
    let mut values = fields.iter().filter(|field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value);
    let first = values.next();
    if values.next().is_some() { Err(Repeated) } else { Ok(first) }
}

/// The name of a parameter, in lower case, and its value as it stands, without the quotation marks.
type Parameter<'a> = (Vec<u8>, &'a [u8]);

/// Reads `form-data; name="..."; filename="..."`. Returns the parameters by name, a `name` among them.
///
/// Escapes stay as they are, for clients and servers do not agree on what they mean (`\"`, `%22`, a backslash that is
/// only a backslash). A backslash hides the quotation mark behind it; a client that means otherwise writes what does
/// not read as a list of parameters.
fn parameters_of_form_data(value: &[u8]) -> Option<Vec<Parameter<'_>>> {
    let end = value.iter().position(|byte| *byte == b';')?;
    let (kind, mut rest) = value.split_at(end);
    if !kind.trim_ascii().eq_ignore_ascii_case(b"form-data") {
        return None;
    }
    let mut parameters: Vec<Parameter<'_>> = Vec::new();
    while let [b';', more @ ..] = rest {
        let more = more.trim_ascii_start();
        let (name, more) = more.split_at(more.iter().position(|byte| !is_token(*byte))?);
        let [b'=', more @ ..] = more else { return None };
        let (value, more) = match more {
            [b'"', quoted @ ..] => {
                let end = quoted_end(quoted)?;
                (&quoted[..end], &quoted[end + 1..])
            }
            _ => more.split_at(more.iter().position(|byte| !is_bare(*byte)).unwrap_or(more.len())),
        };
        let name = name.to_ascii_lowercase();
        if name.is_empty() || parameters.iter().any(|(known, _)| *known == name) {
            return None;
        }
        parameters.push((name, value));
        rest = more.trim_ascii_start();
    }
    parameters.sort_unstable();
    let named = parameters.iter().any(|(name, _)| name == b"name");
    (rest.is_empty() && named).then_some(parameters)
}

fn quoted_end(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += match text.get(at)? {
            b'"' => return Some(at),
            b'\\' => 2,
            _ => 1,
        };
    }
}

/// Whether a byte may stand in the name of a parameter (RFC 9110 section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether a byte may stand in a value without quotation marks.
fn is_bare(byte: u8) -> bool {
    !matches!(byte, b' ' | b'\t' | b';' | b'"' | b'\\')
}
