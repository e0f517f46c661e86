//! Redis and Valkey start, answer, and do as they are told.

use std::time::Duration;

use idem_tests::rig::Error;
use idem_tests::rig::redis::{Cluster, Flavour, Redis, shared};

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

#[tokio::test]
async fn three_nodes_make_a_cluster_and_make_it_again_after_a_crash() {
    let mut cluster = Err(Error::Late { what: "a program".to_owned(), limit: Duration::ZERO });
    for flavour in [Flavour::Redis, Flavour::Valkey] {
        if !matches!(cluster, Ok(_) | Err(Error::Program { .. })) {
            cluster = Cluster::try_start(flavour).await;
        }
    }
    let cluster = cluster.unwrap();
    // Each slot belongs to one node, which says where it is to whoever asks another one.
    for key in ["a", "b", "c", "d", "e", "f"] {
        let mut owners = 0;
        for node in cluster.nodes() {
            match node.command(&["SET", key, "a value"]).await.as_deref() {
                Some("+OK") => owners += 1,
                Some(moved) => {
                    let to = moved.strip_prefix("-MOVED ").and_then(|rest| rest.split(' ').nth(1)).unwrap();
                    assert!(cluster.nodes().iter().any(|node| node.address() == to), "{moved}");
                }
                None => panic!("no answer"),
            }
        }
        assert_eq!(owners, 1, "{key}");
    }
    cluster.nodes()[1].crash().await;
    cluster.nodes()[1].start_again().await;
    cluster.is_whole().await.unwrap();
}
