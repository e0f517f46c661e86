//! Owners that are processes of their own, and what becomes of their keys when such a process is killed or stopped at the worst moment.
//!
//! | file | holds |
//! |---|---|
//! | `worker.rs` | the process: it owns a key and does one step at a time, as it is told |
//! | `support.rs` | starting and ending it, and looking at the row and at the ledger |
//! | `killed.rs` | SIGKILL after the provider was charged |
//! | `starting.rs` | many processes that start at once on an empty database |
//! | `stopped.rs` | SIGSTOP past the lease, and SIGCONT after another one has answered |

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that meets an error has failed, and says with which seed"
)]

mod killed;
mod starting;
mod stopped;
mod support;
