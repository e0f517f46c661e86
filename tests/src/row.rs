//! A row and an answer, in the words that the model and the runner share.

/// One microsecond on the clock of the store under test, or of the model.
pub type Micros = i64;

/// An hour: the one duration, beside zero, that leases and retention have here. A test is over long before.
pub const HOUR: Micros = 3_600_000_000;

/// Which identity: two scopes with two keys each.
pub type Place = u8;

/// How many identities there are.
pub const PLACES: Place = 4;

/// Which claim, by number: a claim's owner is made at random, its number is the same on both sides.
pub type ClaimNumber = u32;

/// What a row's status is, and which answer it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// In progress.
    Working,
    /// Completed with this answer.
    Done(u8),
    /// Failed.
    Failed,
}

/// A row of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are the columns of DESIGN.md, section 3")]
pub struct Row {
    pub request: u8,
    pub status: Status,
    pub attempt: u32,
    pub owner: ClaimNumber,
    pub locked_at: Micros,
    pub lease_millis: u32,
    pub effect_begun: bool,
    pub unresolved: u32,
    pub phase: Option<u8>,
    pub created_at: Micros,
    pub expires_at: Micros,
}

impl Row {
    /// The end of the lease.
    #[must_use]
    pub fn lease_end(&self) -> Micros {
        self.locked_at + i64::from(self.lease_millis) * 1_000
    }

    /// In progress, not abandoned, and the lease runs beyond `clock`.
    #[must_use]
    pub fn alive(&self, clock: Micros) -> bool {
        self.status == Status::Working && self.lease_millis != 0 && clock < self.lease_end()
    }

    /// In progress, and nobody is at work.
    #[must_use]
    pub fn stale(&self, clock: Micros) -> bool {
        self.status == Status::Working && !self.alive(clock)
    }

    /// Its outcome is known: a completion, or a failure before which everybody failed without a trace.
    #[must_use]
    pub fn known(&self) -> bool {
        match self.status {
            Status::Working => false,
            Status::Done(_) => true,
            Status::Failed => !self.effect_begun && self.unresolved == 0,
        }
    }

    /// Its outcome is unknown, and nobody is at work.
    #[must_use]
    pub fn stuck(&self, clock: Micros) -> bool {
        !self.known() && !self.alive(clock)
    }

    /// Its outcome is known, and no longer kept.
    #[must_use]
    pub fn expired(&self, clock: Micros) -> bool {
        self.known() && clock >= self.expires_at
    }

    /// For a store whose clock runs by itself: instants are reduced to whether they are over.
    #[must_use]
    pub fn without_instants(self, clock: Micros) -> Self {
        let over = i64::from(self.expires_at > clock);
        Self { locked_at: 0, created_at: 0, expires_at: over, ..self }
    }
}

/// Why a stale row is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of `AbandonReason`")]
pub enum Why {
    NeverTakeOver,
    EffectBegun,
    ProviderWindowOver,
    TooManyAttempts,
}

/// What a command answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The command makes no sense in this state, and nothing was done.
    Nothing,
    /// The write did not take effect.
    NotApplied,
    /// Nobody knows whether it did.
    Unknown,
    /// The claimer owns the row, which it believes to be so.
    Granted(Row),
    /// The claimer will try to replace what it read.
    WillSwap,
    /// There is no row any more; the claim is made again.
    Vanished,
    /// Another request has the key.
    Mismatch,
    /// Somebody is at work, since when, and for how many milliseconds not to ask.
    InProgress(Micros, u64),
    /// Done before, with this answer.
    Replay(u8),
    /// Nobody is at work and nobody may run.
    Abandoned(Why),
    /// The owner's write is there.
    Applied,
    /// It is not there and may be sent again.
    StillMine,
    /// It is the owner's row under another version, and the write may be sent again.
    Adopted(Row),
    /// Somebody else has the key; the row that was found.
    Fenced(Option<Row>),
    /// The settlement may have landed before somebody else came.
    SettlementUnknown,
    /// The owner may not say that nothing happened: its own effect.
    RefusedForEffect,
    /// The owner may not say that nothing happened: somebody else's.
    RefusedForPast,
    /// A row, as it was read.
    Found(Option<Row>),
    /// Settled and unresolved rows that were purged.
    Purged(u64, u64),
    /// Rows that were erased, and rows that were kept.
    Erased(u64, u64),
    /// Places of the stuck rows, in order.
    Stuck(Vec<Place>),
    /// Live, stale, completed, failed, stuck and expired rows.
    Counted([u64; 6]),
}

impl Answer {
    /// For a store whose clock runs by itself: see [`Row::without_instants`].
    #[must_use]
    pub fn without_instants(self, clock: Micros) -> Self {
        match self {
            Self::Granted(row) => Self::Granted(row.without_instants(clock)),
            Self::Adopted(row) => Self::Adopted(row.without_instants(clock)),
            Self::Fenced(row) => Self::Fenced(row.map(|row| row.without_instants(clock))),
            Self::Found(row) => Self::Found(row.map(|row| row.without_instants(clock))),
            Self::InProgress(..) => Self::InProgress(0, 0),
            Self::Stuck(mut places) => {
                places.sort_unstable();
                Self::Stuck(places)
            }
            other => other,
        }
    }
}
