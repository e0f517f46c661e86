//! How long callers have been told "busy": what makes the cap hold, whatever others write into Redis.

use std::collections::HashMap;
use std::mem;
use std::time::Duration;
use tokio::time::Instant;

/// How many names are remembered at least, the latest ones; at most twice as many.
const REMEMBERED: usize = 8_192;

/// Redis counts in milliseconds, so that an entry may live for one more than it was given. An honest one is over first.
const TICK: Duration = Duration::from_millis(2);

/// Since when callers of this process have been told "busy" of a name, with no question to the store in between.
///
/// An entry ends after the cap. But another can follow at once: of somebody who means harm, or of a store that uses
/// this Redis under the same prefix.
#[derive(Default)]
pub(crate) struct Patience {
    young: HashMap<String, Instant>,
    /// What was young when that was full last.
    old: HashMap<String, Instant>,
}

impl Patience {
    /// Whether a name that is busy now has been so for the cap; then it begins anew, for the store is about to be
    /// asked.
    pub(crate) fn is_over(&mut self, name: &str, now: Instant, cap: Duration) -> bool {
        match self.young.get(name).or_else(|| self.old.get(name)) {
            Some(since) if now.saturating_duration_since(*since) < cap + TICK => false,
            Some(_) => {
                self.asked(name);
                true
            }
            None => {
                if self.young.len() >= REMEMBERED {
                    self.old = mem::take(&mut self.young);
                }
                self.young.insert(name.to_owned(), now);
                false
            }
        }
    }

    /// The store is asked.
    pub(crate) fn asked(&mut self, name: &str) {
        self.young.remove(name);
        self.old.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAP: Duration = Duration::from_secs(2);

    #[test]
    fn a_name_is_busy_for_the_cap_and_no_longer() {
        let (mut patience, began) = (Patience::default(), crate::link::now());
        for round in 0..3 {
            let began = began + round * 10 * CAP;
            assert!(!patience.is_over("a", began, CAP));
            assert!(!patience.is_over("a", began + CAP, CAP));
            assert!(!patience.is_over("b", began + CAP, CAP));
            assert!(patience.is_over("a", began + CAP + TICK, CAP));
            patience.asked("b");
        }
        // Long ago is over, too: who asks seldom is not put off each time.
        assert!(!patience.is_over("a", began + 100 * CAP, CAP));
        assert!(patience.is_over("a", began + 200 * CAP, CAP));
        // A question in between is an answer.
        assert!(!patience.is_over("a", began + 300 * CAP, CAP));
        patience.asked("a");
        assert!(!patience.is_over("a", began + 301 * CAP, CAP));
    }

    #[test]
    fn many_names_do_not_grow_it_without_end_and_the_latest_are_remembered() {
        let (mut patience, began) = (Patience::default(), crate::link::now());
        let name = |number: usize| format!("name-{number}");
        for number in 0..REMEMBERED * 5 {
            assert!(!patience.is_over(&name(number), began, CAP));
            assert!(patience.young.len() + patience.old.len() <= REMEMBERED * 2);
        }
        for number in REMEMBERED * 4..REMEMBERED * 5 {
            assert!(patience.is_over(&name(number), began + CAP + TICK, CAP), "{number}");
        }
    }
}
