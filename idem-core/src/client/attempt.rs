//! What came of one attempt: [`Attempt`].

use crate::http::ProblemKind;
use std::time::{Duration, SystemTime};

/// What came of sending a request once, as far as the next step depends on it.
///
/// # Examples
///
/// ```
/// use idem_core::client::Attempt;
/// use std::time::SystemTime;
///
/// let busy = Attempt::answered(409)
///     .with_retry_after("2", SystemTime::UNIX_EPOCH)
///     .with_problem_type("https://github.com/idem-rs/idem/blob/main/docs/problems.md#in-progress");
/// let lost = Attempt::unanswered();
/// assert_ne!(busy, lost);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the rules say what to do about it"]
pub struct Attempt {
    pub(super) status: Option<u16>,
    pub(super) replayed: bool,
    pub(super) retry_after: Option<Duration>,
    pub(super) problem: Option<ProblemKind>,
}

impl Attempt {
    /// An answer came, whole, with this status.
    pub const fn answered(status: u16) -> Self {
        Self { status: Some(status), replayed: false, retry_after: None, problem: None }
    }

    /// No answer came, or not all of it: no connection, a reset, the client's own timeout. The operation may have run.
    pub const fn unanswered() -> Self {
        Self { status: None, replayed: false, retry_after: None, problem: None }
    }

    /// Whether the answer says [`idempotent-replayed: true`](crate::http::IDEMPOTENT_REPLAYED): it was stored, and will
    /// be the same for ever. Defaults to no.
    pub const fn with_replayed(mut self, replayed: bool) -> Self {
        self.replayed = replayed;
        self
    }

    /// The answer's `Retry-After`, in either of its forms: seconds, or a date, which is counted from `now`. Best is the
    /// answer's own `Date`, since the clocks of two machines differ; else the client's clock. A date that has passed
    /// means at once, and a value that is neither form is as none. Defaults to none.
    pub fn with_retry_after(mut self, value: &str, now: SystemTime) -> Self {
        self.retry_after = delay(value.trim(), now);
        self
    }

    /// The `type` member of an `application/problem+json` body. One that is not in
    /// [`ProblemKind`] says nothing. Defaults to none.
    pub fn with_problem_type(mut self, uri: &str) -> Self {
        self.problem = ProblemKind::from_uri(uri);
        self
    }
}

fn delay(value: &str, now: SystemTime) -> Option<Duration> {
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit are a long time.
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(now).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        // Sun, 06 Nov 1994 08:49:37 GMT
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (value, expected) in [
            ("0", seconds(0)),
            ("120", seconds(120)),
            (" 7\t", seconds(7)),
            ("99999999999999999999999999", seconds(u64::MAX)),
            ("Sun, 06 Nov 1994 08:49:47 GMT", seconds(10)),
            // The two obsolete forms that a recipient still has to take.
            ("Sunday, 06-Nov-94 08:49:47 GMT", seconds(10)),
            ("Sun Nov  6 08:49:47 1994", seconds(10)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", seconds(0)),
            ("Sun, 06 Nov 1994 08:49:36 GMT", seconds(0)),
            ("", None),
            ("-1", None),
            ("+1", None),
            ("1.5", None),
            ("soon", None),
            ("Sun, 06 Nov 1994 08:49:47 CET", None),
            ("\u{661}", None),
        ] {
            assert_eq!(Attempt::answered(503).with_retry_after(value, now).retry_after, expected, "{value:?}");
        }
    }
}
