//! What a response means for its key: [`Meaning`].

use http::StatusCode;
use http::response::Parts;

/// What a handler's response means for its key.
///
/// The layer asks its classifier, by default [`classify`]; a handler that knows better puts a `Meaning` into its
/// response's extensions, which counts instead.
///
/// # Examples
///
/// ```
/// use idem_tower::Meaning;
///
/// let mut declined_before_the_call = http::Response::new("the provider's circuit is open");
/// *declined_before_the_call.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
/// // Nothing happened: the answer is not stored, and a retry with the same key runs.
/// declined_before_the_call.extensions_mut().insert(Meaning::NoEffect);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Meaning {
    /// The operation is done and this is its answer, success or not: stored, and replayed to every repeat.
    Final,
    /// Nothing happened; a retry runs. Refused once an effect may have begun: then it is [`Unknown`](Self::Unknown).
    NoEffect,
    /// Nothing happened: the handler looked the effect up at its sink, not only in its own memory. A retry runs.
    VerifiedNoEffect,
    /// Something may have happened and the handler cannot tell: not stored, and a retry takes over as the layer's
    /// [`Takeover`](idem_core::Takeover) says.
    Unknown,
}

/// In the headers only of a response that has nothing else, as a refusal has.
const RESOURCE_EXHAUSTED: &str = "8";

/// The default classifier: 408, 425 and 429, and gRPC's `RESOURCE_EXHAUSTED`, mean that nothing happened, unless an
/// effect may have begun; everything else is final.
///
/// A 500 is final too: a handler that crashed half-way has done half the work, and running it again does that half
/// twice. Handlers that can do better say so by [`Meaning`].
#[must_use]
pub fn classify(head: &Parts, effect_may_have_begun: bool) -> Meaning {
    let come_back_later =
        matches!(head.status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS)
            || head.headers.get("grpc-status").is_some_and(|status| status == RESOURCE_EXHAUSTED);
    if come_back_later && !effect_may_have_begun { Meaning::NoEffect } else { Meaning::Final }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_says_come_back_later_is_not_stored() {
        for status in 100..=599 {
            let (head, ()) = http::Response::builder().status(status).body(()).unwrap().into_parts();
            let later = matches!(status, 408 | 425 | 429);
            assert_eq!(classify(&head, false), if later { Meaning::NoEffect } else { Meaning::Final }, "{status}");
            assert_eq!(classify(&head, true), Meaning::Final, "{status}");
        }
        for (status, meaning) in [("8", Meaning::NoEffect), ("14", Meaning::Final), ("0", Meaning::Final)] {
            let response = http::Response::builder().header("grpc-status", status).body(()).unwrap();
            assert_eq!(classify(&response.into_parts().0, false), meaning, "{status}");
        }
    }
}
