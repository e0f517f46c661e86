//! Keys on which somebody waits already: [`Blocked`].
//!
//! A claim that meets a rival's uncommitted claim waits for it with a connection in its hands. Without a bound, a hundred
//! callers of one such key take every connection of the pool, and all other keys wait with them. So once a claim has
//! waited for nothing, the next first asks for its key are answered `Busy` at once, and one at a time goes to see whether
//! the rival has decided.

use idem_core::Identity;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// More keys than this are not remembered: then a claim waits, as it would without any memory.
const MAX_KEYS: usize = 1_024;

/// Keys whose rival had not decided when somebody last looked, and until when nobody need look again.
pub(crate) struct Blocked {
    until: Mutex<HashMap<Identity, Instant>>,
    /// For how long one look counts: the lock timeout, so that one connection at the most waits for a key.
    pause: Duration,
}

impl Blocked {
    pub(crate) fn new(pause: Duration) -> Self {
        Self { until: Mutex::default(), pause }
    }

    /// Whether a claim of this key may go and see. If not, somebody else is about to know, or just looked.
    pub(crate) fn may_look(&self, identity: &Identity, now: Instant) -> bool {
        match self.keys().get_mut(identity) {
            None => true,
            Some(until) if *until > now => false,
            Some(until) => {
                *until = now + self.pause;
                true
            }
        }
    }

    /// The rival of this key has still not decided.
    pub(crate) fn remember(&self, identity: &Identity, now: Instant) {
        let mut keys = self.keys();
        if keys.len() >= MAX_KEYS {
            keys.retain(|_, until| *until > now);
        }
        if keys.len() < MAX_KEYS {
            keys.insert(identity.clone(), now + self.pause);
        }
    }

    /// The key's row could be read.
    pub(crate) fn forget(&self, identity: &Identity) {
        let mut keys = self.keys();
        if !keys.is_empty() {
            keys.remove(identity);
        }
    }

    fn keys(&self) -> MutexGuard<'_, HashMap<Identity, Instant>> {
        // Nothing panics while it is held, and whatever is in it is only a hint.
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::now;
    use idem_core::{Key, Scope};

    fn identity(number: usize) -> Identity {
        Identity::new(Scope::new("s").unwrap(), Key::new(format!("k{number}")).unwrap())
    }

    #[test]
    fn one_at_a_time_goes_to_see() {
        let blocked = Blocked::new(Duration::from_secs(1));
        let (key, start) = (identity(1), now());
        assert!(blocked.may_look(&key, start), "nobody waits yet");
        blocked.remember(&key, start);
        assert!(!blocked.may_look(&key, start + Duration::from_millis(999)));
        assert!(blocked.may_look(&key, start + Duration::from_secs(1)), "the first one after the pause");
        assert!(!blocked.may_look(&key, start + Duration::from_secs(1)), "and no other");
        assert!(blocked.may_look(&identity(2), start), "other keys are other keys");
        blocked.forget(&key);
        assert!(blocked.may_look(&key, start + Duration::from_secs(1)));
    }

    #[test]
    fn memory_is_bounded() {
        let blocked = Blocked::new(Duration::from_secs(1));
        let start = now();
        for number in 0..2 * MAX_KEYS {
            blocked.remember(&identity(number), start);
        }
        assert_eq!(blocked.keys().len(), MAX_KEYS);
        blocked.remember(&identity(0), start + Duration::from_secs(2));
        assert_eq!(blocked.keys().len(), 1, "what is over makes room");
    }
}
