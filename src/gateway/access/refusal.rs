//! What a caller is told of a denial by the ledger.

use super::admit::{Refused, monthly_quota};
use crate::gateway::snapshot::Snapshot;
use crate::ledger::Caller;
use crate::pure::account::Denial;
use crate::pure::error::{AccountShortage, ApiError, CreditShortage, LimitKind, SpendShortage};
use crate::pure::ids::RequestId;
use crate::pure::limits::RateView;
use crate::pure::money::Credits;
use crate::pure::spend::{END_USERS_MAX, SpendLimits, Spender};

/// What a caller is told of a denial of what needs at least `needed`; `affordable` are the completion tokens that an amount pays for.
pub(in crate::gateway) fn refused(
    (snapshot, caller): (&Snapshot, &Caller),
    needed: Credits,
    (denial, spend): (Denial, Option<(&SpendLimits, RequestId)>),
    affordable: impl FnOnce(Credits) -> Option<u64>,
) -> Refused {
    let limited = |limit, value, rate: RateView| Refused {
        error: ApiError::RateLimited {
            limit,
            value,
            retry_after_secs: rate.reset_ms.div_ceil(1000).max(1),
        },
        rate: Some(rate),
    };
    // Whoever reads a page has the key that is locked to it.
    let is_private = !caller.key.domains.is_empty();
    match denial {
        Denial::Requests(rate) => limited(LimitKind::Requests, rate.limits.rpm, rate),
        Denial::Tokens(rate) => limited(LimitKind::Tokens, rate.limits.tpm, rate),
        Denial::Concurrency(rate) => {
            let (limit, value) = (LimitKind::Concurrency, rate.limits.concurrency);
            Refused {
                error: ApiError::RateLimited {
                    limit,
                    value,
                    retry_after_secs: 1,
                },
                rate: Some(rate),
            }
        }
        Denial::Stopped(stop) => ApiError::AccountStopped(stop).into(),
        Denial::EndUsers(rate) => Refused {
            error: ApiError::RateLimited {
                limit: LimitKind::EndUsers,
                value: END_USERS_MAX.into(),
                retry_after_secs: until_next_period(spend),
            },
            rate: Some(rate),
        },
        Denial::Spent {
            spender,
            spent,
            held,
            rate,
        } => Refused {
            error: limit_spent(spend, spender, (spent, held), needed),
            rate: Some(rate),
        },
        Denial::Credit { available, held, rate } if is_private => Refused {
            error: ApiError::AccountShort(AccountShortage {
                is_quota: false,
                needed,
                in_flight: held > Credits::ZERO && available.saturating_add(held) >= needed,
            }),
            rate: Some(rate),
        },
        Denial::Quota { used, held, rate } if is_private => Refused {
            error: ApiError::AccountShort(AccountShortage {
                is_quota: true,
                needed,
                in_flight: held > Credits::ZERO && used.saturating_add(needed) <= monthly_quota(snapshot, caller),
            }),
            rate: Some(rate),
        },
        Denial::Credit { available, held, rate } => {
            let shortage = CreditShortage {
                available,
                held,
                needed,
                affordable_tokens: affordable(available),
                in_flight: held > Credits::ZERO && available.saturating_add(held) >= needed,
            };
            Refused {
                error: ApiError::InsufficientCredits(shortage),
                rate: Some(rate),
            }
        }
        Denial::Quota { used, held, rate } => {
            let error = ApiError::QuotaExceeded {
                quota: monthly_quota(snapshot, caller),
                used,
                held,
                needed,
            };
            Refused {
                error,
                rate: Some(rate),
            }
        }
    }
}

/// Seconds from the request to the end of the period in which its end user would count; a day where none ends.
fn until_next_period(spend: Option<(&SpendLimits, RequestId)>) -> u64 {
    let next = spend.and_then(|(limits, id)| {
        let end = limits.end_user()?.reset.next(id.time().day())?;
        u64::try_from(end.since(id.time())).ok()
    });
    next.map_or(DAY_SECS, |millis| millis.div_ceil(1000))
}

fn limit_spent(
    spend: Option<(&SpendLimits, RequestId)>,
    spender: Spender,
    (spent, held): (Credits, Credits),
    needed: Credits,
) -> ApiError {
    let found = spend.and_then(|(limits, id)| Some((limits.of(spender)?, id)));
    // A store only refuses by a limit that it was asked with.
    let Some((limit, id)) = found else {
        return ApiError::Internal;
    };
    ApiError::LimitSpent(SpendShortage {
        spender,
        limit,
        spent,
        held,
        needed,
        resets_at: limit.reset.next(id.time().day()),
    })
}

const DAY_SECS: u64 = 86_400;
