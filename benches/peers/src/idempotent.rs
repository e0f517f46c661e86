//! The calls, made with the crate `idempotent` as its documentation shows.

use crate::AnyError;
use crate::load::{Load, Measured, drive};
use crate::sample::{ANSWER, CONTENT_TYPE, OPERATION, REQUEST, STATUS};
use crate::workload::{Call, Workload, new_key};
use idempotent::memory::MemoryStore;
use idempotent::valkey::ValkeyStore;
use idempotent::{
    CachedResponse, ClaimOutcome, ExecutionOutcome, FencedOutcome, IdempotencyKey, IdempotencyStore, Metadata,
    ReplayOutcome,
};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// How long a claim is held.
const LEASE: Duration = Duration::from_secs(30);
/// How long an answer is kept.
const RETENTION: Duration = Duration::from_secs(60 * 60);

/// The store in memory, as it comes.
pub(crate) fn memory() -> Result<MemoryStore, AnyError> {
    Ok(MemoryStore::builder().try_build()?)
}

/// The store in Valkey or Redis, with a prefix that no other run has.
pub(crate) async fn redis(url: String) -> Result<ValkeyStore, AnyError> {
    let prefix = format!("peers-{}", Uuid::new_v4());
    Ok(ValkeyStore::with_url(url).prefix(prefix).try_build().await?)
}

/// Drives the calls of `workload` against `store`.
///
/// # Panics
///
/// If a call fails, or something else comes of it than has to.
pub(crate) async fn measure<S: IdempotencyStore>(store: S, workload: Workload, load: Load) -> Measured {
    let peer = Peer { store };
    let completed: Vec<_> = (0..workload.completed_before()).map(|_| new_key()).collect();
    let run = Uuid::new_v4();
    for key in &completed {
        peer.call(Call::Fresh(key.clone()), &[]).await;
    }
    let shared = Arc::new((peer, completed));
    drive(load, move |turn| {
        let shared = Arc::clone(&shared);
        async move {
            let (peer, completed) = &*shared;
            peer.call(workload.call(run, turn), completed).await;
        }
    })
    .await
}

struct Peer<S> {
    store: S,
}

impl<S: IdempotencyStore> Peer<S> {
    async fn call(&self, call: Call, completed: &[String]) {
        match call {
            Call::Execute(key) => self.execute(key).await,
            Call::Fresh(key) => {
                let replay = self.begin_and_complete(key).await;
                assert_eq!(replay, None, "a fresh key is known");
            }
            Call::Replay(number) => match self.begin_and_complete(completed[number].clone()).await {
                Some(ReplayOutcome::Replayed(replayed)) => assert_answer(&replayed),
                other => panic!("a completed key is not replayed: {other:?}"),
            },
            Call::Shared(key) => match self.begin_and_complete(key).await {
                None | Some(ReplayOutcome::InFlight) => {}
                Some(ReplayOutcome::Replayed(replayed)) => assert_answer(&replayed),
                Some(other) => panic!("a shared key is another request's: {other:?}"),
            },
        }
    }

    async fn execute(&self, key: String) {
        let key = IdempotencyKey::new(key).expect("a key");
        let outcome = self
            .store
            .claim(&key, LEASE)
            .fingerprint(OPERATION, REQUEST)
            .execute_or_replay(RETENTION, |_token| async { Ok(answer()) })
            .await
            .expect("it executes");
        match outcome {
            ExecutionOutcome::Executed(executed) => assert_answer(&executed),
            other => panic!("a fresh key is not executed: {other:?}"),
        }
    }

    /// What a key holds that is not free.
    async fn begin_and_complete(&self, key: String) -> Option<ReplayOutcome> {
        let key = IdempotencyKey::new(key).expect("a key");
        let claimed =
            self.store.claim(&key, LEASE).fingerprint(OPERATION, REQUEST).try_insert().await.expect("it claims");
        match claimed {
            ClaimOutcome::Claimed(guard) => {
                let completed = guard.complete(answer(), RETENTION).await.expect("it completes");
                assert_eq!(completed, FencedOutcome::Applied, "a claim is lost");
                None
            }
            ClaimOutcome::Exists { existing, fingerprint } => Some(existing.replay(fingerprint)),
        }
    }
}

fn answer() -> CachedResponse {
    let mut headers = Metadata::new();
    headers.append("content-type", CONTENT_TYPE.into());
    CachedResponse::new(STATUS, headers, ANSWER.into())
}

fn assert_answer(response: &CachedResponse) {
    assert_eq!(response.status_code, STATUS, "the answer has another status");
    assert_eq!(response.body, ANSWER, "the answer has another body");
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[tokio::test(flavor = "multi_thread")]
    async fn every_workload_gets_the_answers_that_it_has_to() {
        for &workload in Workload::value_variants() {
            let load = Load { callers: 32, warm_up: Duration::ZERO, counted: Duration::from_millis(50) };
            let measured = measure(memory().expect("a store"), workload, load).await;
            assert!(measured.per_second > 0.0, "{workload:?}: {measured:?}");
        }
    }

    #[tokio::test]
    #[should_panic(expected = "a completed key is not replayed")]
    async fn a_key_that_was_to_be_completed_and_is_not_fails_the_run() {
        let peer = Peer { store: memory().expect("a store") };
        peer.call(Call::Replay(0), &["unknown".to_owned()]).await;
    }

    #[tokio::test]
    #[should_panic(expected = "a fresh key is known")]
    async fn a_key_that_was_to_be_fresh_and_is_not_fails_the_run() {
        let peer = Peer { store: memory().expect("a store") };
        peer.call(Call::Fresh("known".to_owned()), &[]).await;
        peer.call(Call::Fresh("known".to_owned()), &[]).await;
    }
}
