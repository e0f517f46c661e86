//! How the service calls the card provider, and what each way to fail means for the money.

use super::ledger::Report;
use super::{Charge, Done, Kind, Order};
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

    /// A charge as it stands now, if there is one of this name in `account`.
    pub(crate) async fn find(&self, account: &str, id: &str) -> Result<Option<Charge>, ProviderError> {
        // Nothing is moved, so every failure is one with nothing done.
        let nothing_done = |_| ProviderError::NothingDone;
        let mut url = reqwest::Url::parse(&self.url).map_err(|_| ProviderError::NothingDone)?;
        // The name comes from a client: as one segment it can name nothing but a charge.
        url.path_segments_mut().map_err(nothing_done)?.pop_if_empty().extend(["charges", id]);
        let answer = self.http.get(url).send().await.map_err(|_| ProviderError::NothingDone)?;
        match answer.status() {
            StatusCode::NOT_FOUND => Ok(None),
            StatusCode::OK => {
                let charge: Charge = answer.json().await.map_err(|_| ProviderError::NothingDone)?;
                Ok((charge.order.account == account).then_some(charge))
            }
            _ => Err(ProviderError::NothingDone),
        }
    }

    /// The provider's ledger.
    pub(crate) async fn ledger(&self) -> Result<Report, reqwest::Error> {
        let request = self.http.get(format!("{}/ledger", self.url)).timeout(Duration::from_secs(30));
        request.send().await?.error_for_status()?.json().await
    }
}
