//! Every statement, with the names of schema and table written in.
//!
//! Each names `scope` and `key` by equality, or finds rows first and then acts by identity. No UPDATE and no DELETE asks for the time: what they set and
//! compare was computed from the clock that came with the row.

use crate::config::PostgresConfig;
use std::sync::Arc;

/// The columns of a record, in the order in which [`row`](crate::row) reads them. `extract` is exact to the microsecond from PostgreSQL 14 on.
const RECORD: &str = "r.fingerprint, r.status, r.attempt, r.owner, \
    (extract(epoch FROM r.locked_at) * 1000000)::bigint AS locked_at, r.lease_ms, r.effect_begun, r.unresolved, \
    r.recovery_point, r.recovery_data, (extract(epoch FROM r.created_at) * 1000000)::bigint AS created_at, \
    (extract(epoch FROM r.expires_at) * 1000000)::bigint AS expires_at, r.response_head, r.response_body";

/// As many nulls as there are columns in [`RECORD`].
const NO_RECORD: &str = "NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL";

/// Whether a row's outcome is known for good, so that it expires: `Record::is_resolved`.
const RESOLVED: &str = "(r.status = 'completed' OR (r.status = 'failed' AND r.unresolved = 0 AND NOT r.effect_begun))";

/// Whether nobody is working on an unresolved row, at the statement's time: `Record::is_stuck`.
const STUCK: &str = "((r.status = 'in_progress' AND (r.lease_ms = 0 \
      OR r.locked_at + r.lease_ms * interval '1 millisecond' <= statement_timestamp())) \
    OR (r.status = 'failed' AND (r.unresolved > 0 OR r.effect_begun)))";

/// The version that every swap compares. `IS NOT DISTINCT FROM` means `=` on a column that is never null, and keeps the planner from looking a row up by
/// `locked_at`, which many rows may share, instead of by its identity.
const OWNED: &str = "r.scope = $1 AND r.key = $2 AND r.locked_at IS NOT DISTINCT FROM $3 AND r.owner = $4";

/// How statements are planned that touch a few rows each: item by item, and every row by its identity. On a young table the planner would rather
/// read all of it, and keep that plan for the connection's life.
pub(crate) const ROW_BY_ROW: [(&str, &str); 7] = [
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_material", "off"),
    ("plan_cache_mode", "force_generic_plan"),
    ("jit", "off"),
];
/// How statements are planned that read a great part of the table. Said in full: `DEFAULT` would be what the connection began with.
pub(crate) const BY_THE_TABLE: [(&str, &str); 5] = [
    ("enable_hashjoin", "on"),
    ("enable_mergejoin", "on"),
    ("enable_seqscan", "on"),
    ("enable_bitmapscan", "on"),
    ("enable_material", "on"),
];

/// That a row of the table is the one that a row of `list` names. With plain equalities the planner may take the rows in the index's order, as for a
/// merge, and on a table that it believes to be small it would rather walk all of it than look up each: a plan that is kept while the table grows. An
/// array has no order to make use of, so that looking up is all that is left.
fn named_by(list: &str) -> String {
    format!("r.scope = ANY (ARRAY[{list}.scope]) AND r.key = ANY (ARRAY[{list}.key])")
}

/// One reading of the clock for a whole group; and a short wait for rivals, for this transaction alone: nobody in a group waits long for a rival of
/// somebody else in it.
const FOR_A_GROUP: &str =
    "WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now, set_config('lock_timeout', '20', true) AS patience)";

pub(crate) struct Statements {
    pub(crate) insert: Arc<str>,
    pub(crate) insert_or_read: Arc<str>,
    pub(crate) in_the_way: Arc<str>,
    pub(crate) try_lock: Arc<str>,
    pub(crate) load: Arc<str>,
    pub(crate) insert_group: Arc<str>,
    pub(crate) load_group: Arc<str>,
    pub(crate) complete_group: Arc<str>,
    pub(crate) retry: Arc<str>,
    pub(crate) takeover: Arc<str>,
    pub(crate) as_new: Arc<str>,
    pub(crate) relock: Arc<str>,
    pub(crate) renew: Arc<str>,
    pub(crate) begin_effect: Arc<str>,
    pub(crate) checkpoint: Arc<str>,
    pub(crate) complete: Arc<str>,
    pub(crate) fail: Arc<str>,
    pub(crate) abandon: Arc<str>,
    pub(crate) expired: Arc<str>,
    pub(crate) given_up: Arc<str>,
    pub(crate) delete: Arc<str>,
    pub(crate) walked: Arc<str>,
    pub(crate) pass: Arc<str>,
    pub(crate) mark: Arc<str>,
    pub(crate) walk_on: Arc<str>,
    pub(crate) stuck: Arc<str>,
    pub(crate) stats: Arc<str>,
    pub(crate) erase: Arc<str>,
    pub(crate) left: Arc<str>,
    pub(crate) check: Arc<str>,
}

impl Statements {
    pub(crate) fn all(&self) -> Vec<(&'static str, Arc<str>)> {
        // Without `..`, so that a new statement has to be listed.
        let Self {
            insert,
            insert_or_read,
            in_the_way,
            try_lock: _,
            load,
            insert_group,
            load_group,
            complete_group,
            retry,
            takeover,
            as_new,
            relock,
            renew,
            begin_effect,
            checkpoint,
            complete,
            fail,
            abandon,
            expired,
            given_up,
            delete,
            walked: _,
            pass,
            mark,
            walk_on: _,
            stuck,
            stats,
            erase,
            left,
            check: _,
        } = self;
        [
            ("insert", insert),
            ("insert_or_read", insert_or_read),
            ("in_the_way", in_the_way),
            ("load", load),
            ("insert_group", insert_group),
            ("load_group", load_group),
            ("complete_group", complete_group),
            ("retry", retry),
            ("takeover", takeover),
            ("as_new", as_new),
            ("relock", relock),
            ("renew", renew),
            ("begin_effect", begin_effect),
            ("checkpoint", checkpoint),
            ("complete", complete),
            ("fail", fail),
            ("abandon", abandon),
            ("expired", expired),
            ("given_up", given_up),
            ("delete", delete),
            ("pass", pass),
            ("mark", mark),
            ("stuck", stuck),
            ("stats", stats),
            ("erase", erase),
            ("left", left),
        ]
        .map(|(name, sql)| (name, Arc::clone(sql)))
        .to_vec()
    }

    pub(crate) fn new(config: &PostgresConfig) -> Self {
        let (schema, table) = (&config.schema, &config.table);
        let records = format!("\"{schema}\".\"{table}\"");
        let meta = format!("\"{schema}\".\"{table}_meta\"");
        // Columns that every ownership change sets, and the lease as read that it compares.
        let own = "status = 'in_progress', locked_at = $6, owner = $7, lease_ms = $8, attempt = $9, expires_at = $10";
        let owning = |set: &str, from: &str| -> Arc<str> {
            format!("UPDATE {records} AS r SET {own}{set} WHERE {OWNED} AND r.lease_ms = $5 AND {from} RETURNING 1")
                .into()
        };
        let progress = |set: &str| -> Arc<str> {
            format!(
                "UPDATE {records} AS r SET lease_ms = $5{set} WHERE {OWNED} AND r.status = 'in_progress' \
                 AND r.lease_ms > 0 AND r.lease_ms < $5 RETURNING 1"
            )
            .into()
        };
        let settling = |set: &str| -> Arc<str> {
            format!("UPDATE {records} AS r SET {set} WHERE {OWNED} AND r.status = 'in_progress' RETURNING 1").into()
        };
        let (by_item, by_dead, by_gone, by_name) = (named_by("i"), named_by("dead"), named_by("gone"), named_by("d"));
        // A transaction of the caller's that claims a key holds this lock until it is over, so that others need not wait for its row. Who
        // claims by itself holds it together with others, for a moment. A collision of two keys delays one of them, and no more.
        let lock_of = |scope, key| {
            format!("hashtextextended({scope}, hashtextextended({key}, hashtextextended('{schema}.{table}', 0)))")
        };
        let lock = lock_of("$1", "$2");
        // A group would need as many entries of the server's lock table as it has items, until it is committed. So it gives each lock back at
        // once: the session's, since a transaction's cannot be. Nothing can come between the two, for a server looks for interrupts between
        // rows and not between functions. A transaction that takes the lock in between is met at the index, and waited for.
        let free = {
            let lock = lock_of("i.scope", "i.key");
            format!(
                "CASE WHEN pg_try_advisory_lock_shared({lock}) THEN pg_advisory_unlock_shared({lock}) ELSE false END"
            )
        };
        let insert = |clock: &str| {
            format!(
                "INSERT INTO {records} AS r (scope, key, fingerprint, status, attempt, owner, locked_at, lease_ms, created_at, expires_at) \
                 SELECT $1, $2, $3, 'in_progress', 1, $4, c.now, $5, c.now, c.now + $6 * interval '1 microsecond' \
                 {clock} WHERE pg_try_advisory_xact_lock_shared({lock}) ON CONFLICT (scope, key) DO NOTHING \
                 RETURNING (extract(epoch FROM r.locked_at) * 1000000)::bigint AS won_at"
            )
        };
        let cleared = "response_code = NULL, response_head = NULL, response_body = NULL";
        Self {
            // One reading of the clock for all three instants.
            insert: insert("FROM (SELECT clock_timestamp() AS now) AS c").into(),
            // A row that was there before is read along, as it was when the statement began. Who came in between is in the way and cannot be
            // seen: then there is neither, and whoever asked looks again.
            insert_or_read: format!(
                "WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now), won AS ({}) \
                 SELECT (SELECT w.won_at FROM won AS w) AS won_at, (extract(epoch FROM c.now) * 1000000)::bigint AS clock, {RECORD} \
                 FROM c LEFT JOIN {records} AS r ON r.scope = $1 AND r.key = $2",
                insert("FROM c")
            )
            .into(),
            in_the_way: format!(
                "SELECT (extract(epoch FROM c.now) * 1000000)::bigint AS clock, pg_try_advisory_xact_lock_shared({lock}) AS free, {RECORD} \
                 FROM (SELECT clock_timestamp() AS now) AS c LEFT JOIN {records} AS r ON r.scope = $1 AND r.key = $2"
            )
            .into(),
            try_lock: format!("SELECT pg_try_advisory_xact_lock({lock}) AS free").into(),
            load: format!(
                "SELECT (extract(epoch FROM c.now) * 1000000)::bigint AS clock, {RECORD} \
                 FROM (SELECT clock_timestamp() AS now) AS c LEFT JOIN {records} AS r ON r.scope = $1 AND r.key = $2"
            )
            .into(),
            // Groups are sorted by identity by their sender, and worked through in that order, so that two of them cannot deadlock: see
            // `ROW_BY_ROW`.
            // As `insert_or_read`; nothing is read along if all of them won.
            insert_group: format!(
                "{FOR_A_GROUP}, won AS ( \
                   INSERT INTO {records} AS r \
                     (scope, key, fingerprint, status, attempt, owner, locked_at, lease_ms, created_at, expires_at) \
                   SELECT i.scope, i.key, i.fingerprint, 'in_progress', 1, i.owner, c.now, i.lease_ms, c.now, c.now + i.retention * interval '1 microsecond' \
                   FROM c, unnest($1::text[], $2::text[], $3::bytea[], $4::uuid[], $5::int[], $6::bigint[]) \
                     AS i (scope, key, fingerprint, owner, lease_ms, retention) \
                   WHERE c.patience IS NOT NULL AND {free} ON CONFLICT (scope, key) DO NOTHING \
                   RETURNING r.owner, (extract(epoch FROM r.locked_at) * 1000000)::bigint AS locked_at \
                 ) SELECT NULL::uuid AS winner, NULL::bigint AS won_at, i.number, (extract(epoch FROM c.now) * 1000000)::bigint AS clock, {RECORD} \
                 FROM c, unnest($1::text[], $2::text[]) WITH ORDINALITY AS i (scope, key, number) JOIN {records} AS r ON {by_item} \
                 WHERE (SELECT count(*) FROM won) < cardinality($1::text[]) \
                 UNION ALL SELECT w.owner, w.locked_at, NULL, NULL, {NO_RECORD} FROM won AS w"
            )
            .into(),
            load_group: format!(
                "SELECT i.number, (extract(epoch FROM c.now) * 1000000)::bigint AS clock, \
                   CASE WHEN r.scope IS NULL THEN {free} END AS free, {RECORD} \
                 FROM (SELECT clock_timestamp() AS now) AS c, unnest($1::text[], $2::text[]) WITH ORDINALITY AS i (scope, key, number) \
                 LEFT JOIN {records} AS r ON {by_item}"
            )
            .into(),
            complete_group: format!(
                "{FOR_A_GROUP} UPDATE {records} AS r SET status = 'completed', expires_at = i.expires_at, response_code = i.code, \
                   response_head = i.head, response_body = i.body \
                 FROM c, unnest($1::text[], $2::text[], $3::timestamptz[], $4::uuid[], $5::timestamptz[], $6::int[], $7::bytea[], $8::bytea[]) \
                   AS i (scope, key, locked_at, owner, expires_at, code, head, body) \
                 WHERE {by_item} AND r.locked_at IS NOT DISTINCT FROM i.locked_at AND r.owner = i.owner \
                   AND r.status = 'in_progress' AND c.patience IS NOT NULL RETURNING r.owner"
            )
            .into(),
            retry: owning("", "r.status = 'failed'"),
            takeover: owning(", unresolved = $12", "r.status = $11 AND r.status <> 'completed'"),
            as_new: owning(
                &format!(
                    ", fingerprint = $12, created_at = $6, effect_begun = false, unresolved = 0, suspect = false, \
                     recovery_point = NULL, recovery_data = NULL, {cleared}"
                ),
                "r.status = $11 AND r.status <> 'in_progress'",
            ),
            relock: owning("", "r.status = 'in_progress'"),
            renew: progress(""),
            begin_effect: progress(", effect_begun = true"),
            checkpoint: progress(", recovery_point = $6, recovery_data = $7"),
            complete: settling(
                "status = 'completed', expires_at = $5, response_code = $6, response_head = $7, response_body = $8",
            ),
            fail: settling(
                "status = 'failed', expires_at = $5, effect_begun = r.effect_begun AND NOT $6, \
                 unresolved = CASE WHEN $6 THEN 0 ELSE r.unresolved END",
            ),
            abandon: settling("lease_ms = 0"),
            expired: format!(
                "SELECT r.scope, r.key, (extract(epoch FROM statement_timestamp()) * 1000000)::bigint AS clock \
                 FROM {records} AS r WHERE r.expires_at <= statement_timestamp() AND {RESOLVED} \
                 ORDER BY r.expires_at LIMIT $1"
            )
            .into(),
            given_up: format!(
                "SELECT r.scope, r.key, (extract(epoch FROM statement_timestamp()) * 1000000)::bigint AS clock \
                 FROM {records} AS r WHERE r.expires_at <= statement_timestamp() - $2 * interval '1 microsecond' AND {STUCK} \
                 ORDER BY r.expires_at LIMIT $1"
            )
            .into(),
            // Rows are locked by identity and in its order, and those that somebody else holds are left to them. What was found is looked at again
            // under the lock: a row that began a new life since, or was renewed, stays.
            delete: format!(
                "DELETE FROM {records} AS r USING ( \
                   SELECT r.scope, r.key FROM unnest($1::text[], $2::text[]) AS d (scope, key) \
                   JOIN {records} AS r ON {by_name} \
                   WHERE (r.expires_at <= $3 AND {RESOLVED}) OR ($4 AND r.expires_at <= $5 AND NOT {RESOLVED} \
                     AND (r.status = 'failed' OR r.lease_ms = 0 OR r.locked_at + r.lease_ms * interval '1 millisecond' <= $3)) \
                   ORDER BY d.scope COLLATE \"C\", d.key COLLATE \"C\" FOR UPDATE OF r SKIP LOCKED \
                 ) AS dead WHERE {by_dead} \
                 RETURNING {RESOLVED} AS resolved, (extract(epoch FROM r.expires_at) * 1000000)::bigint AS expires_at"
            )
            .into(),
            walked: format!(
                "SELECT (extract(epoch FROM least(m.walked_until, statement_timestamp() - $1 * interval '1 microsecond')) * 1000000)::bigint AS walked, \
                   (extract(epoch FROM statement_timestamp() - $1 * interval '1 microsecond') * 1000000)::bigint AS horizon \
                 FROM {meta} AS m"
            )
            .into(),
            // The unresolved ones that the walk passes, and a last row that says how far it came.
            pass: format!(
                "WITH passed AS MATERIALIZED ( \
                   SELECT r.scope, r.key, r.locked_at, {RESOLVED} AS resolved FROM {records} AS r \
                   WHERE r.locked_at > $1 AND r.locked_at <= $2 ORDER BY r.locked_at LIMIT $3 \
                 ) SELECT p.scope, p.key, 0::bigint AS passed, 0::bigint AS last FROM passed AS p WHERE NOT p.resolved UNION ALL \
                 SELECT NULL, NULL, count(*), (extract(epoch FROM max(p.locked_at)) * 1000000)::bigint FROM passed AS p"
            )
            .into(),
            mark: format!(
                "UPDATE {records} AS r SET suspect = true FROM unnest($1::text[], $2::text[]) AS d (scope, key) \
                 WHERE {by_name} AND NOT r.suspect AND NOT {RESOLVED}"
            )
            .into(),
            walk_on: format!("UPDATE {meta} AS m SET walked_until = $1 WHERE m.walked_until <> $1").into(),
            stuck: {
                let columns = "r.scope, r.key, r.status, r.attempt, r.owner, r.locked_at AS at, \
                    (extract(epoch FROM r.locked_at) * 1000000)::bigint AS locked_at, r.lease_ms, r.effect_begun, r.unresolved, r.recovery_point, \
                    (extract(epoch FROM r.created_at) * 1000000)::bigint AS created_at";
                let listed = format!(
                    "{STUCK} AND ($1 = 0 OR r.locked_at + r.lease_ms * interval '1 millisecond' \
                       <= statement_timestamp() - $1 * interval '1 microsecond') \
                     AND ($3::timestamptz IS NULL OR (r.locked_at, r.scope, r.key) > ($3, $4, $5)) \
                     ORDER BY r.locked_at, r.scope, r.key LIMIT $2"
                );
                format!(
                    "(SELECT {columns} FROM {records} AS r WHERE r.suspect AND {listed}) UNION ALL \
                     (SELECT {columns} FROM {records} AS r WHERE NOT r.suspect \
                        AND r.locked_at > (SELECT walked_until FROM {meta}) AND {listed}) \
                     ORDER BY at, scope, key LIMIT $2"
                )
                .into()
            },
            stats: format!(
                "SELECT count(*) FILTER (WHERE r.status = 'in_progress' AND NOT {STUCK}) AS live, \
                   count(*) FILTER (WHERE r.status = 'in_progress' AND {STUCK}) AS stale, \
                   count(*) FILTER (WHERE r.status = 'completed') AS completed, \
                   count(*) FILTER (WHERE r.status = 'failed') AS failed, \
                   count(*) FILTER (WHERE {STUCK}) AS stuck, \
                   count(*) FILTER (WHERE r.expires_at <= statement_timestamp() AND {RESOLVED}) AS expired \
                 FROM {records} AS r"
            )
            .into(),
            // The condition is looked at again under the lock, as in `delete`.
            erase: format!(
                "DELETE FROM {records} AS r USING ( \
                   SELECT r.scope, r.key FROM {records} AS r WHERE r.scope = $1 AND ($2 OR {RESOLVED}) \
                   ORDER BY r.scope, r.key LIMIT $3 FOR UPDATE OF r \
                 ) AS gone WHERE {by_gone} RETURNING 1"
            )
            .into(),
            left: format!("SELECT count(*) AS kept FROM {records} AS r WHERE r.scope = $1").into(),
            check: format!(
                "SELECT current_setting('server_version_num')::int AS version, pg_is_in_recovery() AS standby, \
                   current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS synchronous_commit, \
                   current_setting('transaction_isolation') AS isolation, \
                   (SELECT c.relpersistence::text FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace \
                     WHERE n.nspname = '{schema}' AND c.relname = '{table}') AS persistence, \
                   (SELECT string_agg(l.name, ', ') FROM ( \
                     SELECT p AS name FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS p \
                       WHERE NOT has_table_privilege('{records}', p) \
                     UNION ALL SELECT 'UPDATE on its _meta table' WHERE NOT has_table_privilege('{meta}', 'UPDATE')) AS l) AS lacking, \
                   (SELECT m.schema_version FROM {meta} AS m) AS schema_version"
            )
            .into(),
        }
    }
}
