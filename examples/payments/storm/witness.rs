//! What is known of the runs of the handlers: from the journal of a service in this process, or, where processes were killed and
//! took theirs with them, from the rows.

use super::operation::Past;
use crate::database::{Row, Rows};
use crate::service::Desk;
use crate::service::journal::{Journal, Runs};
use std::collections::HashMap;

/// How often handlers ran. What nobody can know is `None`.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    pub(crate) handler_runs: Option<u32>,
    pub(crate) panics: Option<u32>,
    pub(crate) takeovers: u32,
    pub(crate) retries: Option<u32>,
    pub(crate) owners: Option<u32>,
    pub(crate) wrong_rows: Option<u32>,
    /// By order.
    pub(crate) charges: HashMap<String, Explained>,
    /// By charge.
    pub(crate) refunds: HashMap<String, Explained>,
}

/// Runs of one order, as far as they explain what arrived at the provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Explained {
    /// Runs after one whose outcome was unknown: at most, if they were read from a row.
    pub(crate) takeovers: u32,
    /// Runs that began while another one was at work within its lease.
    pub(crate) overlaps: u32,
    /// Owners, each of whom calls the provider once at most.
    pub(crate) owners: Option<u32>,
}

impl Witness {
    /// A service in this process, of which nothing is lost.
    pub(crate) fn of_journals(desk: &Desk) -> Self {
        let (mut handler_runs, mut panics, mut takeovers, mut retries) = (0, 0, 0, 0);
        let charges = explained(&desk.charge_runs, |runs| {
            handler_runs += runs.runs;
            takeovers += runs.takeovers;
            retries += runs.retries;
            panics += runs.panics;
        });
        let refunds = explained(&desk.refund_runs, |runs| panics += runs.panics);
        Self {
            handler_runs: Some(handler_runs),
            panics: Some(panics),
            takeovers,
            retries: Some(retries),
            charges,
            refunds,
            ..Self::default()
        }
    }

    /// A table, with which every process that was killed has to agree.
    pub(crate) fn of_rows(mut rows: Rows, pasts: &[Past]) -> Self {
        let (mut owners, mut takeovers, mut wrong) = (0, 0, 0);
        let (mut charges, mut refunds) = (HashMap::new(), HashMap::new());
        for past in pasts {
            let row = rows.remove(&past.charge.identity());
            owners += row.as_ref().map_or(0, |row| row.attempt);
            takeovers += row.as_ref().map_or(0, |row| row.unresolved);
            wrong += u32::from(!is_completed(row.as_ref()));
            charges.extend(row.map(|row| (past.plan.order.clone(), row.explains())));
            let Some((refund, charge)) = past.refund.as_ref().zip(past.charge.made()) else { continue };
            let row = rows.remove(&refund.identity());
            wrong += u32::from(!is_completed(row.as_ref()));
            refunds.extend(row.map(|row| (charge, row.explains())));
        }
        wrong += u32::try_from(rows.len()).unwrap_or(u32::MAX);
        Self { takeovers, owners: Some(owners), wrong_rows: Some(wrong), charges, refunds, ..Self::default() }
    }
}

fn is_completed(row: Option<&Row>) -> bool {
    row.is_some_and(|row| row.completed)
}

impl Row {
    fn explains(&self) -> Explained {
        Explained { takeovers: self.attempt.saturating_sub(1), overlaps: 0, owners: Some(self.attempt) }
    }
}

fn explained(journal: &Journal, mut count: impl FnMut(&Runs)) -> HashMap<String, Explained> {
    let read = journal.read(|order, runs| {
        count(runs);
        (order.to_owned(), Explained { takeovers: runs.takeovers, overlaps: runs.overlaps, owners: None })
    });
    read.into_iter().collect()
}
