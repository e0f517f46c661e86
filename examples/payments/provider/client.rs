//! How the service calls the card provider, and what each way to fail means for the money.

use super::ledger::Report;
use super::{Done, Kind, Order};
use reqwest::StatusCode;
use std::time::Duration;

/// Below any lease: an owner learns that the provider is slow while it still has its key.
const TIMEOUT: Duration = Duration::from_millis(800);

/// The way to one provider. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    url: String,
}

/// Why the provider did not say that it is done. None of them holds what was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProviderError {
    /// It says that it did nothing, or it was never reached.
    #[error("the card provider did nothing")]
    NothingDone,
    /// It says no, and will say so again.
    #[error("the card was declined")]
    Declined,
    /// It may have done it.
    #[error("the card provider gave no answer")]
    Unknown,
}

impl Client {
    /// A client of the provider at `url`, such as `http://127.0.0.1:8090`.
    pub(crate) fn new(url: &str) -> Result<Self, reqwest::Error> {
        // Nobody below us may repeat a charge: whether to do so is our handler's decision.
        let http = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).retry(reqwest::retry::never()).build()?;
        Ok(Self { http, url: url.trim_end_matches('/').to_owned() })
    }

    /// Moves money. With a `key` that the provider knows, it does not, and answers as it did the first time.
    pub(crate) async fn order(&self, kind: Kind, order: &Order, key: Option<&str>) -> Result<Done, ProviderError> {
        let path = match kind {
            Kind::Charge => "charges",
            Kind::Refund => "refunds",
        };
        let mut request = self.http.post(format!("{}/{path}", self.url)).json(order);
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let answer = match request.send().await {
            Ok(answer) => answer,
            Err(error) if error.is_connect() => return Err(ProviderError::NothingDone),
            Err(_) => return Err(ProviderError::Unknown),
        };
        match answer.status() {
            StatusCode::CREATED => answer.json().await.map_err(|_| ProviderError::Unknown),
            StatusCode::SERVICE_UNAVAILABLE => Err(ProviderError::NothingDone),
            StatusCode::PAYMENT_REQUIRED => Err(ProviderError::Declined),
            _ => Err(ProviderError::Unknown),
        }
    }

    /// The provider's ledger.
    pub(crate) async fn ledger(&self) -> Result<Report, reqwest::Error> {
        let request = self.http.get(format!("{}/ledger", self.url)).timeout(Duration::from_secs(30));
        request.send().await?.error_for_status()?.json().await
    }
}
