//! What each ending of a call owes.

use super::*;
use crate::pure::usage::{PromptTokens, TokenKinds};

fn metered(reported: Option<(u64, u64)>, delivered: u64) -> Metered {
    let usage = |(prompt, completion)| Usage {
        prompt: PromptTokens(prompt),
        completion: CompletionTokens(completion),
    };
    Metered {
        reported: reported.map(usage),
        reported_completion: reported.map(|(_, completion)| CompletionTokens(completion)),
        prompt: None,
        counted_prompt: None,
        kinds: TokenKinds::default(),
        tier: None,
        cost: None,
        told: None,
        delivered: CompletionTokens(delivered),
        counted: None,
        is_error: false,
        is_complete: false,
        is_over: false,
        is_part_passed: false,
        began: true,
        rejected_reports: 0,
        is_implausible: false,
        beyond_sides: 0,
    }
}

#[test]
fn a_report_of_a_whole_answer_wins_however_the_call_ended() {
    for ending in [
        Ending::Complete,
        Ending::Drained,
        Ending::ClientGone,
        Ending::UpstreamFailed,
        Ending::Stopped,
        Ending::Dropped,
    ] {
        let whole = Metered {
            is_complete: true,
            ..metered(Some((0, 0)), 5)
        };
        assert!(matches!(charge(&whole, ending), Charge::Reported(usage) if usage.completion.0 == 0));
    }
}

#[test]
fn a_report_of_a_broken_answer_is_not_below_what_was_delivered() {
    let charge = charge(&metered(Some((7, 1)), 5), Ending::ClientGone);
    assert!(matches!(charge, Charge::Reported(usage) if usage.prompt.0 == 7 && usage.completion.0 == 5));
}

#[test]
fn a_failed_upstream_is_free_only_when_nothing_was_delivered() {
    assert_eq!(charge(&metered(None, 0), Ending::UpstreamFailed), Charge::Nothing);
    assert_eq!(
        charge(&metered(Some((9, 0)), 0), Ending::UpstreamFailed),
        Charge::Nothing
    );
    assert_eq!(charge(&metered(None, 1), Ending::UpstreamFailed), Charge::PromptToCount);
    let whole = Metered {
        is_complete: true,
        ..metered(None, 0)
    };
    assert_eq!(
        charge(&whole, Ending::UpstreamFailed),
        Charge::PromptToCount,
        "a finished answer without text is paid for, though its connection broke then"
    );
    let not_begun = Metered { began: false, ..whole };
    assert_eq!(charge(&not_begun, Ending::UpstreamFailed), Charge::Nothing);
    let with_text = Metered {
        delivered: CompletionTokens(1),
        ..not_begun
    };
    assert_eq!(
        charge(&with_text, Ending::UpstreamFailed),
        Charge::PromptToCount,
        "what was counted was delivered"
    );
    let error = Metered {
        is_error: true,
        ..metered(Some((9, 9)), 0)
    };
    assert_eq!(charge(&error, Ending::Complete), Charge::Nothing);
}

/// Whatever came, a call that a stop cuts owes what it would had its provider failed.
#[test]
fn a_stop_makes_nothing_owed_that_a_failed_upstream_would_not() {
    for (reported, delivered) in [(None, 0), (None, 1), (Some((9, 0)), 0), (Some((9, 2)), 3)] {
        for (is_complete, is_part_passed, began) in [
            (false, false, true),
            (true, false, true),
            (false, true, true),
            (false, false, false),
        ] {
            let metered = Metered {
                is_complete,
                is_part_passed,
                began,
                ..metered(reported, delivered)
            };
            assert_eq!(
                charge(&metered, Ending::Stopped),
                charge(&metered, Ending::UpstreamFailed)
            );
        }
    }
}

#[test]
fn an_answer_of_which_nothing_was_passed_on_is_free_when_its_request_is_dropped() {
    let nothing = Metered {
        began: false,
        ..metered(None, 0)
    };
    assert_eq!(charge(&nothing, Ending::Dropped), Charge::Nothing);
    assert_eq!(charge(&nothing, Ending::ClientGone), Charge::PromptToCount);
    assert_eq!(charge(&metered(None, 0), Ending::Dropped), Charge::PromptToCount);
}

#[test]
fn a_client_that_leaves_pays_for_the_prompt_once_the_upstream_has_answered() {
    for ending in [Ending::ClientGone, Ending::DrainEnded { elapsed_ms: 9 }] {
        assert_eq!(charge(&metered(None, 0), ending), Charge::PromptToCount);
    }
    // Nor does it owe what it would not had it stayed.
    assert_eq!(charge(&metered(None, 0), Ending::DrainFailed), Charge::Nothing);
    assert_eq!(charge(&metered(None, 1), Ending::DrainFailed), Charge::PromptToCount);
}

#[test]
fn a_whole_answer_that_passed_and_broke_off_is_owed_though_nothing_of_it_is_counted() {
    let passed = |reported| Metered {
        is_part_passed: true,
        ..metered(reported, 0)
    };
    let broken = |metered: &Metered| charge(metered, Ending::UpstreamFailed);
    assert_eq!(broken(&passed(None)), Charge::PromptToCount);
    assert!(matches!(broken(&passed(Some((5, 0)))), Charge::Reported(usage) if usage.prompt.0 == 5));
    let error = Metered {
        is_error: true,
        ..passed(Some((5, 0)))
    };
    assert_eq!(broken(&error), Charge::Nothing);
}

#[test]
fn a_client_is_why_there_is_no_report_only_where_it_left_while_one_could_come() {
    let over = Metered {
        is_over: true,
        ..metered(None, 3)
    };
    let error = Metered {
        is_error: true,
        ..metered(None, 3)
    };
    for (ending, is_clients) in [
        (Ending::ClientGone, true),
        (Ending::DrainEnded { elapsed_ms: 9 }, true),
        (Ending::DrainFailed, false),
        (Ending::UpstreamFailed, false),
        (Ending::Stopped, false),
        (Ending::Complete, false),
        (Ending::Drained, false),
        (Ending::Dropped, false),
    ] {
        assert_eq!(is_unread(&metered(None, 3), ending), is_clients, "{ending:?}");
        assert!(!is_unread(&over, ending) && !is_unread(&error, ending), "{ending:?}");
    }
}
