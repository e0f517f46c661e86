//! The entries: their names, their values, and what a reader believes of them.
//!
//! | entry | value | lives | a reader |
//! |---|---|---|---|
//! | none | | | announces itself as busy and asks the store |
//! | busy | `1`, `b`, 16 bytes of the owner | at most the cap | answers `Busy`, unless the owner is itself |
//! | settled | `1`, `s` | some seconds | asks the store, and so does everybody else at the same time |
//!
//! Two rules keep the cache from changing an outcome:
//!
//! * **Only an announcement makes an entry busy**, and it goes before its announcer asks the store. So no busy entry is
//!   younger than the announcer's question, and a settlement, whose mark comes after its write, finds every
//!   announcement that was made before it. What gets lost or comes late leaves a busy entry, which its cap ends.
//! * **Everything else only takes busy away**: the mark of a settlement and a deletion, both without a condition. Taken
//!   away too early, it costs the store a question.

use idem_core::{Identity, Owner};
use sha2::{Digest, Sha256};
use std::time::Duration;

const DOMAIN: &[u8] = b"idem/redis-cache/v1";
const VERSION: u8 = b'1';
const BUSY: u8 = b'b';
const SETTLED: [u8; 2] = [VERSION, b's'];
const BUSY_LENGTH: usize = 18;

/// How many bytes of a value are read at most: one more than there can be.
pub(crate) const READ_LENGTH: usize = BUSY_LENGTH + 1;

/// The name of an identity's entry: 32 hexadecimal digits behind the prefix. Nothing of the identity can be read off
/// it.
pub(crate) fn name(prefix: &str, identity: &Identity) -> String {
    let mut hash = Sha256::new();
    hash.update(DOMAIN);
    for part in [identity.scope().as_str(), identity.key().as_str()] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    let digest = hash.finalize();
    let mut name = String::with_capacity(prefix.len() + 32);
    name.push_str(prefix);
    for byte in &digest[..16] {
        for nibble in [byte >> 4, byte & 15] {
            name.push(char::from_digit(nibble.into(), 16).unwrap_or_default());
        }
    }
    name
}

/// The value of a busy entry.
pub(crate) fn busy(owner: Owner) -> [u8; BUSY_LENGTH] {
    let mut value = [0; BUSY_LENGTH];
    value[..2].copy_from_slice(&[VERSION, BUSY]);
    value[2..].copy_from_slice(owner.as_uuid().as_bytes());
    value
}

/// The value of a settled entry.
pub(crate) fn settled() -> [u8; 2] {
    SETTLED
}

/// What an entry says to a claimer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Its own announcement, or somebody's settlement, or nothing: ask the store.
    Ask,
    /// Somebody else is working on it, and the entry lives for so long yet.
    Busy(Duration),
    /// Something that nobody writes: take it away and ask the store.
    Strange,
}

/// What to believe of an entry, given the first bytes of its value and for how long it lives, as `PTTL` tells: nothing
/// that this cache would not have written.
pub(crate) fn read(value: &[u8], lives_ms: i64, me: Owner, cap: Duration) -> Seen {
    // There is none, or it died between the two looks.
    if value.is_empty() || lives_ms == -2 {
        return Seen::Ask;
    }
    // Without an end, it would never go away.
    let Ok(lives) = u64::try_from(lives_ms).map(Duration::from_millis) else { return Seen::Strange };
    if value == SETTLED {
        return Seen::Ask;
    }
    match value.strip_prefix(&[VERSION, BUSY]) {
        Some(owner) if owner == me.as_uuid().as_bytes() => Seen::Ask,
        // An end that is farther away than anybody sets it is as bad as none.
        Some(owner) if owner.len() == BUSY_LENGTH - 2 && lives <= cap => Seen::Busy(lives),
        Some(_) | None => Seen::Strange,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use idem_core::{Key, Scope};
    use uuid::Uuid;

    const CAP: Duration = Duration::from_secs(2);

    fn identity(scope: &str, key: &str) -> Identity {
        Identity::new(Scope::new(scope).unwrap(), Key::new(key).unwrap())
    }

    #[test]
    fn names_differ_where_identities_do_and_show_nothing_of_them() {
        let names = [("a", "bc"), ("ab", "c"), ("a", "b"), ("b", "a")].map(|(s, k)| name("idem:", &identity(s, k)));
        for (n, one) in names.iter().enumerate() {
            assert!(one.starts_with("idem:") && one.len() == 37);
            assert!(names[n + 1..].iter().all(|other| other != one));
        }
        assert_eq!(names[0], "idem:1d285beaecfef70bb5bdcef9cfa721a8");
    }

    #[test]
    fn only_what_this_cache_writes_is_believed() {
        let (me, other) = (Owner::from_uuid(Uuid::from_u128(1)), Owner::from_uuid(Uuid::from_u128(2)));
        let ours = busy(other);
        let long = [&ours[..], b"x"].concat();
        let table: [(&[u8], i64, Seen); 15] = [
            (b"", -2, Seen::Ask),
            (&ours, -2, Seen::Ask),
            (&busy(me), 1_500, Seen::Ask),
            (&ours, 1_500, Seen::Busy(Duration::from_millis(1_500))),
            (&ours, 2_000, Seen::Busy(CAP)),
            (&ours, 2_001, Seen::Strange),
            (&ours, -1, Seen::Strange),
            (&settled(), 60_000, Seen::Ask),
            (&settled(), -1, Seen::Strange),
            (&ours[..17], 1_500, Seen::Strange),
            (&long, 1_500, Seen::Strange),
            (b"2b0123456789abcdef", 1_500, Seen::Strange),
            (b"1c0123456789abcdef", 1_500, Seen::Strange),
            (b"completed", 1_500, Seen::Strange),
            (&[0xff; READ_LENGTH], 1_500, Seen::Strange),
        ];
        for (value, lives, seen) in table {
            assert_eq!(read(value, lives, me, CAP), seen, "{value:?} for {lives} ms");
        }
    }
}
