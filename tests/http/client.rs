//! The two clients, hyper's and curl, and what may be asked of an answer.

use crate::server::{BoxError, Server};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use idem_core::http::{IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED, ProblemKind};
use serde_json::Value;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// The key and the body of most requests. No problem may repeat either.
pub(crate) const KEY: &str = "canary-key";
pub(crate) const BODY: &str = r#"{"amount":1000,"note":"canary-body"}"#;
const CANARY: &str = "canary";

/// Nothing here takes that long on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Awaits what has to happen.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("it happens within a minute")
}

/// `POST /charges` with a key and [`BODY`].
pub(crate) fn charge(key: &str) -> Request<Full<Bytes>> {
    post("/charges", key, BODY)
}

pub(crate) fn post(path: &str, key: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    let request = Request::post(path).header(IDEMPOTENCY_KEY, key).header("content-type", "application/json");
    request.body(Full::new(body.into())).unwrap()
}

/// A connection; dropping it closes the socket.
pub(crate) struct Connection<B> {
    host: String,
    sender: http1::SendRequest<B>,
    driver: AbortHandle,
}

impl<B> Connection<B>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    /// The head of the answer, its body still on the way.
    pub(crate) async fn begin(&mut self, request: Request<B>) -> Response<Incoming> {
        self.try_begin(request).await.unwrap()
    }

    /// An error if the server closes the connection instead.
    pub(crate) async fn try_begin(&mut self, mut request: Request<B>) -> hyper::Result<Response<Incoming>> {
        // Trailers are sent to who asks for them.
        request.headers_mut().insert(header::TE, HeaderValue::from_static("trailers"));
        request.headers_mut().insert(header::HOST, HeaderValue::try_from(&*self.host).unwrap());
        within(self.sender.send_request(request)).await
    }
}

impl<B> Drop for Connection<B> {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Server {
    /// Connects over HTTP/1.1.
    pub(crate) async fn connect<B>(&self) -> Connection<B>
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        let stream = TcpStream::connect(self.address()).await.unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        let driver = tokio::spawn(async move { drop(connection.await) }).abort_handle();
        Connection { host: self.address().to_string(), sender, driver }
    }

    /// Sends over an HTTP/1.1 connection of its own and reads all of the answer.
    pub(crate) async fn send<B>(&self, request: Request<B>) -> Answer
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        let mut connection = self.connect().await;
        let response = connection.begin(request).await;
        Answer::read(response).await
    }

    /// Sends over an HTTP/2 connection of its own and reads all of the answer.
    pub(crate) async fn send_h2<B>(&self, request: Request<B>) -> Answer
    where
        B: Body + Send + Unpin + 'static,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        let stream = TcpStream::connect(self.address()).await.unwrap();
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        let driver = tokio::spawn(connection);
        let (mut head, body) = request.into_parts();
        head.uri = self.url(&head.uri.to_string()).parse::<Uri>().unwrap();
        let response = within(sender.send_request(Request::from_parts(head, body))).await.unwrap();
        let answer = Answer::read(response).await;
        driver.abort();
        answer
    }

    /// A curl that prints headers too.
    pub(crate) fn curl_command(&self, path: &str, arguments: &[&str]) -> Command {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--include"]).args(arguments).arg(self.url(path)).kill_on_drop(true);
        curl
    }

    /// What curl prints.
    pub(crate) async fn curl(&self, path: &str, arguments: &[&str]) -> Vec<u8> {
        let output = self.curl_command(path, arguments).output();
        let output = within(output).await.expect("this test runs curl: install it");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }
}

/// An answer, all of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
    /// The head said that nothing follows.
    pub(crate) is_head_only: bool,
}

impl Answer {
    pub(crate) async fn read(response: Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        let is_head_only = body.is_end_stream();
        let body = within(body.collect()).await.unwrap();
        let trailers = body.trailers().cloned();
        Self { status: head.status.as_u16(), headers: head.headers, body: body.to_bytes(), trailers, is_head_only }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn headers(&self, name: &str) -> Vec<&str> {
        self.headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
    }

    pub(crate) fn is_replay(&self) -> bool {
        let marks = self.headers(IDEMPOTENT_REPLAYED);
        assert!(marks.is_empty() || marks == ["true"], "{marks:?}");
        !marks.is_empty()
    }

    /// The second answer is the first one again, byte for byte. All headers of the first one are to be such as are
    /// stored.
    pub(crate) fn assert_replayed_by(&self, again: &Self) {
        assert!(!self.is_replay(), "{self:?}");
        assert!(again.is_replay(), "{again:?}");
        assert_eq!(self.without(&[IDEMPOTENT_REPLAYED, "date"]), again.without(&[IDEMPOTENT_REPLAYED, "date"]));
    }

    /// The same without these header fields.
    pub(crate) fn without(&self, names: &[&'static str]) -> Self {
        let mut answer = self.clone();
        for name in names {
            answer.headers.remove(HeaderName::from_static(name));
        }
        answer
    }

    /// It is a problem of this kind, in the form that they all have, and repeats nothing of the request.
    pub(crate) fn assert_problem(&self, kind: ProblemKind, status: u16) -> Value {
        let shown = format!("{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{kind}: {shown}");
        assert_eq!(self.header("cache-control"), Some("no-store"), "{shown}");
        assert!(!self.is_replay(), "{shown}");
        assert!(!shown.contains(CANARY), "{shown}");
        let problem: Value = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(problem["type"], kind.uri(), "{problem}");
        assert_eq!(problem["advice"], kind.advice().as_str(), "{problem}");
        assert_eq!((self.status, &problem["status"]), (status, &Value::from(status)), "{problem}");
        for text in ["title", "detail"] {
            assert!(problem[text].as_str().is_some_and(|text| !text.is_empty()), "{problem}");
        }
        problem
    }

    /// In whole seconds, at least one.
    pub(crate) fn retry_after(&self) -> u64 {
        let seconds = self.header("retry-after").unwrap_or_else(|| panic!("{self:?} says when to ask again"));
        let seconds = seconds.parse().unwrap();
        assert!(seconds >= 1);
        seconds
    }
}
