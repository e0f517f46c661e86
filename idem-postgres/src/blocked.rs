//! Keys on which somebody waits already: [`Blocked`].
//!
//! A claim that meets a rival's uncommitted claim waits for it with a connection in its hands. Without a bound, a hundred
//! callers of one such key take every connection of the pool, and all other keys wait with them. So once a claim has
//! waited for nothing, the next first asks for its key are answered `Busy` at once, and one at a time goes to see whether
//! the rival has decided.

use crate::link::now;
use idem_core::Identity;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// More keys than this are not remembered: then a claim waits, as it would without any memory.
const MAX_KEYS: usize = 1_024;

/// Keys whose rival had not decided when somebody last looked.
pub(crate) struct Blocked {
    keys: Mutex<HashMap<Identity, Sight>>,
    /// For how long one look counts.
    pause: Duration,
}

enum Sight {
    /// Nobody need look until then.
    Until(Instant),
    /// Somebody is looking, however long that takes on a busy server.
    Looking,
}

/// Leave to go and see what became of a key. If it is dropped without a result, the next one may go at once.
pub(crate) struct Look<'a> {
    blocked: &'a Blocked,
    /// `None` if nobody waits for the key, as far as is known.
    identity: Option<Identity>,
}

impl Look<'_> {
    /// Whether somebody waits for the key, as far as is known.
    pub(crate) fn is_at_a_blocked_key(&self) -> bool {
        self.identity.is_some()
    }
}

impl Blocked {
    pub(crate) fn new(pause: Duration) -> Self {
        Self { keys: Mutex::default(), pause }
    }

    /// Leave for a claim of this key to go and see. If there is none, somebody else is about to know, or just looked.
    pub(crate) fn may_look(&self, identity: &Identity, now: Instant) -> Option<Look<'_>> {
        let mut keys = self.keys();
        let identity = match keys.get_mut(identity) {
            None => None,
            Some(Sight::Looking) => return None,
            Some(Sight::Until(until)) if *until > now => return None,
            Some(sight) => {
                *sight = Sight::Looking;
                Some(identity.clone())
            }
        };
        Some(Look { blocked: self, identity })
    }

    /// The rival of this key has still not decided.
    pub(crate) fn remember(&self, identity: &Identity, now: Instant) {
        let mut keys = self.keys();
        if keys.len() >= MAX_KEYS {
            keys.retain(|_, sight| match sight {
                Sight::Until(until) => *until > now,
                Sight::Looking => true,
            });
        }
        if keys.len() < MAX_KEYS || keys.contains_key(identity) {
            keys.insert(identity.clone(), Sight::Until(now + self.pause));
        }
    }

    /// The key's row could be read.
    pub(crate) fn forget(&self, identity: &Identity) {
        let mut keys = self.keys();
        if !keys.is_empty() {
            keys.remove(identity);
        }
    }

    fn keys(&self) -> MutexGuard<'_, HashMap<Identity, Sight>> {
        // Nothing panics while it is held, and whatever is in it is only a hint.
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        if let Some(identity) = &self.identity
            && let Some(sight @ Sight::Looking) = self.blocked.keys().get_mut(identity)
        {
            *sight = Sight::Until(now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use idem_core::{Key, Scope};

    fn identity(number: usize) -> Identity {
        Identity::new(Scope::new("s").unwrap(), Key::new(format!("k{number}")).unwrap())
    }

    #[test]
    fn one_at_a_time_goes_to_see() {
        let blocked = Blocked::new(Duration::from_secs(1));
        let (key, start) = (identity(1), now());
        let late = start + Duration::from_secs(100);
        assert!(blocked.may_look(&key, start).is_some(), "nobody waits yet");
        blocked.remember(&key, start);
        assert!(blocked.may_look(&key, start + Duration::from_millis(999)).is_none());
        let look = blocked.may_look(&key, start + Duration::from_secs(1));
        assert!(look.is_some(), "the first one after the pause");
        assert!(blocked.may_look(&key, late).is_none(), "and no other, however long it takes");
        assert!(blocked.may_look(&identity(2), start).is_some(), "other keys are other keys");
        // It still has not decided.
        blocked.remember(&key, late);
        drop(look);
        assert!(blocked.may_look(&key, late).is_none());
        blocked.forget(&key);
        assert!(blocked.may_look(&key, late).is_some());
    }

    #[test]
    fn who_is_gone_before_it_saw_anything_leaves_the_look_to_the_next() {
        let blocked = Blocked::new(Duration::from_secs(1));
        let (key, start) = (identity(1), now());
        blocked.remember(&key, start);
        let late = start + Duration::from_secs(100);
        drop(blocked.may_look(&key, late));
        assert!(blocked.may_look(&key, late).is_some());
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
