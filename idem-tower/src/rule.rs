//! Which requests need a key: [`KeyRule`].

use http::Method;
use http::request::Parts;

/// Whether a request needs a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyRule {
    /// Without a key it is refused with 400.
    Required,
    /// Without a key it goes through unprotected; with one it is protected.
    Optional,
    /// It goes through, and a key that it may have means nothing.
    Ignored,
}

/// The default rule: POST and PATCH need a key, everything else goes through.
#[must_use]
pub fn required_for_post_and_patch(head: &Parts) -> KeyRule {
    if head.method == Method::POST || head.method == Method::PATCH { KeyRule::Required } else { KeyRule::Ignored }
}
