//! Clients that want a charge each and ask for it until they get an answer.

use crate::AnyError;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;
use uuid::Uuid;

/// How long a client waits for one answer. Some give up on one that is on its way.
const PATIENCE: Duration = Duration::from_secs(2);

/// An operation that was acknowledged.
#[derive(Debug, Clone)]
pub(crate) struct Done {
    pub(crate) key: String,
    pub(crate) account: String,
    pub(crate) amount: i64,
    pub(crate) answer: String,
}

pub(crate) struct Clients {
    stop: Arc<AtomicBool>,
    tasks: JoinSet<Result<Vec<Done>, AnyError>>,
}

impl Clients {
    pub(crate) fn start(addresses: &[SocketAddr], count: usize, seed: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for number in 0..count {
            let (addresses, stop) = (addresses.to_vec(), Arc::clone(&stop));
            tasks.spawn(async move {
                let mut random = StdRng::seed_from_u64(seed.wrapping_mul(1_000).wrapping_add(number as u64));
                let client = reqwest::Client::builder().timeout(PATIENCE).build()?;
                let mut done = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let amount = random.random_range(1..1_000);
                    let account = format!("acct_{}", random.random_range(0..50));
                    let mut wanted = Done { key: Uuid::new_v4().to_string(), account, amount, answer: String::new() };
                    wanted.answer = wanted.ask_until_answered(&client, &addresses, &mut random).await;
                    done.push(wanted);
                    sleep(Duration::from_millis(random.random_range(0..20))).await;
                }
                Ok(done)
            });
        }
        Self { stop, tasks }
    }

    /// Everything that was acknowledged, once each client has its last answer.
    pub(crate) async fn finish(mut self) -> Result<Vec<Done>, AnyError> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        while let Some(done) = self.tasks.join_next().await {
            all.extend(done??);
        }
        Ok(all)
    }
}

impl Done {
    /// Asks anybody, again and again, as a client with a key may.
    async fn ask_until_answered(
        &self,
        client: &reqwest::Client,
        addresses: &[SocketAddr],
        random: &mut StdRng,
    ) -> String {
        loop {
            let address = addresses[random.random_range(0..addresses.len())];
            // One in ten hangs up early, and does not hear what came of it.
            let impatient = random.random_range(0..10) == 0;
            let asked = self.ask(client, address);
            let answer = if impatient {
                let patience = Duration::from_millis(random.random_range(0..5));
                tokio::time::timeout(patience, asked).await.unwrap_or(None)
            } else {
                asked.await
            };
            match answer {
                Some(answer) => return answer,
                None => sleep(Duration::from_millis(random.random_range(5..50))).await,
            }
        }
    }

    /// The answer, if there is one that is final.
    pub(crate) async fn ask(&self, client: &reqwest::Client, address: SocketAddr) -> Option<String> {
        let sent = client
            .post(format!("http://{address}/charges"))
            .header("idempotency-key", &self.key)
            .body(format!(r#"{{"account":"{}","amount":{}}}"#, self.account, self.amount))
            .send()
            .await
            .ok()?;
        if sent.status().as_u16() == 201 { sent.text().await.ok() } else { None }
    }
}
