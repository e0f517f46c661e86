//! How long things last and who may take over: [`Policy`] and [`Takeover`].

use std::time::Duration;

/// What may happen to a record whose owner never came back. It has no default: the answer depends on the handler.
///
/// Whatever is chosen, nobody runs again once the [provider window](Policy::provider_window) is over or
/// [`max_attempts`](Policy::max_attempts) attempts ended with an unknown outcome: the claim is answered `Abandoned`,
/// and the record waits for a reconciler or an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Takeover {
    /// Run again. Right if every external call of the handler carries a key derived from ours
    /// ([`Operation::derived_key`](crate::Operation::derived_key)) that the provider honours, or checks the fencing
    /// token.
    Resume,
    /// Run again only while no effect has begun. Right for a handler that calls
    /// [`Operation::begin_effect`](crate::Operation::begin_effect) before its first external call and whose provider
    /// knows no keys.
    OnlyBeforeEffect,
    /// Never run again. Someone has to look.
    Never,
}

/// How long leases, runs and records last. Valid by construction: [`Policy::builder`] refuses what cannot work.
///
/// | setting | default | meaning |
/// |---|---|---|
/// | `lease` | 90 s | what an owner promises at a time; renewed at a third of it |
/// | `max_run` | 15 min | the longest a handler may run; caps renewal |
/// | `retention` | 24 h | how long an answer is kept, from the claim |
/// | `replay_floor` | 1 h | how long an answer is kept at the least, from settling |
/// | `provider_window` | 23 h | how long after the first claim a takeover may still run |
/// | `max_attempts` | 5 | how many attempts may end with an unknown outcome |
/// | `statement_deadline` | 5 s | how long one call to the store may take |
///
/// Choose the lease above the p99 of the handler's time, with margin: renewal covers the rest as long as the process
/// lives and reaches its store.
///
/// # Examples
///
/// ```
/// use idem_core::Policy;
/// use std::time::Duration;
///
/// let policy = Policy::builder().with_lease(Duration::from_secs(30)).build()?;
/// assert_eq!(policy.retention(), Duration::from_secs(24 * 3600));
///
/// let refused = Policy::builder().with_lease(Duration::from_millis(10)).build().unwrap_err();
/// assert_eq!(refused.to_string(), "lease of 10ms: at least 1s is needed");
/// # Ok::<(), idem_core::PolicyError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy(Settings);

/// Collects the settings of a [`Policy`]; every one has a default.
#[derive(Debug, Clone, Default)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct PolicyBuilder(Settings);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Settings {
    lease: Duration,
    max_run: Duration,
    retention: Duration,
    replay_floor: Duration,
    provider_window: Duration,
    max_attempts: u32,
    statement_deadline: Duration,
}

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease: 90 * SECOND,
            max_run: 900 * SECOND,
            retention: 24 * HOUR,
            replay_floor: HOUR,
            provider_window: 23 * HOUR,
            max_attempts: 5,
            statement_deadline: 5 * SECOND,
        }
    }
}

impl Policy {
    /// The shortest lease that a policy may ask for.
    pub const MIN_LEASE: Duration = SECOND;
    /// The longest lease and the longest run that a policy may ask for.
    pub const MAX_RUN: Duration = Duration::from_secs(14 * 24 * 3600);
    /// The longest retention that a policy may ask for.
    pub const MAX_RETENTION: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

    /// Starts from the defaults.
    pub fn builder() -> PolicyBuilder {
        PolicyBuilder::default()
    }

    /// What an owner promises at a time.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.0.lease
    }

    /// How long after a claim or a renewal the next renewal is due: a third of the lease.
    #[must_use]
    pub fn renew_after(&self) -> Duration {
        self.0.lease / 3
    }

    /// How long before the end of its lease a handler is told to stop: a tenth of the lease.
    #[must_use]
    pub fn stop_margin(&self) -> Duration {
        self.0.lease / 10
    }

    /// The longest that a handler may run, renewals included.
    #[must_use]
    pub fn max_run(&self) -> Duration {
        self.0.max_run
    }

    /// How long a record is kept, from the claim.
    #[must_use]
    pub fn retention(&self) -> Duration {
        self.0.retention
    }

    /// How long a record is kept at the least, from settling.
    #[must_use]
    pub fn replay_floor(&self) -> Duration {
        self.0.replay_floor
    }

    /// How long after the first claim of a life a takeover may still run.
    #[must_use]
    pub fn provider_window(&self) -> Duration {
        self.0.provider_window
    }

    /// How many attempts of a life may end with an unknown outcome before nobody runs any more.
    #[must_use]
    pub fn max_attempts(&self) -> u32 {
        self.0.max_attempts
    }

    /// How long one call to the store may take before its outcome counts as unknown.
    #[must_use]
    pub fn statement_deadline(&self) -> Duration {
        self.0.statement_deadline
    }
}

impl PolicyBuilder {
    /// What an owner promises at a time, 1 s to 14 days. Defaults to 90 s.
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.0.lease = lease;
        self
    }

    /// The longest that a handler may run, from one lease to 14 days. Defaults to 15 minutes.
    pub fn with_max_run(mut self, max_run: Duration) -> Self {
        self.0.max_run = max_run;
        self
    }

    /// How long a record is kept from the claim, from `max_run` to ten years. Defaults to 24 hours.
    pub fn with_retention(mut self, retention: Duration) -> Self {
        self.0.retention = retention;
        self
    }

    /// How long a record is kept at the least from settling, zero to ten years. Defaults to one hour.
    pub fn with_replay_floor(mut self, replay_floor: Duration) -> Self {
        self.0.replay_floor = replay_floor;
        self
    }

    /// How long after the first claim a takeover may still run: less than the time for which the provider remembers
    /// its keys. Defaults to 23 hours.
    pub fn with_provider_window(mut self, provider_window: Duration) -> Self {
        self.0.provider_window = provider_window;
        self
    }

    /// How many attempts may end with an unknown outcome, 1 or more. Defaults to 5.
    pub fn with_max_attempts(mut self, max_attempts: u32) -> Self {
        self.0.max_attempts = max_attempts;
        self
    }

    /// How long one call to the store may take, 1 ms to one hour. Defaults to 5 s.
    pub fn with_statement_deadline(mut self, statement_deadline: Duration) -> Self {
        self.0.statement_deadline = statement_deadline;
        self
    }

    /// Checks the settings against each other.
    ///
    /// # Errors
    ///
    /// [`PolicyError`] names the setting that cannot work and the bound that it broke.
    pub fn build(self) -> Result<Policy, PolicyError> {
        let settings = self.0;
        at_least("lease", settings.lease, Policy::MIN_LEASE)?;
        at_least("max_run", settings.max_run, settings.lease)?;
        at_most("max_run", settings.max_run, Policy::MAX_RUN)?;
        at_least("retention", settings.retention, settings.max_run)?;
        at_most("retention", settings.retention, Policy::MAX_RETENTION)?;
        at_most("replay_floor", settings.replay_floor, Policy::MAX_RETENTION)?;
        at_least("statement_deadline", settings.statement_deadline, Duration::from_millis(1))?;
        at_most("statement_deadline", settings.statement_deadline, HOUR)?;
        if settings.max_attempts == 0 {
            return Err(PolicyError { setting: "max_attempts", value: "0".into(), bound: Bound::AtLeast("1".into()) });
        }
        Ok(Policy(settings))
    }
}

fn at_least(setting: &'static str, value: Duration, least: Duration) -> Result<(), PolicyError> {
    if value >= least {
        return Ok(());
    }
    Err(PolicyError { setting, value: format!("{value:?}"), bound: Bound::AtLeast(format!("{least:?}")) })
}

fn at_most(setting: &'static str, value: Duration, most: Duration) -> Result<(), PolicyError> {
    if value <= most {
        return Ok(());
    }
    Err(PolicyError { setting, value: format!("{value:?}"), bound: Bound::AtMost(format!("{most:?}")) })
}

/// A setting that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{setting} of {value}: {bound}")]
pub struct PolicyError {
    setting: &'static str,
    value: String,
    bound: Bound,
}

impl PolicyError {
    /// The setting's name, as in `with_<name>`.
    #[must_use]
    pub fn setting(&self) -> &'static str {
        self.setting
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Bound {
    #[error("at least {0} is needed")]
    AtLeast(String),
    #[error("at most {0} is possible")]
    AtMost(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(Policy::builder().build(), Ok(Policy::default()));
    }

    #[test]
    fn every_bound_is_named() {
        let refused = |builder: PolicyBuilder| builder.build().unwrap_err().setting();
        assert_eq!(refused(Policy::builder().with_lease(Duration::from_millis(999))), "lease");
        assert_eq!(refused(Policy::builder().with_lease(Duration::MAX)), "max_run");
        assert_eq!(refused(Policy::builder().with_max_run(Duration::MAX)), "max_run");
        assert_eq!(refused(Policy::builder().with_max_run(SECOND)), "max_run");
        assert_eq!(refused(Policy::builder().with_retention(899 * SECOND)), "retention");
        assert_eq!(refused(Policy::builder().with_retention(Duration::MAX)), "retention");
        assert_eq!(refused(Policy::builder().with_replay_floor(Duration::MAX)), "replay_floor");
        assert_eq!(refused(Policy::builder().with_statement_deadline(Duration::ZERO)), "statement_deadline");
        assert_eq!(refused(Policy::builder().with_statement_deadline(Duration::MAX)), "statement_deadline");
        assert_eq!(refused(Policy::builder().with_max_attempts(0)), "max_attempts");
    }
}
