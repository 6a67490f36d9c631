//! What a caller is told whose call cannot be paid: by the account's credit or quota, or within a hard limit of the key or its end user.

use serde::Serialize;

use super::{CreditShortage, WireError};
use crate::pure::money::Credits;
use crate::pure::spend::{SpendLimit, Spender};
use crate::pure::time::Timestamp;

/// How a hard limit falls short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpendShortage {
    /// Whose limit.
    pub spender: Spender,
    /// The limit.
    pub limit: SpendLimit,
    /// Spent in its period.
    pub spent: Credits,
    /// Held by the running calls of its period.
    pub held: Credits,
    /// What the call would need at least.
    pub needed: Credits,
    /// When the period is over. None where none ends.
    pub resets_at: Option<Timestamp>,
}

/// How an account falls short whose figures are not told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountShortage {
    /// Whether it is the month's quota, not the credit.
    pub is_quota: bool,
    /// What the call would need at least.
    pub needed: Credits,
    /// Whether the call would be covered if none of the account's calls were running.
    pub in_flight: bool,
}

#[derive(Serialize)]
struct CreditMetadata {
    available: Credits,
    held: Credits,
    needed: Credits,
    #[serde(skip_serializing_if = "Option::is_none")]
    affordable_tokens: Option<u64>,
    reason: &'static str,
    scope: &'static str,
}

pub(super) fn credits(shortage: &CreditShortage) -> WireError {
    let CreditShortage {
        available,
        held,
        needed,
        affordable_tokens,
        in_flight,
    } = *shortage;
    let mut message = format!("Not enough credit: this call needs {needed}, {available} is available");
    if held > Credits::ZERO {
        message.push_str(&format!(" ({held} is held by your running calls)"));
    }
    message.push('.');
    if let Some(tokens) = affordable_tokens {
        message.push_str(&format!(" It can pay for {tokens} completion tokens."));
    }
    let reason = if in_flight { "in_flight" } else { "insufficient_credits" };
    let metadata = CreditMetadata {
        available,
        held,
        needed,
        affordable_tokens,
        reason,
        scope: ACCOUNT,
    };
    refusal(
        WireError::new(402, "insufficient_credits", message).with(&metadata),
        in_flight,
    )
}

#[derive(Serialize)]
struct QuotaMetadata {
    monthly_quota: Credits,
    monthly_used: Credits,
    held: Credits,
    needed: Credits,
    reason: &'static str,
    scope: &'static str,
}

pub(super) fn quota_exceeded(quota: Credits, used: Credits, held: Credits, needed: Credits) -> WireError {
    let in_flight = held > Credits::ZERO && used.saturating_add(needed) <= quota;
    let reason = if in_flight { "in_flight" } else { "quota_exceeded" };
    let metadata = QuotaMetadata {
        monthly_quota: quota,
        monthly_used: used,
        held,
        needed,
        reason,
        scope: ACCOUNT,
    };
    let message =
        format!("The monthly quota of {quota} does not cover this call, which needs {needed}; {used} is used.");
    refusal(
        WireError::new(402, "quota_exceeded", message).with(&metadata),
        in_flight,
    )
}

const IN_FLIGHT_RETRY_AFTER_SECS: u64 = 2;

#[derive(Serialize)]
struct SpendMetadata {
    scope: &'static str,
    limit: Credits,
    remaining: Credits,
    resets_at: Option<String>,
    held: Credits,
    needed: Credits,
    reason: &'static str,
}

pub(super) fn spent(shortage: &SpendShortage) -> WireError {
    let SpendShortage {
        limit,
        spent,
        held,
        needed,
        ..
    } = *shortage;
    let (scope, whose) = match shortage.spender {
        Spender::Key => ("key", "this key"),
        Spender::EndUser => ("end_user", "this end user"),
    };
    let left = limit.amount.saturating_sub(spent);
    let remaining = left.saturating_sub(held).max(Credits::ZERO);
    let in_flight = held > Credits::ZERO && left >= needed;
    let resets_at = shortage.resets_at.map(|at| at.to_string());
    let mut message = format!(
        "The limit of {whose} does not cover this call, which needs {needed}: {remaining} of {} is left",
        limit.amount
    );
    if held > Credits::ZERO {
        message.push_str(&format!(" ({held} is held by running calls)"));
    }
    message.push_str(&resets_at.as_ref().map_or(".".to_owned(), |at| format!(" until {at}.")));
    let metadata = SpendMetadata {
        scope,
        limit: limit.amount,
        remaining,
        resets_at,
        held,
        needed,
        reason: if in_flight { "in_flight" } else { "limit_spent" },
    };
    refusal(
        WireError::new(402, "insufficient_credits", message).with(&metadata),
        in_flight,
    )
}

#[derive(Serialize)]
struct AccountMetadata {
    scope: &'static str,
    needed: Credits,
    reason: &'static str,
}

pub(super) fn account_short(shortage: &AccountShortage) -> WireError {
    let AccountShortage {
        is_quota,
        needed,
        in_flight,
    } = *shortage;
    let (kind, what) = match is_quota {
        true => ("quota_exceeded", "monthly quota"),
        false => ("insufficient_credits", "credit"),
    };
    let metadata = AccountMetadata {
        scope: ACCOUNT,
        needed,
        reason: if in_flight { "in_flight" } else { kind },
    };
    let message = format!("The account's {what} does not cover this call, which needs {needed}.");
    refusal(WireError::new(402, kind, message).with(&metadata), in_flight)
}

/// A refusal that running calls alone cause is worth a retry in a moment.
fn refusal(wire: WireError, in_flight: bool) -> WireError {
    match in_flight {
        true => wire.retry_after(IN_FLIGHT_RETRY_AFTER_SECS).asking_for_retry(),
        false => wire.final_answer(),
    }
}

const ACCOUNT: &str = "account";

#[cfg(test)]
mod tests {
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
                needed: amount("0.3"),
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
            let (message, metadata, retry) =
                told(quota_exceeded(amount("1"), amount(used), amount(held), amount("0.3")));
            let expected = format!("The monthly quota of 1 does not cover this call, which needs 0.3; {used} is used.");
            assert_eq!(message, expected);
            let reason = if in_flight { "in_flight" } else { "quota_exceeded" };
            assert_eq!(
                (&metadata["reason"], retry),
                (&json!(reason), in_flight.then_some(2)),
                "{used} {held}"
            );
        }
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
                needed: amount("0.3"),
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
}
