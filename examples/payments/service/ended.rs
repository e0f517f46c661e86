//! How a handler ends without a receipt: [`Ended`].

use super::problem::Problem;
use crate::fault::Struck;
use crate::provider::client::ProviderError;
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use idem_core::Interrupted;
use idem_core::http::ProblemKind;
use idem_tower::Meaning;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(1);

/// Why a handler ends early, and so what its answer means for the key.
#[derive(Debug)]
pub(crate) enum Ended {
    /// With an answer like any other: a retry gets it again.
    Answered(axum::http::Response<Bytes>),
    /// The request is wrong; nothing happened.
    Refused(Problem),
    /// Nothing happened.
    NothingDone(ProviderError),
    /// Nothing happened: the provider itself says so.
    VerifiedNothingDone(ProviderError),
    /// Nobody knows what happened.
    Unknown(ProviderError),
    /// idem says to stop.
    Interrupted(Interrupted),
}

impl From<Interrupted> for Ended {
    fn from(interrupted: Interrupted) -> Self {
        Self::Interrupted(interrupted)
    }
}

impl From<Problem> for Ended {
    fn from(problem: Problem) -> Self {
        Self::Refused(problem)
    }
}

impl From<Struck> for Ended {
    fn from(struck: Struck) -> Self {
        match struck {
            Struck::BeforeEffect => Self::NothingDone(ProviderError::NothingDone),
            Struck::AfterEffect => Self::Answered(super::handlers::receipt_failed()),
        }
    }
}

impl IntoResponse for Ended {
    fn into_response(self) -> Response {
        let (response, meaning) = match self {
            Self::Answered(response) => return response.map(Body::from),
            Self::Refused(problem) => (problem.into_response(), Meaning::NoEffect),
            Self::NothingDone(error) => (nothing_done(&error), Meaning::NoEffect),
            Self::VerifiedNothingDone(error) => (nothing_done(&error), Meaning::VerifiedNoEffect),
            Self::Unknown(error) => {
                let detail = format!("{error}: it may have taken effect. Retry with the same key");
                let (kind, status) = (ProblemKind::OutcomeUnknown, StatusCode::INTERNAL_SERVER_ERROR);
                let problem = idem_tower::Problem::new(kind, status, detail).with_retry_after(SOON);
                (problem.into_response(), Meaning::Unknown)
            }
            Self::Interrupted(interrupted) => {
                (idem_tower::Problem::from(interrupted).into_response(), Meaning::Unknown)
            }
        };
        let mut response: Response = response;
        response.extensions_mut().insert(meaning);
        response
    }
}

fn nothing_done(error: &ProviderError) -> Response {
    let detail = format!("{error}. Retry with the same key");
    let (kind, status) = (ProblemKind::NothingDone, StatusCode::SERVICE_UNAVAILABLE);
    idem_tower::Problem::new(kind, status, detail).with_retry_after(SOON).into_response()
}
