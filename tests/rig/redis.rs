//! Redis and Valkey start, answer, and do as they are told.

use std::time::Duration;

use idem_tests::rig::Error;
use idem_tests::rig::redis::{Flavour, Redis, shared};

#[tokio::test]
async fn each_flavour_that_is_here_starts_stops_and_starts_again() {
    let mut seen = 0;
    for flavour in [Flavour::Redis, Flavour::Valkey] {
        let server = match Redis::own(flavour, &[("maxmemory", "64mb")]).await {
            Ok(server) => server,
            // One of them is enough for the tests; the message says how to get the other.
            Err(error @ Error::Missing { .. }) => {
                assert!(error.to_string().contains("scripts/valkey"), "{error}");
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        seen += 1;
        assert_eq!(server.command(&["SET", "key", "a value"]).await.as_deref(), Some("+OK"));
        assert_eq!(server.command(&["GET", "key"]).await.as_deref(), Some("a value"));
        assert_eq!(server.command(&["INCR", "number"]).await.as_deref(), Some(":1"));
        assert!(server.command(&["INCR", "key"]).await.unwrap().starts_with("-ERR"));
        for crash in [false, true] {
            if crash {
                server.crash().await;
            } else {
                server.stop().await;
            }
            assert!(tokio::net::TcpStream::connect(server.address()).await.is_err());
            server.start_again().await;
            assert_eq!(server.command(&["GET", "key"]).await, None, "nothing is persisted");
        }
        server.pause().await;
        let mut answer = Box::pin(server.command(&["PING"]));
        assert!(tokio::time::timeout(Duration::from_millis(300), &mut answer).await.is_err());
        server.resume();
        assert_eq!(answer.await.as_deref(), Some("+PONG"));
    }
    assert!(seen > 0, "neither Redis nor Valkey is here");
}

#[tokio::test]
async fn one_server_is_shared() {
    assert!(std::ptr::eq(shared().await, shared().await));
    assert_eq!(shared().await.command(&["PING"]).await.as_deref(), Some("+PONG"));
}
