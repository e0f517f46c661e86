//! The checks: the provider's ledger, the handlers' runs and the clients' answers, against each other.

use super::client::ImpostorFate;
use super::operation::{Ask, Past};
use super::witness::{Explained, Witness};
use crate::provider::ledger::{Entry, Report as Ledger};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// What a storm left.
#[derive(Debug)]
pub(crate) struct Evidence<'a> {
    pub(crate) ledger: Ledger,
    pub(crate) witness: &'a Witness,
    pub(crate) pasts: &'a [Past],
    pub(crate) operations: u32,
    pub(crate) live_leases: u64,
    pub(crate) settled: bool,
}

/// The counts that checks are made of.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Tally {
    pub(crate) operations: u32,
    /// Charges that the provider executed.
    pub(crate) charges: u32,
    /// Runs of the charge handler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) handler_runs: Option<u32>,
    /// Owners of the keys of charges, each of whom runs the handler once at most: from the rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) owners: Option<u32>,
    /// Runs after one whose outcome was unknown. From the rows it is the least that there were: a verified failure clears the count.
    pub(crate) takeovers: u32,
    /// Runs after one that had done nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retries: Option<u32>,
    /// Operations for which money moved more than once, or arrived at the provider without a lost owner that explains it, or ran twice at the
    /// same time.
    pub(crate) double_charges: u32,
    /// Operations that were acknowledged to a client and not charged, or never acknowledged.
    pub(crate) lost: u32,
    /// Answers that differ from the first answer of their operation in a byte, or ought to have been replays.
    pub(crate) wrong_replays: u32,
    /// Operations without an answer when no lease was in the way any more.
    pub(crate) wedged: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) panics: Option<u32>,
    /// Operations without a completed row of their own, and rows without an operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) wrong_rows: Option<u32>,
    /// Requests for charges that arrived at the provider, before its own dedupe.
    pub(crate) arrivals: u32,
    /// Requests that took another's key and were not refused, or moved money.
    pub(crate) served_impostors: u32,
    pub(crate) refused_impostors: u32,
    pub(crate) refunds_wanted: u32,
    pub(crate) refunds: u32,
    pub(crate) double_refunds: u32,
    pub(crate) lost_refunds: u32,
    /// Charges of which the service shows another sum as refunded than was.
    pub(crate) wrong_states: u32,
    /// Answers that were compared byte for byte.
    pub(crate) answers_compared: u32,
    /// Tries of clients; what a proxy sent unseen is not among them.
    pub(crate) tries: u32,
    pub(crate) live_leases: u64,
    pub(crate) drained: bool,
}

pub(crate) fn tally(evidence: &Evidence<'_>) -> Tally {
    let mut tally = Tally {
        operations: evidence.operations,
        live_leases: evidence.live_leases,
        drained: evidence.settled,
        handler_runs: evidence.witness.handler_runs,
        owners: evidence.witness.owners,
        takeovers: evidence.witness.takeovers,
        retries: evidence.witness.retries,
        panics: evidence.witness.panics,
        wrong_rows: evidence.witness.wrong_rows,
        ..Tally::default()
    };
    let charges = &evidence.ledger.charges;
    tally.charges = charges.values().map(|entry| entry.executed).sum();
    tally.arrivals = charges.values().map(|entry| entry.arrivals).sum();
    tally.refunds = evidence.ledger.refunds.values().map(|entry| entry.executed).sum();
    tally.double_charges = count_doubles(charges, &evidence.witness.charges);
    tally.double_refunds = count_doubles(&evidence.ledger.refunds, &evidence.witness.refunds);
    for past in evidence.pasts {
        operation(&mut tally, past, charges.get(&past.plan.order));
    }
    // An order that nobody planned, or that lost its client.
    let known = u32::try_from(evidence.pasts.len()).unwrap_or(u32::MAX);
    tally.lost += evidence.operations.saturating_sub(known);
    let planned: HashMap<&str, u64> =
        evidence.pasts.iter().map(|past| (past.plan.order.as_str(), past.plan.amount)).collect();
    let strange = |(order, entry): &(&String, &Entry)| {
        planned.get(order.as_str()).is_none_or(|amount| entry.amounts.iter().any(|asked| asked != amount))
    };
    tally.served_impostors += u32::try_from(charges.iter().filter(strange).count()).unwrap_or(u32::MAX);
    tally
}

fn count_doubles(entries: &BTreeMap<String, Entry>, runs: &HashMap<String, Explained>) -> u32 {
    let is_double = |(order, entry): &(&String, &Entry)| {
        let Explained { takeovers, overlaps, owners } = runs.get(*order).copied().unwrap_or_default();
        entry.executed > 1
            || overlaps > 0
            || entry.arrivals - entry.refused > 1 + takeovers
            || owners.is_some_and(|owners| entry.arrivals > owners)
    };
    u32::try_from(entries.iter().filter(is_double).count()).unwrap_or(u32::MAX)
}

fn operation(tally: &mut Tally, past: &Past, entry: Option<&Entry>) {
    let charged = entry.is_some_and(|entry| entry.executed > 0);
    tally.lost += u32::from(!past.charge.is_acknowledged() || !charged);
    answers(tally, &past.charge);
    for fate in &past.impostors {
        match fate {
            ImpostorFate::Refused => tally.refused_impostors += 1,
            ImpostorFate::Served => tally.served_impostors += 1,
            ImpostorFate::Unheard => {}
        }
    }
    if let Some(refund) = &past.refund {
        tally.refunds_wanted += 1;
        tally.lost_refunds += u32::from(!refund.is_acknowledged());
        tally.wrong_states += u32::from(past.refunded != Some(past.plan.amount));
        answers(tally, refund);
    }
}

/// All answers of one operation are the same answer, and the last one says that it is a replay.
fn answers(tally: &mut Tally, ask: &Ask) {
    tally.tries += ask.tries;
    tally.wedged += u32::from(ask.wedged || ask.unanswered_copies > 0);
    let all = || ask.answers.iter().chain(&ask.replay);
    let Some(first) = all().next() else { return };
    for received in all() {
        tally.answers_compared += 1;
        tally.wrong_replays += u32::from(received.answer != first.answer);
    }
    let was_answered_before = !ask.answers.is_empty();
    let unmarked = ask.replay.as_ref().is_some_and(|replay| !replay.replayed);
    tally.wrong_replays += u32::from(was_answered_before && unmarked);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arrival_needs_a_lost_owner_to_explain_it() {
        let doubles = |arrivals, refused, executed, takeovers, overlaps| {
            let entry = Entry { arrivals, refused, executed, amounts: vec![1] };
            let entries = BTreeMap::from([("order".to_owned(), entry)]);
            count_doubles(
                &entries,
                &HashMap::from([("order".to_owned(), Explained { takeovers, overlaps, owners: None })]),
            )
        };
        assert_eq!(doubles(1, 0, 1, 0, 0), 0);
        assert_eq!(doubles(2, 1, 1, 0, 0), 0);
        assert_eq!(doubles(2, 0, 1, 1, 0), 0);
        assert_eq!(doubles(2, 0, 1, 0, 0), 1, "an arrival that nothing explains");
        assert_eq!(doubles(2, 0, 2, 1, 0), 1, "money moved twice");
        assert_eq!(doubles(2, 0, 1, 1, 1), 1, "two runs at a time");
    }

    #[test]
    fn an_arrival_needs_an_owner_in_the_row() {
        let doubles = |arrivals, refused, owners| {
            let entry = Entry { arrivals, refused, executed: 1, amounts: vec![1] };
            let explained = Explained { takeovers: owners - 1, overlaps: 0, owners: Some(owners) };
            let entries = BTreeMap::from([("order".to_owned(), entry)]);
            count_doubles(&entries, &HashMap::from([("order".to_owned(), explained)]))
        };
        assert_eq!(doubles(1, 0, 1), 0);
        assert_eq!(doubles(2, 1, 3), 0, "an owner who never got to the provider");
        assert_eq!(doubles(2, 1, 1), 1, "an owner calls once");
    }
}
