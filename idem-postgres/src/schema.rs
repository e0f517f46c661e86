//! The table: migrations, and the checks at the start.

use crate::config::PostgresConfig;
use crate::link::Link;
use crate::row::column;
use crate::store::PostgresStore;
use idem_core::{Error, ErrorKind, WriteOutcome};

/// The migrations in order, as plain SQL for the schema `idem` and the table `records`; the first makes version 1.
pub const MIGRATIONS: &[&str] = &[include_str!("../sql/0001_records.sql")];

/// The version of the schema that this build reads and writes.
const VERSION: i32 = 1;
const LEAST_SERVER: i32 = 140_000;
/// The SQLSTATE by which the migration says that the table is of a later version: of the class of missing schemas, none of PostgreSQL's own.
const LATER_SCHEMA: &str = "3FI01";
/// Under which number processes that migrate queue up: "idem" in ASCII.
const MIGRATION_LOCK: i64 = 0x6964_656d;

/// Why a server or a table cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Unusable {
    #[error("PostgreSQL {0} is too old: 14 or later is needed")]
    OldServer(i32),
    #[error("the server is a standby: connect to the primary")]
    Standby,
    #[error(
        "the server has fsync off, so a crash can lose what was acknowledged: switch it on, or allow unsafe durability"
    )]
    FsyncOff,
    #[error(
        "synchronous_commit is off for this role, so a crash can lose what was acknowledged: switch it on, or allow unsafe durability"
    )]
    SynchronousCommitOff,
    #[error("the table is unlogged, so a crash empties it: ALTER TABLE .. SET LOGGED, or allow unsafe durability")]
    Unlogged,
    #[error("the table is temporary: make an ordinary one")]
    Temporary,
    #[error("the role lacks {0} on the table: grant it")]
    Rights(String),
    #[error(
        "the table has schema version {found}, this build needs {VERSION}: run PostgresStore::migrate or the SQL files"
    )]
    OldSchema { found: i32 },
    #[error("the table has schema version {found}, this build knows up to {VERSION}: deploy the newer release")]
    NewSchema { found: i32 },
    #[error("the meta table has no row: run PostgresStore::migrate or the SQL files")]
    NoVersion,
    #[error(
        "connections do not run at READ COMMITTED but at {0}: is this a pooler that drops start-up options? Say so with with_transaction_pooler"
    )]
    Isolation(String),
}

fn unusable(reason: Unusable) -> Error {
    Error::new(ErrorKind::Misconfigured, "connect", WriteOutcome::NotApplied).with_source(reason)
}

impl PostgresStore {
    /// Makes or upgrades the table. Safe when many processes do it at once, and harmless when there is nothing to do.
    ///
    /// Needs a role that may create the schema and the table, or that owns them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Misconfigured`] if the role may not, or if the table is of a later version; [`ErrorKind::Unavailable`] if the server cannot be
    /// reached.
    ///
    /// # Cancel safety
    ///
    /// Everything is one transaction: dropped half-way, all of it is there or nothing.
    pub async fn migrate(config: &PostgresConfig) -> Result<(), Error> {
        let (schema, table) = (&config.schema, &config.table);
        let migration = named(MIGRATIONS[0], schema, table);
        // One message is one transaction, behind poolers too.
        let script = format!(
            "SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0; \
             SELECT pg_advisory_xact_lock({MIGRATION_LOCK}); \
             DO $idem$ BEGIN IF to_regclass('\"{schema}\".\"{table}\"') IS NULL THEN {migration} \
             ELSIF (SELECT max(schema_version) FROM \"{schema}\".\"{table}_meta\") > {VERSION} THEN \
               RAISE EXCEPTION USING ERRCODE = '{LATER_SCHEMA}', MESSAGE = format('the table has schema version %s, \
                 this build knows up to {VERSION}: deploy the newer release', \
                 (SELECT max(schema_version) FROM \"{schema}\".\"{table}_meta\")); \
             END IF; END $idem$;"
        );
        Link::script(config, "migrate", script).await
    }

    /// Checks the server and the table, as [`connect`](PostgresStore::connect) does.
    ///
    /// # Errors
    ///
    /// As [`connect`](PostgresStore::connect).
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn check(&self) -> Result<(), Error> {
        let operation = "connect";
        let rows = self.shared.single.rows(operation, &self.shared.single.sql.check, &[]).await?;
        let Some(row) = rows.first() else { return Err(unusable(Unusable::NoVersion)) };
        let unsafe_allowed = self.shared.config.allow_unsafe_durability;

        let version: i32 = column(operation, row, "version")?;
        if version < LEAST_SERVER {
            return Err(unusable(Unusable::OldServer(version / 10_000)));
        }
        if column(operation, row, "standby")? {
            return Err(unusable(Unusable::Standby));
        }
        let isolation: String = column(operation, row, "isolation")?;
        if isolation != "read committed" {
            return Err(unusable(Unusable::Isolation(isolation)));
        }
        if column::<&str>(operation, row, "fsync")? == "off" && !unsafe_allowed {
            return Err(unusable(Unusable::FsyncOff));
        }
        if column::<&str>(operation, row, "synchronous_commit")? == "off" && !unsafe_allowed {
            return Err(unusable(Unusable::SynchronousCommitOff));
        }
        match column::<Option<&str>>(operation, row, "persistence")? {
            Some("u") if !unsafe_allowed => return Err(unusable(Unusable::Unlogged)),
            Some("t") => return Err(unusable(Unusable::Temporary)),
            _ => {}
        }
        if let Some(lacking) = column::<Option<String>>(operation, row, "lacking")? {
            return Err(unusable(Unusable::Rights(lacking)));
        }
        match column::<Option<i32>>(operation, row, "schema_version")? {
            None => Err(unusable(Unusable::NoVersion)),
            Some(found) if found < VERSION => Err(unusable(Unusable::OldSchema { found })),
            Some(found) if found > VERSION => Err(unusable(Unusable::NewSchema { found })),
            Some(_) => Ok(()),
        }
    }
}

/// A migration with the names of schema and table that it is run for, as the body of a `DO` block.
fn named(migration: &str, schema: &str, table: &str) -> String {
    let mut named = migration
        // A role that may not create schemas may still use one that is there.
        .replace(
            "CREATE SCHEMA IF NOT EXISTS idem;",
            &format!("IF to_regnamespace('\"{schema}\"') IS NULL THEN CREATE SCHEMA \"{schema}\"; END IF;"),
        )
        .replace("idem.records_meta", &format!("\"{schema}\".\"{table}_meta\""))
        .replace("idem.records", &format!("\"{schema}\".\"{table}\""));
    for index in ["expires_at_idx", "locked_at_idx", "suspect_idx"] {
        named = named.replace(&format!("records_{index}"), &format!("\"{table}_{index}\""));
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_of_an_error_can_be_looked_at() {
        let error = unusable(Unusable::Standby);
        let source = std::error::Error::source(&error).unwrap();
        assert_eq!(source.downcast_ref::<Unusable>(), Some(&Unusable::Standby));
        assert!(error.to_string().contains("connect to the primary"), "{error}");
    }

    #[test]
    fn a_migration_is_written_for_its_names() {
        let named = named(MIGRATIONS[0], "s", "t");
        let code: String = named.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
        assert!(!code.contains("records") && !code.contains("idem"), "{named}");
        assert!(code.contains("\"s\".\"t_meta\"") && code.contains("\"t_suspect_idx\" ON \"s\".\"t\""), "{named}");
    }
}
