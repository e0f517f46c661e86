//! A forwarder that keeps what passes, for the tests that have to know where messages begin and end.
//!
//! The rig's proxy counts bytes and messages; where in the stream a message ends it does not say.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// What a client sent and what it got, since [`Tap::forget`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    pub(crate) to_server: Vec<u8>,
    pub(crate) to_client: Vec<u8>,
}

/// Lives in the runtime that starts it.
pub(crate) struct Tap {
    pub(crate) address: String,
    heard: Arc<Mutex<Heard>>,
}

impl Tap {
    pub(crate) async fn start(target: &str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let heard = Arc::new(Mutex::new(Heard::default()));
        let (target, shared) = (target.to_owned(), Arc::clone(&heard));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&target).await.unwrap();
                let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
                tokio::spawn(forward(from_client, to_server, Arc::clone(&shared), |heard| &mut heard.to_server));
                tokio::spawn(forward(from_server, to_client, Arc::clone(&shared), |heard| &mut heard.to_client));
            }
        });
        Self { address, heard }
    }

    pub(crate) fn forget(&self) {
        *self.heard.lock().unwrap() = Heard::default();
    }

    pub(crate) fn heard(&self) -> Heard {
        self.heard.lock().unwrap().clone()
    }
}

async fn forward(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    heard: Arc<Mutex<Heard>>,
    side: fn(&mut Heard) -> &mut Vec<u8>,
) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        // Kept before it is handed on: whoever has received it finds it here.
        side(&mut heard.lock().unwrap()).extend_from_slice(&buffer[..length]);
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

/// Where the messages of a stream end, counted from its beginning: a type byte, a length that counts itself, the rest.
pub(crate) fn message_ends(stream: &[u8]) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut at = 0;
    while at < stream.len() {
        let length: [u8; 4] = stream[at + 1..at + 5].try_into().unwrap();
        at += 1 + u32::from_be_bytes(length) as usize;
        ends.push(at);
    }
    assert_eq!(ends.last().copied().unwrap_or_default(), stream.len(), "the stream ends with a message");
    ends
}
