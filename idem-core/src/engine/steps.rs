//! A handler in steps, each of which is committed once: [`Steps`].

use super::operation::Operation;
use super::outcome::{Failure, Interrupted};
use crate::error::{Error, ErrorKind, WriteOutcome};
use crate::record::RecoveryPoint;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::fmt;

/// How the recovery data of steps begins, so that data of another kind is told apart. A later layout counts up.
const LAYOUT: u32 = 1;

/// The steps of one operation: what an earlier attempt committed is not done again, and its result comes back.
///
/// A handler that makes several external calls is a line of steps, each with a name and a result. A step's result is
/// committed, in one fenced write, before the next step begins. An attempt that takes over asks for the same steps in
/// the same order: those that were committed answer at once, and the rest runs.
///
/// Between a call's end and its commit a crash is still possible. So a step that calls somebody is an
/// [`effect`](Steps::effect): it is marked before, and gets a [derived key](crate::Identity::derived_key) by which the
/// provider recognises the repetition. A [`step`](Steps::step) is for what may be repeated at will: an identifier that is
/// made up, a price that is looked up.
///
/// Names are unique within a handler, and stay: after a deployment that renames a step, operations that are half-way do
/// the renamed one again. Results are kept as JSON, all of them together within the engine's limit for recovery data (64
/// KiB): keep references, not documents.
///
/// # Examples
///
/// ```
/// use idem_core::{Failure, Operation, Response};
///
/// # async fn charge(_key: String) -> Result<String, &'static str> { Ok("ch_1".into()) }
/// # async fn send_receipt(_key: String, _charge: &str) -> Result<(), &'static str> { Ok(()) }
/// async fn order(operation: Operation) -> Result<Response, Failure<&'static str>> {
///     let mut steps = operation.steps()?;
///     // Whatever happens to this process, the card is charged once: the provider knows the key.
///     let charge: String = steps
///         .effect("charge", |key| async { charge(key).await.map_err(Failure::Unknown) })
///         .await?;
///     steps
///         .effect("receipt", |key| async { send_receipt(key, &charge).await.map_err(Failure::Unknown) })
///         .await?;
///     Ok(Response::new(201, charge))
/// }
/// ```
#[derive(Debug)]
pub struct Steps {
    operation: Operation,
    done: Vec<Done>,
    /// How many of the steps in `done` this attempt found there.
    found: usize,
    asked: Vec<String>,
}

/// A step that is committed.
#[derive(Serialize, Deserialize)]
struct Done {
    step: String,
    result: Box<RawValue>,
}

impl fmt::Debug for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A result may hold anything.
        f.debug_struct("Done").field("step", &self.step).finish_non_exhaustive()
    }
}

/// What recovery data holds.
#[derive(Serialize, Deserialize)]
struct Kept<D> {
    steps: u32,
    done: D,
}

/// Why steps cannot go on.
#[derive(Debug, thiserror::Error)]
enum StepRefused {
    #[error("an earlier attempt committed a phase by hand: a handler uses `Steps` or `checkpoint`, not both")]
    NotSteps,
    #[error(
        "step `{0}` was committed with a result that this build cannot read: give a step whose result changes its type another name"
    )]
    OtherType(String),
    #[error("the result of step `{0}` cannot be written as JSON")]
    NotJson(String),
    #[error("step `{0}` was asked for twice: each step needs a name of its own")]
    AskedTwice(String),
}

impl StepRefused {
    fn interrupted(self) -> Interrupted {
        let kind = match self {
            Self::NotSteps | Self::OtherType(_) => ErrorKind::Corrupt,
            Self::NotJson(_) | Self::AskedTwice(_) => ErrorKind::InvalidRequest,
        };
        Interrupted::Store(Error::new(kind, "step", WriteOutcome::NotApplied).with_source(self))
    }
}

impl Steps {
    pub(super) fn resume(operation: Operation) -> Result<Self, Interrupted> {
        let done = match operation.recovery_point() {
            None => Vec::new(),
            Some(point) => read(point)?,
        };
        Ok(Self { operation, found: done.len(), done, asked: Vec::new() })
    }

    /// Names of the steps that earlier attempts committed, in their order.
    pub fn resumed(&self) -> impl Iterator<Item = &str> {
        self.done.iter().take(self.found).map(|done| done.step.as_str())
    }

    /// A step that may be repeated at will: runs `work`, commits its result under `name` and returns it; or returns what
    /// an earlier attempt committed, without running anything.
    ///
    /// # Errors
    ///
    /// What `work` failed with, and nothing is committed. [`Failure::Interrupted`] if the result could not be committed,
    /// or the store error in it says that the step cannot go on:
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) if its name was used before in this attempt or is none, or if
    /// the results are too large; [`Corrupt`](crate::ErrorKind::Corrupt) if what was committed is of another type.
    ///
    /// # Cancel safety
    ///
    /// Dropped half-way, the step may or may not be committed.
    pub async fn step<T, E, R, F>(&mut self, name: &str, work: impl FnOnce() -> F) -> Result<T, Failure<E, R>>
    where
        T: Serialize + DeserializeOwned,
        F: Future<Output = Result<T, Failure<E, R>>>,
    {
        if let Some(result) = self.committed(name)? {
            return Ok(result);
        }
        let result = work().await?;
        self.commit(name, &result).await?;
        Ok(result)
    }

    /// A step that makes an external call: as [`step`](Steps::step), but marked durably [before the
    /// call](Operation::begin_effect), which gets the [derived key](crate::Identity::derived_key) for `name`.
    ///
    /// # Errors
    ///
    /// As [`step`](Steps::step); [`Failure::Interrupted`] also if the mark could not be stored, and then the call was not
    /// made.
    ///
    /// # Cancel safety
    ///
    /// As [`step`](Steps::step); the call may have been made.
    pub async fn effect<T, E, R, F>(&mut self, name: &str, call: impl FnOnce(String) -> F) -> Result<T, Failure<E, R>>
    where
        T: Serialize + DeserializeOwned,
        F: Future<Output = Result<T, Failure<E, R>>>,
    {
        let operation = self.operation.clone();
        let marked = || async move {
            operation.begin_effect(name).await?;
            call(operation.derived_key(name)).await
        };
        self.step(name, marked).await
    }

    fn committed<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, Interrupted> {
        if self.asked.iter().any(|asked| asked == name) {
            return Err(StepRefused::AskedTwice(name.to_owned()).interrupted());
        }
        self.asked.push(name.to_owned());
        let Some(done) = self.done.iter().find(|done| done.step == name) else { return Ok(None) };
        match serde_json::from_str(done.result.get()) {
            Ok(result) => Ok(Some(result)),
            // serde_json's message may quote the result, so it is not kept.
            Err(_) => Err(StepRefused::OtherType(name.to_owned()).interrupted()),
        }
    }

    async fn commit(&mut self, name: &str, result: &impl Serialize) -> Result<(), Interrupted> {
        let not_json = || StepRefused::NotJson(name.to_owned()).interrupted();
        let result = serde_json::value::to_raw_value(result).map_err(|_| not_json())?;
        self.done.push(Done { step: name.to_owned(), result });
        let data = serde_json::to_vec(&Kept { steps: LAYOUT, done: &self.done }).map_err(|_| not_json())?;
        self.operation.checkpoint(name, data).await
    }
}

fn read(point: &RecoveryPoint) -> Result<Vec<Done>, Interrupted> {
    match serde_json::from_slice(&point.data) {
        Ok(Kept { steps: LAYOUT, done }) => Ok(done),
        Ok(_) | Err(_) => Err(StepRefused::NotSteps.interrupted()),
    }
}
