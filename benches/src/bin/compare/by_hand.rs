//! The same statements by hand on tokio-postgres: [`ByHand`].

use crate::Error;
use crate::heat::Side;
use crate::pgbench::Baseline;
use async_trait::async_trait;
use idem_benches::load::{Load, Measured, Turn, drive};
use idem_benches::workload::{Call, Workload};
use std::sync::Arc;
use tokio_postgres::{Client, NoTls, Statement};
use uuid::Uuid;

/// How many connections the callers share at most. The client pipelines what several send on one.
const CONNECTIONS: usize = 32;
const HASH: &str = "a3f7b9d11c8c4f8c9e6e1234abcd5678a3f7b9d11c8c4f8c9e6e1234abcd5678";
/// The user whose keys are new, and the one of `replay-seed.sql`.
const NEW: i64 = 42;
const REPLAYED: i64 = 7;

pub(crate) struct ByHand {
    baseline: Baseline,
    workload: Workload,
}

/// A connection and what it prepared.
struct Line {
    client: Client,
    claim: Statement,
    complete: Statement,
    read: Statement,
}

impl ByHand {
    pub(crate) fn side(baseline: &Baseline, workload: Workload) -> Arc<dyn Side> {
        Arc::new(Self { baseline: baseline.clone(), workload })
    }

    async fn connect(&self) -> Result<Line, Error> {
        let (client, connection) = tokio_postgres::connect(&self.baseline.url, NoTls).await?;
        // It ends with the client.
        tokio::spawn(connection);
        let claim = client
            .prepare(&format!(
                "INSERT INTO idempotency_key (user_id, key, request_hash, status) VALUES ($1, $2, '{HASH}', 'in_progress') \
                 ON CONFLICT (user_id, key) DO NOTHING RETURNING key"
            ))
            .await?;
        let complete = client
            .prepare(
                "UPDATE idempotency_key SET status='completed', response_code=201, \
                 response_body='{\"id\":\"ch_1\",\"amount\":1000,\"currency\":\"usd\",\"customer\":\"cus_42\",\"status\":\"succeeded\"}' \
                 WHERE user_id=$1 AND key=$2 AND status='in_progress'",
            )
            .await?;
        let read = client
            .prepare("SELECT status, request_hash, response_code, response_body::text FROM idempotency_key WHERE user_id = $1 AND key = $2")
            .await?;
        Ok(Line { client, claim, complete, read })
    }
}

impl Line {
    async fn claimed(&self, user: i64, key: &str) -> bool {
        self.client.query_opt(&self.claim, &[&user, &key]).await.expect("an insert").is_some()
    }

    async fn complete(&self, user: i64, key: &str) {
        let rows = self.client.execute(&self.complete, &[&user, &key]).await.expect("an update");
        assert_eq!(rows, 1);
    }

    async fn read(&self, user: i64, key: &str) -> String {
        self.client.query_one(&self.read, &[&user, &key]).await.expect("a row").get(0)
    }
}

#[async_trait]
impl Side for ByHand {
    fn name(&self) -> String {
        "by hand on tokio-postgres".to_owned()
    }

    async fn prepare(&self) -> Result<(), Error> {
        self.baseline.empty().await
    }

    async fn measure(&self, load: Load) -> Result<Measured, Error> {
        let mut lines = Vec::new();
        for _ in 0..load.callers.min(CONNECTIONS) {
            lines.push(self.connect().await?);
        }
        let (lines, workload, run) = (Arc::<[Line]>::from(lines), self.workload, Uuid::new_v4());
        let call = move |turn: Turn| {
            let lines = Arc::clone(&lines);
            async move {
                let line = &lines[turn.caller % lines.len()];
                match workload.call(run, turn) {
                    Call::Fresh(key) | Call::Execute(key) => {
                        assert!(line.claimed(NEW, &key).await);
                        line.complete(NEW, &key).await;
                    }
                    Call::Replay(number) => {
                        let key = format!("r{}", number + 1);
                        assert!(!line.claimed(REPLAYED, &key).await);
                        assert_eq!(line.read(REPLAYED, &key).await, "completed");
                    }
                    Call::Shared(key) => {
                        if line.claimed(NEW, &key).await {
                            line.complete(NEW, &key).await;
                        } else {
                            line.read(NEW, &key).await;
                        }
                    }
                }
            }
        };
        Ok(drive(load, call).await)
    }
}
