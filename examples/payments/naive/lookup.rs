//! "Broken under concurrency. Two simultaneous copies both find nothing, both proceed, both charge."

use super::{Answer, Name, Row};
use crate::service::problem::Problem;
use axum::response::Response as HttpResponse;
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
pub(super) struct Lookup {
    rows: Mutex<HashMap<Name, Row>>,
}

impl Lookup {
    fn rows(&self) -> MutexGuard<'_, HashMap<Name, Row>> {
        // Nothing panics while it is held.
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn run(
        &self,
        name: Name,
        request: (String, Bytes),
        work: impl Future<Output = Result<Answer, Problem>>,
    ) -> Result<HttpResponse, Problem> {
        let existing = self.rows().get(&name).cloned();
        if let Some(row) = existing {
            return row.replay(&request);
        }
        let answer = work.await?;
        let response = answer.response(false);
        // Too late.
        self.rows().insert(name, Row { request, answer });
        Ok(response)
    }
}
