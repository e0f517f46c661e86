//! Answers of a handler that can be stored: a [`Response`] as it is, a typed value as JSON.

use crate::error::{Error, ErrorKind, WriteOutcome};
use crate::response::Response;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What a handler answers with.
pub(super) trait Answer: Sized + Send {
    /// What is stored for it.
    fn to_response(&self) -> Response;
    /// What was stored, read again.
    fn from_response(response: Response) -> Result<Self, Error>;
}

impl Answer for Response {
    fn to_response(&self) -> Response {
        self.clone()
    }

    fn from_response(response: Response) -> Result<Self, Error> {
        Ok(response)
    }
}

/// A value that is stored as JSON.
pub(super) struct Typed<T>(pub(super) T);

impl<T: Serialize + DeserializeOwned + Send> Answer for Typed<T> {
    fn to_response(&self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(json) => Response::value(json),
            // The effect has happened. A value that cannot be written down must not make it happen again.
            Err(_) => Response::tombstone(None, 0),
        }
    }

    fn from_response(response: Response) -> Result<Self, Error> {
        if response.tombstone_length().is_some() {
            return Err(Error::new(ErrorKind::AnswerNotKept, "replay", WriteOutcome::NotApplied));
        }
        match serde_json::from_slice(response.body()) {
            Ok(value) => Ok(Self(value)),
            // serde_json's message may quote the stored value, so it is not kept as the source.
            Err(_) => Err(Error::new(ErrorKind::Corrupt, "replay", WriteOutcome::NotApplied)),
        }
    }
}
