//! Purge, the walk for stuck records, stuck, stats.

use crate::row::{column, instant, stuck};
use crate::statement::Value;
use crate::store::{PostgresStore, before, micros_back, number};
use idem_core::store::{PurgeOptions, Purged, Stats, StuckPage, StuckQuery, UnresolvedRows};
use idem_core::{Error, Timestamp};
use sqlx::postgres::PgRow;
use std::sync::Arc;
use std::time::Duration;

/// How far the walk for stuck records stays behind: longer than any statement takes from its stamp to its commit, and long enough that nearly every
/// record is settled when it is passed.
const WALK_BEHIND: Duration = Duration::from_secs(120);
/// How many records the walk passes in one step.
const WALK_STEP: i64 = 10_000;

impl PostgresStore {
    /// One batch: settled and expired records first, then, if told so, unresolved ones.
    pub(crate) async fn purge_batch(&self, options: &PurgeOptions) -> Result<Purged, Error> {
        self.walk().await?;
        let sql = &self.shared.sql;
        let mut purged = Purged::default();
        let limit = i64::try_from(options.batch()).unwrap_or(i64::MAX);
        let found = self.rows("purge", &sql.expired, &[Value::Long(limit)]).await?;
        self.delete(&found, None, &mut purged).await?;
        let left = limit.saturating_sub(i64::try_from(found.len()).unwrap_or(i64::MAX));
        if let UnresolvedRows::DropAfter(grace) = options.unresolved()
            && left > 0
        {
            let found = self.rows("purge", &sql.given_up, &[Value::Long(left), micros_back(grace)]).await?;
            self.delete(&found, Some(grace), &mut purged).await?;
        }
        Ok(purged)
    }

    async fn delete(&self, found: &[PgRow], grace: Option<Duration>, purged: &mut Purged) -> Result<(), Error> {
        let Some(first) = found.first() else { return Ok(()) };
        let clock = instant("purge", first, "clock")?;
        let names = |name| found.iter().map(|row| column::<&str>("purge", row, name)).collect::<Result<Vec<_>, _>>();
        let (scopes, keys) = (names("scope")?, names("key")?);
        let values = [
            Value::Texts(&scopes),
            Value::Texts(&keys),
            Value::Instant(clock),
            Value::Bool(grace.is_some()),
            Value::Instant(before(clock, grace.unwrap_or_default())),
        ];
        for row in self.rows("purge", &self.shared.sql.delete, &values).await? {
            count_deleted(&row, clock, purged)?;
        }
        Ok(())
    }

    /// Lets the walk for stuck records go on by one step, unless somebody else is taking one.
    async fn walk(&self) -> Result<(), Error> {
        let behind = WALK_BEHIND.max(2 * self.shared.config.statement_deadline);
        self.rows("purge", &self.shared.sql.walk, &[micros_back(behind), Value::Long(WALK_STEP)]).await.map(drop)
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
        let sql: &Arc<str> = &self.shared.sql.stuck;
        let rows = self.rows("stuck", sql, &values).await?;
        let mut page = StuckPage::default();
        page.records = rows.iter().take(limit).map(|row| stuck("stuck", row)).collect::<Result<_, _>>()?;
        if rows.len() > limit {
            page.next = page.records.last().map(idem_core::store::Stuck::cursor);
        }
        Ok(page)
    }

    pub(crate) async fn count_all(&self) -> Result<Stats, Error> {
        let rows = self.rows("stats", &self.shared.sql.stats, &[]).await?;
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
