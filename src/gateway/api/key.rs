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

/// The answer's body. Amounts are exact; usage counts a call on the day on which it ended, the limit in the period in which it came. Of a key
/// that counts with others both count all their calls, in the period in which they came.
pub(super) async fn body(books: &Books, clock: &Clock, ctx: &Ctx, caller: &Caller) -> Result<String, ApiError> {
    let (key, settings) = (&caller.key, &caller.key.settings);
    let [usage, usage_daily, usage_weekly, usage_monthly] = used(books, clock, caller).await?;
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
        usage,
        usage_daily,
        usage_weekly,
        usage_monthly,
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

/// What the key has used in each of [`PERIODS`].
async fn used(books: &Books, clock: &Clock, caller: &Caller) -> Result<[CreditSum; PERIODS.len()], ApiError> {
    let key = &caller.key;
    if key.settings.is_counted_with_others() {
        // However often it was rotated, the ledger counts under one key what all of them spend.
        let mut used = [CreditSum::ZERO; PERIODS.len()];
        for (sum, reset) in used.iter_mut().zip(PERIODS) {
            let Spent { spent, .. } = caller.key_spent(reset).await.map_err(store_failed)?;
            *sum = spent.into();
        }
        return Ok(used);
    }
    let rows = books.ledger.usage(&caller.account.id, Some(&key.id), Period::All).await;
    let rows = rows.map_err(store_failed)?;
    let today = clock.now().day();
    Ok(PERIODS.map(|reset| -> CreditSum {
        let period = reset.period(today);
        let of_period = rows.iter().filter(|row| reset.period(row.day) == period);
        of_period.map(|row| row.cost).sum()
    }))
}

/// All time, today, since Monday, since the first of the month.
const PERIODS: [Reset; 4] = [Reset::None, Reset::Daily, Reset::Weekly, Reset::Monthly];
