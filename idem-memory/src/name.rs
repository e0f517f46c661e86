//! An identity that is hashed once, for its shard and for its slot in there.

use idem_core::Identity;
use std::borrow::Borrow;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// An identity and its hash, as the key of a table.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    hash: u64,
    identity: Identity,
}

/// The same, borrowed: what a call looks a record up by, without cloning the identity.
#[derive(Clone, Copy)]
pub(crate) struct NameRef<'a> {
    pub(crate) hash: u64,
    pub(crate) identity: &'a Identity,
}

impl Name {
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }
}

impl NameRef<'_> {
    pub(crate) fn to_name(self) -> Name {
        Name { hash: self.hash, identity: self.identity.clone() }
    }
}

/// What a [`Name`] and a [`NameRef`] have in common. A table of the one is searched by the other as `dyn Named`,
/// because `HashMap` finds only what its key can be borrowed as.
pub(crate) trait Named {
    fn parts(&self) -> NameRef<'_>;
}

impl Named for Name {
    fn parts(&self) -> NameRef<'_> {
        NameRef { hash: self.hash, identity: &self.identity }
    }
}

impl Named for NameRef<'_> {
    fn parts(&self) -> NameRef<'_> {
        *self
    }
}

impl<'a> Borrow<dyn Named + 'a> for Name {
    fn borrow(&self) -> &(dyn Named + 'a) {
        self
    }
}

impl PartialEq for dyn Named + '_ {
    fn eq(&self, other: &Self) -> bool {
        let (mine, other) = (self.parts(), other.parts());
        mine.hash == other.hash && mine.identity == other.identity
    }
}

impl Eq for dyn Named + '_ {}

impl Hash for dyn Named + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.parts().hash);
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// The hasher of a table of [`Name`]s: the hash is already there. It comes from a keyed hasher, so that nobody outside
/// can choose keys that collide.
#[derive(Default)]
pub(crate) struct AlreadyHashed(u64);

pub(crate) type BuildAlreadyHashed = BuildHasherDefault<AlreadyHashed>;

impl Hasher for AlreadyHashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, bytes: &[u8]) {
        // A `Name` writes one `u64` and nothing else; any mixture of other bytes would still be a correct hash.
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }
}
