//! When a request is sent again, and after which pause: [`RetryRules`].

use super::attempt::Attempt;
use crate::http::{Advice, ProblemKind};
use std::time::Duration;
use uuid::Uuid;

/// When to send a request again with the same key, and after which pause.
///
/// | what came | what to do |
/// |---|---|
/// | no answer | retry |
/// | a replay, whatever its status | stop: the answer will never be another |
/// | a problem of a [kind](ProblemKind) that is known | as its [advice](ProblemKind::advice) says |
/// | 408, 425, 429, 5xx | retry |
/// | 422 | stop: a corrected request needs a new key |
/// | anything else, a 409 of somebody else's too | stop: that is the answer |
///
/// | setting | default | meaning |
/// |---|---|---|
/// | `max_attempts` | 10 | how often a request is sent, the first time included |
/// | `base_delay` | 200 ms | the longest first pause; it doubles from there |
/// | `max_delay` | 30 s | the longest pause that the rules choose themselves |
/// | `max_retry_after` | 5 min | how much of a server's `Retry-After` is honoured |
/// | `budget` | 15 min | how long one series of attempts may take, pauses included |
/// | `window` | 24 h | how long the server remembers a key, from the first attempt |
///
/// A pause is chosen by chance between half of what the doubling gives and all of it, so that clients that failed
/// together do not come back together. With a `Retry-After` it is at least that, and longer by chance by up to half of
/// what the doubling gives.
///
/// # Examples
///
/// ```
/// use idem_core::client::{Attempt, Next, NoRetry, Progress, RetryRules};
/// use std::time::{Duration, SystemTime};
///
/// let rules = RetryRules::default().with_max_attempts(3);
/// let so_far = Progress::new(1, Duration::from_secs(2));
///
/// let busy = Attempt::answered(503).with_retry_after("5", SystemTime::UNIX_EPOCH);
/// let Next::Retry { after } = rules.next(&busy, so_far) else { panic!() };
/// assert!(after >= Duration::from_secs(5));
///
/// let stored = Attempt::answered(500).with_replayed(true);
/// assert_eq!(rules.next(&stored, so_far), Next::Stop { reason: NoRetry::Answered });
///
/// let old_key = so_far.with_key_age(Duration::from_secs(24 * 3600));
/// assert_eq!(rules.next(&busy, old_key), Next::Stop { reason: NoRetry::KeyForgotten });
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "rules do nothing until they are asked"]
pub struct RetryRules {
    max_attempts: u32,
    base_delay: Duration,
    max_delay: Duration,
    max_retry_after: Duration,
    budget: Duration,
    window: Duration,
}

/// How far an operation has come. Times are durations on the caller's clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    attempts: u32,
    elapsed: Duration,
    key_age: Duration,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Send the same request with the same key again.
    Retry {
        /// When: so long from now.
        after: Duration,
    },
    /// Do not send it again.
    Stop {
        /// Why not.
        reason: NoRetry,
    },
}

/// Why a request is not sent again. `Display` says what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum NoRetry {
    /// The answer is the operation's, or a refusal that another attempt would get again.
    #[error("this is the answer")]
    Answered,
    /// The key is another request's, or none. Nothing was run for this request.
    #[error("the request was refused under this key: once corrected it is a new operation and needs a new key")]
    NewKey,
    /// The operation is done, but its answer was not kept.
    #[error("the operation is done and its answer was not kept: look up what it made")]
    Done,
    /// The server does not know what became of the operation and lets nobody run it again.
    #[error("the outcome is unknown and no attempt may settle it: somebody has to look, at the server")]
    SomebodyHasToLook,
    /// As many attempts as there may be have been made. The last one may have taken effect.
    #[error("all attempts are used up: retry later with the same key, or look the operation up")]
    OutOfAttempts,
    /// There is no time left. The last attempt may have taken effect.
    #[error("the time for retries is over: retry later with the same key, or look the operation up")]
    OutOfTime,
    /// The server may have forgotten the key by then: the same key would be a new operation, and so would a new key.
    #[error("the server may have forgotten the key: look the operation up instead of sending it under any key")]
    KeyForgotten,
}

impl Default for RetryRules {
    fn default() -> Self {
        Self {
            max_attempts: 10,
            base_delay: Duration::from_millis(200),
            max_delay: Duration::from_secs(30),
            max_retry_after: Duration::from_secs(5 * 60),
            budget: Duration::from_secs(15 * 60),
            window: Duration::from_secs(24 * 3600),
        }
    }
}

impl RetryRules {
    /// How often a request is sent, the first time included. Defaults to 10.
    pub fn with_max_attempts(mut self, max_attempts: u32) -> Self {
        self.max_attempts = max_attempts;
        self
    }

    /// The longest pause after the first attempt; after each further one it doubles. Defaults to 200 ms.
    pub fn with_base_delay(mut self, base_delay: Duration) -> Self {
        self.base_delay = base_delay;
        self
    }

    /// The longest pause that the rules choose themselves. Defaults to 30 s.
    pub fn with_max_delay(mut self, max_delay: Duration) -> Self {
        self.max_delay = max_delay;
        self
    }

    /// How much of a server's `Retry-After` is honoured: who is told to wait longer comes back after this. Defaults to
    /// 5 minutes.
    pub fn with_max_retry_after(mut self, max_retry_after: Duration) -> Self {
        self.max_retry_after = max_retry_after;
        self
    }

    /// How long one series of attempts may take, pauses included: no retry begins later. Defaults to 15 minutes.
    pub fn with_budget(mut self, budget: Duration) -> Self {
        self.budget = budget;
        self
    }

    /// For how long after the first attempt the server remembers the key: no retry begins later. It is the server's
    /// retention, less the longest time that a request may be under way. Defaults to 24 hours, which is idem's own
    /// default retention.
    pub fn with_window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// Whether a request may be sent whose first attempt was so long ago, for a client that finds a key that it kept
    /// before a crash. If not, [`NoRetry::KeyForgotten`] says what to do.
    #[must_use]
    pub fn may_send(&self, key_age: Duration) -> bool {
        key_age < self.window
    }

    /// What to do after an attempt, with a pause that is drawn by chance.
    #[must_use]
    pub fn next(&self, attempt: &Attempt, progress: Progress) -> Next {
        // Of the 122 random bits of a UUID, 53 that do not hold its version.
        let bits = Uuid::new_v4().as_u64_pair().1 & ((1 << 53) - 1);
        self.next_by(attempt, progress, bits as f64 / (1_u64 << 53) as f64)
    }

    /// As [`next`](Self::next), with a pause that follows from `chance`, 0 to 1: for callers with a source of random
    /// numbers of their own, and for tests. What is outside, or no number, counts as the nearer end, or as 0.
    #[must_use]
    pub fn next_by(&self, attempt: &Attempt, progress: Progress, chance: f64) -> Next {
        if let Some(reason) = verdict(attempt) {
            return Next::Stop { reason };
        }
        let after = self.pause(attempt, progress.attempts, chance);
        let stop = |reason| Next::Stop { reason };
        if !self.may_send(progress.key_age.saturating_add(after)) {
            stop(NoRetry::KeyForgotten)
        } else if progress.attempts >= self.max_attempts {
            stop(NoRetry::OutOfAttempts)
        } else if progress.elapsed.saturating_add(after) > self.budget {
            stop(NoRetry::OutOfTime)
        } else {
            Next::Retry { after }
        }
    }

    fn pause(&self, attempt: &Attempt, attempts: u32, chance: f64) -> Duration {
        let doubled = 2_u32.saturating_pow(attempts.saturating_sub(1));
        let half = self.base_delay.saturating_mul(doubled).min(self.max_delay) / 2;
        let told = attempt.retry_after.map(|told| told.min(self.max_retry_after));
        let chance = if chance.is_nan() { 0.0 } else { chance.clamp(0.0, 1.0) };
        told.unwrap_or(half).saturating_add(half.mul_f64(chance))
    }
}

impl Progress {
    /// After so many attempts, the first of them so long ago.
    #[must_use]
    pub const fn new(attempts: u32, elapsed: Duration) -> Self {
        Self { attempts, elapsed, key_age: elapsed }
    }

    /// How long ago the very first attempt under this key began, in an earlier process perhaps: by the wall clock, from
    /// what was kept with the key. Defaults to what [`new`](Self::new) was given.
    #[must_use]
    pub const fn with_key_age(mut self, key_age: Duration) -> Self {
        self.key_age = key_age;
        self
    }
}

impl NoRetry {
    /// Whether the operation may be unsettled: it may have happened, or may still happen. Then keep the key.
    #[must_use]
    pub const fn is_open(self) -> bool {
        match self {
            Self::Answered | Self::NewKey | Self::Done => false,
            Self::SomebodyHasToLook | Self::OutOfAttempts | Self::OutOfTime | Self::KeyForgotten => true,
        }
    }
}

/// Why this is not worth another attempt, however many there might be.
fn verdict(attempt: &Attempt) -> Option<NoRetry> {
    let status = attempt.status?;
    if attempt.replayed || status < 400 {
        return Some(NoRetry::Answered);
    }
    if let Some(kind) = attempt.problem {
        return match kind.advice() {
            Advice::Retry => None,
            Advice::NewKey => Some(NoRetry::NewKey),
            Advice::Stop => Some(match kind {
                ProblemKind::AnswerNotKept => NoRetry::Done,
                ProblemKind::Abandoned => NoRetry::SomebodyHasToLook,
                _ => NoRetry::Answered,
            }),
        };
    }
    match status {
        408 | 425 | 429 | 500..=599 => None,
        422 => Some(NoRetry::NewKey),
        _ => Some(NoRetry::Answered),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    const FIRST: Progress = Progress::new(1, Duration::ZERO);

    fn stop(reason: NoRetry) -> Next {
        Next::Stop { reason }
    }

    /// Every type that an answer can have: none, somebody else's, and each of ours.
    fn types() -> Vec<(Option<ProblemKind>, Option<String>)> {
        let ours = ProblemKind::ALL.map(|kind| (Some(kind), Some(kind.uri())));
        [(None, None), (None, Some("https://example.com/problems#in-progress".to_owned()))]
            .into_iter()
            .chain(ours)
            .collect()
    }

    /// What every answer leads to, written down once more: `None` is a retry.
    fn expected(status: u16, kind: Option<ProblemKind>) -> Option<NoRetry> {
        use ProblemKind::{
            Abandoned, AnswerNotKept, BodyCutOff, BodyTooLarge, BodyTooSlow, Draining, InProgress, Internal,
            KeyMalformed, KeyMissing, KeyReused, LaterRelease, NothingDone, OutcomeUnknown, Overloaded, ScopeRefused,
            Stopped, StoreUnavailable,
        };
        match (status, kind) {
            (100..=399, _) => Some(NoRetry::Answered),
            (
                _,
                Some(
                    InProgress | NothingDone | OutcomeUnknown | Stopped | Draining | Overloaded | StoreUnavailable
                    | LaterRelease | BodyTooSlow | BodyCutOff | Internal,
                ),
            ) => None,
            (_, Some(KeyReused | KeyMissing | KeyMalformed)) => Some(NoRetry::NewKey),
            (_, Some(AnswerNotKept)) => Some(NoRetry::Done),
            (_, Some(Abandoned)) => Some(NoRetry::SomebodyHasToLook),
            (_, Some(BodyTooLarge | ScopeRefused)) => Some(NoRetry::Answered),
            (408 | 425 | 429, None) => None,
            (422, None) => Some(NoRetry::NewKey),
            (400..=499, None) => Some(NoRetry::Answered),
            (500..=599, None) => None,
            other => panic!("{other:?} has no row in the table"),
        }
    }

    #[test]
    fn every_answer_is_in_the_table() {
        let rules = RetryRules::default();
        let mut retried = 0;
        for status in 100..=599 {
            for (kind, uri) in types() {
                let attempt = Attempt::answered(status);
                let attempt = uri.iter().fold(attempt, |attempt, uri| attempt.with_problem_type(uri));
                let came = rules.next_by(&attempt, FIRST, 1.0);
                let wanted = expected(status, kind).map_or(Next::Retry { after: Duration::from_millis(200) }, stop);
                assert_eq!(came, wanted, "{status} {uri:?}");
                retried += usize::from(matches!(came, Next::Retry { .. }));
                // Whatever it says, it will say it for ever.
                let replay = attempt.with_replayed(true);
                assert_eq!(rules.next_by(&replay, FIRST, 1.0), stop(NoRetry::Answered), "{status} {uri:?}");
            }
        }
        // 103 statuses without a kind of ours in two ways, and 200 statuses with one of eleven kinds.
        assert_eq!(retried, 2 * 103 + 200 * 11);
        assert!(matches!(rules.next(&Attempt::unanswered(), FIRST), Next::Retry { .. }));
        assert_eq!(rules.next(&Attempt::answered(600), FIRST), stop(NoRetry::Answered));
    }

    #[test]
    fn pauses_double_to_the_longest_and_differ_by_chance() {
        let rules = RetryRules::default().with_max_attempts(u32::MAX).with_max_delay(Duration::from_secs(3));
        let after = |attempts, chance| match rules.next_by(
            &Attempt::unanswered(),
            Progress::new(attempts, Duration::ZERO),
            chance,
        ) {
            Next::Retry { after } => after,
            other => panic!("{other:?}"),
        };
        let millis = |attempts, chance| after(attempts, chance).as_millis();
        assert_eq!(
            [1, 2, 3, 4, 5, 6, 1_000].map(|attempts| millis(attempts, 1.0)),
            [200, 400, 800, 1_600, 3_000, 3_000, 3_000]
        );
        assert_eq!([0.0, 0.5, 1.0].map(|chance| millis(2, chance)), [200, 300, 400]);
        assert_eq!([-1.0, f64::NAN, f64::INFINITY].map(|chance| millis(2, chance)), [200, 200, 400]);
        let drawn: std::collections::HashSet<Duration> = (0..100)
            .map(|_| match rules.next(&Attempt::unanswered(), FIRST) {
                Next::Retry { after } => after,
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(drawn.len() > 50, "a hundred pauses by chance: {drawn:?}");
        let (least, most) = (Duration::from_millis(100), Duration::from_millis(200));
        assert!(drawn.iter().all(|after| (least..=most).contains(after)), "{drawn:?}");
    }

    #[test]
    fn retry_after_is_honoured_up_to_a_bound() {
        let rules = RetryRules::default().with_max_retry_after(Duration::from_secs(60));
        let after = |status, value, chance| {
            rules.next_by(&Attempt::answered(status).with_retry_after(value, SystemTime::UNIX_EPOCH), FIRST, chance)
        };
        let retry = |millis| Next::Retry { after: Duration::from_millis(millis) };
        for status in [408, 425, 429, 500, 503] {
            assert_eq!(after(status, "7", 0.0), retry(7_000));
            assert_eq!(after(status, "7", 1.0), retry(7_100));
            assert_eq!(after(status, "61", 0.0), retry(60_000));
            assert_eq!(after(status, "99999999999999999999", 0.0), retry(60_000));
            assert_eq!(after(status, "Thu, 01 Jan 1970 00:00:09 GMT", 0.0), retry(9_000));
            assert_eq!(after(status, "soon", 0.0), retry(100));
        }
        assert_eq!(after(400, "7", 0.0), stop(NoRetry::Answered), "a Retry-After makes nothing worth a retry");
    }

    #[test]
    fn attempts_time_and_the_servers_memory_end() {
        let second = Duration::from_secs(1);
        let rules = RetryRules::default().with_max_attempts(3).with_budget(10 * second).with_window(60 * second);
        let next = |progress| {
            rules.next_by(&Attempt::answered(503).with_retry_after("2", SystemTime::UNIX_EPOCH), progress, 0.0)
        };
        let retry = Next::Retry { after: 2 * second };
        assert_eq!(next(Progress::new(2, 8 * second)), retry);
        assert_eq!(next(Progress::new(3, 8 * second)), stop(NoRetry::OutOfAttempts));
        assert_eq!(next(Progress::new(2, 8 * second + Duration::from_millis(1))), stop(NoRetry::OutOfTime));
        // An earlier process made the first attempt.
        assert_eq!(next(Progress::new(1, second).with_key_age(57 * second)), retry);
        assert_eq!(next(Progress::new(1, second).with_key_age(58 * second)), stop(NoRetry::KeyForgotten));
        // The most important reason comes first.
        assert_eq!(next(Progress::new(9, 60 * second)), stop(NoRetry::KeyForgotten));
        assert!(rules.may_send(Duration::ZERO) && !rules.may_send(60 * second));
        // An answer is an answer, however late.
        let late = Progress::new(u32::MAX, Duration::MAX);
        assert_eq!(rules.next(&Attempt::answered(201), late), stop(NoRetry::Answered));
        assert_eq!(rules.next(&Attempt::unanswered(), late), stop(NoRetry::KeyForgotten));
    }

    #[test]
    fn a_stop_says_whether_the_operation_may_be_open() {
        for reason in [NoRetry::Answered, NoRetry::NewKey, NoRetry::Done] {
            assert!(!reason.is_open(), "{reason}");
        }
        for reason in [NoRetry::SomebodyHasToLook, NoRetry::OutOfAttempts, NoRetry::OutOfTime, NoRetry::KeyForgotten] {
            assert!(reason.is_open(), "{reason}");
            assert!(reason.to_string().contains("look"), "{reason}");
        }
    }
}
