//! One connection through the proxy: the way of its bytes, and its end.

use std::io;
use std::net::Shutdown;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::framing::Framing;
use super::side::{Passed, Side};
use super::{Cut, Shared};

/// How long both ends of a finished connection may take to notice, before it is closed for good.
const FAREWELL: Duration = Duration::from_secs(30);

/// How much one direction of a paused or delayed connection takes in before its sender has to wait: 256 pieces of 16
/// KiB.
const PIECES: usize = 256;
const PIECE: usize = 16 * 1024;

/// Bytes on their way, and when they arrive.
struct Piece {
    bytes: Vec<u8>,
    due: Instant,
}

/// Serves one connection until it ends or is cut.
pub(super) async fn serve(client: TcpStream, id: u64, shared: Arc<Shared>, mut orders: watch::Receiver<Option<Cut>>) {
    let mut ordered = pin!(async {
        match orders.wait_for(Option::is_some).await.map(|cut| *cut) {
            Ok(cut) => cut.unwrap_or(Cut::Reset),
            Err(_) => std::future::pending().await,
        }
    });
    // An order interrupts also the way to a server that does not answer.
    let reached = tokio::select! {
        biased;
        how = &mut ordered => Err(how),
        reached = reach(&client, &shared) => reached,
    };
    let server = match reached {
        Ok(server) => server,
        Err(how) => {
            shared.links().remove(&id);
            return end(&[&client], how).await;
        }
    };
    let (requests, replies) = Framing::pair();
    let carried = tokio::select! {
        biased;
        how = &mut ordered => Err(how),
        carried = async {
            tokio::try_join!(
                pump(&client, &server, &shared.to_server, requests),
                pump(&server, &client, &shared.to_client, replies),
            )
        } => carried,
    };
    shared.links().remove(&id);
    if let Err(how) = carried {
        end(&[&client, &server], how).await;
    }
}

/// Connects to the server, unless what the client says shall be swallowed anyway.
async fn reach(client: &TcpStream, shared: &Shared) -> Result<TcpStream, Cut> {
    if shared.to_server.is_swallowing() || shared.to_client.is_swallowing() {
        drain(client).await;
        return Err(Cut::Finish);
    }
    let server = TcpStream::connect(&shared.target).await.map_err(|_| Cut::Reset)?;
    // Bytes leave when the proxy says so, not when the kernel finds that there are enough of them.
    for stream in [client, &server] {
        stream.set_nodelay(true).map_err(|_| Cut::Reset)?;
    }
    Ok(server)
}

/// Carries one direction to its end. An error of either connection becomes a reset of both.
async fn pump(from: &TcpStream, to: &TcpStream, side: &Side, framing: Framing) -> Result<(), Cut> {
    let (sender, receiver) = mpsc::channel(PIECES);
    tokio::try_join!(take(from, side, sender), give(to, side, framing, receiver))?;
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "real bytes are delayed in real time")]
async fn take(from: &TcpStream, side: &Side, pieces: mpsc::Sender<Piece>) -> Result<(), Cut> {
    let mut buffer = vec![0; PIECE];
    loop {
        from.readable().await.map_err(|_| Cut::Reset)?;
        match from.try_read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => {
                let piece = Piece { bytes: buffer[..length].to_vec(), due: Instant::now() + side.delay() };
                pieces.send(piece).await.map_err(|_| Cut::Reset)?;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Err(Cut::Reset),
        }
    }
}

async fn give(to: &TcpStream, side: &Side, mut framing: Framing, mut pieces: mpsc::Receiver<Piece>) -> Result<(), Cut> {
    // Before the first look at the commands, so that none comes unseen between a look and the wait for a change.
    let mut changes = side.changes();
    let mut lost = false;
    while let Some(Piece { bytes, due }) = pieces.recv().await {
        tokio::time::sleep_until(due).await;
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            match side.pass(rest, to, &mut framing, &mut lost).map_err(|_| Cut::Reset)? {
                Passed::Some(length) => rest = &rest[length..],
                Passed::Full => to.writable().await.map_err(|_| Cut::Reset)?,
                Passed::Held => changes.changed().await.map_err(|_| Cut::Reset)?,
                Passed::Cut(how) => return Err(how),
            }
        }
    }
    // The receiver may be gone already.
    let _gone = SockRef::from(to).shutdown(Shutdown::Write);
    Ok(())
}

/// Ends connections. What the kernel has taken over for their receivers still arrives.
async fn end(streams: &[&TcpStream], how: Cut) {
    for stream in streams {
        let socket = SockRef::from(*stream);
        let _gone = match how {
            // The reset goes out when the socket is dropped.
            Cut::Reset => socket.set_linger(Some(Duration::ZERO)),
            Cut::Finish => socket.shutdown(Shutdown::Write),
        };
    }
    if how == Cut::Finish {
        // To close a socket on which something is unread would be a reset.
        for stream in streams {
            drain(stream).await;
        }
    }
}

/// Reads into nothing until the other end closes, or has not for too long.
async fn drain(stream: &TcpStream) {
    let read = async {
        let mut nothing = vec![0; PIECE];
        while stream.readable().await.is_ok() {
            match stream.try_read(&mut nothing) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    };
    let _too_long = tokio::time::timeout(FAREWELL, read).await;
}
