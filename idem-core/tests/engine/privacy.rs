//! No key, scope, body, fingerprint or recovery data in any event, error or `Debug`.

use crate::support::*;
use idem_core::conformance::{FaultPlan, ReferenceStore};
use idem_core::{Begun, Claim, Engine, Failure, Fingerprint, Identity, Key, Request, Response, Scope, Takeover};
use std::io::Write;
use std::sync::{Arc, Mutex};

#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn nothing_secret_is_shown_anywhere() {
    let captured = Captured::default();
    let sink = captured.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_ansi(false)
        .with_writer(move || sink.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);

    let mut shown = Vec::new();
    let store = idem_core::conformance::FaultStore::new(ReferenceStore::default(), FaultPlan::seeded(3, 0.2));
    let engine = Engine::builder(store).with_policy(policy()).without_sweeper().build().unwrap();
    let fingerprint = Fingerprint::builder("POST /canary-route").json(b"{\"canary-body\":1}").finish().unwrap();
    for number in 0..30 {
        let scope = Scope::new(format!("canary-scope-{number}")).unwrap();
        let key = Key::new("canary-key").unwrap();
        let request = Request::new(scope.clone(), key.clone(), fingerprint.clone(), Takeover::Resume);
        shown.push(format!("{request:?} {scope:?} {key:?} {engine:?}"));
        shown.push(format!("{:?}", Claim::new(Identity::new(scope, key), fingerprint.clone(), Takeover::Never)));
        let handler = move |operation: idem_core::Operation| async move {
            operation.begin_effect("charge").await?;
            operation.checkpoint("phase", "canary-recovery").await?;
            shown_debug(&operation);
            match number % 5 {
                0 => Err(Failure::NoEffect("failed")),
                1 => Err(Failure::Unknown("failed")),
                2 => {
                    Err(Failure::Final(Response::new(500, "canary-response").with_header("x-canary", "canary-header")))
                }
                3 => panic!("panics are the panic hook's to show"),
                _ => Ok(Response::new(200, "canary-response").with_header("x-canary", "canary-header")),
            }
        };
        for _ in 0..2 {
            match engine.execute(request.clone(), handler).await {
                Ok(outcome) => shown.push(format!("{outcome:?}")),
                Err(error) => shown.push(format!("{error:?} {error}")),
            }
        }
        if let Ok(Begun::Acquired(lease)) = engine.begin(request).await {
            shown.push(format!("{lease:?}"));
        }
    }
    shown.push(String::from_utf8(captured.0.lock().unwrap().clone()).unwrap());
    let shown = shown.concat();
    assert!(shown.contains("owner=") && shown.contains("tag="), "events were captured");
    if let Some(at) = shown.find("canary") {
        let (from, to) = (at.saturating_sub(200), shown.len().min(at + 100));
        panic!("a secret is shown: ...{}...", &shown[from..to]);
    }
}

fn shown_debug(operation: &idem_core::Operation) {
    tracing::trace!(?operation, "what a handler might log");
}
