//! The cases, and the one list of them.

mod cancellation;
mod claims;
mod data;
mod list;
mod maintenance;
mod ownership;
mod progress;
mod races;
mod retention;
mod settling;
mod standing;
mod swaps;
mod trial;

use super::case::Case;
use std::pin::Pin;
pub(super) use trial::Trial;

pub(super) type CaseFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

macro_rules! table_of_cases {
    (() $($subject:ident { $($name:ident: $invariant:literal,)* })*) => {
        /// Every case, in the order of the list.
        pub const CASES: &[Case] = &[$($(
            Case {
                name: stringify!($name),
                subject: stringify!($subject),
                invariant: $invariant,
                program: |trial| Box::pin($subject::$name(trial)),
            },
        )*)*];
    };
}

crate::__idem_conformance_cases!((table_of_cases));
