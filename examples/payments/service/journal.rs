//! Every run of a handler, by order: what the storm compares with the provider's ledger. The service itself never reads it.

use idem_core::Operation;
use idem_core::machine::Previous;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The runs of one order.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    pub(crate) runs: u32,
    /// Runs that were told that somebody before them may have done it.
    pub(crate) takeovers: u32,
    /// Runs after one that had done nothing.
    pub(crate) retries: u32,
    /// Runs that ended in a panic.
    pub(crate) panics: u32,
    /// Runs that began while another one was at work within its lease: there must be none.
    pub(crate) overlaps: u32,
    at_work: Vec<(u32, Option<Operation>)>,
}

/// The runs of one kind of handler.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    orders: Mutex<HashMap<String, Runs>>,
}

/// A run under way; dropped, it is over.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    journal: &'a Journal,
    order: String,
    number: u32,
}

impl Journal {
    fn orders(&self) -> MutexGuard<'_, HashMap<String, Runs>> {
        // Nothing panics while it is held.
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a handler begins to run, under idem if there is an `operation`.
    pub(crate) fn begin(&self, order: &str, operation: Option<&Operation>) -> Run<'_> {
        let mut orders = self.orders();
        let runs = orders.entry(order.to_owned()).or_default();
        runs.runs += 1;
        match operation.map(Operation::previous) {
            Some(Previous::Unknown { .. }) => runs.takeovers += 1,
            Some(Previous::NoEffect) => runs.retries += 1,
            Some(Previous::None) | None => {}
        }
        // One that outlives its lease may be overtaken; by its own clock, which runs out first.
        let in_lease = |at_work: &Option<Operation>| at_work.as_ref().is_none_or(|it| it.remaining() > Duration::ZERO);
        runs.overlaps += u32::from(runs.at_work.iter().any(|(_, at_work)| in_lease(at_work)));
        runs.at_work.push((runs.runs, operation.cloned()));
        Run { journal: self, order: order.to_owned(), number: runs.runs }
    }

    /// What `read` makes of the runs of each order.
    pub(crate) fn read<T>(&self, mut read: impl FnMut(&str, &Runs) -> T) -> Vec<T> {
        self.orders().iter().map(|(order, runs)| read(order, runs)).collect()
    }
}

impl Run<'_> {
    /// Which run of its order it is, from 1.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if let Some(runs) = self.journal.orders().get_mut(&self.order) {
            runs.panics += u32::from(std::thread::panicking());
            runs.at_work.retain(|(number, _)| *number != self.number);
        }
    }
}
