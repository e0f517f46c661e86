//! `SELECT .. FOR UPDATE`, `INSERT`, the work and `COMMIT`, in one transaction.
//!
//! The map behaves as `PostgreSQL` does at Read Committed. The select locks the rows that it returns, and on a first request it
//! returns none. A row that is inserted but not committed is seen by nobody, but a second insert of its key waits for that transaction:
//! when it commits, the second gets `unique_violation`; when it rolls back, the second goes on. A transaction that is
//! dropped, by a panic or because the client hung up, rolls back: the claim is gone, and the charge is not.

use super::{Answer, Name, Row, Seen};
use crate::service::problem::Problem;
use axum::http::StatusCode;
use axum::response::Response as HttpResponse;
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// How long an insert waits for another transaction, as `lock_timeout` would have it.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
enum Slot {
    /// Inserted; the sender goes when the transaction ends.
    Uncommitted(watch::Receiver<()>),
    Committed(Row),
}

type Table = Mutex<HashMap<Name, Slot>>;

#[derive(Debug)]
pub(super) struct ForUpdate {
    table: Arc<Table>,
    seen: Seen,
}

/// An open transaction that has inserted one row.
struct Transaction {
    table: Arc<Table>,
    name: Name,
    committed: bool,
    _waited_for: watch::Sender<()>,
}

fn lock(table: &Table) -> MutexGuard<'_, HashMap<Name, Slot>> {
    // Nothing panics while it is held.
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ForUpdate {
    pub(super) fn new(seen: Seen) -> Self {
        Self { table: Arc::default(), seen }
    }

    pub(super) async fn run(
        &self,
        name: Name,
        request: (String, Bytes),
        work: impl Future<Output = Result<Answer, Problem>>,
    ) -> Result<HttpResponse, Problem> {
        if let Some(row) = self.select_for_update(&name) {
            return row.replay(&request);
        }
        // Another request may stand exactly here.
        tokio::task::yield_now().await;
        let transaction = self.insert(name).await?;
        let answer = work.await?;
        let response = answer.response(false);
        transaction.commit(Row { request, answer });
        Ok(response)
    }

    fn select_for_update(&self, name: &Name) -> Option<Row> {
        match lock(&self.table).get(name) {
            Some(Slot::Committed(row)) => Some(row.clone()),
            Some(Slot::Uncommitted(_)) | None => None,
        }
    }

    async fn insert(&self, name: Name) -> Result<Transaction, Problem> {
        let failed = |detail| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "database-error", detail);
        loop {
            let mut other = {
                let mut table = lock(&self.table);
                match table.get(&name) {
                    None => {
                        let (sender, receiver) = watch::channel(());
                        table.insert(name.clone(), Slot::Uncommitted(receiver));
                        let table = Arc::clone(&self.table);
                        return Ok(Transaction { table, name, committed: false, _waited_for: sender });
                    }
                    Some(Slot::Committed(_)) => {
                        self.seen.add_violation();
                        return Err(failed("unique_violation"));
                    }
                    Some(Slot::Uncommitted(other)) => other.clone(),
                }
            };
            // It ends with an error when the sender is gone, which is what is waited for.
            let ended = timeout(LOCK_TIMEOUT, other.changed()).await;
            ended.map_err(|_| failed("lock_not_available")).map(drop)?;
        }
    }
}

impl Transaction {
    fn commit(mut self, row: Row) {
        lock(&self.table).insert(self.name.clone(), Slot::Committed(row));
        self.committed = true;
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if !self.committed {
            lock(&self.table).remove(&self.name);
        }
    }
}
