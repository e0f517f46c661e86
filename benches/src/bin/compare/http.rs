//! The HTTP edge: [`Http`], and the service of ours that it is measured with.

use crate::Error;
use crate::heat::Side;
use crate::idem::Emptied as _;
use crate::peer::Service;
use crate::stores::Memory;
use async_trait::async_trait;
use axum::Router;
use axum::routing::post;
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use idem_benches::load::{Load, Measured, Turn, drive};
use idem_benches::sample::{ANSWER, REQUEST};
use idem_benches::workload::{Workload, new_key};
use idem_core::Takeover;
use idem_tower::{Global, IdempotencyLayer};
use std::sync::{Arc, OnceLock};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

/// How many keys are completed before replays are asked for.
const COMPLETED: usize = 1_000;
/// How many sessions callers share at the service that needs them.
const SESSIONS: usize = 256;

/// A service under a workload.
pub(crate) struct Http {
    name: &'static str,
    workload: Workload,
    client: Asker,
    completed: OnceLock<Arc<[String]>>,
    _service: Service,
}

/// Asks over connections that stay open.
#[derive(Clone)]
struct Asker {
    client: Client<HttpConnector, Full<Bytes>>,
    address: Arc<str>,
    /// What browsers would send after they logged in; none where nobody has to.
    cookies: Arc<[String]>,
    /// The header that marks a replay.
    mark: &'static str,
}

impl Http {
    /// idem's service.
    pub(crate) async fn ours(workload: Workload) -> Result<Arc<dyn Side>, Error> {
        let service = Service::start(tokio::process::Command::new(std::env::current_exe()?).arg("serve")).await?;
        let client = Asker::new(&service, "idempotent-replayed");
        Ok(Self::side("idem-tower, memory", workload, client, service))
    }

    /// The service over `axum-idempotent`, which works for sessions only, and ever more slowly the more a session has
    /// stored.
    pub(crate) async fn axum_idempotent(service: Service, workload: Workload) -> Result<Arc<dyn Side>, Error> {
        let mut client = Asker::new(&service, "idempotency-replayed");
        client.log_in(SESSIONS).await?;
        Ok(Self::side("axum-idempotent 0.6.0, memory", workload, client, service))
    }

    fn side(name: &'static str, workload: Workload, client: Asker, service: Service) -> Arc<dyn Side> {
        Arc::new(Self { name, workload, client, completed: OnceLock::new(), _service: service })
    }
}

impl Asker {
    fn new(service: &Service, mark: &'static str) -> Self {
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { client, address: service.address.as_str().into(), cookies: [].into(), mark }
    }

    async fn log_in(&mut self, sessions: usize) -> Result<(), Error> {
        let mut cookies = Vec::with_capacity(sessions);
        for _ in 0..sessions {
            let request = Request::post(format!("http://{}/login", self.address)).body(Full::default())?;
            let answer = self.client.request(request).await?;
            let cookie = answer.headers().get(header::SET_COOKIE).ok_or("a login sets a cookie")?.to_str()?;
            cookies.extend(cookie.split(';').next().map(str::to_owned));
        }
        self.cookies = cookies.into();
        Ok(())
    }

    /// Charges under `key` in one of the sessions; whether that was a replay.
    async fn charge(&self, session: usize, key: &str) -> Result<bool, Error> {
        let mut request = Request::post(format!("http://{}/charges", self.address))
            .header("idempotency-key", key)
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(cookie) = self.cookies.get(session % self.cookies.len().max(1)) {
            request = request.header(header::COOKIE, cookie);
        }
        let (head, body) = self.client.request(request.body(Full::from(REQUEST))?).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        if head.status != StatusCode::CREATED || body != ANSWER {
            return Err(format!("{}: {}", head.status, String::from_utf8_lossy(&body)).into());
        }
        Ok(head.headers.contains_key(self.mark))
    }
}

#[async_trait]
impl Side for Http {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    async fn prepare(&self) -> Result<(), Error> {
        if self.workload == Workload::Replay && self.completed.get().is_none() {
            let keys: Arc<[String]> = (0..COMPLETED).map(|_| new_key()).collect();
            for (number, key) in keys.iter().enumerate() {
                self.client.charge(number, key).await?;
            }
            self.completed.get_or_init(|| keys);
        }
        Ok(())
    }

    async fn measure(&self, load: Load) -> Result<Measured, Error> {
        let (client, completed) = (self.client.clone(), self.completed.get().cloned());
        let call = move |Turn { caller, number }| {
            let (client, completed) = (client.clone(), completed.clone());
            async move {
                let replayed = match &completed {
                    Some(keys) => {
                        let number = (caller * 7_919 + number as usize * 104_729) % keys.len();
                        client.charge(number, &keys[number]).await
                    }
                    None => client.charge(caller, &new_key()).await,
                };
                assert_eq!(replayed.expect("an answer"), completed.is_some());
            }
        };
        Ok(drive(load, call).await)
    }
}

/// Serves `POST /charges` behind idem's layer until the standard input ends.
pub(crate) async fn serve() -> Result<(), Error> {
    let layer = IdempotencyLayer::new(Memory.engine().await?, Global, Takeover::Resume);
    let charge = || async { (StatusCode::CREATED, [(header::CONTENT_TYPE, "application/json")], ANSWER) };
    let router = Router::new().route("/charges", post(charge).layer(layer));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on {}", listener.local_addr()?);
    let ended = async { drop(tokio::io::stdin().read_to_end(&mut Vec::new()).await) };
    Ok(axum::serve(listener, router).with_graceful_shutdown(ended).await?)
}
