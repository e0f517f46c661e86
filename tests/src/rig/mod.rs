//! The rig: throwaway real servers for the tests, and what breaks the way to them.
//!
//! A test that talks to a server gets a real one. Nothing here needs a configuration file, a fixed port, or a clean-up
//! by hand: what the rig starts lives in a temporary folder, listens on a free port of the loopback interface, and is
//! stopped and removed by a watchdog as soon as the test process is gone, whether that process ended, panicked or was
//! killed.
//!
//! | module | holds |
//! |---|---|
//! | [`postgres`] | PostgreSQL: where its programs come from, a server, a fresh database per test, what can be done to a server |
//! | [`pgbouncer`] | PgBouncer in transaction mode in front of a PostgreSQL |
//! | [`redis`] | Redis or Valkey, a server or a cluster |
//! | [`proxy`] | a TCP proxy that cuts, delays, swallows, refuses and counts on command |
//! | [`wait`] | polling with a deadline, instead of sleeping for luck |
//! | [`url`] | the little surgery that connection URLs need |
//! | [`Error`] | what can be wrong with the machine, and what to install |
//!
//! | variable | says |
//! |---|---|
//! | `IDEM_TEST_POSTGRES_URL` | use this server, as a superuser or a role that may create databases; nothing is stopped or killed there |
//! | `IDEM_TEST_POSTGRES_BIN` | the folder of the PostgreSQL programs to start |
//! | `IDEM_TEST_POSTGRES_BIN_18` | the same for one major version |
//! | `IDEM_TEST_PGBOUNCER_BIN` | the program `pgbouncer` to start |
//! | `IDEM_TEST_REDIS_URL` | use this Redis or Valkey; nothing is stopped or killed there |
//! | `IDEM_TEST_REDIS_BIN` | the program `redis-server` or `valkey-server` to start |
//! | `IDEM_TEST_USER` | as root: the user who owns the servers, instead of `postgres` or `nobody` |
//! | `IDEM_TEST_KEEP` | if set, the folders stay for reading after their servers were stopped, and small disks stay mounted |

#![allow(clippy::doc_markdown, reason = "the names of products are not code")]

mod daemon;
mod error;
mod folder;
pub mod pgbouncer;
mod port;
pub mod postgres;
mod process;
pub mod proxy;
pub mod redis;
pub mod url;
mod user;
pub mod wait;

pub use error::Error;

/// The tests have nothing better to do about a broken machine than to say so.
#[track_caller]
fn must<T>(result: Result<T, Error>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}
