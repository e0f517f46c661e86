//! Group commit: claims and completions of concurrent callers in one statement each.
//!
//! | file | holds |
//! |---|---|
//! | `lane.rs` | who goes when, and with whom |
//! | `claims.rs` | inserts of a group |
//! | `completions.rs` | completions of a group |

mod claims;
mod completions;
mod lane;

pub(crate) use claims::ClaimGroups;
pub(crate) use completions::{Completion, CompletionGroups};
pub(crate) use lane::{Crowd, Lane, Limits, Way};

use idem_core::{Error, ErrorKind, Identity, WriteOutcome};
use lane::{Asked, Errand};
use tokio::sync::oneshot::error::RecvError;
use tokio::time::error::Elapsed;

/// What a caller makes of what came of waiting for its group. Where nothing came, the group may have been sent and may
/// have been committed.
pub(crate) fn answered<T>(
    operation: &'static str,
    answer: Result<Result<Result<T, Error>, RecvError>, Elapsed>,
) -> Result<T, Error> {
    let unknown = |kind| Err(Error::new(kind, operation, WriteOutcome::Unknown));
    match answer {
        Ok(Ok(answer)) => answer,
        // Its task ended.
        Ok(Err(_)) => unknown(ErrorKind::Unavailable),
        Err(_) => unknown(ErrorKind::Timeout),
    }
}

/// Scopes and keys of identities, as the two arrays that every statement of a group begins with.
fn names<'a>(identities: impl Iterator<Item = &'a Identity>) -> (Vec<&'a str>, Vec<&'a str>) {
    identities.map(|identity| (identity.scope().as_str(), identity.key().as_str())).unzip()
}

/// Tells everybody of a group what became of all of it.
fn fail<E, T>(group: Vec<Asked<E>>, error: &Error)
where
    E: Errand<Answer = Result<T, Error>>,
{
    for asked in group {
        let _gone = asked.reply.send(Err(shared(error)));
    }
}

/// The error of a group for one of its callers.
fn shared(error: &Error) -> Error {
    let own = Error::new(error.kind(), error.operation(), error.write_outcome());
    match std::error::Error::source(error) {
        Some(source) => match source.downcast_ref::<crate::PostgresError>() {
            Some(source) => own.with_source(source.clone()),
            None => own.with_source(source.to_string()),
        },
        None => own,
    }
}

/// Whether a group's error may be the fault of one of its items, so that each has to be sent alone.
fn may_be_one_items(error: &Error) -> bool {
    error.write_outcome() == WriteOutcome::NotApplied
        && !matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::Misconfigured)
}
