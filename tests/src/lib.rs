//! What the tests of idem share.
//!
//! The model test plays one list of random [`Command`]s twice: on the [`Model`], which is written from the tables of
//! `DESIGN.md` and calls nothing of `idem-core`'s machine, and on a real store through the [`Runner`], which drives it
//! with the machine's public functions as an engine does. Every [`Answer`] and, after every command, every row must be
//! the same, and the [invariants] must hold from each row to the next. Any `Arc<dyn Store>` can join with the same
//! commands.
//!
//! | module | holds |
//! |---|---|
//! | [`command`] | what can be done, and how it is drawn at random |
//! | [`row`] | a row and an answer in the words that both sides speak |
//! | [`model`] | what must come of it: the rows, and what each actor believes |
//! | [`actor`] | the part of the model that claims, owns and concludes |
//! | [`runner`] | what does come of it, from a real store |
//! | [`stage`] | both side by side, with the comparison after every command |
//! | [`invariants`] | what no step may ever do to a row, whatever the model says |
//!
//! The [`rig`] starts throwaway servers for the tests that need a real one.

pub mod actor;
pub mod command;
pub mod invariants;
pub mod model;
pub mod rig;
pub mod row;
pub mod runner;
pub mod stage;
mod words;

pub use command::Command;
pub use model::Model;
pub use row::{Answer, Row};
pub use runner::Runner;
pub use words::identity;
