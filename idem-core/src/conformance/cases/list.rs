//! The list of cases: name and invariant, once. Everything else is made from it.

/// Calls the macro `$callback` with `$arguments` in parentheses and the list of cases.
#[doc(hidden)]
#[macro_export]
macro_rules! __idem_conformance_cases {
    (($($callback:tt)+) $($arguments:tt)*) => {
        $($callback)+! {
            ($($arguments)*)
            claims {
                the_first_claim_wins: "a claim on which no record stands wins, and stores Claim::first_record at the store's clock",
                a_second_claim_changes_nothing: "a claim that meets a record, in whatever state, writes nothing and gets it back as it stands",
                an_expired_record_still_stands: "insert never replaces a record, be it expired or stale past its retention",
                a_claimer_finds_its_own_row: "a claim that is asked again finds the row that it made, and nothing changed",
                another_key_is_no_rival: "what happens to one key leaves another key of the scope alone",
                zero_is_a_value: "a lease of zero is stale at once, a retention of zero is over as soon as the record is settled",
                the_store_stamps_with_its_clock: "insert stamps with the clock that load returns",
                every_answer_brings_the_clock: "a claim that finds a record, a lost swap and a load return the time of that very call",
            }
            swaps {
                every_cell_of_the_table_holds: "every change, on a record of every kind, does exactly what Change::apply says",
                a_swap_makes_no_record: "a swap on an identity without a record loses to nothing and makes no record",
                a_refused_swap_returns_what_stands: "a refused swap returns the record that stands there and writes nothing",
                a_swap_touches_one_record: "a swap touches no record but its own",
                load_sees_what_was_acknowledged: "load sees every write that was acknowledged before it began",
            }
            ownership {
                ownership_compares_locked_at: "a change of ownership with another locked_at than stands is refused",
                ownership_compares_the_owner: "a change of ownership with another owner than stands is refused",
                ownership_compares_the_lease_as_read: "a change of ownership is refused if the lease is not as it was read",
                ownership_compares_the_status: "a change of ownership is refused if the status is not as it was read, or not one that it may leave",
                ownership_takes_the_values_that_it_is_given: "a store computes nothing: every value of a new ownership is the one in the change",
                a_takeover_loses_to_a_renewal: "a takeover that was decided before the owner renewed is refused",
                a_takeover_loses_to_a_completion: "a takeover that was decided before the owner completed is refused, and the answer is unchanged",
                a_takeover_loses_to_a_takeover: "of two takeovers that were decided on the same record, the second is refused",
                a_takeover_keeps_the_life: "a takeover moves neither created_at nor fingerprint, marks and recovery point of its life",
                a_takeover_of_a_failure_keeps_the_life: "a takeover of a failed record keeps created_at and recovery point",
                a_retry_keeps_the_life: "a retry keeps created_at, marks and recovery point",
                a_new_life_keeps_nothing_of_the_old: "a new life clears marks, answer and recovery point, and only locked_at lives on, by growing",
                an_expired_record_becomes_new: "a settled record past its retention starts a new life once",
                a_stale_record_past_retention_is_never_new: "an in-progress record does not expire, however long it has been stale",
                locked_at_grows_while_the_clock_stands: "every ownership has a larger locked_at than the one before, even if the clock stands still or steps back",
                a_claimer_locks_its_own_stale_row_again: "a relock keeps owner and attempt, and the version before it is lost",
            }
            progress {
                progress_sets_what_it_says: "renew, begin_effect and checkpoint set lease, mark and recovery point and nothing else",
                progress_compares_locked_at: "progress with another locked_at than stands is refused",
                progress_compares_the_owner: "progress with another owner than stands is refused",
                progress_compares_the_status: "progress on a settled record is refused",
                a_lease_only_grows: "progress that proposes a smaller or an equal lease is refused",
                a_delayed_older_write_is_refused: "a progress write that arrives after a later one is refused",
                nothing_revives_an_abandoned_lease: "progress on a lease of zero is refused, whatever it proposes",
                an_owner_may_renew_until_it_is_replaced: "a store compares no clock: progress on a stale record that nobody took applies",
                a_replaced_owner_makes_no_progress: "an owner whose record was taken over can neither renew nor mark nor checkpoint",
            }
            settling {
                a_settlement_sets_what_it_says: "complete, fail and abandon do exactly what Change::apply says, also on an abandoned lease",
                settling_compares_locked_at: "a settlement with another locked_at than stands is refused",
                settling_compares_the_owner: "a settlement with another owner than stands is refused",
                settling_compares_the_status: "a settlement of a settled record is refused",
                completed_is_final: "nothing but a new life changes a completed record, not even its own completion sent again",
                completion_touches_nothing_else: "a completion sets status, answer and expiry and touches nothing else",
                a_late_completion_counts_if_nobody_took_over: "a completion after the lease is over applies as long as nobody has the record",
                a_replaced_owner_settles_nothing: "an owner whose record was taken over settles nothing, and the stored answer is the new owner's",
                an_owner_of_a_former_life_settles_nothing: "an owner of a life that is over settles nothing in the new one",
                a_failure_keeps_the_marks: "a failure that was not verified leaves effect_begun and unresolved as they are",
                a_verified_failure_clears_the_marks: "a failure with clear_marks clears effect_begun and unresolved and leaves the recovery point",
                abandoning_is_no_settlement: "an abandoned record is in progress and stale at once, and its version can still settle it",
                a_failed_key_can_be_completed_by_the_next_owner: "a failure frees the key for a retry and shuts the failed owner out",
            }
            retention {
                purge_deletes_what_is_resolved_and_expired: "purge deletes and counts completed records, and failed ones with nothing unknown, whose retention is over",
                a_purged_key_is_new: "a key whose record was purged can be claimed, and the former owner is nobody",
                purge_keeps_what_has_not_expired: "purge deletes nothing whose retention is not over",
                purge_keeps_what_is_live: "purge deletes no record at which somebody works, whatever it is told",
                purge_keeps_the_unresolved_by_default: "an unknown outcome is not expired: purge keeps it unless told otherwise",
                purge_keeps_failures_with_an_unknown_past: "a failed record whose past is unknown is unresolved: purge keeps it unless told otherwise, and counts it apart",
                purge_drops_the_unresolved_when_told: "DropAfter deletes stuck records past their retention and counts them apart",
                purge_gives_the_unresolved_their_grace: "DropAfter counts its grace from expires_at",
                purge_goes_by_batches: "a purge deletes a batch at the most, and purging again catches up",
                purge_and_load_go_by_one_clock: "what load's clock calls expired a purge deletes, and what it does not a purge keeps",
            }
            maintenance {
                stuck_lists_what_nobody_resolves_and_nothing_else: "stuck lists every record in progress with nobody working, every failed one with an unknown past, and no other",
                stuck_pages_go_on_where_they_ended: "stuck is ordered by locked_at, then scope and key by their bytes; pages lose and repeat nothing",
                stuck_can_wait: "stuck lists only what has been stale for as long as was asked",
                stats_count_every_kind: "stats counts live, stale, completed, failed and expired records",
                looking_changes_nothing: "load, stuck and stats write nothing",
                erasing_what_is_resolved_keeps_the_rest: "erase(Settled) deletes the resolved records of a scope and counts those that it keeps",
                erasing_everything_is_force: "erase(Everything) deletes all of a scope, and owners at work are fenced",
                erasing_touches_one_scope: "erase touches no other scope, however alike the names are",
            }
            data {
                keys_are_compared_byte_for_byte: "keys are compared and come back byte for byte",
                scopes_are_compared_byte_for_byte: "scopes are compared and come back byte for byte",
                two_scopes_never_meet: "the same key in two scopes is two records",
                every_byte_comes_back: "all 256 byte values of body, header and trailer come back",
                every_byte_of_recovery_data_comes_back: "all 256 byte values of recovery data, and its names, come back",
                empty_is_not_absent: "an empty body, a tombstone, a missing code and empty recovery data are told apart",
                fields_keep_their_order_and_repeats: "header and trailer fields come back in order, with their repeats",
                a_large_answer_comes_back: "an answer of one mebibyte comes back",
                fingerprints_come_back: "fingerprints come back byte for byte, also of a later scheme and of the greatest length",
                microseconds_come_back: "instants come back to the microsecond",
                extremes_come_back: "the longest lease and retention, and the largest counts, come back",
            }
            races {
                one_of_many_claims_wins: "of 64 claims of one new key at once, one wins and all others find its record",
                one_of_many_takeovers_wins: "of 64 takeovers at once, one applies and all others are told who won",
                one_of_many_retries_wins: "of 64 retries at once, one applies and all others are told who won",
                one_of_many_new_lives_begins: "of 64 new lives at once, one begins and all others are told who won",
                one_of_many_completions_counts: "of 64 completions at once, one counts and all others are told which",
                owner_and_rival_see_one_order: "settlements, progress and a takeover at once end as they would in some order",
                purge_takes_no_new_life: "a purge beside a claim of the same expired key never deletes the new life",
                purges_share_the_work: "purges beside each other delete and count every dead record once",
                keys_do_not_disturb_each_other: "64 callers with a key each never lose, wait for ever or fail",
                readers_see_no_half_record: "a reader sees one whole record after the other, in the order in which they were written",
                a_mismatch_disturbs_nobody: "64 rivals with other requests change nothing for the owner",
            }
            cancellation {
                a_dropped_insert_is_whole_or_nothing: "an insert whose future is dropped at any poll made a whole record or none",
                a_dropped_swap_is_whole_or_nothing: "a swap whose future is dropped at any poll applied as a whole or not at all",
                a_dropped_read_leaves_nothing_behind: "a load, stuck or stats whose future is dropped holds nothing",
                a_dropped_purge_can_be_done_again: "a purge whose future is dropped holds nothing, and purging again is right",
                a_dropped_erasure_can_be_done_again: "an erase whose future is dropped holds nothing, and erasing again is right",
            }
        }
    };
}
