//! A service behind the crate `axum-idempotent`, in the order of layers that its README demands.

use crate::AnyError;
use crate::sample::{ANSWER, CONTENT_TYPE, STATUS};
use axum::Router;
use axum::body::Bytes;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, post};
use axum_idempotent::{IdempotentLayer, IdempotentOptions};
use ruts::store::Ttl;
use ruts::store::moka::MokaStore;
use ruts::{CookieOptions, Session, SessionLayer};
use std::sync::Arc;
use tokio::net::TcpListener;
use tower_cookies::CookieManagerLayer;

/// How long an answer, a session and its cookie last, in seconds.
const RETENTION: u32 = 60 * 60;

/// Serves on a free port until the standard input closes.
pub(crate) async fn serve() -> Result<(), AnyError> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on {}", listener.local_addr()?);
    let (mut input, mut nowhere) = (tokio::io::stdin(), tokio::io::sink());
    tokio::select! {
        served = axum::serve(listener, app(post(charge))) => served?,
        closed = tokio::io::copy(&mut input, &mut nowhere) => drop(closed?),
    }
    Ok(())
}

/// The routes, `charges` being what is done once for a key.
fn app(charges: MethodRouter) -> Router {
    let idempotent = IdempotentOptions::default()
        .use_idempotency_key_header(Some("Idempotency-Key"), true)
        .expire_after(RETENTION.into());
    // Not for TLS only: clients speak plain HTTP. An answer lasts no longer than the cookie.
    let cookie = CookieOptions::build().name("session").path("/").secure(false).max_age(RETENTION.into());
    Router::new()
        .route("/charges", charges)
        .layer(IdempotentLayer::<MokaStore>::new(idempotent))
        // After that layer, which a login without a key would not get through.
        .route("/login", post(login))
        .layer(SessionLayer::new(Arc::new(MokaStore::builder().build())).with_cookie_options(cookie))
        .layer(CookieManagerLayer::new())
}

async fn charge(_request: Bytes) -> impl IntoResponse {
    let status = StatusCode::from_u16(STATUS).expect("a status");
    (status, [(header::CONTENT_TYPE, CONTENT_TYPE)], ANSWER)
}

/// Makes a session, by its first field; its layer sets the cookie.
async fn login(session: Session<MokaStore>) -> StatusCode {
    let lasts = Ttl::new(RETENTION.into()).expect("a time to live");
    match session.set("account", &"acct_1", lasts, None).await {
        Ok(()) => StatusCode::NO_CONTENT,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::REQUEST;
    use axum::body::{Body, to_bytes};
    use axum::http::{HeaderValue, Request, Response};
    use std::time::Duration;
    use tokio::sync::Barrier;
    use tokio::time::timeout;
    use tower::ServiceExt as _;

    const REPLAYED: &str = "idempotency-replayed";

    async fn session(app: &Router) -> HeaderValue {
        let request = Request::post("/login").body(Body::empty()).expect("a request");
        let response = app.clone().oneshot(request).await.expect("an answer");
        assert_eq!(response.status(), StatusCode::NO_CONTENT);
        let cookie = response.headers()[header::SET_COOKIE].to_str().expect("text");
        let (cookie, _attributes) = cookie.split_once(';').expect("attributes");
        cookie.parse().expect("a header")
    }

    async fn post_charge(app: &Router, cookie: Option<&HeaderValue>) -> Response<Body> {
        let mut request = Request::post("/charges").header("Idempotency-Key", "order-7");
        if let Some(cookie) = cookie {
            request = request.header(header::COOKIE, cookie);
        }
        let request = request.body(Body::from(REQUEST)).expect("a request");
        app.clone().oneshot(request).await.expect("an answer")
    }

    #[tokio::test]
    async fn a_second_charge_of_the_same_session_is_replayed() {
        let app = app(post(charge));
        let cookie = session(&app).await;
        for replayed in [false, true] {
            let response = post_charge(&app, Some(&cookie)).await;
            assert_eq!(response.status().as_u16(), STATUS);
            assert_eq!(response.headers()[header::CONTENT_TYPE], CONTENT_TYPE);
            assert_eq!(response.headers().contains_key(REPLAYED), replayed);
            assert_eq!(to_bytes(response.into_body(), usize::MAX).await.expect("a body"), ANSWER);
        }
    }

    #[tokio::test]
    async fn without_a_session_nothing_is_replayed() {
        let app = app(post(charge));
        for _ in 0..2 {
            assert!(!post_charge(&app, None).await.headers().contains_key(REPLAYED));
        }
    }

    /// What the README of `benches/peers` says of it, and why no storm is driven against it.
    #[tokio::test]
    async fn two_charges_at_once_both_run() {
        let both = Arc::new(Barrier::new(2));
        let app = app(post(move || async move {
            both.wait().await;
            StatusCode::CREATED
        }));
        let cookie = session(&app).await;
        let responses = async { tokio::join!(post_charge(&app, Some(&cookie)), post_charge(&app, Some(&cookie))) };
        let (one, other) = timeout(Duration::from_secs(10), responses).await.expect("both reach the handler");
        assert!(!one.headers().contains_key(REPLAYED) && !other.headers().contains_key(REPLAYED));
    }
}
