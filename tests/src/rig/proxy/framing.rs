//! Finding PostgreSQL's messages in a stream of bytes: a type byte, a length that counts itself, the rest.
//!
//! Only the start is different: the client's first packets have no type, and the server answers a request for
//! encryption with one bare byte. What does not start like that is another protocol (or encrypted) and has no messages
//! to count. <https://www.postgresql.org/docs/current/protocol-message-formats.html>

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;
/// PostgreSQL takes no longer start-up packet.
const LONGEST_START: u32 = 10_000;

/// The reader of one direction of one connection.
#[derive(Debug)]
pub(super) struct Framing {
    place: Place,
    head: Vec<u8>,
    start: Arc<Start>,
}

/// Where in the stream the next byte belongs.
#[derive(Debug)]
enum Place {
    /// In the client's packets without a type.
    ClientStart,
    /// Before the server's first word.
    ServerStart,
    /// In the type and the length of a message.
    Head,
    /// In the body of a message, `None` for one without a type.
    Body { kind: Option<u8>, left: u32 },
    /// In what is not understood.
    Elsewhere,
}

/// What the server's side has to know of what the client's saw. Requests pass before their answers, so it is up to
/// date.
#[derive(Debug, Default)]
struct Start {
    bare_answers: AtomicU32,
    started: AtomicBool,
}

impl Framing {
    /// The readers of a connection's requests and of its replies.
    pub(super) fn pair() -> (Self, Self) {
        let start = Arc::new(Start::default());
        let side = |place| Self { place, head: Vec::new(), start: Arc::clone(&start) };
        (side(Place::ClientStart), side(Place::ServerStart))
    }

    /// Reads what has passed, and calls `on_message` with the type of each message that is complete with it.
    pub(super) fn read(&mut self, mut bytes: &[u8], mut on_message: impl FnMut(u8)) {
        loop {
            match self.place {
                Place::Elsewhere => return,
                Place::Body { kind, left } => {
                    let here = left.min(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
                    bytes = &bytes[here as usize..];
                    if here < left {
                        self.place = Place::Body { kind, left: left - here };
                        return;
                    }
                    if let Some(kind) = kind {
                        on_message(kind);
                    }
                    self.place = Place::Head;
                }
                Place::ServerStart => {
                    let Some((first, rest)) = bytes.split_first() else { return };
                    if self.start.bare_answers.load(Ordering::SeqCst) > 0 {
                        self.start.bare_answers.fetch_sub(1, Ordering::SeqCst);
                        bytes = rest;
                        // Anything else than "no" starts encryption.
                        if *first != b'N' {
                            self.place = Place::Elsewhere;
                        }
                    } else if self.start.started.load(Ordering::SeqCst) {
                        self.place = Place::Head;
                    } else {
                        self.place = Place::Elsewhere;
                    }
                }
                Place::Head => {
                    let Some(head) = self.collect::<5>(&mut bytes) else { return };
                    let [kind, length @ ..] = head;
                    self.place = match u32::from_be_bytes(length).checked_sub(4) {
                        Some(left) => Place::Body { kind: Some(kind), left },
                        None => Place::Elsewhere,
                    };
                }
                Place::ClientStart => {
                    let Some([a, b, c, d, code @ ..]) = self.collect::<8>(&mut bytes) else { return };
                    let length = u32::from_be_bytes([a, b, c, d]);
                    self.place = self.client_start(length, u32::from_be_bytes(code));
                }
            }
        }
    }

    fn client_start(&self, length: u32, code: u32) -> Place {
        match code {
            SSL_REQUEST | GSS_REQUEST if length == 8 => {
                self.start.bare_answers.fetch_add(1, Ordering::SeqCst);
                Place::ClientStart
            }
            // Nothing follows it, in either direction.
            CANCEL_REQUEST => Place::Elsewhere,
            version if version >> 16 == 3 && (8..=LONGEST_START).contains(&length) => {
                self.start.started.store(true, Ordering::SeqCst);
                Place::Body { kind: None, left: length - 8 }
            }
            _ => Place::Elsewhere,
        }
    }

    /// The next `N` bytes, once they are all there.
    fn collect<const N: usize>(&mut self, bytes: &mut &[u8]) -> Option<[u8; N]> {
        let missing = N - self.head.len();
        let (here, rest) = bytes.split_at(missing.min(bytes.len()));
        self.head.extend_from_slice(here);
        *bytes = rest;
        let whole = self.head.as_slice().try_into().ok()?;
        self.head.clear();
        Some(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        [&[kind], length.as_slice(), body].concat()
    }

    fn untyped(code: u32, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 8).unwrap().to_be_bytes();
        [length.as_slice(), &code.to_be_bytes(), body].concat()
    }

    fn read(framing: &mut Framing, stream: &[u8], piece: usize) -> String {
        let mut seen = String::new();
        for part in stream.chunks(piece) {
            framing.read(part, |kind| seen.push(char::from(kind)));
        }
        seen
    }

    #[test]
    fn messages_are_found_however_the_stream_is_sliced() {
        let version = 3 << 16;
        let requests = [
            untyped(GSS_REQUEST, b""),
            untyped(SSL_REQUEST, b""),
            untyped(version, b"user\0me\0\0"),
            message(b'p', b"secret\0"),
            message(b'P', &[b'S'; 100]),
            message(b'S', b""),
            message(b'X', b""),
        ]
        .concat();
        let replies = [b"NN".to_vec(), message(b'R', &[0; 4]), message(b'Z', b"I"), message(b'1', b"")].concat();
        for piece in 1..=requests.len() {
            let (mut client, mut server) = Framing::pair();
            assert_eq!(read(&mut client, &requests, piece), "pPSX", "in pieces of {piece}");
            assert_eq!(read(&mut server, &replies, piece), "RZ1", "in pieces of {piece}");
        }
    }

    #[test]
    fn a_message_counts_when_its_last_byte_has_passed() {
        let (mut client, _) = Framing::pair();
        let stream = [untyped(3 << 16, b"\0"), message(b'Q', b"SELECT\0")].concat();
        assert_eq!(read(&mut client, &stream[..stream.len() - 1], 1), "");
        assert_eq!(read(&mut client, &stream[stream.len() - 1..], 1), "Q");
    }

    #[test]
    fn other_protocols_and_encryption_have_no_messages() {
        let (mut client, mut server) = Framing::pair();
        assert_eq!(read(&mut client, b"*1\r\n$4\r\nPING\r\n", 3), "");
        assert_eq!(read(&mut server, b"+PONG\r\n", 3), "");

        let (mut client, mut server) = Framing::pair();
        read(&mut client, &untyped(SSL_REQUEST, b""), 8);
        assert_eq!(read(&mut server, b"S\x16\x03\x03\x00\x04ABCD", 4), "");
        assert_eq!(read(&mut client, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 9), "");
    }
}
