//! What who has too little credit is told.

use serde_json::{Value, json};

use super::*;
use crate::pure::spend::Reset;

fn amount(text: &str) -> Credits {
    text.parse().unwrap()
}

/// The message, the metadata, and after how many seconds a retry may help.
fn told(wire: WireError) -> (String, Value, Option<u64>) {
    assert_eq!(wire.status, 402);
    assert_eq!(wire.should_retry, Some(wire.retry_after_secs.is_some()));
    let metadata = serde_json::from_str(&wire.metadata.unwrap()).unwrap();
    (wire.message, metadata, wire.retry_after_secs)
}

#[test]
fn credit_that_is_short_is_told_with_what_is_held_and_what_it_could_pay() {
    let short = |held: &str, affordable_tokens, in_flight| {
        told(credits(&CreditShortage {
            available: amount("0.1"),
            held: amount(held),
            needed: Some(amount("0.3")),
            affordable_tokens,
            in_flight,
        }))
    };
    let (message, metadata, retry) = short("0", None, false);
    assert_eq!(message, "Not enough credit: this call needs 0.3, 0.1 is available.");
    let expected = json!({
        "available": 0.1, "held": 0, "needed": 0.3, "reason": "insufficient_credits", "scope": "account",
    });
    assert_eq!((metadata, retry), (expected, None));
    let (message, metadata, retry) = short("0.2", Some(3), true);
    assert_eq!(
        message,
        "Not enough credit: this call needs 0.3, 0.1 is available (0.2 is held by your running calls). \
         It can pay for 3 completion tokens."
    );
    assert_eq!(
        (&metadata["reason"], &metadata["affordable_tokens"]),
        (&json!("in_flight"), &json!(3))
    );
    assert_eq!(retry, Some(2));
}

#[test]
fn a_quota_is_short_for_a_moment_where_without_the_running_calls_it_is_enough() {
    for (used, held, in_flight) in [
        ("0.7", "0", false),
        ("0.7", "0.000000000001", true),
        ("0.700000000001", "0.1", false),
    ] {
        let figures = (amount("1"), amount(used), amount(held));
        let (message, metadata, retry) = told(quota_exceeded(figures, Some(amount("0.3")), Some(Timestamp(0))));
        let running = match held {
            "0" => String::new(),
            _ => format!(" ({held} is held by your running calls)"),
        };
        let expected =
            format!("The monthly quota of 1 does not cover this call, which needs 0.3; {used} is used{running}.");
        assert_eq!(message, expected);
        assert_eq!(
            (&metadata["limit"], &metadata["resets_at"]),
            (&json!(1), &json!("1970-01-01T00:00:00Z"))
        );
        let reason = if in_flight { "in_flight" } else { "quota_exceeded" };
        assert_eq!(
            (&metadata["reason"], retry),
            (&json!(reason), in_flight.then_some(2)),
            "{used} {held}"
        );
    }
    let (_, metadata, _) = told(quota_exceeded(
        (amount("1"), amount("0.7"), amount("0.1")),
        Some(amount("0.3")),
        None,
    ));
    assert_eq!(metadata["remaining"], json!(0.2));
    let (_, metadata, _) = told(quota_exceeded(
        (amount("1"), amount("0.7"), amount("0.4")),
        Some(amount("0.3")),
        None,
    ));
    assert_eq!(metadata["remaining"], json!(0));
}

/// Where nothing is left a long body is not taken, so what the call needs is not known: 0.000000000001 was told.
#[test]
fn what_a_call_needs_is_not_told_where_it_was_not_asked() {
    let (message, metadata, retry) = told(credits(&CreditShortage {
        available: amount("0"),
        held: amount("0"),
        needed: None,
        affordable_tokens: None,
        in_flight: false,
    }));
    assert_eq!(message, "Not enough credit: 0 is available.");
    let expected = json!({ "available": 0, "held": 0, "reason": "insufficient_credits", "scope": "account" });
    assert_eq!((metadata, retry), (expected, None));

    let figures = (amount("0.1"), amount("0.1"), amount("0.2"));
    let (message, metadata, retry) = told(quota_exceeded(figures, None, None));
    assert_eq!(
        message,
        "The monthly quota of 0.1 does not cover this call; 0.1 is used (0.2 is held by your running calls)."
    );
    assert_eq!(metadata.get("needed"), None);
    assert_eq!((&metadata["reason"], retry), (&json!("quota_exceeded"), None));

    let (message, metadata, _) = told(account_short(&AccountShortage {
        is_quota: false,
        needed: None,
        in_flight: false,
    }));
    assert_eq!(message, "The account's credit does not cover this call.");
    assert_eq!(
        metadata,
        json!({ "scope": "account", "reason": "insufficient_credits" })
    );
}

#[test]
fn a_hard_limit_is_short_for_a_moment_where_without_the_running_calls_it_is_enough() {
    let short = |spender, used: &str, held: &str, resets_at| {
        told(spent(&SpendShortage {
            spender,
            limit: SpendLimit {
                amount: amount("1"),
                reset: Reset::Daily,
            },
            spent: amount(used),
            held: amount(held),
            needed: amount("0.3"),
            resets_at,
        }))
    };
    let (message, metadata, retry) = short(Spender::Key, "0.8", "0", None);
    assert_eq!(
        message,
        "The limit of this key does not cover this call, which needs 0.3: 0.2 of 1 is left."
    );
    let expected = json!({
        "scope": "key", "limit": 1, "remaining": 0.2, "resets_at": null, "held": 0, "needed": 0.3, "reason": "limit_spent",
    });
    assert_eq!((metadata, retry), (expected, None));
    let (message, metadata, retry) = short(Spender::EndUser, "0.7", "0.2", Some(Timestamp(86_400_000)));
    assert_eq!(
        message,
        "The limit of this end user does not cover this call, which needs 0.3: 0.1 of 1 is left (0.2 is held by \
         running calls) until 1970-01-02T00:00:00Z."
    );
    assert_eq!(
        (&metadata["scope"], &metadata["reason"]),
        (&json!("end_user"), &json!("in_flight"))
    );
    assert_eq!(retry, Some(2));
    // What is left when they have ended is not enough, and more is held than there is.
    let (_, metadata, retry) = short(Spender::Key, "0.700000000001", "0.5", None);
    assert_eq!(
        (&metadata["reason"], &metadata["remaining"]),
        (&json!("limit_spent"), &json!(0))
    );
    assert_eq!(retry, None);
    // It would be enough, and nothing is held.
    assert_eq!(short(Spender::Key, "0.7", "0", None).1["reason"], "limit_spent");
}

#[test]
fn of_an_account_whose_figures_are_not_told_only_the_need_is() {
    for (is_quota, in_flight, reason) in [
        (true, false, "quota_exceeded"),
        (false, false, "insufficient_credits"),
        (true, true, "in_flight"),
    ] {
        let shortage = AccountShortage {
            is_quota,
            needed: Some(amount("0.3")),
            in_flight,
        };
        let (message, metadata, retry) = told(account_short(&shortage));
        let what = if is_quota { "monthly quota" } else { "credit" };
        assert_eq!(
            message,
            format!("The account's {what} does not cover this call, which needs 0.3.")
        );
        assert_eq!(metadata, json!({ "scope": "account", "needed": 0.3, "reason": reason }));
        assert_eq!(retry, in_flight.then_some(2));
    }
}
