//! The provider's book: every arrival, written down before the provider's own dedupe looks at it, and everything that was done.

use super::{CARD_LIMIT, Charge, Done, Kind, Order};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// What became of an arrival.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    Done(Done),
    Refused,
    Declined,
    OtherOrder,
}

/// A request as it arrives.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) kind: Kind,
    pub(super) order: Order,
    pub(super) key: Option<Vec<u8>>,
    /// Whether the provider has a bad moment.
    pub(super) refused: bool,
}

/// Everything that happened to one reference.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// Requests, before any dedupe.
    pub(crate) arrivals: u32,
    /// Those of them that the provider turned away with nothing done.
    pub(crate) refused: u32,
    /// How often money moved.
    pub(crate) executed: u32,
    /// The amounts that were asked for, each once.
    pub(crate) amounts: Vec<u64>,
}

/// What `GET /ledger` answers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) charges: BTreeMap<String, Entry>,
    pub(crate) refunds: BTreeMap<String, Entry>,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    report: Report,
    /// Every charge that was made, by its name.
    charges: HashMap<String, Charge>,
    answers: HashMap<Vec<u8>, (Kind, Order, Answer)>,
}

impl Ledger {
    fn entry(&mut self, kind: Kind, reference: &str) -> &mut Entry {
        let entries = match kind {
            Kind::Charge => &mut self.report.charges,
            Kind::Refund => &mut self.report.refunds,
        };
        entries.entry(reference.to_owned()).or_default()
    }

    /// Which arrival the next one is, from 1.
    pub(super) fn next_arrival(&mut self, kind: Kind, reference: &str) -> u32 {
        self.entry(kind, reference).arrivals + 1
    }

    pub(super) fn arrive(&mut self, arrival: Arrival) -> Answer {
        let Arrival { kind, order, key, refused } = arrival;
        let entry = self.entry(kind, &order.reference);
        entry.arrivals += 1;
        if !entry.amounts.contains(&order.amount) {
            entry.amounts.push(order.amount);
        }
        if refused {
            entry.refused += 1;
            return Answer::Refused;
        }
        if let Some(key) = &key
            && let Some((known_kind, known, answer)) = self.answers.get(key)
        {
            return if *known_kind == kind && *known == order { answer.clone() } else { Answer::OtherOrder };
        }
        let answer = if order.amount > CARD_LIMIT { Answer::Declined } else { self.execute(kind, &order) };
        if let Some(key) = key {
            self.answers.insert(key, (kind, order, answer.clone()));
        }
        answer
    }

    fn execute(&mut self, kind: Kind, order: &Order) -> Answer {
        let reference = &order.reference;
        let prefix = match kind {
            Kind::Charge => "ch",
            Kind::Refund => "re",
        };
        let entry = self.entry(kind, reference);
        entry.executed += 1;
        let id = match entry.executed {
            1 => format!("{prefix}_{reference}"),
            more => format!("{prefix}_{reference}_{more}"),
        };
        match kind {
            Kind::Charge => {
                let charge = Charge { id: id.clone(), order: order.clone(), refunded: 0 };
                self.charges.insert(id.clone(), charge);
            }
            Kind::Refund => {
                if let Some(charge) = self.charges.get_mut(reference) {
                    charge.refunded += order.amount;
                }
            }
        }
        Answer::Done(Done { id })
    }

    /// A charge as it stands now.
    pub(super) fn charge(&self, id: &str) -> Option<&Charge> {
        self.charges.get(id)
    }

    pub(super) fn report(&self) -> &Report {
        &self.report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(reference: &str, key: Option<&str>, refused: bool) -> Arrival {
        let order = Order { account: "a".into(), reference: reference.into(), amount: 5, currency: "usd".into() };
        Arrival { kind: Kind::Charge, order, key: key.map(Into::into), refused }
    }

    #[test]
    fn a_known_key_is_counted_and_not_executed() {
        let mut ledger = Ledger::default();
        assert!(matches!(ledger.arrive(arrival("order", Some("key"), true)), Answer::Refused));
        let Answer::Done(first) = ledger.arrive(arrival("order", Some("key"), false)) else { panic!("done") };
        let Answer::Done(second) = ledger.arrive(arrival("order", Some("key"), false)) else { panic!("replayed") };
        assert_eq!(first, second);
        assert!(matches!(ledger.arrive(arrival("other", Some("key"), false)), Answer::OtherOrder));
        let Answer::Done(again) = ledger.arrive(arrival("order", None, false)) else { panic!("done again") };
        assert_ne!(first, again);
        let expected = Entry { arrivals: 4, refused: 1, executed: 2, amounts: vec![5] };
        assert_eq!(ledger.report().charges["order"], expected);
    }
}
