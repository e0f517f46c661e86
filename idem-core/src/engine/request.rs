//! What a caller asks the engine for: [`Request`].

use crate::claim::Claim;
use crate::fingerprint::Candidates;
use crate::key::{Identity, Key, Scope};
use crate::policy::{Policy, Takeover};
use std::sync::Arc;
use std::time::Duration;

/// One request for an operation: whose key, what the request looks like, and what to do if an earlier owner never came
/// back.
///
/// # Examples
///
/// ```
/// use idem_core::{Fingerprint, Key, Request, Scope, Takeover};
/// use std::time::Duration;
///
/// let fingerprint = Fingerprint::builder("POST /v1/charges").json(br#"{"amount":1000}"#).finish()?;
/// let request = Request::new(Scope::new("acct_42")?, Key::new("a3f7b9d1")?, fingerprint, Takeover::Resume)
///     .wait_up_to(Duration::from_secs(2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a request does nothing until an engine executes it"]
pub struct Request {
    identity: Identity,
    candidates: Candidates,
    takeover: Takeover,
    policy: Option<Arc<Policy>>,
    wait: Option<Duration>,
}

impl Request {
    /// A request under the engine's policy. Scope and takeover have no default: nobody but the caller can know them.
    pub fn new(scope: Scope, key: Key, fingerprint: impl Into<Candidates>, takeover: Takeover) -> Self {
        Self { identity: Identity::new(scope, key), candidates: fingerprint.into(), takeover, policy: None, wait: None }
    }

    /// Sets a policy for this request. Defaults to the engine's.
    pub fn with_policy(mut self, policy: impl Into<Arc<Policy>>) -> Self {
        self.policy = Some(policy.into());
        self
    }

    /// Waits up to `duration` for the first attempt's answer instead of returning `InProgress` at once. Defaults to not
    /// waiting.
    ///
    /// While it waits it holds no connection: it asks the store again, with growing pauses of at most a second.
    pub fn wait_up_to(mut self, duration: Duration) -> Self {
        self.wait = Some(duration);
        self
    }

    /// Which key, in which scope.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(super) fn wait(&self) -> Option<Duration> {
        self.wait
    }

    /// The policy that applies, given the engine's.
    pub(super) fn policy_or(&self, default: &Arc<Policy>) -> Arc<Policy> {
        Arc::clone(self.policy.as_ref().unwrap_or(default))
    }

    /// A claim with an owner of its own.
    pub(super) fn claim(&self, policy: &Policy) -> Claim {
        Claim::under(policy, self.identity.clone(), self.candidates.clone(), self.takeover)
    }
}
