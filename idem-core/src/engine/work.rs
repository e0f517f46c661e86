//! What an owner does before it settles: shared by [`Lease`](crate::Lease) and [`Operation`](crate::Operation).

use super::events;
use super::outcome::Interrupted;
use super::tenure::Tenure;
use crate::error::{Error, ErrorKind, WriteOutcome};
use crate::key::MAX_NAME_BYTES;
use crate::record::RecoveryPoint;
use bytes::Bytes;

pub(super) async fn begin_effect(tenure: &Tenure, name: &str) -> Result<(), Interrupted> {
    tenure.begin_effect().await?;
    events::effect_begins(tenure, name);
    Ok(())
}

pub(super) async fn checkpoint(tenure: &Tenure, name: &str, data: Bytes) -> Result<(), Interrupted> {
    let limit = tenure.shared().limits.recovery_data;
    let refused = if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
        Some(CheckpointRefused::Name)
    } else if data.len() > limit {
        Some(CheckpointRefused::Data { bytes: data.len(), limit })
    } else {
        None
    };
    if let Some(refused) = refused {
        let error = Error::new(ErrorKind::InvalidRequest, "checkpoint", WriteOutcome::NotApplied);
        return Err(Interrupted::Store(error.with_source(refused)));
    }
    tenure.checkpoint(RecoveryPoint { name: name.to_owned(), data }).await
}

pub(super) fn report_dropped(tenure: &Tenure) {
    events::dropped(tenure);
}

/// Why a checkpoint was not sent.
#[derive(Debug, thiserror::Error)]
enum CheckpointRefused {
    #[error("a checkpoint's name has 1 to 255 bytes and no control characters")]
    Name,
    #[error(
        "a checkpoint's data has {bytes} bytes: keep it within {limit}, or store it elsewhere and keep a reference"
    )]
    Data { bytes: usize, limit: usize },
}
