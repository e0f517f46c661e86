//! Which event is legal in which state: one total table, without a default arm.

use crate::record::Status;

/// Everything that can happen to a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// A claim finds no record and makes one.
    Insert,
    /// A claim runs again after a failure that left nothing unknown.
    Retry,
    /// A claim takes a stale record, or a failed one with an unknown past, under its takeover policy.
    Takeover,
    /// A claim finds an expired settled record and starts a new life.
    AsNew,
    /// A claimer takes its own stale record again.
    Relock,
    /// The owner extends its lease.
    Renew,
    /// The owner marks that an external call follows.
    BeginEffect,
    /// The owner commits a phase.
    Checkpoint,
    /// The owner stores the answer.
    Complete,
    /// The owner says that nothing happened.
    Fail,
    /// The owner is done and does not know what happened.
    Abandon,
    /// Retention is over.
    Purge,
}

impl Event {
    /// All events, for tables and tests.
    pub const ALL: [Self; 12] = [
        Self::Insert,
        Self::Retry,
        Self::Takeover,
        Self::AsNew,
        Self::Relock,
        Self::Renew,
        Self::BeginEffect,
        Self::Checkpoint,
        Self::Complete,
        Self::Fail,
        Self::Abandon,
        Self::Purge,
    ];
}

/// What an event does to a record's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transition {
    /// The record is in this state afterwards.
    To(Status),
    /// The record is gone afterwards.
    Gone,
    /// The event is not legal here and changes nothing.
    Refused,
}

/// What `event` does to a record in state `status`; `None` is a record that is not there.
///
/// State is necessary, not sufficient: versions, leases and expiry are compared as well, see
/// [`Change`](super::Change). That an unresolved record is purged is the explicit choice of
/// [`UnresolvedRows::DropAfter`](crate::store::UnresolvedRows::DropAfter) and of nothing else.
///
/// # Examples
///
/// ```
/// use idem_core::Status;
/// use idem_core::machine::{Event, Transition, next_status};
///
/// let completed = Some(Status::Completed);
/// assert_eq!(next_status(completed, Event::Complete), Transition::Refused);
/// assert_eq!(next_status(completed, Event::AsNew), Transition::To(Status::InProgress));
/// ```
#[must_use]
pub const fn next_status(status: Option<Status>, event: Event) -> Transition {
    use Event::{
        Abandon, AsNew, BeginEffect, Checkpoint, Complete, Fail, Insert, Purge, Relock, Renew, Retry, Takeover,
    };
    use Status::{Completed, Failed, InProgress};
    use Transition::{Gone, Refused, To};

    match (status, event) {
        (None, Insert) => To(InProgress),
        (
            None,
            Retry | Takeover | AsNew | Relock | Renew | BeginEffect | Checkpoint | Complete | Fail | Abandon | Purge,
        ) => Refused,

        (Some(InProgress), Takeover | Relock | Renew | BeginEffect | Checkpoint | Abandon) => To(InProgress),
        (Some(InProgress), Complete) => To(Completed),
        (Some(InProgress), Fail) => To(Failed),
        (Some(InProgress), Purge) => Gone,
        (Some(InProgress), Insert | Retry | AsNew) => Refused,

        (Some(Completed), AsNew) => To(InProgress),
        (Some(Completed), Purge) => Gone,
        (
            Some(Completed),
            Insert | Retry | Takeover | Relock | Renew | BeginEffect | Checkpoint | Complete | Fail | Abandon,
        ) => Refused,

        (Some(Failed), Retry | Takeover | AsNew) => To(InProgress),
        (Some(Failed), Purge) => Gone,
        (Some(Failed), Insert | Relock | Renew | BeginEffect | Checkpoint | Complete | Fail | Abandon) => Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Status::{Completed, Failed, InProgress};
    use Transition::{Gone, Refused, To};

    /// The whole table once more, as a picture: a row an event, a column a state. A changed cell must be changed twice.
    #[test]
    fn every_cell_is_as_drawn() {
        #[rustfmt::skip]
        let drawn = [
            //                     absent          in_progress      completed        failed
            (Event::Insert,      [To(InProgress), Refused,         Refused,         Refused]),
            (Event::Retry,       [Refused,        Refused,         Refused,         To(InProgress)]),
            (Event::Takeover,    [Refused,        To(InProgress),  Refused,         To(InProgress)]),
            (Event::AsNew,       [Refused,        Refused,         To(InProgress),  To(InProgress)]),
            (Event::Relock,      [Refused,        To(InProgress),  Refused,         Refused]),
            (Event::Renew,       [Refused,        To(InProgress),  Refused,         Refused]),
            (Event::BeginEffect, [Refused,        To(InProgress),  Refused,         Refused]),
            (Event::Checkpoint,  [Refused,        To(InProgress),  Refused,         Refused]),
            (Event::Complete,    [Refused,        To(Completed),   Refused,         Refused]),
            (Event::Fail,        [Refused,        To(Failed),      Refused,         Refused]),
            (Event::Abandon,     [Refused,        To(InProgress),  Refused,         Refused]),
            (Event::Purge,       [Refused,        Gone,            Gone,            Gone]),
        ];
        assert_eq!(drawn.map(|(event, _)| event), Event::ALL);
        for (event, cells) in drawn {
            for (status, cell) in [None, Some(InProgress), Some(Completed), Some(Failed)].into_iter().zip(cells) {
                assert_eq!(next_status(status, event), cell, "{event:?} in {status:?}");
            }
        }
    }

    #[test]
    fn only_a_new_life_leaves_completed() {
        for event in Event::ALL {
            let leaves = next_status(Some(Completed), event) != Refused;
            assert_eq!(leaves, matches!(event, Event::AsNew | Event::Purge), "{event:?}");
        }
    }
}
