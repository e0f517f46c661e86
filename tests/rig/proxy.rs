//! The proxy does exactly what it is told, byte by byte.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::time::Duration;

use idem_tests::rig::postgres::{Version, shared};
use idem_tests::rig::proxy::{Counts, Cut, Direction, Proxy};
use idem_tests::rig::wait::until;
use sqlx::{Connection, PgConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const SOON: Duration = Duration::from_secs(20);

/// A proxy, and both ends of one connection through it.
struct Ends {
    proxy: Proxy,
    listener: TcpListener,
    client: TcpStream,
    server: TcpStream,
}

impl Ends {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Proxy::start(&listener.local_addr().unwrap().to_string()).await;
        let client = TcpStream::connect(proxy.address()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        Self { proxy, listener, client, server }
    }

    /// The end that sends in a direction, and the one that receives.
    fn of(&mut self, direction: Direction) -> (&mut TcpStream, &mut TcpStream) {
        match direction {
            Direction::ToServer => (&mut self.client, &mut self.server),
            Direction::ToClient => (&mut self.server, &mut self.client),
        }
    }
}

const BOTH: [Direction; 2] = [Direction::ToServer, Direction::ToClient];

/// All that arrives, and how it ends: `None` for an end of the stream.
async fn read_all(stream: &mut TcpStream) -> (Vec<u8>, Option<ErrorKind>) {
    let mut arrived = Vec::new();
    let mut buffer = [0; 1000];
    loop {
        match tokio::time::timeout(SOON, stream.read(&mut buffer)).await.expect("the connection ends") {
            Ok(0) => return (arrived, None),
            Ok(length) => arrived.extend_from_slice(&buffer[..length]),
            Err(error) => return (arrived, Some(error.kind())),
        }
    }
}

#[tokio::test]
async fn a_connection_is_cut_exactly_after_the_byte_that_was_named() {
    let message: Vec<u8> = (0..64).collect();
    for direction in BOTH {
        for how in [Cut::Finish, Cut::Reset] {
            for cut in 0..=message.len() {
                let mut ends = Ends::new().await;
                // A warm connection: what passed before does not count.
                let (sender, receiver) = ends.of(direction);
                sender.write_all(b"warm").await.unwrap();
                receiver.read_exact(&mut [0; 4]).await.unwrap();

                ends.proxy.cut_after(direction, cut as u64, how);
                let before = ends.proxy.counts();
                let (sender, receiver) = ends.of(direction);
                sender.write_all(&message).await.unwrap();
                let case = format!("{direction:?}, {how:?} after {cut}");
                let (arrived, end) = read_all(receiver).await;
                assert_eq!(arrived, message[..cut], "{case}");
                let expected = (how == Cut::Reset).then_some(ErrorKind::ConnectionReset);
                assert_eq!(end, expected, "the receiver: {case}");
                let (arrived, end) = read_all(sender).await;
                assert_eq!((arrived.as_slice(), end), (&[][..], expected), "the sender: {case}");

                let passed = ends.proxy.counts().since(&before);
                assert_eq!(passed.to_server.bytes + passed.to_client.bytes, cut as u64, "{case}");
                assert!(!ends.proxy.is_armed(direction));
            }
        }
    }
}

#[tokio::test]
async fn a_cut_in_the_midst_of_much_loses_nothing_before_it() {
    // Far more than the kernel's buffers hold, read slowly.
    let sent: Vec<u8> = (0..5_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    for cut in [1, 65_536, 4_999_999] {
        let mut ends = Ends::new().await;
        ends.proxy.cut_after(Direction::ToServer, cut, Cut::Finish);
        let Ends { client, server, .. } = &mut ends;
        let (_, (arrived, end)) = tokio::join!(client.write_all(&sent), read_all(server));
        assert_eq!((arrived.len() as u64, end), (cut, None));
        assert!(arrived == sent[..arrived.len()]);
    }
}

#[tokio::test]
async fn after_a_cut_the_next_connection_is_whole() {
    let mut ends = Ends::new().await;
    ends.proxy.cut_after(Direction::ToServer, 2, Cut::Reset);
    ends.client.write_all(b"abc").await.unwrap();
    assert_eq!(read_all(&mut ends.server).await.0, b"ab");

    let mut client = TcpStream::connect(ends.proxy.address()).await.unwrap();
    let (mut server, _) = ends.listener.accept().await.unwrap();
    client.write_all(b"abcdef").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(read_all(&mut server).await, (b"abcdef".to_vec(), None));
    // Half closed: the reply still passes.
    server.write_all(b"reply").await.unwrap();
    drop(server);
    assert_eq!(read_all(&mut client).await, (b"reply".to_vec(), None));
}

#[tokio::test]
async fn a_pause_holds_bytes_back_and_a_black_hole_swallows_them() {
    for direction in BOTH {
        let mut ends = Ends::new().await;
        ends.proxy.pause(direction);
        let before = ends.proxy.counts();
        ends.of(direction).0.write_all(b"held").await.unwrap();
        let mut buffer = [0; 4];
        let early = tokio::time::timeout(Duration::from_millis(200), ends.of(direction).1.read(&mut buffer)).await;
        assert!(early.is_err(), "{direction:?}: a held byte arrived");
        assert_eq!(ends.proxy.counts(), before);
        ends.proxy.resume(direction);
        ends.of(direction).1.read_exact(&mut buffer).await.unwrap();
        assert_eq!(&buffer, b"held");

        ends.proxy.black_hole(direction);
        ends.of(direction).0.write_all(b"gone").await.unwrap();
        let early = tokio::time::timeout(Duration::from_millis(200), ends.of(direction).1.read(&mut buffer)).await;
        assert!(early.is_err(), "{direction:?}: a swallowed byte arrived");
        // New ones are accepted, and no server hears of them.
        let mut new = TcpStream::connect(ends.proxy.address()).await.unwrap();
        new.write_all(b"anybody?").await.unwrap();
        let heard = tokio::time::timeout(Duration::from_millis(200), ends.listener.accept()).await;
        assert!(heard.is_err());
        // A stream with a hole in it is not mended.
        ends.proxy.heal().await;
        ends.of(direction).0.write_all(b"late").await.unwrap();
        let early = tokio::time::timeout(Duration::from_millis(200), ends.of(direction).1.read(&mut buffer)).await;
        assert!(early.is_err(), "{direction:?}: a byte arrived after a hole");
    }
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the proxy delays real bytes in real time")]
async fn a_delay_is_of_each_byte_and_not_of_their_rate() {
    const DELAY: Duration = Duration::from_millis(300);
    for direction in BOTH {
        let mut ends = Ends::new().await;
        ends.proxy.delay(direction, DELAY);
        let start = tokio::time::Instant::now();
        let (sender, receiver) = ends.of(direction);
        let send = async {
            for byte in 0..20_u8 {
                sender.write_all(&[byte]).await.unwrap();
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let mut arrived = [0; 20];
        let (_, read) = tokio::join!(send, receiver.read_exact(&mut arrived));
        read.unwrap();
        assert_eq!(arrived.as_slice(), (0..20).collect::<Vec<u8>>());
        let took = start.elapsed();
        assert!(took >= DELAY, "{direction:?}: {took:?}");
        assert!(took < 3 * DELAY, "{direction:?}: twenty bytes were delayed one after the other: {took:?}");
    }
}

#[tokio::test]
async fn all_connections_are_reset_and_new_ones_refused_until_admitted() {
    let mut ends = Ends::new().await;
    ends.proxy.refuse().await;
    let refused = TcpStream::connect(ends.proxy.address()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    ends.client.write_all(b"old").await.unwrap();
    ends.server.read_exact(&mut [0; 3]).await.unwrap();

    ends.proxy.reset_all();
    assert_eq!(read_all(&mut ends.client).await, (vec![], Some(ErrorKind::ConnectionReset)));
    assert_eq!(read_all(&mut ends.server).await, (vec![], Some(ErrorKind::ConnectionReset)));

    ends.proxy.admit().await;
    let _client = TcpStream::connect(ends.proxy.address()).await.unwrap();
    let _server = ends.listener.accept().await.unwrap();
    assert_eq!((ends.proxy.accepted(), ends.proxy.connections()), (2, 1));
}

#[tokio::test]
async fn without_a_server_a_client_is_reset() {
    let ends = Ends::new().await;
    drop(ends.listener);
    let mut client = TcpStream::connect(ends.proxy.address()).await.unwrap();
    assert_eq!(read_all(&mut client).await.1, Some(ErrorKind::ConnectionReset));
}

#[tokio::test]
async fn the_messages_of_a_known_exchange_are_counted() {
    let database = shared(Version::Any).await.database().await;
    let proxy = Proxy::start(&shared(Version::Any).await.address()).await;
    let mut client = PgConnection::connect(&proxy.url(database.url())).await.unwrap();
    // The ReadyForQuery that ends the start-up, and whatever the client says of its own accord.
    let ready = until("the start is over", SOON, || async { (proxy.counts().answers() >= 1).then_some(()) });
    ready.await.unwrap();

    // The simple protocol: one Query, one answer, however many statements.
    let before = proxy.counts();
    sqlx::raw_sql("SELECT 1; SELECT 2; SELECT 3").execute(&mut client).await.unwrap();
    let passed = proxy.counts().since(&before);
    assert_eq!(passed.to_server.messages, BTreeMap::from([(b'Q', 1)]));
    assert_eq!((passed.requests(), passed.answers()), (1, 1));
    // A row description, a row and the end of a command for each statement.
    assert_eq!([b'T', b'D', b'C', b'Z'].map(|kind| passed.to_client.messages_of(kind)), [3, 3, 3, 1]);

    // The extended protocol: once to prepare the statement, then Bind, Execute and Sync alone.
    let mut passed = Counts::default();
    for _ in 0..2 {
        let before = proxy.counts();
        let two: i32 = sqlx::query_scalar("SELECT 1 + $1").bind(1).fetch_one(&mut client).await.unwrap();
        assert_eq!(two, 2);
        passed = proxy.counts().since(&before);
        assert_eq!(passed.requests(), passed.answers());
    }
    assert_eq!([b'P', b'B', b'E', b'S'].map(|kind| passed.to_server.messages_of(kind)), [0, 1, 1, 1]);
    assert_eq!((passed.requests(), passed.answers()), (1, 1));
    assert_eq!(proxy.accepted(), 1);
}
