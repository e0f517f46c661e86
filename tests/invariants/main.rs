//! The promises, one file each, at the level of the store.
