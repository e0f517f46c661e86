//! Whose request it is: told by the authentication in front of idem, which takes it as the scope.

use super::problem::Problem;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use idem_core::Scope;
use idem_tower::ScopeError;

/// The tenant of a request without an `Authorization` header, so that the first `curl` needs none.
const DEMO_TENANT: &str = "demo";

/// Who asks, in the extensions of a request that was let in.
#[derive(Debug, Clone)]
pub(crate) struct Tenant(Scope);

impl Tenant {
    /// The bearer token is the tenant's name. (A real service maps a credential to its principal, so that a new credential does not
    /// make a new scope.)
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let refused = |detail| Problem::new(StatusCode::UNAUTHORIZED, "tenant-malformed", detail);
        let name = match headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes) {
            None => DEMO_TENANT.as_bytes(),
            Some(value) => value
                .strip_prefix(b"Bearer ")
                .ok_or_else(|| refused("send Authorization: Bearer <tenant>".to_owned()))?,
        };
        Scope::from_bytes(name).map(Self).map_err(|error| refused(format!("tenant: {error}")))
    }

    pub(crate) fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

/// Lets in who says who they are.
pub(crate) async fn authenticate(mut request: Request, next: Next) -> Result<Response, Problem> {
    let tenant = Tenant::of(request.headers())?;
    request.extensions_mut().insert(tenant);
    Ok(next.run(request).await)
}

/// The scope of a request's key.
pub(crate) fn scope(head: &Parts) -> Result<Scope, ScopeError> {
    let tenant = head.extensions.get::<Tenant>();
    tenant.map(|Tenant(scope)| scope.clone()).ok_or_else(|| ScopeError::unauthorized("nobody knows who asks"))
}
