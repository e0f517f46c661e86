//! The system of record of idem: idempotency keys in PostgreSQL, claimed in one statement.
//!
//! A record is a row of one table. A claim is one round trip (`INSERT .. ON CONFLICT DO NOTHING`) and a completion another; so is a replay,
//! where they come one after the other, and it writes nothing. No connection is held while a handler runs, no session state is relied on, and the database's clock is
//! the only clock.
//!
//! # Use it
//!
//! ```no_run
//! use idem_core::Store;
//! use idem_postgres::{PostgresConfig, PostgresStore};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let config = PostgresConfig::from_url("postgres://payments@localhost/payments")?;
//! PostgresStore::migrate(&config).await?; // safe when many processes start at once
//! let store = PostgresStore::connect(config).await?; // refuses what would break a promise
//! # let _: &dyn Store = &store;
//! # Ok(())
//! # }
//! ```
//!
//! Give the store to an engine: `Engine::builder(store)`.
//!
//! # Many callers
//!
//! Claims and completions of concurrent callers go to the server together, in one statement for many: the more there are, the fewer statements each
//! costs. A single caller goes alone, without any delay. See [`PostgresConfig::with_group_limit`].
//!
//! # Commit with your own work
//!
//! [`PostgresStore::complete_in`] writes an operation's completion in a transaction of yours, beside your own rows: all of it is there, or nothing.
//! Work that is nothing but writes to this database can be claimed in that transaction, too: [`PostgresStore::claim_in`]. Other drivers bind
//! [`CompletionValues`] to [`PostgresStore::completion_statement`].
//!
//! # Publish what happened, and do it once elsewhere
//!
//! An event that is [appended to an outbox](outbox::Outbox) in that transaction is published by a [relay](outbox::Relay), at least once and in the order
//! of its aggregate. The consumer's side is an [`Inbox`]: an event and what is done about it are one transaction.
//!
//! | feature | what it adds |
//! |---|---|
//! | `redis-streams` | a publisher to Redis Streams |
//!
//! # Beside the pool that you have
//!
//! The store has a small pool of its own, made from the options of yours (`PgPool::connect_options`), and never borrows from it: a transaction that
//! somebody left open on a shared connection would swallow a claim.
//!
//! ```no_run
//! # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! use idem_postgres::{PostgresConfig, PostgresStore};
//!
//! let config = PostgresConfig::from_options((*pool.connect_options()).clone()).with_max_connections(4);
//! let store = PostgresStore::connect(config).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Behind a transaction pooler
//!
//! Say so with [`PostgresConfig::with_transaction_pooler`]. Then every call is one simple query with its settings in front, which works behind any
//! pooler that forwards a message as a whole, and leaves nothing behind on the server's session.
//!
//! # Run the migrations yourself
//!
//! The files are in the crate's `sql` folder, and in [`MIGRATIONS`]; an outbox is one of its own, [`outbox::OUTBOX_MIGRATION`]. The role of the service then needs no more than `USAGE` on the schema, `SELECT`, `INSERT`,
//! `UPDATE` and `DELETE` on the table, and `SELECT` and `UPDATE` on its `_meta` table.
//!
//! # What it needs from the server
//!
//! PostgreSQL 14 to 18, a primary, a logged table, `fsync` on, `synchronous_commit` not off. What is different is refused at the start, with a
//! typed error that says what to do.

mod blocked;
mod change;
mod config;
mod error;
mod group;
mod inbox;
mod link;
mod maintenance;
pub mod outbox;
mod row;
mod schema;
mod single;
mod sql;
mod statement;
mod store;
mod transaction;

pub use config::{ConfigError, PostgresConfig};
pub use error::PostgresError;
pub use inbox::{ConsumeError, Consumed, Event, Inbox, Work};
pub use schema::MIGRATIONS;
pub use store::PostgresStore;
pub use transaction::{ClaimedIn, CompletionValues, HeldIn};
