//! How a handler is run under a lease, and settled.

use super::answer::Answer;
use super::clock::now;
use super::events;
use super::lease::Lease;
use super::operation::Operation;
use super::outcome::{Disposition, Failure, Interrupted, Outcome, PanicPayload, Recorded, StopReason};
use super::tenure::{Renewal, Settled, Tenure};
use crate::error::Error;
use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::atomic::Ordering;
use tokio::time::{sleep_until, timeout_at};

/// How the handler ended, before anything is settled.
enum Ended<R, E> {
    Returned(Result<R, Failure<E, R>>),
    Panicked(PanicPayload),
    Stopped(StopReason),
}

/// Runs `handler` while the lease is kept, and settles what comes of it.
pub(super) async fn run<R, E, H, F>(lease: Lease, handler: H) -> Result<Outcome<R, E>, Error>
where
    R: Answer,
    H: FnOnce(Operation) -> F,
    F: Future<Output = Result<R, Failure<E, R>>>,
{
    let tenure = lease.tenure();
    let ended = {
        let operation = Operation::new(tenure.clone());
        // The call itself may panic too, so it is made inside.
        let handler = pin!(AssertUnwindSafe(async move { handler(operation).await }).catch_unwind());
        let kept = keep(tenure);
        // The handler comes first: one that does not wait for anything costs no timer.
        tokio::select! {
            biased;
            returned = handler => match returned {
                Ok(returned) => Ended::Returned(returned),
                Err(payload) => Ended::Panicked(PanicPayload::new(payload)),
            },
            reason = kept => Ended::Stopped(reason),
            () = tenure.shared().stop.cancelled() => Ended::Stopped(StopReason::Drained),
        }
    };
    events::handler_done(tenure);
    let outcome = settle(tenure, ended).await;
    lease.finish();
    outcome
}

/// Renews the lease for as long as that is possible and allowed; returns why the handler has to stop.
async fn keep(tenure: &Tenure) -> StopReason {
    let policy = tenure.policy();
    let mut renew_at = now() + policy.renew_after();
    let mut at_max_run = false;
    loop {
        let tell_at = tenure.deadline().checked_sub(policy.stop_margin()).unwrap_or_else(now);
        if at_max_run || renew_at >= tell_at {
            sleep_until(tell_at).await;
            // `begin_effect` and `checkpoint` extend the lease too.
            if tenure.deadline().checked_sub(policy.stop_margin()).is_some_and(|later| later > tell_at) {
                continue;
            }
            events::lease_lost(tenure);
            tenure.tell_over();
            sleep_until(tenure.deadline()).await;
            return if at_max_run { StopReason::MaxRun } else { StopReason::LeaseLost };
        }
        sleep_until(renew_at).await;
        match timeout_at(tell_at, tenure.renew()).await {
            Ok(Ok(Renewal::Extended)) => renew_at = now() + policy.renew_after(),
            Ok(Ok(Renewal::AtMaxRun)) => at_max_run = true,
            // Its row is the transaction's by now.
            Ok(Ok(Renewal::Joined)) => renew_at = tell_at,
            Ok(Err(Interrupted::Store(error))) => {
                events::renewal_failed(tenure, &error);
                renew_at = now() + policy.stop_margin();
            }
            // Somebody else has the key: the handler gets a moment to notice.
            Ok(Err(Interrupted::Fenced | Interrupted::LeaseLost)) => {
                tenure.tell_over();
                sleep_until(tenure.deadline().min(now() + policy.stop_margin())).await;
                return StopReason::LeaseLost;
            }
            Err(_) => renew_at = tell_at,
        }
    }
}

async fn settle<R: Answer, E>(tenure: &Tenure, ended: Ended<R, E>) -> Result<Outcome<R, E>, Error> {
    match ended {
        Ended::Returned(Ok(answer) | Err(Failure::Final(answer))) => {
            let recorded = match tenure.complete(&answer.to_response()).await {
                Settled::Recorded => Recorded::Yes,
                Settled::Unknown(_) => Recorded::Unknown,
                Settled::NotCommitted => return Ok(Outcome::Stopped { reason: StopReason::NotCommitted }),
                Settled::Fenced(found) => return fenced(tenure, found),
            };
            Ok(Outcome::Executed { response: answer, recorded })
        }
        Ended::Returned(Err(Failure::NoEffect(error))) => failed(tenure, false, error).await,
        Ended::Returned(Err(Failure::VerifiedNoEffect(error))) => failed(tenure, true, error).await,
        Ended::Returned(Err(Failure::Unknown(error))) => {
            give_up(tenure, Outcome::Failed { error, disposition: Disposition::Unknown }).await
        }
        Ended::Returned(Err(Failure::Interrupted(interrupted))) => {
            let reason = match interrupted {
                Interrupted::Fenced | Interrupted::LeaseLost => StopReason::LeaseLost,
                Interrupted::Store(_) => StopReason::StoreFailed,
            };
            give_up(tenure, Outcome::Stopped { reason }).await
        }
        Ended::Panicked(payload) => give_up(tenure, Outcome::Panicked(payload)).await,
        Ended::Stopped(reason) => {
            if reason == StopReason::Drained {
                tenure.shared().given_up.fetch_add(1, Ordering::Relaxed);
            }
            give_up(tenure, Outcome::Stopped { reason }).await
        }
    }
}

async fn failed<R: Answer, E>(tenure: &Tenure, verified: bool, error: E) -> Result<Outcome<R, E>, Error> {
    let disposition = match tenure.fail(verified).await {
        Ok(Settled::Recorded) => Disposition::Retryable,
        Ok(Settled::Unknown(_) | Settled::NotCommitted) => Disposition::Unknown,
        Ok(Settled::Fenced(found)) => return fenced(tenure, found),
        Err(refused) => {
            events::no_effect_refused(tenure, refused);
            return give_up(tenure, Outcome::Failed { error, disposition: Disposition::Refused(refused) }).await;
        }
    };
    Ok(Outcome::Failed { error, disposition })
}

/// Abandons the key. That a rival has it by now is worth more to the caller than `outcome`.
async fn give_up<R: Answer, E>(tenure: &Tenure, outcome: Outcome<R, E>) -> Result<Outcome<R, E>, Error> {
    match tenure.abandon().await {
        Settled::Recorded | Settled::Unknown(_) | Settled::NotCommitted => Ok(outcome),
        Settled::Fenced(found) => fenced(tenure, found),
    }
}

fn fenced<R: Answer, E>(tenure: &Tenure, found: Option<Box<crate::Record>>) -> Result<Outcome<R, E>, Error> {
    let response = tenure.their_answer(found).map(R::from_response).transpose()?;
    Ok(Outcome::Fenced { response })
}
