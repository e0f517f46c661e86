//! The last line of a storm: one JSON object, and whether all of it is as it must be.

use super::chaos::Struck;
use super::check::Tally;
use super::traffic::Arrived;
use crate::cli::{Naive, StormArgs};
use crate::naive::Seen;
use serde::Serialize;
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Report<'a> {
    pub(crate) seed: u64,
    pub(crate) elapsed: Duration,
    pub(crate) tally: &'a Tally,
    pub(crate) network: Network,
    pub(crate) struck: Option<Struck>,
    pub(crate) controls: Controls,
}

/// What went over the wires.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Network {
    /// Nobody knows it of processes that were killed.
    #[serde(flatten)]
    pub(crate) arrived: Option<Arrived>,
    /// Requests that a proxy sent and no client knows of.
    pub(crate) resent_unseen: u64,
}

/// Which control it was, if any, and what only a control can show.
#[derive(Debug, Clone)]
pub(crate) struct Controls {
    naive: Option<Naive>,
    key_per_attempt: bool,
    seen: Seen,
}

impl Controls {
    pub(crate) fn of(args: &StormArgs, seen: Seen) -> Self {
        Self { naive: args.naive, key_per_attempt: args.key_per_attempt, seen }
    }
}

impl Report<'_> {
    /// The names of the checks that failed.
    pub(crate) fn failed_checks(&self) -> Vec<&'static str> {
        let tally = self.tally;
        let checks = [
            ("charges", tally.charges == tally.operations),
            ("double_charges", tally.double_charges == 0),
            ("lost", tally.lost == 0),
            ("wrong_replays", tally.wrong_replays == 0),
            ("wedged", tally.wedged == 0),
            ("handler_runs", self.runs_are_explained()),
            ("served_impostors", tally.served_impostors == 0),
            ("refunds", tally.refunds == tally.refunds_wanted),
            ("double_refunds", tally.double_refunds == 0),
            ("lost_refunds", tally.lost_refunds == 0),
            ("wrong_states", tally.wrong_states == 0),
            ("live_leases", tally.live_leases == 0 && tally.drained),
            ("unique_violations", self.controls.seen.violations() == 0),
            ("blocked_requests", self.controls.seen.blocked() == 0),
            ("wrong_rows", tally.wrong_rows.is_none_or(|wrong| wrong == 0)),
            // A storm that struck nobody shows nothing.
            ("kills", self.struck.and_then(|struck| struck.kills) != Some(0)),
            ("pauses", self.struck.and_then(|struck| struck.pauses) != Some(0)),
        ];
        checks.into_iter().filter(|(_, holds)| !holds).map(|(name, _)| name).collect()
    }

    /// Each run that was counted is the first one, or follows one that is known to have done nothing or that was lost.
    fn runs_are_explained(&self) -> bool {
        let Tally { operations, takeovers, handler_runs, retries, .. } = *self.tally;
        handler_runs.zip(retries).is_none_or(|(runs, retries)| runs == operations + takeovers + retries)
    }

    /// The faults that the articles predict for a control, and whether they came up.
    fn predicted(&self) -> Vec<(&'static str, bool)> {
        let doubles = ("double_charges", self.tally.double_charges > 0 && self.tally.charges > self.tally.operations);
        match (self.controls.naive, self.controls.key_per_attempt) {
            (Some(Naive::Lookup), _) | (None, true) => vec![doubles],
            // A client is told 500 though the card was charged; and a crash takes the claim back, but not the charge.
            (Some(Naive::ForUpdate), _) => vec![("unique_violations", self.controls.seen.violations() > 0), doubles],
            (Some(Naive::OneTransaction), _) => {
                vec![doubles, ("blocked_requests", self.controls.seen.blocked() > 0)]
            }
            (None, false) => Vec::new(),
        }
    }

    /// A count that only this control has.
    fn of(&self, control: Naive, count: impl Fn(&Seen) -> u64) -> Option<u64> {
        (self.controls.naive == Some(control)).then(|| count(&self.controls.seen))
    }

    /// The last line.
    pub(crate) fn line(&self) -> Result<String, serde_json::Error> {
        let predicted = self.predicted();
        let names: Vec<_> = predicted.iter().map(|(name, _)| *name).collect();
        let is_control = !predicted.is_empty();
        serde_json::to_string(&Line {
            tally: self.tally,
            network: self.network,
            seed: self.seed,
            elapsed_ms: u64::try_from(self.elapsed.as_millis()).unwrap_or(u64::MAX),
            failed_checks: self.failed_checks(),
            struck: self.struck,
            unique_violations: self.of(Naive::ForUpdate, Seen::violations),
            blocked_requests: self.of(Naive::OneTransaction, Seen::blocked),
            longest_wait_ms: self.of(Naive::OneTransaction, Seen::longest_wait_ms),
            predicted: is_control.then(|| names.join(" and ")),
            seen: is_control.then(|| predicted.iter().all(|(_, seen)| *seen)),
        })
    }
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    tally: &'a Tally,
    #[serde(flatten)]
    network: Network,
    #[serde(flatten)]
    struck: Option<Struck>,
    seed: u64,
    elapsed_ms: u64,
    failed_checks: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unique_violations: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocked_requests: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    longest_wait_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    predicted: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seen: Option<bool>,
}
