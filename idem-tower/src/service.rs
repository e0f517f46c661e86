//! A service behind the layer: [`Idempotency`].

use crate::body::{Body, Read, read};
use crate::grpc::Protocol;
use crate::header;
use crate::keep::{Kept, keep, replay};
use crate::layer::Config;
use crate::meaning::Meaning;
use crate::problem::Problem;
use crate::rule::KeyRule;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request, Response};
use http_body::Body as HttpBody;
use idem_core::fingerprint::FingerprintError;
use idem_core::http::IDEMPOTENT_REPLAYED;
use idem_core::{Failure, Key, Operation, Outcome};
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tower_service::Service;

/// How much of a body that is too long is read and thrown away, so that its sender sees the answer instead of a reset.
const DISCARDED: usize = 8 << 20;

/// A service that runs once for a key, and answers every repeat with its first answer.
///
/// Made by [`IdempotencyLayer`](crate::IdempotencyLayer). The service behind runs in a task of its own: a caller that
/// hangs up does not stop it, and finds the answer when it comes back. It gets the [`Operation`] in the request's
/// extensions. Task-locals of the connection's task are not there; the tracing span is.
///
/// It is ready always, and waits for the service behind when it knows that it is needed: a replay takes nothing of its
/// capacity.
#[derive(Clone)]
pub struct Idempotency<S> {
    inner: S,
    config: Arc<Config>,
}

/// The answer of an [`Idempotency`] service.
#[must_use = "futures do nothing until they are polled"]
pub struct ResponseFuture<B: HttpBody, E>(Responding<B, E>);

type Responding<B, E> = Pin<Box<dyn Future<Output = Result<Response<Body<B>>, E>> + Send>>;

/// Why a run has no answer that is stored.
enum Unstored<B: HttpBody, E> {
    /// The handler's response means so.
    Answered(Box<Response<Body<B>>>),
    /// The service failed.
    Failed(E),
}

impl<S> Idempotency<S> {
    pub(crate) fn new(inner: S, config: Arc<Config>) -> Self {
        Self { inner, config }
    }
}

impl<S, I, O> Service<Request<I>> for Idempotency<S>
where
    S: Service<Request<Body<I>>, Response = Response<O>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    I: HttpBody + Send + 'static,
    I::Data: Send,
    I::Error: Send + 'static,
    O: HttpBody + Send + 'static,
    O::Data: Send,
    O::Error: Send + 'static,
{
    type Response = Response<Body<O>>;
    type Error = S::Error;
    type Future = ResponseFuture<O, S::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<I>) -> Self::Future {
        ResponseFuture(Box::pin(respond(Arc::clone(&self.config), self.inner.clone(), request)))
    }
}

async fn respond<S, I, O>(config: Arc<Config>, inner: S, request: Request<I>) -> Result<Response<Body<O>>, S::Error>
where
    S: Service<Request<Body<I>>, Response = Response<O>> + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    I: HttpBody + Send + 'static,
    I::Data: Send,
    I::Error: Send + 'static,
    O: HttpBody + Send + 'static,
    O::Data: Send,
    O::Error: Send + 'static,
{
    let (head, body) = request.into_parts();
    let protocol = Protocol::of(&head.headers);
    let refuse = |problem: Problem| Ok(problem.answer(protocol).map(Body::from));
    let key = match key_of(&config, &head) {
        Ok(Some(key)) => key,
        Ok(None) => {
            let mut inner = inner;
            poll_fn(|context| inner.poll_ready(context)).await?;
            let response = inner.call(Request::from_parts(head, Body::through(body))).await?;
            return Ok(response.map(Body::through));
        }
        Err(problem) => return refuse(problem),
    };
    let prepared = prepare(&config, key, head, body).await;
    let (asked_for, request) = match prepared {
        Ok(prepared) => prepared,
        Err(problem) => return refuse(problem),
    };
    let (hand_over, mut handed) = oneshot::channel();
    let engine = config.engine.clone();
    let outcome = engine.execute(asked_for, move |operation| run(config, inner, request, operation, hand_over)).await;
    let problem = match outcome {
        Ok(Outcome::Executed { response, recorded: _ }) => {
            // With `Recorded::Unknown` the answer is as true: a retry gets it, or takes over.
            return Ok(handed.try_recv().unwrap_or_else(|_| replay(&response, protocol)));
        }
        Ok(Outcome::Replayed(response) | Outcome::Fenced { response: Some(response) }) => {
            return Ok(replay(&response, protocol));
        }
        Ok(Outcome::Failed { error: Unstored::Answered(response), disposition: _ }) => return Ok(*response),
        Ok(Outcome::Failed { error: Unstored::Failed(error), disposition: _ }) => return Err(error),
        Ok(Outcome::InProgress { since: _, retry_after }) => Problem::in_progress(retry_after),
        Ok(Outcome::Fenced { response: None }) => Problem::overtaken(),
        Ok(Outcome::Mismatch { part }) => Problem::key_reused(part),
        Ok(Outcome::Abandoned { reason }) => Problem::abandoned(reason),
        Ok(Outcome::Panicked(_)) => Problem::panicked(),
        Ok(Outcome::Stopped { reason }) => Problem::stopped(reason),
        Err(error) => Problem::from(&error),
    };
    refuse(problem)
}

/// The key, if the request is to be protected.
fn key_of(config: &Config, head: &Parts) -> Result<Option<Key>, Problem> {
    let rule = (config.rule)(head);
    if rule == KeyRule::Ignored {
        return Ok(None);
    }
    match header::key(&head.headers) {
        Ok(None) if rule == KeyRule::Required => Err(Problem::key_missing()),
        Ok(key) => Ok(key),
        Err(error) => Err(Problem::key_malformed(error)),
    }
}

/// Reads the request, and says it as the engine wants it and as the handler gets it.
async fn prepare<I: HttpBody>(
    config: &Config,
    key: Key,
    head: Parts,
    body: I,
) -> Result<(idem_core::Request, Request<Body<I>>), Problem> {
    let scope = config.scope.scope(&head)?;
    let read = timeout(config.body_timeout, read_request(body, config.request_limit));
    let (data, trailers) = read.await.map_err(|_| Problem::body_too_slow())??;
    let candidates = (config.fingerprint)(&head, &data).map_err(|error| match error {
        FingerprintError::BodyTooLarge { limit, .. } => Problem::body_too_large(limit),
        _ => Problem::no_fingerprint(&error),
    })?;
    let mut request = idem_core::Request::new(scope, key, candidates, config.takeover);
    if let Some(policy) = &config.policy {
        request = request.with_policy(Arc::clone(policy));
    }
    if let Some(wait) = config.wait {
        request = request.wait_up_to(wait);
    }
    Ok((request, Request::from_parts(head, Body::whole(data, trailers))))
}

async fn read_request<I: HttpBody>(body: I, limit: usize) -> Result<(Bytes, Option<HeaderMap>), Problem> {
    match read(body, limit).await {
        Read::Whole { data, trailers } => Ok((data, trailers)),
        Read::Broken(_) => Err(Problem::body_cut_off()),
        Read::Over(body) => {
            body.discard(DISCARDED).await;
            Err(Problem::body_too_large(limit))
        }
    }
}

/// Runs the service behind, under the lease.
async fn run<S, I, O>(
    config: Arc<Config>,
    mut inner: S,
    mut request: Request<Body<I>>,
    operation: Operation,
    hand_over: oneshot::Sender<Response<Body<O>>>,
) -> Result<idem_core::Response, Failure<Unstored<O, S::Error>>>
where
    S: Service<Request<Body<I>>, Response = Response<O>>,
    I: HttpBody,
    O: HttpBody,
{
    request.extensions_mut().insert(operation.clone());
    if let Err(error) = poll_fn(|context| inner.poll_ready(context)).await {
        return Err(Failure::NoEffect(Unstored::Failed(error)));
    }
    // What a service that fails has done, nobody knows.
    let response = inner.call(request).await.map_err(|error| Failure::Unknown(Unstored::Failed(error)))?;
    let (mut head, body) = response.into_parts();
    // The mark of a service further in, whose headers the handler hands on, says nothing about this answer.
    head.headers.remove(IDEMPOTENT_REPLAYED);
    let meaning = match head.extensions.get::<Meaning>() {
        Some(meaning) => *meaning,
        None => (config.classify)(&head, operation.effect_may_have_begun().await),
    };
    let unstored = |head, body| Unstored::Answered(Box::new(Response::from_parts(head, Body::through(body))));
    match meaning {
        Meaning::NoEffect => Err(Failure::NoEffect(unstored(head, body))),
        Meaning::VerifiedNoEffect => Err(Failure::VerifiedNoEffect(unstored(head, body))),
        Meaning::Unknown => Err(Failure::Unknown(unstored(head, body))),
        Meaning::Final => {
            let Kept { stored, live } = keep(head, body, config.engine.response_limit(), &config.stored_headers).await;
            let Some(stored) = stored else { return Err(Failure::Unknown(Unstored::Answered(Box::new(live)))) };
            // A caller that hung up will come back for what is stored.
            let _ = hand_over.send(live);
            Ok(stored)
        }
    }
}

impl<B: HttpBody, E> Future for ResponseFuture<B, E> {
    type Output = Result<Response<Body<B>>, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl<B: HttpBody, E> fmt::Debug for ResponseFuture<B, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResponseFuture(..)")
    }
}

impl<S: fmt::Debug> fmt::Debug for Idempotency<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idempotency").field("inner", &self.inner).field("config", &self.config).finish()
    }
}
