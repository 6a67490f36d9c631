//! Hard limits of keys and end users as the scripts take them.

use std::sync::Arc;

use super::script::PREFIX;
use crate::pure::account::ReserveRequest;
use crate::pure::ids::{AccountId, KeyId, RequestId};
use crate::pure::money::Credits;
use crate::pure::spend::{END_USERS_MAX, EndUser, SpendLimits, SpendPeriod};
use crate::pure::time::Timestamp;

/// Where the end users of an account's key count in a period, in the account's slot.
pub(super) fn end_users(account: &AccountId, key: &KeyId, end_user: &EndUser, request: RequestId) -> String {
    format!("{PREFIX}{{{account}}}:spent:{key}:{}", end_user.period(request))
}

/// The hash of a call's end user, when its limits name one.
pub(super) fn end_users_of(
    account: &AccountId,
    limits: Option<&Arc<SpendLimits>>,
    request: RequestId,
) -> Option<String> {
    let limits = limits?;
    let end_user = limits.end_user()?;
    Some(end_users(account, &limits.key, &end_user, request))
}

/// How long the counts of a period are kept, in milliseconds: until its end and [`KEPT_MS`] more, for its calls may end after it. An empty
/// text for a period without an end.
pub(super) fn ttl(end_user: &EndUser, request: RequestId, now: Timestamp) -> String {
    let end = end_user.reset.next(request.time().day());
    end.map_or_else(String::new, |end| {
        end.since(now).max(0).saturating_add(KEPT_MS).to_string()
    })
}

/// The arguments of a reserve for its limits.
pub(super) fn reserve_arguments(
    command: &mut redis::Cmd,
    request: &ReserveRequest,
    limits: &SpendLimits,
    now: Timestamp,
) {
    let below = |limit: Credits, amount: Credits| limit.pico().saturating_sub(amount.pico());
    let wanted = request.wanted.max(Credits::ZERO);
    command.arg(limits.key.as_str()).arg(periods(request.id));
    match limits.own {
        None => command.arg("").arg("").arg(""),
        Some(limit) => command
            .arg(limit.reset.period(request.id.time().day()).to_string())
            .arg(below(limit.amount, wanted))
            .arg(below(limit.amount, request.at_least)),
    };
    if let (Some((id, limit)), Some(end_user)) = (limits.end_user, limits.end_user()) {
        command
            .arg(id.to_string())
            .arg(below(limit.amount, wanted))
            .arg(below(limit.amount, request.at_least))
            .arg(END_USERS_MAX)
            .arg(ttl(&end_user, request.id, now));
    }
}

/// The arguments of a wish to raise a hold.
pub(super) fn extend_arguments(command: &mut redis::Cmd, limits: &SpendLimits, request: RequestId) {
    command.arg(limits.key.as_str());
    match limits.own {
        None => command.arg("").arg(""),
        Some(limit) => command
            .arg(limit.reset.period(request.time().day()).to_string())
            .arg(limit.amount.pico()),
    };
    if let Some((id, limit)) = limits.end_user {
        command.arg(id.to_string()).arg(limit.amount.pico());
    }
}

/// The arguments of a hold of `amount` that is made anew.
pub(super) fn remake_arguments(
    command: &mut redis::Cmd,
    limits: &SpendLimits,
    (request, amount): (RequestId, i64),
    now: Timestamp,
) {
    let below = |limit: Credits| limit.pico().saturating_sub(amount);
    command.arg(limits.key.as_str()).arg(periods(request));
    match limits.own {
        None => command.arg("").arg(""),
        Some(limit) => command
            .arg(limit.reset.period(request.time().day()).to_string())
            .arg(below(limit.amount)),
    };
    if let (Some((id, limit)), Some(end_user)) = (limits.end_user, limits.end_user()) {
        let ttl = ttl(&end_user, request, now);
        command.arg(id.to_string()).arg(below(limit.amount)).arg(ttl);
    }
}

fn periods(request: RequestId) -> String {
    SpendPeriod::all_of(request.time().day())
        .map(|period| period.to_string())
        .join(" ")
}

/// For how long the counts of a period outlive it: longer than any call runs.
const KEPT_MS: i64 = 2 * 86_400_000;
