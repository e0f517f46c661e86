//! Longer texts, kept here so that their links are checked.

#[doc = include_str!("promises.md")]
pub mod promises {}

#[doc = include_str!("choosing.md")]
pub mod choosing {}

#[doc = include_str!("effects.md")]
pub mod effects {}
