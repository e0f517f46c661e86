//! Why a new key was refused: [`CapacityError`].

use std::fmt;

/// The store holds as much as it may, and nothing in it has expired.
///
/// It is the source of every [`Error`](idem_core::Error) of kind [`Capacity`](idem_core::ErrorKind::Capacity) from this
/// back end. Nothing was written, and keys that are known are still answered.
///
/// # Examples
///
/// ```
/// use idem_memory::{CapacityError, Limit};
/// use std::error::Error;
///
/// fn limit_reached(error: &idem_core::Error) -> Option<Limit> {
///     Some(error.source()?.downcast_ref::<CapacityError>()?.limit())
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapacityError {
    limit: Limit,
    allowed: usize,
}

/// A limit of [`MemoryConfig`](crate::MemoryConfig).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// [`max_records`](crate::MemoryConfig::with_max_records).
    Records,
    /// [`max_bytes`](crate::MemoryConfig::with_max_bytes).
    Bytes,
}

impl CapacityError {
    pub(crate) fn new(limit: Limit, allowed: usize) -> Self {
        Self { limit, allowed }
    }

    /// Which limit was reached.
    #[must_use]
    pub fn limit(&self) -> Limit {
        self.limit
    }

    /// How many records, or bytes, the store may hold.
    #[must_use]
    pub fn allowed(&self) -> usize {
        self.allowed
    }
}

impl fmt::Display for CapacityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, setting) = match self.limit {
            Limit::Records => ("records", "with_max_records"),
            Limit::Bytes => ("bytes", "with_max_bytes"),
        };
        write!(
            f,
            "{} {what} are in use and none of them has expired: shorten the retention, or raise `MemoryConfig::{setting}`",
            self.allowed
        )
    }
}

impl std::error::Error for CapacityError {}
