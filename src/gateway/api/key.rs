//! `GET {base}/key`: what a key may do, and what it has used. Every key may read its own.

use serde::Serialize;

use crate::gateway::access::admit;
use crate::gateway::access::authenticate::store_failed;
use crate::gateway::context::Ctx;
use crate::gateway::snapshot::to_json;
use crate::ledger::{Caller, Ledger};
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
pub(super) async fn body(ledger: &Ledger, ctx: &Ctx, caller: &Caller) -> Result<String, ApiError> {
    let (key, settings) = (&caller.key, &caller.key.settings);
    let [usage, usage_daily, usage_weekly, usage_monthly] = used(ledger, caller).await?;
    let limit_remaining = match settings.limit {
        None => None,
        Some(limit) => {
            let spent = caller.key_spent(limit.reset).await.map_err(store_failed)?;
            Some(spent.left_of(limit.amount))
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
async fn used(ledger: &Ledger, caller: &Caller) -> Result<[CreditSum; PERIODS.len()], ApiError> {
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
    let rows = ledger.usage(&caller.account.id, Some(&key.id), Period::All).await;
    let rows = rows.map_err(store_failed)?;
    let today = ledger.now().day();
    Ok(PERIODS.map(|reset| -> CreditSum {
        let period = reset.period(today);
        let of_period = rows.iter().filter(|row| reset.period(row.day) == period);
        of_period.map(|row| row.cost).sum()
    }))
}

/// All time, today, since Monday, since the first of the month.
const PERIODS: [Reset; 4] = [Reset::None, Reset::Daily, Reset::Weekly, Reset::Monthly];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::ledger::Debit;
    use crate::ledger::redis::{Options, RedisLedger};
    use crate::ledger::tests::redis_server::RedisServer;
    use crate::ledger::tests::rig::{NOW, block_on, caller_of, debit, patient, request};
    use crate::pure::limits::LimitOverrides;

    /// The gateway's clock is ten minutes behind Redis', by which a new day has begun, and which dates what is used.
    #[test]
    fn today_is_the_day_of_the_ledger() {
        let server = RedisServer::start();
        let options = Options {
            redis_clock: Some(Clock::manual(NOW)),
            ..patient(Clock::manual(NOW.plus_millis(-600_000)))
        };
        let ledger = Ledger::Redis(RedisLedger::connect(&server.url(), options).unwrap());
        let caller = caller_of(&ledger, "acme", "10", LimitOverrides::default());
        let hold = block_on(caller.reserve(&request(1, "1"))).unwrap().unwrap();
        hold.settle(Debit {
            key: caller.key.id.clone(),
            ..debit("1")
        });
        block_on(caller.figures()).unwrap();
        let one = CreditSum::from("1".parse::<Credits>().unwrap());
        assert_eq!(block_on(used(&ledger, &caller)).unwrap(), [one; PERIODS.len()]);
    }
}
