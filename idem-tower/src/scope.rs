//! Whose key it is: [`ScopeOf`], [`Global`].

use http::StatusCode;
use http::request::Parts;
use idem_core::{NameError, Scope};
use std::fmt;

/// Says whose keys a request's key belongs to: implemented by closures, and by [`Global`].
///
/// Two scopes never meet: the same key in another scope is another key. So the scope must be what the server itself
/// knows of the caller, the account behind a checked credential. Not the credential: a rotation in the middle of a
/// retry would run twice. Not the network address: neighbours behind one gateway share it. Authentication belongs
/// outside the layer; the closure reads what it left in the request's extensions.
///
/// # Examples
///
/// ```
/// use http::request::Parts;
/// use idem_core::Scope;
/// use idem_tower::ScopeError;
///
/// /// Left in the extensions by the authentication in front.
/// #[derive(Clone)]
/// struct Account(String);
///
/// let scope = |head: &Parts| {
///     let account = head.extensions.get::<Account>();
///     let account = account.ok_or_else(|| ScopeError::unauthorized("send a credential"))?;
///     Ok(Scope::new(account.0.as_str())?)
/// };
/// # fn is_one(_: impl idem_tower::ScopeOf) {}
/// # is_one(scope);
/// ```
pub trait ScopeOf: Send + Sync + 'static {
    /// The scope of a request.
    ///
    /// # Errors
    ///
    /// [`ScopeError`]: nothing is claimed and nothing runs; the error is the answer.
    fn scope(&self, head: &Parts) -> Result<Scope, ScopeError>;
}

impl<F> ScopeOf for F
where
    F: Fn(&Parts) -> Result<Scope, ScopeError> + Send + Sync + 'static,
{
    fn scope(&self, head: &Parts) -> Result<Scope, ScopeError> {
        self(head)
    }
}

/// One scope for all callers: whoever knows a key gets its answer.
///
/// Right for a service with one caller, or whose keys are secrets that no two callers can share by chance or on
/// purpose. Never right where callers must not see each other's answers.
#[derive(Clone, Copy, Debug)]
pub struct Global;

impl Global {
    /// The name of the scope in the store.
    pub const NAME: &'static str = "global";
}

impl ScopeOf for Global {
    fn scope(&self, _: &Parts) -> Result<Scope, ScopeError> {
        Ok(Scope::new(Self::NAME)?)
    }
}

/// Why a request has no scope, as the answer that its caller gets.
#[derive(Clone, PartialEq, Eq)]
pub struct ScopeError {
    status: StatusCode,
    detail: String,
}

impl ScopeError {
    /// An answer with this status. `detail` is for the caller to read.
    #[must_use]
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into() }
    }

    /// 401: nobody knows who asks.
    #[must_use]
    pub fn unauthorized(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, detail)
    }

    /// The status of the answer.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }
}

impl From<NameError> for ScopeError {
    fn from(error: NameError) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error.to_string())
    }
}

impl fmt::Display for ScopeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl fmt::Debug for ScopeError {
    /// Shows the status only: the detail may name the caller.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopeError").field("status", &self.status).finish_non_exhaustive()
    }
}

impl std::error::Error for ScopeError {}
