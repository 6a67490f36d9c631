//! The cases: each runs on both stores. A new one is a function and a line here.

mod accounts;
mod act_bounds;
mod acts;
mod commands;
mod credits;
mod end_users;
pub(in crate::ledger) mod events;
mod expiring;
mod extend;
mod given_up;
mod idempotency;
mod limits;
mod long_lives;
mod lookups;
mod money;
mod payments;
mod receipt_files;
mod receipts;
mod refunds;
mod rotation;
mod spending;
mod statements;
mod tries;

macro_rules! cases {
    ($($topic:ident: [$($name:ident),+ $(,)?]),+ $(,)?) => {
        mod on_embedded {
            $($(#[test] fn $name() { super::$topic::$name(&crate::ledger::tests::rig::Rig::embedded()); })+)+
        }
        mod on_redis {
            $($(#[test] fn $name() { super::$topic::$name(&crate::ledger::tests::rig::Rig::redis()); })+)+
        }
    };
}

cases! {
    money: [
        a_settlement_takes_the_cost_and_gives_the_rest_back,
        an_overrun_is_taken_whole,
        a_released_or_dropped_hold_leaves_nothing,
        what_is_held_cannot_be_held_again,
        a_denial_says_what_there_is,
        a_hold_lives_longer_than_the_moment_it_was_made,
        a_hold_that_is_given_back_says_nothing_and_a_lost_one_is_logged,
        a_hold_may_shrink_to_what_there_is,
        the_quota_counts_by_the_month,
        a_call_that_costs_nothing_needs_no_credit,
        a_hold_that_nobody_renews_expires_and_its_settlement_counts,
        the_same_request_holds_once,
        a_settlement_counts_once_however_often_and_late_it_comes,
        of_many_callers_as_many_win_as_there_is_credit_for,
        the_smallest_and_the_largest_amounts_are_exact,
        a_clock_that_was_wrong_does_not_change_what_a_month_used,
        the_metrics_say_what_is_held_and_owed,
    ],
    extend: [
        a_hold_is_raised_once_and_given_back_whole,
        a_hold_is_raised_within_the_quota,
        a_hold_that_is_gone_is_not_raised,
        many_that_raise_at_once_hold_no_more_than_there_is,
    ],
    receipt_files: [
        each_receipt_is_a_line_of_a_file,
    ],
    receipts: [
        a_debit_has_one_receipt_and_a_release_has_none,
        a_receipt_says_what_is_known_and_no_more,
        receipts_are_listed_newest_first_page_by_page,
        a_receipt_is_its_accounts_alone,
        a_debit_that_comes_again_has_no_other_receipt,
    ],
    idempotency: [
        a_key_says_how_its_call_stands,
        a_key_that_is_looked_at_is_not_taken,
        a_key_whose_call_was_not_billed_is_free,
        an_answer_that_is_not_kept_is_said_to_be_missing,
        the_oldest_answers_make_room,
        keys_are_counted_and_expire,
        of_many_at_once_one_has_the_key,
        those_who_ask_for_an_answer_at_once_all_get_it,
    ],
    lookups: [
        a_call_is_found_by_both_its_names,
        a_call_that_holds_credit_runs,
        a_page_may_be_of_one_key,
        usage_is_of_chosen_days_and_by_key,
    ],
    end_users: [
        usage_is_told_by_end_user,
        of_too_many_end_users_there_are_no_sums,
    ],
    limits: [
        the_limits_are_exact,
        what_is_refused_or_repeated_counts_as_a_request,
        a_refused_call_counts_for_the_limit_of_requests,
        a_key_with_limits_counts_for_itself,
        tokens_are_corrected_to_what_was_used,
        usage_is_by_day_and_model,
        a_keys_usage_is_its_own,
    ],
    spending: [
        a_raised_hold_stays_within_its_limits,
        a_keys_limit_is_as_hard_as_the_balance,
        a_limit_that_comes_later_counts_what_was_spent_before,
        a_stream_over_midnight_counts_on_the_day_on_which_it_came,
        each_end_user_has_a_limit_of_its_own,
        a_debit_after_its_hold_expired_counts_under_its_limits,
        what_was_spent_long_ago_is_nothing_to_a_limit_of_now,
        of_many_callers_as_many_win_as_the_tightest_limit_lets,
        a_key_keeps_its_settings,
    ],
    long_lives: [
        a_key_may_spend_more_in_all_than_one_amount,
        a_limit_may_come_after_more_was_spent_than_one_amount,
    ],
    rotation: [
        a_rotated_key_is_the_old_one_with_another_text,
        a_key_that_is_rotated_twice_gives_its_own_expiry_both_times,
        a_key_that_is_over_is_not_rotated,
        of_many_rotations_at_once_without_overlap_one_makes_a_key,
        both_keys_of_a_rotation_spend_one_limit,
        of_many_callers_with_both_keys_as_many_win_as_the_limit_lets,
        a_key_without_limits_leaves_nothing_to_its_successor,
        a_new_key_counts_as_no_other,
    ],
    accounts: [
        terms_are_kept_and_seen_at_once,
        an_account_is_made_with_its_terms,
        an_account_changes_with_its_terms,
        a_closed_account_keeps_its_books_and_gets_nothing_more,
        accounts_are_given_page_by_page_and_found,
        calls_that_are_to_end_with_their_account_do,
    ],
    credits: [
        an_entry_has_a_kind_a_note_and_a_balance,
        a_reference_is_one_entry_whatever_its_kind,
        what_is_held_is_not_taken_back,
        a_new_reference_has_no_white_space_at_its_ends,
        a_new_reference_has_only_what_is_seen,
        entries_are_listed_page_by_page,
        of_corrections_and_calls_at_once_as_many_win_as_there_is_credit_for,
    ],
    refunds: [
        what_is_content_with_less_takes_what_is_available,
        what_is_content_with_less_takes_what_is_held_as_well,
    ],
    payments: [
        a_payment_is_found_by_its_reference_alone,
        of_many_accounts_that_are_told_a_payment_one_gets_it,
        a_payment_that_an_account_cannot_take_is_not_lost,
        a_payment_that_was_posted_by_hand_is_its_accounts,
        a_payment_that_was_given_by_hand_is_found_and_nobody_elses,
    ],
    statements: [
        a_statement_adds_up,
        a_statement_has_its_bounds,
        a_statement_of_a_year_is_that_of_an_oracle,
    ],
    events: [
        a_credit_entry_is_told,
        a_balance_that_falls_is_told_once,
        another_low_balance_is_told_anew,
        a_quota_is_told_once_a_month_and_value,
        of_many_racers_one_crosses,
        an_event_is_claimed_by_one_at_a_time,
        an_event_of_the_gateways_own_is_raised_once,
        a_key_that_expires_within_a_week_is_told_once,
        the_oldest_events_make_room,
    ],
    given_up: [
        an_event_that_is_too_old_counts_as_dropped_once,
    ],
    expiring: [
        other_open_events_keep_no_key_from_being_told,
        a_key_drops_the_oldest_open_event_only_once_three_days_are_left,
        a_key_that_expires_soon_is_told_behind_many_that_can_wait,
        keys_that_expire_soon_take_no_more_than_their_part_of_an_accounts_events,
    ],
    tries: [
        a_shortage_of_credit_is_told_by_the_last_try,
        a_shortage_of_quota_is_told_by_the_last_try,
        a_first_try_that_finds_nothing_left_is_told,
        a_call_without_credit_is_told_until_credit_comes,
        a_refusal_for_what_is_held_is_no_event_and_the_end_is,
        a_large_call_leaves_the_end_of_the_credit_to_tell,
        a_large_call_leaves_the_end_of_the_quota_to_tell,
    ],
    commands: [
        a_key_has_at_most_its_accounts_tier,
        a_quota_may_be_nothing_and_not_less,
        a_reference_counts_once,
        any_text_is_a_reference,
        a_balance_cannot_leave_its_range,
        keys_are_listed_found_and_revoked,
        a_key_is_made_once,
        a_list_of_keys_says_whether_their_account_may_call,
        a_key_lists_so_many_domains,
        a_key_cannot_be_above_its_account,
        a_key_ends_and_counts_within_bounds,
        an_account_changes_at_once,
        names_are_taken_once,
        an_account_has_a_name_that_a_path_can_have,
        maintenance_is_switched,
    ],
    acts: [
        operators_are_made_found_and_revoked,
        each_act_is_logged_with_before_and_after,
        an_act_that_fails_says_why,
        what_changes_nothing_is_not_logged,
        the_log_is_read_page_by_page_and_by_account,
    ],
    act_bounds: [
        what_nothing_can_be_named_is_not_logged,
        a_page_of_the_log_has_its_bytes,
        an_act_says_what_was_asked_for,
        an_act_says_what_was_taken_and_what_allowed_it,
    ],
}
