//! What no step may ever do to a row, whatever the model says: the promises A, C, D, G, H, I and L.

use crate::command::Command;
use crate::row::{Answer, Micros, Place, Row, Status};
use std::collections::BTreeMap;

/// The rows before and after one command.
#[derive(Debug)]
pub struct Step<'a> {
    /// What was done.
    pub command: &'a Command,
    /// What came of it.
    pub answer: &'a Answer,
    /// The rows before, and the clock at that time.
    pub before: (&'a BTreeMap<Place, Row>, Micros),
    /// The rows afterwards, and the clock at that time.
    pub after: (&'a BTreeMap<Place, Row>, Micros),
    /// The latest time that the store's clock ever showed. A swap is decided from a reading and lands some time later;
    /// if the clock stepped back in between, a lease that was over then may seem to run again.
    pub latest: Micros,
}

impl Step<'_> {
    /// Checks every row.
    ///
    /// # Panics
    ///
    /// If one of the promises is broken, with its letter.
    pub fn check(&self) {
        for (place, row) in self.before.0 {
            match self.after.0.get(place) {
                None => self.row_is_gone(*place, row),
                Some(after) => self.row_changed(*place, row, after),
            }
        }
        for (place, row) in self.after.0 {
            if !self.before.0.contains_key(place) {
                assert!(self.touches(*place), "H: a row appeared at another place");
                assert_eq!(row.attempt, 1, "A: a row begins with its first owner");
                assert!(self.many_writes() || row.status == Status::Working, "A: a row begins with its first owner");
            }
        }
        self.grant_is_true();
    }

    fn row_is_gone(&self, place: Place, row: &Row) {
        // What is over at the later of two readings of the clock may have been over when the store looked.
        let clock = self.after.1;
        match self.command {
            Command::Erase { scope, everything } => {
                assert_eq!(place / 2, *scope, "H: another scope was erased");
                assert!(*everything || row.status != Status::Working, "L: an operation under way was erased");
            }
            Command::Purge { unresolved_after, .. } => {
                let given_up =
                    row.stuck(clock) && unresolved_after.is_some_and(|grace| row.expires_at + grace <= clock);
                assert!(row.expired(clock) || given_up, "L: a purge removed what is not dead");
            }
            other => panic!("L: {other:?} removed a row"),
        }
    }

    fn row_changed(&self, place: Place, before: &Row, after: &Row) {
        if before == after {
            return;
        }
        assert!(self.touches(place), "H: a row changed at another place");
        let clock = self.latest;
        if matches!(before.status, Status::Done(_)) {
            assert!(before.expired(clock), "C: a completed answer changed before it expired");
        }
        let same_ownership = (before.owner, before.locked_at) == (after.owner, after.locked_at);
        if same_ownership {
            assert_eq!(before.status, Status::Working, "C: a settled row changed under its own version");
            assert_eq!(before.request, after.request, "G: a request changed under its owner");
            assert_eq!(before.attempt, after.attempt, "D: an attempt was counted without a new owner");
            return;
        }
        assert!(after.locked_at > before.locked_at, "D: the fencing token did not grow");
        assert!(self.many_writes() || after.status == Status::Working, "D: an ownership began settled");
        if before.owner != after.owner {
            // The clock may be read after a lease ended that ran when the store looked, but never the other way round.
            assert!(!before.alive(clock), "A: a live owner was replaced");
        }
        if after.created_at == before.created_at {
            assert_eq!(before.request, after.request, "G: a request changed within a life");
            assert!(after.unresolved >= before.unresolved, "an unknown past was forgotten");
            assert!(after.effect_begun || !before.effect_begun, "an effect was forgotten");
        } else {
            assert!(before.expired(clock), "C: a new life began before the old one expired");
        }
    }

    /// Whether the command may have changed one row more than once: a late claim and a late settlement of one owner.
    fn many_writes(&self) -> bool {
        matches!(self.command, Command::LandLate)
    }

    /// Whether the command may change the row at `place`. Late writes may be for any of them; an owner knows its own.
    fn touches(&self, place: Place) -> bool {
        match self.command {
            Command::Ask { terms, .. } => terms.place == place,
            Command::AskAgain { .. }
            | Command::Take { .. }
            | Command::Progress { .. }
            | Command::Settle { .. }
            | Command::Resolve { .. }
            | Command::LandLate => true,
            Command::Die { .. }
            | Command::Load(_)
            | Command::Purge { .. }
            | Command::Erase { .. }
            | Command::Stuck { .. }
            | Command::Stats
            | Command::MoveClock(_) => false,
        }
    }

    fn grant_is_true(&self) {
        match self.answer {
            Answer::Granted(granted) => {
                assert!(self.after.0.values().any(|row| row == granted), "I: a grant that no row bears out");
            }
            Answer::NotApplied => assert_eq!(self.before.0, self.after.0, "I: not applied, and yet there"),
            Answer::Mismatch | Answer::Replay(_) | Answer::InProgress(..) | Answer::Abandoned(_) => {
                assert_eq!(self.before.0, self.after.0, "a caller that was refused wrote something");
            }
            _ => {}
        }
        if let (Answer::Replay(answer), Command::Ask { terms, .. }) = (self.answer, self.command) {
            let row = self.after.0.get(&terms.place).expect("a replay comes from a row");
            assert_eq!((row.request, row.status), (terms.request, Status::Done(*answer)), "G: somebody else's answer");
        }
        if let (Answer::Mismatch, Command::Ask { terms, .. }) = (self.answer, self.command) {
            let row = self.after.0.get(&terms.place).expect("a mismatch comes from a row");
            assert_ne!(row.request, terms.request, "G: a mismatch for the same request");
        }
    }
}
