//! A client: one key per operation, made before the first attempt; retries until it has the final answer; and remembers every answer.

use super::plan::{Errand, Impostor, Plan, Way};
use super::roster::Roster;
use crate::service::handlers::{CHARGES, REFUNDS};
use bytes::Bytes;
use idem_core::http::IDEMPOTENT_REPLAYED;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// What a server may take for an answer before a client goes away.
const TIMEOUT: Duration = Duration::from_secs(4);

/// How often a client asks what a charge is now.
const READS: u32 = 20;

/// How often a client hears that an operation is abandoned before it believes it.
const ABANDONED_ASKS: u32 = 3;

/// The clients' common tools.
#[derive(Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    service: Arc<Roster>,
    proxy: SocketAddr,
    limits: Limits,
}

/// When clients give up, and how long they wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) tries: u32,
    pub(crate) patience: Duration,
    /// `Retry-After` is honoured up to this: a storm is in a hurry.
    pub(crate) longest_pause: Duration,
    /// Whether a conflict may be the word of a cache: then it says neither that the store has the key nor that it has it
    /// for the same request.
    pub(crate) cached: bool,
}

/// An answer, without what differs between two sendings of the same one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// In order, without date, connection and the replay mark.
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: Bytes,
}

/// An answer as it came.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) answer: Answer,
    pub(crate) replayed: bool,
    retry_after: Option<Duration>,
}

/// What one copy of a request came to.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Answers of the operation itself, in the order in which they came.
    pub(crate) answers: Vec<Received>,
    /// Whether the last one is final, and the key that got it.
    pub(crate) acknowledged_under: Option<String>,
    /// What came of the impostor that was sent meanwhile.
    pub(crate) impostor: Option<ImpostorFate>,
    pub(crate) tries: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ImpostorFate {
    Refused,
    Served,
    /// No answer came.
    Unheard,
}

impl Received {
    fn header(&self, name: &str) -> Option<&[u8]> {
        self.answer.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_slice())
    }

    /// Whether there is nothing left to wait for. A 5xx may be final, but only a replay of it says so.
    pub(crate) fn is_final(&self) -> bool {
        self.replayed || !matches!(self.answer.status, 408 | 409 | 425 | 429 | 500..=599)
    }

    fn is_abandoned(&self) -> bool {
        self.answer.status == 503 && self.answer.body.windows(9).any(|word| word == b"abandoned")
    }

    /// Whether it is what the operation came to, not a word about the request.
    pub(crate) fn is_of_operation(&self) -> bool {
        self.replayed || self.header("content-type") == Some(b"application/json")
    }
}

impl Client {
    pub(crate) fn new(service: Arc<Roster>, proxy: SocketAddr, limits: Limits) -> Result<Self, reqwest::Error> {
        let http = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).retry(reqwest::retry::never()).build()?;
        Ok(Self { http, service, proxy, limits })
    }

    /// Sends one copy of a request, again and again, until the answer is final or patience is over.
    pub(crate) async fn run(&self, errand: &Errand, copy: u32, impostor: Option<(&Plan, Impostor)>) -> Told {
        sleep(errand.head_start(copy)).await;
        let began = crate::clock::now();
        let mut told = Told::default();
        let mut abandoned = 0;
        while told.tries < self.limits.tries && began.elapsed() < self.limits.patience {
            told.tries += 1;
            let key = errand.key(copy, told.tries);
            let received = self.send(errand, &key, errand.way(copy, told.tries)).await;
            let Some(received) = received else {
                // The network: try again soon.
                sleep(self.pause(told.tries, None)).await;
                continue;
            };
            let (is_final, conflict) = (received.is_final(), received.answer.status == 409);
            let (is_abandoned, retry_after) = (received.is_abandoned(), received.retry_after);
            if received.is_of_operation() || is_final {
                told.answers.push(received);
            }
            if is_final {
                told.acknowledged_under = Some(key);
                return told;
            }
            // "Somebody has to look": asking for ever makes nobody look.
            abandoned += u32::from(is_abandoned);
            if abandoned == ABANDONED_ASKS {
                return told;
            }
            // The key is taken by the true request, so that an impostor cannot be first.
            if let Some((plan, impostor)) = impostor
                && conflict
                && !self.limits.cached
                && told.impostor.is_none()
            {
                told.impostor = Some(self.try_impostor(plan, impostor, &key, &[]).await);
            }
            sleep(self.pause(told.tries, retry_after)).await;
        }
        told
    }

    fn pause(&self, tries: u32, retry_after: Option<Duration>) -> Duration {
        let backoff = Duration::from_millis(2 << tries.min(6));
        retry_after.unwrap_or(backoff).min(self.limits.longest_pause)
    }

    /// One try. `None` if no answer came.
    async fn send(&self, errand: &Errand, key: &str, way: Way) -> Option<Received> {
        let service = self.service.next();
        let (head, body) = (raw_head(service, errand, key), errand.body.as_bytes());
        match way {
            Way::Straight => self.post(service, errand, key).await,
            Way::Proxied => self.post(self.proxy, errand, key).await,
            Way::Impatient(patience) => timeout(patience, self.post(service, errand, key)).await.ok().flatten(),
            Way::Gone(after) => self.speak(service, &[head.as_bytes(), body].concat(), after).await,
            Way::Half => {
                self.speak(service, &[head.as_bytes(), &body[..body.len() / 2]].concat(), Duration::ZERO).await
            }
        }
    }

    /// Straight to the service.
    pub(crate) async fn ask(&self, errand: &Errand, key: &str) -> Option<Received> {
        self.send(errand, key, Way::Straight).await
    }

    async fn post(&self, to: SocketAddr, errand: &Errand, key: &str) -> Option<Received> {
        self.post_as(&format!("http://{to}{}", errand.route), &errand.tenant, key, errand.body.clone()).await
    }

    async fn post_as(&self, url: &str, tenant: &str, key: &str, body: String) -> Option<Received> {
        let request = self.http.post(url).bearer_auth(tenant).header("idempotency-key", key);
        let response = request.header("content-type", "application/json").body(body).send().await.ok()?;
        let status = response.status().as_u16();
        let replayed = response.headers().contains_key(IDEMPOTENT_REPLAYED);
        let retry_after = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        let kept = |name: &str| !["date", "connection", IDEMPOTENT_REPLAYED].contains(&name);
        let headers = response.headers().iter().filter(|(name, _)| kept(name.as_str()));
        let headers = headers.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
        let body = response.bytes().await.ok()?;
        Some(Received {
            answer: Answer { status, headers, body },
            replayed,
            retry_after: retry_after.map(Duration::from_secs),
        })
    }

    /// Writes bytes and hangs up after a while, without reading.
    async fn speak(&self, service: SocketAddr, bytes: &[u8], gone_after: Duration) -> Option<Received> {
        let mut stream = timeout(TIMEOUT, TcpStream::connect(service)).await.ok()?.ok()?;
        timeout(TIMEOUT, stream.write_all(bytes)).await.ok()?.ok()?;
        sleep(gone_after).await;
        None
    }

    /// Another request under a key that is taken. It must be refused, and must not learn any of `secrets`.
    pub(crate) async fn try_impostor(
        &self,
        plan: &Plan,
        impostor: Impostor,
        key: &str,
        secrets: &[&str],
    ) -> ImpostorFate {
        let service = self.service.next();
        let true_body = || plan.charge.body.clone();
        let (url, body) = match impostor {
            Impostor::Body => {
                let body = true_body().replace(&format!(":{},", plan.amount), &format!(":{},", plan.amount + 1));
                (format!("http://{service}{CHARGES}"), body)
            }
            Impostor::Query => (format!("http://{service}{CHARGES}?capture=false"), true_body()),
            Impostor::Route => {
                let body = plan.refund_of(&format!("ch_{}", plan.order)).body;
                (format!("http://{service}{REFUNDS}"), body)
            }
        };
        let Some(received) = self.post_as(&url, &plan.charge.tenant, key, body).await else {
            return ImpostorFate::Unheard;
        };
        let body = String::from_utf8_lossy(&received.answer.body);
        let leaks = received.replayed || secrets.iter().any(|secret| body.contains(secret));
        match received.answer.status {
            _ if leaks => ImpostorFate::Served,
            422 => ImpostorFate::Refused,
            409 if self.limits.cached => ImpostorFate::Unheard,
            // The service could not say. Had it moved money, the ledger would.
            500.. => ImpostorFate::Unheard,
            _ => ImpostorFate::Served,
        }
    }

    /// What the service says a charge is now: how much of it was refunded.
    pub(crate) async fn refunded(&self, tenant: &str, charge: &str) -> Option<u64> {
        for tries in 1..=READS {
            let url = format!("http://{}{CHARGES}/{charge}", self.service.next());
            let response = self.http.get(url).bearer_auth(tenant).send().await;
            if let Ok(response) = response.and_then(reqwest::Response::error_for_status)
                && let Ok(charge) = response.json::<serde_json::Value>().await
            {
                return charge["refunded"].as_u64();
            }
            sleep(self.pause(tries, None)).await;
        }
        None
    }
}

fn raw_head(to: SocketAddr, errand: &Errand, key: &str) -> String {
    let Errand { route, tenant, body, .. } = errand;
    let length = body.len();
    format!(
        "POST {route} HTTP/1.1\r\nhost: {to}\r\nauthorization: Bearer {tenant}\r\nidempotency-key: \"{key}\"\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
}
