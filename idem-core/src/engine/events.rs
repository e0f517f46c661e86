//! Every event of the engine, so that names and fields stand in one place.
//!
//! Target `idem`. No event holds a key, a scope, a body, a handler's error or a panic's message: `owner` and `attempt`
//! are stored in the row, and `tag` is the identity's [keyed hash](crate::TagKey).

use super::tenure::{Settled, Tenure};
use crate::record::Status;
use tracing::{Level, debug, enabled, warn};

macro_rules! event {
    ($level:ident, $kind:expr, $tenure:expr, { $($field:tt)* }, $message:literal) => {
        if enabled!(target: "idem", $kind) {
            let tenure: &Tenure = $tenure;
            $level!(
                target: "idem",
                owner = %tenure.granted().version.owner,
                attempt = tenure.granted().attempt,
                tag = %tenure.shared().tags.tag(tenure.identity()),
                $($field)*
                $message
            );
        }
    };
}

pub(super) fn acquired(tenure: &Tenure) {
    if tenure.granted().has_unknown_past() {
        event!(warn, Level::WARN, tenure, { previous = ?tenure.granted().previous(), },
            "took over a key whose earlier attempt never came back");
    } else {
        event!(debug, Level::DEBUG, tenure, { previous = ?tenure.granted().previous(), }, "acquired a key");
    }
}

pub(super) fn effect_begins(tenure: &Tenure, name: &str) {
    event!(debug, Level::DEBUG, tenure, { effect = name, }, "an external effect begins");
}

pub(super) fn fenced(tenure: &Tenure, operation: &'static str) {
    event!(warn, Level::WARN, tenure, { operation, }, "somebody else has the key: this owner is fenced");
}

pub(super) fn lease_lost(tenure: &Tenure) {
    event!(warn, Level::WARN, tenure, { held_for = ?tenure.held_for(), },
        "the lease could not be kept: the handler is told to stop");
}

pub(super) fn renewal_failed(tenure: &Tenure, error: &crate::Error) {
    event!(warn, Level::WARN, tenure, { kind = ?error.kind(), }, "the lease could not be renewed");
}

pub(super) fn handler_done(tenure: &Tenure) {
    // Both events are at this level or below: where nobody listens, no clock is read.
    if !enabled!(target: "idem", Level::WARN) {
        return;
    }
    let (held_for, lease) = (tenure.held_for(), tenure.policy().lease());
    let of_lease = held_for.as_secs_f64() / lease.as_secs_f64();
    if held_for > lease {
        event!(warn, Level::WARN, tenure, { ?held_for, ?lease, of_lease, },
            "a handler ran for longer than one lease: choose the lease above the p99 of the handler's time");
    } else {
        event!(debug, Level::DEBUG, tenure, { ?held_for, of_lease, }, "a handler is done");
    }
}

pub(super) fn settled(tenure: &Tenure, operation: &'static str, settled: &Settled) {
    match settled {
        Settled::Recorded => event!(debug, Level::DEBUG, tenure, { operation, }, "settled"),
        Settled::Fenced(found) => {
            let found = found.as_ref().map_or("absent", |record| match record.status() {
                status @ (Status::InProgress | Status::Completed | Status::Failed) => status.as_str(),
            });
            event!(warn, Level::WARN, tenure, { operation, found, },
                "somebody else has the key: what this owner did is not recorded");
        }
        Settled::NotCommitted => {
            event!(warn, Level::WARN, tenure, { operation, },
                "a handler answered, but its transaction, which was to store the answer, was not committed");
        }
        Settled::Unknown(error) => {
            event!(warn, Level::WARN, tenure, { operation, kind = ?error.kind(), },
                "nobody knows whether the settlement is stored");
        }
    }
}

pub(super) fn no_effect_refused(tenure: &Tenure, refused: crate::machine::NoEffectRefused) {
    event!(warn, Level::WARN, tenure, { reason = %refused, },
        "a handler said that nothing happened, but cannot know");
}

pub(super) fn dropped(tenure: &Tenure) {
    event!(warn, Level::WARN, tenure, { held_for = ?tenure.held_for(), },
        "a lease was dropped without being settled: it is given up with an unknown outcome");
}
