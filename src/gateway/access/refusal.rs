//! What a caller is told of a denial by the ledger.

use super::admit::{Refused, monthly_quota};
use crate::gateway::snapshot::Snapshot;
use crate::ledger::Caller;
use crate::pure::account::Denial;
use crate::pure::error::{AccountShortage, ApiError, CreditShortage, LimitKind, SpendShortage};
use crate::pure::ids::RequestId;
use crate::pure::limits::RateView;
use crate::pure::money::Credits;
use crate::pure::spend::{END_USERS_MAX, Reset, SpendLimits, Spender};

/// What a caller is told of a denial of what needs at least `needed`, where that is known; `affordable` are the completion tokens that an
/// amount pays for.
pub(in crate::gateway) fn refused(
    (snapshot, caller, id): (&Snapshot, &Caller, RequestId),
    needed: Option<Credits>,
    (denial, spend): (Denial, Option<&SpendLimits>),
    affordable: impl FnOnce(Credits) -> Option<u64>,
) -> Refused {
    let is_covered_by = |amount: Credits| needed.is_some_and(|needed| amount >= needed);
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
                    retry_after_secs: between_tries_secs(&rate),
                },
                rate: Some(rate),
            }
        }
        Denial::Stopped(stop) => ApiError::AccountStopped(stop).into(),
        Denial::EndUsers(rate) => Refused {
            error: match until_next_period(spend, id) {
                Some(retry_after_secs) => ApiError::RateLimited {
                    limit: LimitKind::EndUsers,
                    value: END_USERS_MAX.into(),
                    retry_after_secs,
                },
                None => ApiError::EndUsersFull {
                    value: END_USERS_MAX.into(),
                },
            },
            rate: Some(rate),
        },
        Denial::Spent {
            spender,
            spent,
            held,
            rate,
        } => Refused {
            error: limit_spent((spend, id), spender, (spent, held), needed),
            rate: Some(rate),
        },
        Denial::Credit { available, held, rate } if is_private => Refused {
            error: ApiError::AccountShort(AccountShortage {
                is_quota: false,
                needed,
                in_flight: held > Credits::ZERO && is_covered_by(available.saturating_add(held)),
            }),
            rate: Some(rate),
        },
        Denial::Quota { used, held, rate } if is_private => Refused {
            error: ApiError::AccountShort(AccountShortage {
                is_quota: true,
                needed,
                in_flight: held > Credits::ZERO && is_covered_by(monthly_quota(snapshot, caller).saturating_sub(used)),
            }),
            rate: Some(rate),
        },
        Denial::Credit { available, held, rate } => {
            let shortage = CreditShortage {
                available,
                held,
                needed,
                affordable_tokens: affordable(available),
                in_flight: held > Credits::ZERO && is_covered_by(available.saturating_add(held)),
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
                resets_at: Reset::Monthly.next(id.time().day()),
            };
            Refused {
                error,
                rate: Some(rate),
            }
        }
    }
}

/// Seconds until a call for which too many run is tried again. Each try counts as a request, so one that asks each time it is told to has
/// a request for it until the window ends: the calls may end at any moment.
fn between_tries_secs(rate: &RateView) -> u64 {
    let tries = rate.remaining_requests.saturating_add(1);
    rate.reset_ms.div_ceil(tries).div_ceil(1000).max(1)
}

/// Seconds from the request to the end of the period in which its end user would count; None where it has no end.
fn until_next_period(spend: Option<&SpendLimits>, id: RequestId) -> Option<u64> {
    let end = spend?.end_user()?.reset.next(id.time().day())?;
    let millis = u64::try_from(end.since(id.time())).ok()?;
    Some(millis.div_ceil(1000))
}

fn limit_spent(
    (spend, id): (Option<&SpendLimits>, RequestId),
    spender: Spender,
    (spent, held): (Credits, Credits),
    needed: Option<Credits>,
) -> ApiError {
    // A store only refuses by a limit that it was asked with, for what a call needs.
    let (Some(limit), Some(needed)) = (spend.and_then(|limits| limits.of(spender)), needed) else {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::limits::Limits;

    fn rate(remaining_requests: u64, reset_ms: u64) -> RateView {
        RateView {
            limits: Limits {
                rpm: 600,
                tpm: 1,
                concurrency: 1,
            },
            remaining_requests,
            remaining_tokens: 1,
            reset_ms,
        }
    }

    /// `Retry-After: 1` spent the requests of the minute while the calls ran: who obeyed was refused for long after they had ended.
    #[test]
    fn who_tries_again_as_told_has_a_request_left_for_each_try_of_the_window() {
        for (left, reset_ms) in [(15, 60_000), (0, 44_000), (1, 59_999), (2, 1), (590, 60_000)] {
            let mut rate = rate(left, reset_ms);
            loop {
                let wait_ms = between_tries_secs(&rate) * 1000;
                assert!(wait_ms >= 1000, "{rate:?}");
                if wait_ms >= rate.reset_ms {
                    break;
                }
                assert!(rate.remaining_requests > 0, "{rate:?}");
                rate.remaining_requests -= 1;
                rate.reset_ms -= wait_ms;
            }
        }
        assert_eq!(between_tries_secs(&rate(590, 60_000)), 1);
    }
}
