//! `GET {base}/key`: what a key may do, and what it has used. Every key may read its own.

use serde::Serialize;

use crate::clock::Clock;
use crate::gateway::access::admit;
use crate::gateway::access::authenticate::store_failed;
use crate::gateway::context::Ctx;
use crate::gateway::snapshot::to_json;
use crate::gateway::state::Books;
use crate::ledger::Caller;
use crate::pure::account::Spent;
use crate::pure::credit_sum::CreditSum;
use crate::pure::error::ApiError;
use crate::pure::money::Credits;
use crate::pure::policy::ModelPattern;
use crate::pure::spend::Reset;
use crate::pure::time::Period;

#[derive(Serialize)]
struct KeyAnswer<'a> {
    data: KeyData<'a>,
}

#[derive(Serialize)]
struct KeyData<'a> {
    id: &'a str,
    label: Option<&'a str>,
    limit: Option<Credits>,
    limit_remaining: Option<Credits>,
    limit_reset: Option<&'static str>,
    usage: CreditSum,
    usage_daily: CreditSum,
    usage_weekly: CreditSum,
    usage_monthly: CreditSum,
    end_user_limit: Option<Credits>,
    end_user_limit_reset: Option<&'static str>,
    rate_limit: RateLimit,
    models: &'a [ModelPattern],
    expires_at: Option<String>,
}

#[derive(Serialize)]
struct RateLimit {
    requests: u64,
    tokens: u64,
    interval: &'static str,
    concurrency: u64,
}

/// The answer's body. Amounts are exact; usage counts a call on the day on which it ended, the limit in the period in which it came.
pub(super) async fn body(books: &Books, clock: &Clock, ctx: &Ctx, caller: &Caller) -> Result<String, ApiError> {
    let (key, settings) = (&caller.key, &caller.key.settings);
    let rows = books.ledger.usage(&caller.account.id, Some(&key.id), Period::All).await;
    let rows = rows.map_err(store_failed)?;
    let today = clock.now().day();
    let used = |reset: Reset| -> CreditSum {
        let period = reset.period(today);
        let of_period = rows.iter().filter(|row| reset.period(row.day) == period);
        of_period.map(|row| row.cost).sum()
    };
    let limit_remaining = match settings.limit {
        None => None,
        Some(limit) => {
            let Spent { spent, held } = caller.key_spent(limit.reset).await.map_err(store_failed)?;
            let left = limit.amount.saturating_sub(spent).saturating_sub(held);
            Some(left.max(Credits::ZERO))
        }
    };
    let (_, limits) = admit::limits(&ctx.snapshot, caller);
    let reset_name = |reset: Reset| (reset != Reset::None).then_some(reset.name());
    let data = KeyData {
        id: key.id.as_str(),
        label: settings.label.as_deref(),
        limit: settings.limit.map(|limit| limit.amount),
        limit_remaining,
        limit_reset: settings.limit.and_then(|limit| reset_name(limit.reset)),
        usage: used(Reset::None),
        usage_daily: used(Reset::Daily),
        usage_weekly: used(Reset::Weekly),
        usage_monthly: used(Reset::Monthly),
        end_user_limit: settings.end_user_limit.map(|limit| limit.amount),
        end_user_limit_reset: settings.end_user_limit.and_then(|limit| reset_name(limit.reset)),
        rate_limit: RateLimit {
            requests: limits.rpm,
            tokens: limits.tpm,
            interval: "1m",
            concurrency: limits.concurrency,
        },
        models: &settings.models,
        expires_at: key.expires.map(|at| at.to_string()),
    };
    Ok(to_json(&KeyAnswer { data }))
}
