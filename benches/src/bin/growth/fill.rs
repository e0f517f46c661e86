//! Fills a table with completed rows as idem would have written them: [`fill`].
//!
//! Rows are claimed and then completed, in transactions of their own, with every index in place. So rows lie in pages
//! with the room that completions leave, and indexes are as full as random keys make them: bytes a row are those of a
//! table that grew. A table that is written in one piece is neither.

use crate::Error;
use crate::server::Server;
use crate::table::{SCOPES, Table, request, response};
use idem_core::{Begun, Settlement};
use sqlx::{AssertSqlSafe, PgConnection};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many rows a transaction claims, and in how many transactions those are completed: about what 64 callers make of
/// it that go together, by the part of the completions that are HOT.
const BATCH: u64 = 64;
const PARTS: u64 = 2;
/// Sessions that fill at a time.
const SESSIONS: usize = 2;

/// The rows of a filled table, by number. The first ones have expired.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filled {
    pub(crate) rows: u64,
    pub(crate) expired: u64,
}

impl Filled {
    /// Those that are replayed.
    pub(crate) fn kept(&self) -> Range<u64> {
        self.expired..self.rows
    }
}

/// Writes `rows` rows, of which the first `expired` have expired, and leaves the table vacuumed and on disk. None
/// expires within the next hours.
pub(crate) async fn fill(server: &Server, table: &Table, rows: u64, expired: u64) -> Result<Filled, Error> {
    let mut client = server.client().await?;
    let name = table.name();
    // What a row holds beside its own comes from one that the engine wrote, which goes again.
    let Begun::Acquired(lease) = table.engine().begin(request("acct_sample", "sample")).await? else {
        return Err("the table is not new".into());
    };
    let Settlement::Recorded = lease.complete(response(table.bodies())).await? else {
        return Err("the sample was not recorded".into());
    };
    client
        .execute(&format!(
            "CREATE TABLE {name}_sample AS SELECT * FROM {name}; DELETE FROM {name}; \
             CREATE TABLE {name}_text (text bytea); ALTER TABLE {name}_text ALTER text SET STORAGE external"
        ))
        .await?;
    let text = format!("INSERT INTO {name}_text VALUES ($1)");
    sqlx::query(AssertSqlSafe(text)).bind(table.bodies().text()).execute(client.connection()).await?;

    server.log_whole_pages(false).await;
    let writer = Writer::new(table, rows, expired);
    let next = Arc::new(AtomicU64::new(0));
    let mut sessions = Vec::new();
    for session in 0..SESSIONS {
        let (writer, next, mut client) = (writer.clone(), Arc::clone(&next), server.client().await?);
        let name = name.to_owned();
        sessions.push(tokio::spawn(async move {
            client
                .execute(
                    "SET synchronous_commit = off; SET enable_seqscan = off; SET enable_hashjoin = off; \
                     SET enable_mergejoin = off; SET plan_cache_mode = force_generic_plan; SET work_mem = '64MB'",
                )
                .await?;
            loop {
                let from = next.fetch_add(BATCH, Ordering::Relaxed);
                if from >= rows {
                    return Ok::<_, Error>(());
                }
                writer.write(client.connection(), from..rows.min(from + BATCH)).await?;
                if session == 0 && from / BATCH % 512 < SESSIONS as u64 {
                    eprint!("\r\x1b[K{name}: {from} of {rows} rows are filled in");
                }
            }
        }));
    }
    for session in sessions {
        session.await??;
    }
    eprint!("\r\x1b[K{name}: vacuum");
    client.execute(&format!("DROP TABLE {name}_sample, {name}_text")).await?;
    client.execute(&format!("VACUUM (ANALYZE) {name}")).await?;
    server.log_whole_pages(true).await;
    client.execute("CHECKPOINT").await?;
    eprint!("\r\x1b[K");
    Ok(Filled { rows, expired })
}

/// The statements that write rows.
#[derive(Clone)]
struct Writer {
    claim: Arc<str>,
    complete: Arc<str>,
    expired: i64,
    /// How far apart claims are, in microseconds.
    apart: i64,
    /// At how many places a body may begin in the text, and how long it is.
    places: i64,
    length: i32,
}

impl Writer {
    fn new(table: &Table, rows: u64, expired: u64) -> Self {
        let name = table.name();
        // As `table::key` and `table::scope` say it. The text is read once for a statement, and copied from then on.
        let key = "substr(encode(sha256(int8send(n)), 'hex'), 1, 32)::uuid::text";
        let scope = format!("'acct_' || n % {SCOPES}");
        // The retention is a day. Expired rows end an hour before now; the others begin four hours later.
        let claim = format!(
            "INSERT INTO {name} (scope, key, fingerprint, status, attempt, owner, locked_at, lease_ms, \
               created_at, expires_at) \
             SELECT {scope}, {key}, s.fingerprint, 'in_progress', 1, gen_random_uuid(), i.at, s.lease_ms, \
               i.at, i.at + interval '1 day' \
             FROM {name}_sample AS s, generate_series($1, $2 - 1) AS n, \
               LATERAL (SELECT now() - interval '25 hours' + (n - $3) * $4 * interval '1 microsecond' \
                 + CASE WHEN n >= $3 THEN interval '4 hours' ELSE interval '0' END AS at) AS i"
        );
        let complete = format!(
            "UPDATE {name} AS r SET status = s.status, expires_at = r.expires_at, response_code = s.response_code, \
               response_head = s.response_head, \
               response_body = substr((SELECT text || ''::bytea FROM {name}_text), (n * 7919 % $5)::int + 1, $4) \
             FROM {name}_sample AS s, generate_series($1, $2 - 1, $3) AS n WHERE r.scope = {scope} AND r.key = {key}"
        );
        // Within twenty hours, so that the last claim is an hour ago at the latest.
        let apart = 20 * 3_600 * 1_000_000 / i64::try_from(rows).unwrap_or(i64::MAX).max(1);
        let expired = i64::try_from(expired).unwrap_or(i64::MAX);
        let bodies = table.bodies();
        let places = i64::try_from(bodies.text().len() - bodies.length() + 1).unwrap_or(i64::MAX);
        let length = i32::try_from(bodies.length()).unwrap_or(i32::MAX);
        Self { claim: claim.into(), complete: complete.into(), expired, apart, places, length }
    }

    async fn write(&self, connection: &mut PgConnection, rows: Range<u64>) -> Result<(), Error> {
        let (from, to) = (i64::try_from(rows.start)?, i64::try_from(rows.end)?);
        let claim = sqlx::query(AssertSqlSafe(Arc::clone(&self.claim)));
        claim.bind(from).bind(to).bind(self.expired).bind(self.apart).execute(&mut *connection).await?;
        for part in 0..i64::try_from(PARTS)? {
            let complete = sqlx::query(AssertSqlSafe(Arc::clone(&self.complete)));
            let complete = complete.bind(from + part).bind(to).bind(i64::try_from(PARTS)?).bind(self.length);
            let complete = complete.bind(self.places);
            complete.execute(&mut *connection).await?;
        }
        Ok(())
    }
}
