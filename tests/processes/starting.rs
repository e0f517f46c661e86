//! Sixteen processes start at once on an empty database: each migrates, one makes the table, and all of them work.

use crate::support::{Stage, Worker};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_processes_that_migrate_at_once_all_start() {
    let stage = Stage::empty().await;
    let starting: Vec<_> = (0..16)
        .map(|number| {
            let url = stage.url().to_owned();
            tokio::spawn(async move { Worker::start(&url, &format!("key_{number}")).await })
        })
        .collect();
    for worker in starting {
        let mut worker = worker.await.unwrap();
        let said = worker.tell("claim").await;
        assert!(said.starts_with("acquired 1 "), "{said}");
    }
}
