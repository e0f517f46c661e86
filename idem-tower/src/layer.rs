//! How requests are protected: [`IdempotencyLayer`].

use crate::fingerprint::standard;
use crate::meaning::{Meaning, classify};
use crate::rule::{KeyRule, required_for_post_and_patch};
use crate::scope::ScopeOf;
use crate::service::Idempotency;
use bytes::Bytes;
use http::{HeaderName, request, response};
use idem_core::fingerprint::{Candidates, FingerprintError};
use idem_core::{Engine, Policy, Takeover};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tower_layer::Layer;

/// Makes the services that it wraps safe to retry.
///
/// It needs three things that nobody but you can know: the engine, whose key a request's key is, and what may happen
/// after an attempt that never came back. Everything else has a default.
///
/// Put authentication, rate limits, load shedding and compression around the layer, not behind it: what they refuse
/// must not be stored, and a stored answer must not skip them. Put one layer around each group of routes that wants
/// other settings.
///
/// # Examples
///
/// ```
/// # use idem_core::conformance::ReferenceStore;
/// use idem_core::{Engine, Scope, Takeover};
/// use idem_tower::{IdempotencyLayer, ScopeError};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store = ReferenceStore::default();
/// # #[derive(Clone)] struct Account(String);
/// let engine = Engine::builder(store).build()?;
/// let scope = |head: &http::request::Parts| {
///     let account = head.extensions.get::<Account>().ok_or_else(|| ScopeError::unauthorized("log in"))?;
///     Ok(Scope::new(account.0.as_str())?)
/// };
/// let layer = IdempotencyLayer::new(engine, scope, Takeover::Resume);
/// # let _ = layer;
/// # Ok(())
/// # }
/// ```
///
/// Without a scope it does not compile, nor without a takeover policy:
///
/// ```compile_fail,E0061
/// # fn engine() -> idem_core::Engine { unimplemented!() }
/// let layer = idem_tower::IdempotencyLayer::new(engine(), idem_core::Takeover::Resume);
/// ```
///
/// ```compile_fail,E0061
/// # fn engine() -> idem_core::Engine { unimplemented!() }
/// let layer = idem_tower::IdempotencyLayer::new(engine(), idem_tower::Global);
/// ```
#[derive(Clone)]
#[must_use = "a layer does nothing until it wraps a service"]
pub struct IdempotencyLayer {
    config: Arc<Config>,
}

type RuleFor = dyn Fn(&request::Parts) -> KeyRule + Send + Sync;
type FingerprintOf = dyn Fn(&request::Parts, &Bytes) -> Result<Candidates, FingerprintError> + Send + Sync;
type Classifier = dyn Fn(&response::Parts, bool) -> Meaning + Send + Sync;

/// What a layer and its services share.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) engine: Engine,
    pub(crate) scope: Arc<dyn ScopeOf>,
    pub(crate) takeover: Takeover,
    pub(crate) rule: Arc<RuleFor>,
    pub(crate) fingerprint: Arc<FingerprintOf>,
    pub(crate) classify: Arc<Classifier>,
    pub(crate) policy: Option<Arc<Policy>>,
    pub(crate) wait: Option<Duration>,
    pub(crate) request_limit: usize,
    pub(crate) body_timeout: Duration,
    pub(crate) stored_headers: Vec<HeaderName>,
}

impl IdempotencyLayer {
    /// A layer over `engine`. `scope` says [whose key](ScopeOf) a request's key is, [`Global`](crate::Global) if it is
    /// everybody's; `takeover` what may be run again after an attempt that never came back.
    pub fn new(engine: Engine, scope: impl ScopeOf, takeover: Takeover) -> Self {
        let config = Config {
            engine,
            scope: Arc::new(scope),
            takeover,
            rule: Arc::new(required_for_post_and_patch),
            fingerprint: Arc::new(|head: &request::Parts, body: &Bytes| standard(head, body).finish()),
            classify: Arc::new(classify),
            policy: None,
            wait: None,
            request_limit: 1 << 20,
            body_timeout: Duration::from_secs(30),
            stored_headers: Vec::new(),
        };
        Self { config: Arc::new(config) }
    }

    /// Which requests need a key. Defaults to [`required_for_post_and_patch`].
    pub fn with_key_rule(self, rule: impl Fn(&request::Parts) -> KeyRule + Send + Sync + 'static) -> Self {
        self.with(|config| config.rule = Arc::new(rule))
    }

    /// What makes a request the one that it is. Defaults to [`standard`], from which another one may start: without
    /// the fields that a retry changes, say, or with a hash key.
    ///
    /// To change it while answers are stored, give [candidates](Candidates) of the old kind too.
    pub fn with_fingerprint(
        self,
        fingerprint: impl Fn(&request::Parts, &Bytes) -> Result<Candidates, FingerprintError> + Send + Sync + 'static,
    ) -> Self {
        self.with(|config| config.fingerprint = Arc::new(fingerprint))
    }

    /// What a response means for its key, given its head and whether an effect may have begun; a [`Meaning`] in its
    /// extensions goes before. Defaults to [`classify`].
    pub fn with_classifier(self, classify: impl Fn(&response::Parts, bool) -> Meaning + Send + Sync + 'static) -> Self {
        self.with(|config| config.classify = Arc::new(classify))
    }

    /// How long leases, runs and answers last. Defaults to the engine's policy.
    pub fn with_policy(self, policy: impl Into<Arc<Policy>>) -> Self {
        self.with(|config| config.policy = Some(policy.into()))
    }

    /// For how long a repeat waits for the first attempt's answer before it gets 409. Defaults to not waiting.
    pub fn with_wait(self, wait: Duration) -> Self {
        self.with(|config| config.wait = Some(wait))
    }

    /// How many bytes the body of a protected request has at most; more is refused with 413, since a part of a body
    /// cannot stand for all of it. It is held in memory. Defaults to 1 MiB.
    pub fn with_request_limit(self, bytes: usize) -> Self {
        self.with(|config| config.request_limit = bytes)
    }

    /// How long the body of a protected request may take to arrive; more is refused with 408. Defaults to 30 s.
    pub fn with_body_timeout(self, timeout: Duration) -> Self {
        self.with(|config| config.body_timeout = timeout)
    }

    /// Stores this header field too. Defaults to `content-*`, `grpc-*`, `location`, `etag`, `link`, `last-modified`,
    /// `cache-control`, `vary` and `trailer`.
    ///
    /// Cookies and challenges are meant for the first caller alone: name them only if every repeat should get them.
    /// Fields about the connection and the message's frame, and `date`, are never stored, even if named.
    pub fn with_stored_header(self, name: HeaderName) -> Self {
        self.with(|config| config.stored_headers.push(name))
    }

    fn with(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(Arc::make_mut(&mut self.config));
        self
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = Idempotency<S>;

    fn layer(&self, inner: S) -> Idempotency<S> {
        Idempotency::new(inner, Arc::clone(&self.config))
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("takeover", &self.takeover)
            .field("policy", &self.policy)
            .field("wait", &self.wait)
            .field("request_limit", &self.request_limit)
            .field("body_timeout", &self.body_timeout)
            .field("stored_headers", &self.stored_headers)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for IdempotencyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("IdempotencyLayer").field(&self.config).finish()
    }
}
