//! What can be wrong with a store, and which case finds it: [`Fault`].

macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $fault:ident => $case:ident,)*) => {
        /// One way in which a store can be wrong.
        ///
        /// Each is a mistake that somebody made, or nearly made, in a store like this one. Exhaustive, so that a tool
        /// that goes through them knows all.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Fault {
            $($(#[doc = $doc])+ $fault,)*
        }

        impl Fault {
            /// Every fault.
            pub const ALL: &[Self] = &[$(Self::$fault),*];

            /// The name of the case that fails on a store with this fault. Others may fail as well.
            #[must_use]
            pub const fn caught_by(self) -> &'static str {
                match self {
                    $(Self::$fault => stringify!($case),)*
                }
            }
        }
    };
}

faults! {
    /// A second claim makes the record anew.
    SecondClaimOverwrites => a_second_claim_changes_nothing,
    /// A claim that meets a record moves its expiry.
    SecondClaimExtendsRetention => a_second_claim_changes_nothing,
    /// Every claim is told that it won.
    EveryClaimWins => a_claimer_finds_its_own_row,
    /// Looks for a record, then makes one: whoever looks in between makes one, too.
    InsertChecksThenActs => one_of_many_claims_wins,
    /// A cache in front takes a key that it has not seen for a busy one.
    FirstClaimIsBusy => the_first_claim_wins,
    /// A cache in front answers every claim of a key that is taken, also one that was asked before.
    BusyForEver => a_second_claim_changes_nothing,
    /// Refuses a claim while any other is under way.
    NeighboursConflict => keys_do_not_disturb_each_other,
    /// Insert takes an expired record for none.
    ExpiredIsAbsentToInsert => an_expired_record_still_stands,
    /// Insert takes a stale record past its retention for none.
    StaleIsAbsentToInsert => an_expired_record_still_stands,
    /// Reads a lease of zero as "no lease given".
    ZeroLeaseIsForever => zero_is_a_value,
    /// Stamps new records with a clock of its own, which is a minute ahead.
    InsertHasAClockOfItsOwn => the_store_stamps_with_its_clock,
    /// A claim that finds a record, and a lost swap, return the record's stamp for the clock.
    AnswersBringTheStamp => every_answer_brings_the_clock,

    /// A swap on nothing makes a record.
    SwapMakesRecords => a_swap_makes_no_record,
    /// A refused swap does not say what it lost to.
    LostSwapHidesTheRecord => a_refused_swap_returns_what_stands,
    /// A refused swap moves the expiry.
    RefusedSwapWrites => a_refused_swap_returns_what_stands,
    /// A swap is filed under the scope alone and hits all its records.
    SwapHitsTheWholeScope => a_swap_touches_one_record,
    /// Load answers out of a cache that nobody clears.
    LoadIsCached => load_sees_what_was_acknowledged,
    /// Load does not return what has expired.
    LoadHidesTheExpired => an_expired_record_still_stands,

    /// A takeover overwrites whatever stands there.
    TakeoverComparesNothing => ownership_compares_locked_at,
    /// A change of ownership compares the time only.
    OwnershipIgnoresOwner => ownership_compares_the_owner,
    /// A change of ownership does not compare the lease as read.
    OwnershipIgnoresLease => a_takeover_loses_to_a_renewal,
    /// A change of ownership does not compare the status.
    OwnershipIgnoresStatus => a_takeover_loses_to_a_completion,
    /// An in-progress record past its retention can start a new life.
    AsNewFromInProgress => a_stale_record_past_retention_is_never_new,
    /// A takeover can reopen what is completed, if it says that it read that.
    TakeoverFromCompleted => ownership_compares_the_status,
    /// A takeover takes its own `locked_at` for the beginning of the life.
    TakeoverMovesCreatedAt => a_takeover_keeps_the_life,
    /// A takeover starts from nothing.
    TakeoverDropsRecoveryPoint => a_takeover_keeps_the_life,
    /// A takeover counts attempts by itself.
    TakeoverCountsForItself => ownership_takes_the_values_that_it_is_given,
    /// A retry clears the marks.
    RetryClearsMarks => a_retry_keeps_the_life,
    /// A new life inherits `effect_begun` and `unresolved`.
    AsNewKeepsMarks => a_new_life_keeps_nothing_of_the_old,
    /// A new life inherits the recovery point.
    AsNewKeepsRecoveryPoint => a_new_life_keeps_nothing_of_the_old,
    /// A new life keeps the old `created_at`.
    AsNewKeepsCreatedAt => a_new_life_keeps_nothing_of_the_old,
    /// A new life keeps the fingerprint of the old request.
    AsNewKeepsFingerprint => a_new_life_keeps_nothing_of_the_old,
    /// A change of ownership sets `locked_at` to the store's clock, whatever the change says.
    OwnershipStampsForItself => locked_at_grows_while_the_clock_stands,
    /// A relock counts as another attempt.
    RelockCountsAnAttempt => a_claimer_locks_its_own_stale_row_again,

    /// Progress does not compare `locked_at`.
    ProgressIgnoresLockedAt => progress_compares_locked_at,
    /// Progress compares the time only: a heartbeat steals a lease back.
    ProgressIgnoresOwner => progress_compares_the_owner,
    /// Progress compares neither: a late heartbeat keeps the next owner's lease alive.
    ProgressComparesNothing => a_replaced_owner_makes_no_progress,
    /// Progress reopens what is settled.
    ProgressIgnoresStatus => progress_compares_the_status,
    /// A renewal may shorten the lease.
    RenewalMayShrink => a_lease_only_grows,
    /// Any lease is longer than an abandoned one.
    ProgressRevivesAbandoned => nothing_revives_an_abandoned_lease,
    /// Refuses progress on a stale record by its own clock.
    ProgressAsksTheClock => an_owner_may_renew_until_it_is_replaced,
    /// A checkpoint does not replace the one before.
    FirstCheckpointStays => progress_sets_what_it_says,

    /// A settlement does not compare `locked_at`.
    SettlingIgnoresLockedAt => settling_compares_locked_at,
    /// A settlement does not compare the owner.
    SettlingIgnoresOwner => settling_compares_the_owner,
    /// A settlement compares the key and the state only.
    SettlingComparesNoVersion => a_replaced_owner_settles_nothing,
    /// A settlement does not compare the status: a completed record can be completed again.
    SettlingIgnoresStatus => completed_is_final,
    /// A settlement is refused once the lease is over.
    SettlingAsksTheClock => a_late_completion_counts_if_nobody_took_over,
    /// A completion writes a fingerprint.
    CompletionTouchesFingerprint => completion_touches_nothing_else,
    /// A completion clears the marks.
    CompletionClearsMarks => completion_touches_nothing_else,
    /// A completion clears the recovery point.
    CompletionClearsRecoveryPoint => completion_touches_nothing_else,
    /// A completion clears the lease.
    CompletionClearsLease => completion_touches_nothing_else,
    /// A completion leaves the expiry as it was.
    CompletionKeepsExpiry => a_settlement_sets_what_it_says,
    /// Every failure clears the marks.
    FailureAlwaysClearsMarks => a_failure_keeps_the_marks,
    /// No failure clears the marks.
    FailureNeverClearsMarks => a_verified_failure_clears_the_marks,
    /// Abandoning frees the key as a failure does.
    AbandonFails => abandoning_is_no_settlement,

    /// Purge deletes records at which somebody works, if their retention is over.
    PurgeTakesLive => purge_keeps_what_is_live,
    /// Purge deletes stale records past their retention without being told.
    PurgeTakesUnresolved => purge_keeps_the_unresolved_by_default,
    /// Purge takes every failed record for resolved.
    PurgeTakesUnresolvedFailures => purge_keeps_failures_with_an_unknown_past,
    /// Purge never deletes stale records.
    PurgeNeverDropsUnresolved => purge_drops_the_unresolved_when_told,
    /// Purge does not wait out the grace.
    PurgeIgnoresGrace => purge_gives_the_unresolved_their_grace,
    /// Purge deletes whatever is settled.
    PurgeIgnoresExpiry => purge_keeps_what_has_not_expired,
    /// Purge forgets the failed ones.
    PurgeKeepsFailed => purge_deletes_what_is_resolved_and_expired,
    /// Purge deletes everything in one go.
    PurgeIgnoresBatch => purge_goes_by_batches,
    /// Purge goes by a clock that is ten milliseconds ahead.
    PurgeHasAClockOfItsOwn => purge_and_load_go_by_one_clock,
    /// Purge finds what is dead, and then deletes by name.
    PurgeFindsThenDeletes => purge_takes_no_new_life,

    /// Purge counts what it found, not what it deleted.
    PurgeCountsWhatItFound => purges_share_the_work,

    /// Stuck lists everything in progress.
    StuckListsLive => stuck_lists_what_nobody_resolves_and_nothing_else,
    /// Stuck lists only what is in progress.
    StuckOmitsFailures => stuck_lists_what_nobody_resolves_and_nothing_else,
    /// Stuck lists by name.
    StuckIsInOrderOfNames => stuck_pages_go_on_where_they_ended,
    /// Stuck goes on behind the `locked_at` of the last record, without its name.
    StuckCursorIsTheTimeOnly => stuck_pages_go_on_where_they_ended,
    /// Stuck does not ask for how long.
    StuckIgnoresStaleFor => stuck_can_wait,
    /// Stats takes all that is in progress for live.
    StatsTakeStaleForLive => stats_count_every_kind,
    /// Looking at an expired record deletes it.
    LookingPurges => looking_changes_nothing,
    /// Erasing what is settled takes the rest along.
    EraseSettledTakesAll => erasing_what_is_resolved_keeps_the_rest,
    /// Erasing everything spares who is at work.
    EraseEverythingSparesLive => erasing_everything_is_force,
    /// Erase takes every scope that begins like this one.
    EraseByPrefix => erasing_touches_one_scope,
    /// Erase compares without case.
    EraseFoldsCase => erasing_touches_one_scope,
    /// Erase compares with SQL's `LIKE`.
    EraseByPattern => erasing_touches_one_scope,

    /// Records are found by key alone.
    ScopeIgnored => two_scopes_never_meet,
    /// Scope and key are joined by a slash.
    NamesJoinedCarelessly => two_scopes_never_meet,
    /// Keys are compared without case.
    KeysFoldCase => keys_are_compared_byte_for_byte,
    /// Scopes are compared without case.
    ScopesFoldCase => scopes_are_compared_byte_for_byte,
    /// Trailing spaces of a key are cut off, as a `char(n)` does.
    KeysAreTrimmed => keys_are_compared_byte_for_byte,
    /// Keys are cut after 254 bytes.
    KeysAreCut => keys_are_compared_byte_for_byte,
    /// The body goes through text.
    BodyThroughLossyText => every_byte_comes_back,
    /// Trailers are not stored.
    TrailersAreLost => every_byte_comes_back,
    /// A body ends at its first zero byte.
    BodyEndsAtZero => every_byte_comes_back,
    /// A field name is a key in a map.
    HeadersLoseRepeats => fields_keep_their_order_and_repeats,
    /// Fields are stored in alphabetical order.
    HeadersAreSorted => fields_keep_their_order_and_repeats,
    /// An answer without a code gets 200.
    MissingCodeIs200 => empty_is_not_absent,
    /// A tombstone is stored as the empty body that it looks like.
    TombstonesAreForgotten => empty_is_not_absent,
    /// Empty recovery data is no recovery point.
    EmptyRecoveryDataIsNone => empty_is_not_absent,
    /// Recovery data goes through text.
    RecoveryDataThroughLossyText => every_byte_of_recovery_data_comes_back,
    /// A body is cut after 64 KiB.
    LargeBodyIsCut => a_large_answer_comes_back,
    /// A fingerprint is cut after 64 bytes.
    FingerprintIsCut => fingerprints_come_back,
    /// Instants are cut to milliseconds.
    InstantsInMilliseconds => microseconds_come_back,
    /// Counts go into 16 bits.
    CountsAreShort => extremes_come_back,
    /// The lease goes into 31 bits of microseconds.
    LeaseIsShort => extremes_come_back,

    /// A write is two writes, and a future that is dropped between them leaves the first.
    DroppedFutureLeavesHalf => a_dropped_swap_is_whole_or_nothing,
    /// A write is two writes, and others read between them.
    ReadersSeeHalf => readers_see_no_half_record,
    /// An insert whose future is dropped keeps the lock.
    DroppedInsertKeepsTheLock => a_dropped_insert_is_whole_or_nothing,
    /// A read whose future is dropped keeps the connection.
    DroppedReadKeepsTheLock => a_dropped_read_leaves_nothing_behind,
    /// A purge whose future is dropped keeps the lock.
    DroppedPurgeKeepsTheLock => a_dropped_purge_can_be_done_again,
    /// An erasure whose future is dropped keeps the lock.
    DroppedErasureKeepsTheLock => a_dropped_erasure_can_be_done_again,
    /// Reads the record, compares, and writes it back later.
    SwapChecksThenActs => one_of_many_takeovers_wins,
}
