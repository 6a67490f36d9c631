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
    /// What the call would need at least. None where that was not asked, for nothing is left.
    pub needed: Option<Credits>,
    /// Whether the call would be covered if none of the account's calls were running.
    pub in_flight: bool,
}

#[derive(Serialize)]
struct CreditMetadata {
    available: Credits,
    held: Credits,
    #[serde(skip_serializing_if = "Option::is_none")]
    needed: Option<Credits>,
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
    let call_needs = needed.map_or_else(String::new, |needed| format!("this call needs {needed}, "));
    let mut message = format!("Not enough credit: {call_needs}{available} is available");
    message.push_str(&held_by_running(held));
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
    limit: Credits,
    remaining: Credits,
    resets_at: Option<String>,
    held: Credits,
    #[serde(skip_serializing_if = "Option::is_none")]
    needed: Option<Credits>,
    reason: &'static str,
    scope: &'static str,
}

pub(super) fn quota_exceeded(
    (quota, used, held): (Credits, Credits, Credits),
    needed: Option<Credits>,
    resets_at: Option<Timestamp>,
) -> WireError {
    let left = quota.saturating_sub(used);
    let in_flight = held > Credits::ZERO && needed.is_some_and(|needed| left >= needed);
    let reason = if in_flight { "in_flight" } else { "quota_exceeded" };
    let metadata = QuotaMetadata {
        monthly_quota: quota,
        monthly_used: used,
        limit: quota,
        remaining: left.saturating_sub(held).max(Credits::ZERO),
        resets_at: resets_at.map(|at| at.to_string()),
        held,
        needed,
        reason,
        scope: ACCOUNT,
    };
    let (needs, running) = (needs(needed), held_by_running(held));
    let message = format!("The monthly quota of {quota} does not cover this call{needs}; {used} is used{running}.");
    refusal(
        WireError::new(402, "quota_exceeded", message).with(&metadata),
        in_flight,
    )
}

/// That the account's running calls hold something, where they do.
fn held_by_running(held: Credits) -> String {
    match held > Credits::ZERO {
        true => format!(" ({held} is held by your running calls)"),
        false => String::new(),
    }
}

/// What a call needs, where that is known.
fn needs(needed: Option<Credits>) -> String {
    needed.map_or_else(String::new, |needed| format!(", which needs {needed}"))
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
    #[serde(skip_serializing_if = "Option::is_none")]
    needed: Option<Credits>,
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
    let message = format!("The account's {what} does not cover this call{}.", needs(needed));
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
mod tests;
