//! Purge, the walk for stuck records, stuck, stats, erase.

use crate::link::Answer;
use crate::row::{column, instant, stuck};
use crate::single::{before, micros_back};
use crate::statement::Value;
use crate::store::PostgresStore;
use idem_core::store::{Erase, Erased, PurgeOptions, Purged, Stats, StuckPage, StuckQuery, UnresolvedRows};
use idem_core::{Error, Scope, Timestamp, WriteOutcome};
use sqlx::postgres::PgRow;
use std::sync::Arc;
use std::time::Duration;

/// How far the walk for stuck records stays behind: longer than any statement takes from its stamp to its commit, and long enough that nearly every
/// record is settled when it is passed.
const WALK_BEHIND: Duration = Duration::from_secs(120);
/// How many records the walk passes in one step.
const WALK_STEP: i64 = 10_000;
/// How many records one statement erases.
const ERASE_BATCH: i64 = 5_000;
/// How many steps the walk takes at a time.
const WALK_STEPS: usize = 10;

impl PostgresStore {
    /// One batch: settled and expired records first, then, if told so, unresolved ones.
    pub(crate) async fn purge_batch(&self, options: &PurgeOptions) -> Result<Purged, Error> {
        let sql = &self.shared.single.sql;
        let mut purged = Purged::default();
        let limit = i64::try_from(options.batch()).unwrap_or(i64::MAX);
        let found = self.shared.single.rows("purge", &sql.expired, &[Value::Long(limit)]).await?;
        self.delete(&found, None, &mut purged).await?;
        let left = limit.saturating_sub(i64::try_from(found.len()).unwrap_or(i64::MAX));
        if let UnresolvedRows::DropAfter(grace) = options.unresolved()
            && left > 0
        {
            let found =
                self.shared.single.rows("purge", &sql.given_up, &[Value::Long(left), micros_back(grace)]).await?;
            self.delete(&found, Some(grace), &mut purged).await?;
        }
        // While there is a backlog, what is dead comes first.
        if left > 0 {
            self.walk().await?;
        }
        Ok(purged)
    }

    async fn delete(&self, found: &[PgRow], grace: Option<Duration>, purged: &mut Purged) -> Result<(), Error> {
        let Some(first) = found.first() else { return Ok(()) };
        let clock = instant("purge", first, "clock")?;
        let (scopes, keys) = (names(found, "scope")?, names(found, "key")?);
        let values = [
            Value::Texts(&scopes),
            Value::Texts(&keys),
            Value::Instant(clock),
            Value::Bool(grace.is_some()),
            Value::Instant(before(clock, grace.unwrap_or_default())),
        ];
        for row in self.shared.single.rows("purge", &self.shared.single.sql.delete, &values).await? {
            count_deleted(&row, clock, purged)?;
        }
        Ok(())
    }

    /// Lets the walk for stuck records catch up: it passes every record once, in the order of `locked_at`, and marks those that are not resolved by then, so that
    /// they are found again without an index that every completion would have to touch.
    ///
    /// It stays behind the present by more than a statement's deadline, since a stamp is older than its commit; where the clock stepped back, it goes
    /// back too. Two walks at a time do each other's work again and no harm.
    async fn walk(&self) -> Result<(), Error> {
        let sql = &self.shared.single.sql;
        let behind = WALK_BEHIND.max(2 * self.shared.config.statement_deadline);
        let rows = self.shared.single.rows("purge", &sql.walked, &[micros_back(behind)]).await?;
        let Some(row) = rows.first() else { return Ok(()) };
        let (mut walked, horizon) = (instant("purge", row, "walked")?, instant("purge", row, "horizon")?);
        for _ in 0..WALK_STEPS {
            if walked >= horizon {
                break;
            }
            let values = [Value::Instant(walked), Value::Instant(horizon), Value::Long(WALK_STEP)];
            let passed = self.unless_taken(&sql.pass, &values).await?;
            let Some((end, unresolved)) = passed.split_last() else { break };
            if !unresolved.is_empty() {
                let (scopes, keys) = (names(unresolved, "scope")?, names(unresolved, "key")?);
                self.unless_taken(&sql.mark, &[Value::Texts(&scopes), Value::Texts(&keys)]).await?;
            }
            let full = column::<i64>("purge", end, "passed")? >= WALK_STEP;
            // Rows that share the last one's instant may be left; they are passed again.
            walked = if full {
                before(instant("purge", end, "last")?, Duration::from_micros(1)).max(walked)
            } else {
                horizon
            };
            self.unless_taken(&sql.walk_on, &[Value::Instant(walked)]).await?;
        }
        Ok(())
    }

    /// A statement of the walk; nothing, if somebody else is writing what it would write, for then that is somebody else's walk.
    async fn unless_taken(&self, sql: &Arc<str>, values: &[Value<'_>]) -> Result<Vec<PgRow>, Error> {
        match self.shared.single.link.run("purge", sql, values).await? {
            Answer::Rows(rows) => Ok(rows),
            Answer::RivalUncommitted => Ok(Vec::new()),
        }
    }

    pub(crate) async fn stuck_page(&self, query: &StuckQuery) -> Result<StuckPage, Error> {
        let limit = query.limit();
        let cursor = query.cursor();
        let values = [
            micros_back(query.stale_for()),
            // One more than the page, to know whether there is another one.
            Value::Long(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1)),
            Value::OptionalInstant(cursor.map(|cursor| cursor.locked_at)),
            Value::OptionalText(cursor.map(|cursor| cursor.identity.scope().as_str())),
            Value::OptionalText(cursor.map(|cursor| cursor.identity.key().as_str())),
        ];
        let sql: &Arc<str> = &self.shared.single.sql.stuck;
        let rows = self.slow_rows("stuck", sql, &values).await?;
        let mut page = StuckPage::default();
        page.records = rows.iter().take(limit).map(|row| stuck("stuck", row)).collect::<Result<_, _>>()?;
        if rows.len() > limit {
            page.next = page.records.last().map(idem_core::store::Stuck::cursor);
        }
        Ok(page)
    }

    /// In batches, each of its own, so that a large scope does not meet the statement's deadline.
    pub(crate) async fn erase_in_batches(&self, scope: &Scope, which: Erase) -> Result<Erased, Error> {
        let (scope, everything) = (Value::Text(scope.as_str()), Value::Bool(which == Erase::Everything));
        let mut erased = Erased::default();
        loop {
            let rows = self
                .shared
                .single
                .rows("erase", &self.shared.single.sql.erase, &[scope, everything, Value::Long(ERASE_BATCH)])
                .await;
            // What went before is gone, whatever became of this batch.
            let unknown = |error: Error| error.with_write_outcome(WriteOutcome::Unknown);
            let rows = rows.map_err(|error| if erased.deleted > 0 { unknown(error) } else { error })?;
            if rows.is_empty() {
                break;
            }
            erased.deleted += rows.len() as u64;
        }
        let rows = self.slow_rows("erase", &self.shared.single.sql.left, &[scope]).await?;
        if let Some(row) = rows.first() {
            erased.kept = number("erase", row, "kept")?;
        }
        Ok(erased)
    }

    /// A statement that reads a great part of the table, with a longer deadline.
    async fn slow_rows(
        &self,
        operation: &'static str,
        sql: &Arc<str>,
        values: &[Value<'_>],
    ) -> Result<Vec<PgRow>, Error> {
        match self.shared.single.link.run_slowly(operation, sql, values).await? {
            Answer::Rows(rows) => Ok(rows),
            Answer::RivalUncommitted => Ok(Vec::new()),
        }
    }

    pub(crate) async fn count_all(&self) -> Result<Stats, Error> {
        let rows = self.slow_rows("stats", &self.shared.single.sql.stats, &[]).await?;
        let mut stats = Stats::default();
        if let Some(row) = rows.first() {
            stats.live = number("stats", row, "live")?;
            stats.stale = number("stats", row, "stale")?;
            stats.completed = number("stats", row, "completed")?;
            stats.failed = number("stats", row, "failed")?;
            stats.stuck = number("stats", row, "stuck")?;
            stats.expired = number("stats", row, "expired")?;
        }
        Ok(stats)
    }
}

fn number(operation: &'static str, row: &PgRow, name: &'static str) -> Result<u64, Error> {
    column::<i64>(operation, row, name).map(|number| u64::try_from(number).unwrap_or(0))
}

fn names<'r>(rows: &'r [PgRow], name: &'static str) -> Result<Vec<&'r str>, Error> {
    rows.iter().map(|row| column::<&str>("purge", row, name)).collect()
}

fn count_deleted(row: &PgRow, clock: Timestamp, purged: &mut Purged) -> Result<(), Error> {
    if column("purge", row, "resolved")? {
        purged.settled += 1;
        let expired_for = clock.saturating_duration_since(instant("purge", row, "expires_at")?);
        purged.oldest_expired = purged.oldest_expired.max(Some(expired_for));
    } else {
        purged.unresolved += 1;
    }
    Ok(())
}
