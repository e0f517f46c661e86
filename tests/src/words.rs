//! From the words of the tests to the library's, and back.

use crate::command::{Policy, Terms};
use crate::row::{Answer, ClaimNumber, HOUR, Micros, Place, Row, Status, Why};
use bytes::Bytes;
use idem_core::machine::{AbandonReason, NoEffectRefused};
use idem_core::{
    Claim, Error, Fingerprint, Identity, Key, LeaseLength, Record, RecoveryPoint, Response, Scope, State, Takeover,
    WriteOutcome,
};
use std::time::Duration;

/// The identity of a place; places are in the order of their identities.
///
/// # Panics
///
/// Never: the names are good ones.
#[must_use]
pub fn identity(place: Place) -> Identity {
    let key = if place.is_multiple_of(2) { "K" } else { "k" };
    Identity::new(scope(place / 2), Key::new(key).expect("it is a good name"))
}

pub(crate) fn scope(number: u8) -> Scope {
    Scope::new(if number == 0 { "a" } else { "a/b" }).expect("it is a good name")
}

pub(crate) fn response(answer: u8) -> Response {
    Response::new(200 + u16::from(answer), vec![answer; 3]).with_header("answer", vec![answer])
}

pub(crate) fn recovery_point(phase: u8) -> RecoveryPoint {
    RecoveryPoint { name: format!("phase-{phase}"), data: Bytes::from(vec![phase; 2]) }
}

pub(crate) fn micros(duration: Micros) -> Duration {
    Duration::from_micros(duration.unsigned_abs())
}

pub(crate) fn claim(terms: Terms) -> Claim {
    let fingerprint = Fingerprint::builder("POST /").bytes(&[terms.request]).finish().expect("it is small");
    let takeover = match terms.policy {
        Policy::Resume => Takeover::Resume,
        Policy::OnlyBeforeEffect => Takeover::OnlyBeforeEffect,
        Policy::Never => Takeover::Never,
    };
    Claim::new(identity(terms.place), fingerprint, takeover)
        .with_lease(if terms.leased { LeaseLength::from_duration(micros(HOUR)) } else { LeaseLength::ZERO })
        .with_retention(if terms.retained { micros(HOUR) } else { Duration::ZERO })
        .with_max_attempts(terms.max_attempts)
        .with_provider_window(if terms.windowed { micros(23 * HOUR) } else { Duration::ZERO })
}

/// A record as a row; its owner is the claim of this number.
pub(crate) fn row(record: &Record, owner: ClaimNumber) -> Row {
    let requests = [0_u8, 1];
    let request = requests.into_iter().find(|request| {
        let same = Fingerprint::builder("POST /").bytes(&[*request]).finish().expect("it is small");
        *same.current() == record.fingerprint
    });
    Row {
        request: request.expect("there are no other requests"),
        status: match &record.state {
            State::InProgress => Status::Working,
            State::Completed(stored) => Status::Done(answer_in(stored)),
            State::Failed => Status::Failed,
        },
        attempt: record.attempt,
        owner,
        locked_at: record.version.locked_at.as_micros(),
        lease_millis: record.lease.as_millis(),
        effect_begun: record.effect_begun,
        unresolved: record.unresolved,
        phase: record
            .recovery_point
            .as_ref()
            .map(|point| (0..3).find(|phase| recovery_point(*phase) == *point).expect("there are no other phases")),
        created_at: record.created_at.as_micros(),
        expires_at: record.expires_at.as_micros(),
    }
}

pub(crate) fn answer_in(stored: &Response) -> u8 {
    (0..4).find(|answer| response(*answer) == *stored).expect("there are no other answers")
}

pub(crate) fn failed(error: &Error) -> Answer {
    match error.write_outcome() {
        WriteOutcome::NotApplied => Answer::NotApplied,
        WriteOutcome::Unknown => Answer::Unknown,
    }
}

pub(crate) fn why(reason: AbandonReason) -> Why {
    match reason {
        AbandonReason::NeverTakeOver => Why::NeverTakeOver,
        AbandonReason::EffectBegun => Why::EffectBegun,
        AbandonReason::ProviderWindowOver => Why::ProviderWindowOver,
        AbandonReason::TooManyAttempts => Why::TooManyAttempts,
    }
}

pub(crate) fn refusal(refused: NoEffectRefused) -> Answer {
    match refused {
        NoEffectRefused::EffectBegun => Answer::RefusedForEffect,
        NoEffectRefused::PreviousUnknown => Answer::RefusedForPast,
    }
}
