//! The reference, with what it does not keep: usage, top-ups, and the steps that can be repeated.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::steps::{Cost, Number, Quota, Spend, Step, end_user_of, hold_id, key_of, scope_of};
use crate::ledger::{Debit, UsageRow};
use crate::pure::account::{AccountState, ReserveRequest, Scope, Settled, Settlement, Spent};
use crate::pure::estimate::HoldRange;
use crate::pure::ids::RequestId;
use crate::pure::limits::Limits;
use crate::pure::money::Credits;
use crate::pure::numbers::{CallNumber, ProducerId};
use crate::pure::spend::{EndUser, Reset, SpendLimit, SpendLimits, SpendPeriod};
use crate::pure::time::{Day, Timestamp};
use crate::pure::usage::{CompletionTokens, PromptTokens, Usage};

/// An account as it should be.
#[derive(Default)]
pub(super) struct Model {
    pub(super) state: AccountState,
    pub(super) usage: BTreeMap<(Day, String), (u64, u64, u64, Credits)>,
    pub(super) holds: BTreeMap<u8, (Scope, Credits)>,
    /// The limits that each hold was made with.
    pub(super) spends: BTreeMap<u8, Option<Arc<SpendLimits>>>,
    pub(super) top_ups: Vec<i64>,
    pub(super) corrections: u32,
    pub(super) last: Option<Last>,
}

pub(super) enum Last {
    Reserve(u8, ReserveRequest),
    Settle(Settlement, Debit),
}

impl Model {
    pub(super) fn request(&self, step: &Step, now: Timestamp) -> Option<ReserveRequest> {
        let Step::Reserve {
            slot,
            wanted,
            least_percent,
            tokens,
            scope,
            tight,
            quota,
            ttl_ms,
            is_counted,
            spend,
        } = *step
        else {
            return None;
        };
        let limits = if tight {
            Limits {
                rpm: 5,
                tpm: 500,
                concurrency: 3,
            }
        } else {
            Limits {
                rpm: 1000,
                tpm: 100_000,
                concurrency: 1000,
            }
        };
        // Beyond the range the stores may differ in what they refuse; a test of its own looks at that.
        self.most_used()
            .checked_add(self.state.held())?
            .checked_add(Credits::from_pico(wanted))?;
        self.is_far_from_range(slot, None, wanted).then_some(())?;
        let used = self.state.month_used(now).pico();
        let at_least = i128::from(wanted) * i128::from(least_percent) / 100;
        Some(ReserveRequest {
            id: hold_id(slot),
            scope: scope_of(scope),
            limits,
            quota: quota_of(quota, used),
            wanted: Credits::from_pico(wanted),
            at_least: Credits::from_pico(i64::try_from(at_least).unwrap()),
            tokens,
            expires: now.plus_millis(ttl_ms),
            is_counted,
            is_last: true,
            spend: spend.map(|spend| Arc::new(self.limits(slot, spend))),
        })
    }

    /// The hold that is to be raised, to what, and under which quota.
    pub(super) fn extension(&self, step: &Step, now: Timestamp) -> Option<(RequestId, HoldRange, Credits)> {
        let Step::Extend {
            slot,
            more,
            least_percent,
            quota,
        } = *step
        else {
            return None;
        };
        let has = self.holds.get(&slot).map_or(Credits::ZERO, |(_, amount)| *amount);
        let wanted = has.checked_add(Credits::from_pico(more))?;
        self.is_far_from_range(slot, None, more).then_some(())?;
        self.most_used()
            .checked_add(self.state.held())?
            .checked_add(Credits::from_pico(more))?;
        let least = i128::from(more) * i128::from(least_percent) / 100;
        let range = HoldRange {
            wanted,
            at_least: has.checked_add(Credits::from_pico(i64::try_from(least).unwrap()))?,
        };
        Some((hold_id(slot), range, quota_of(quota, self.state.month_used(now).pico())))
    }

    fn limits(&self, slot: u8, spend: Spend) -> SpendLimits {
        let (key, day) = (key_of(slot), hold_id(slot).time().day());
        let limit = |quota, reset: Reset, spent: Spent| SpendLimit {
            amount: quota_of(quota, spent.spent.saturating_add(spent.held).pico()),
            reset,
        };
        let own = |(quota, reset): (Quota, Reset)| limit(quota, reset, self.state.spent(&key, reset.period(day)));
        let end_user = |(number, quota, reset): (u8, Quota, Reset)| {
            let id = end_user_of(number);
            (
                id,
                limit(quota, reset, self.state.spent_by(&key, id, reset.period(day))),
            )
        };
        SpendLimits {
            own: spend.own.map(own),
            end_user: spend.end_user.map(end_user),
            key: key.clone(),
        }
    }

    /// Whether neither the key nor its end user comes near the range of an amount with so much more: there the stores may differ.
    fn is_far_from_range(&self, slot: u8, end_user: Option<EndUser>, more: i64) -> bool {
        let all = self.state.spent(&key_of(slot), SpendPeriod::Life);
        let of = |end_user: EndUser| {
            let period = end_user.period(hold_id(slot));
            self.state.spent_by(&key_of(slot), end_user.id, period)
        };
        let each = [Some(all), end_user.map(of)];
        each.into_iter().flatten().all(|Spent { spent, held }| {
            i128::from(spent.pico()) + i128::from(held.pico()) + i128::from(more) < 9_000_000_000_000_000_000
        })
    }

    /// The most that was used in a month: whichever is counted, it is in range.
    fn most_used(&self) -> Credits {
        self.state.months().values().copied().max().unwrap_or_default()
    }

    pub(super) fn settlement(&self, step: &Step, now: Timestamp) -> Option<(Settlement, Debit)> {
        let Step::Settle {
            slot,
            cost,
            tokens,
            producer,
            number,
            model,
            end_user,
            ..
        } = *step
        else {
            return None;
        };
        let held = self.holds.get(&slot).map_or(0, |(_, amount)| amount.pico());
        let cost = match cost {
            Cost::Zero => 0,
            Cost::Below => held / 2,
            Cost::Exactly => held,
            Cost::Above(more) => held.saturating_add(more),
            Cost::Any(cost) => cost,
        };
        // Beyond the range the stores may differ in what they refuse; a test of its own looks at that.
        let (balance, held) = (self.state.balance().pico(), self.state.held().pico());
        let used = self.most_used().pico();
        let far = |sum: i128| sum.unsigned_abs() > 9_000_000_000_000_000_000;
        let name = format!("provider/model-{model}");
        // A day's row goes on when the clock steps back over a month's end, where what was used begins anew.
        let row = self.usage.get(&(now.day(), name.clone()));
        let billed = row.map_or(0, |row| row.3.pico());
        if far(i128::from(balance) - i128::from(held) - i128::from(cost))
            || far(i128::from(used) + i128::from(held) + i128::from(cost))
            || far(i128::from(billed) + i128::from(cost))
        {
            return None;
        }
        let end_user = end_user.map(|(number, reset)| EndUser {
            id: end_user_of(number),
            reset,
        });
        if !self.is_far_from_range(slot, end_user, cost) {
            return None;
        }
        let producer = ProducerId(u64::MAX - u64::from(producer));
        let last = self.state.numbers(producer).high();
        let number = match number {
            Number::Next => last + 1,
            Number::Before(n) => last.saturating_sub(u64::from(n)).max(1),
            Number::Ahead(n) => last + 2 + u64::from(n),
        };
        let settlement = Settlement {
            hold: hold_id(slot),
            cost: Credits::from_pico(cost),
            tokens,
            number: CallNumber::new(producer, number),
        };
        let debit = Debit {
            model: name.into(),
            key: key_of(slot),
            usage: Usage {
                prompt: PromptTokens(tokens / 3),
                completion: CompletionTokens(tokens - tokens / 3),
            },
            cost: settlement.cost,
            held: None,
            details: None,
            end_user,
        };
        Some((settlement, debit))
    }

    pub(super) fn settle(&mut self, settlement: &Settlement, debit: &Debit, now: Timestamp) -> Settled {
        let settled = self.state.settle(settlement, now);
        if let Settled::Now { .. } = settled {
            self.state
                .spend(&debit.key, debit.end_user, settlement.hold, debit.cost);
            let row = self.usage.entry((now.day(), debit.model.to_string())).or_default();
            row.0 += 1;
            row.1 += debit.usage.prompt.0;
            row.2 += debit.usage.completion.0;
            row.3 = row.3.checked_add(debit.cost).unwrap();
        }
        settled
    }

    pub(super) fn rows(&self) -> Vec<UsageRow> {
        let row = |((day, model), sums): (&(Day, String), &(u64, u64, u64, Credits))| UsageRow {
            day: *day,
            model: model.clone(),
            requests: sums.0,
            prompt_tokens: sums.1,
            completion_tokens: sums.2,
            cost: sums.3,
        };
        self.usage.iter().map(row).collect()
    }
}

fn quota_of(quota: Quota, used: i64) -> Credits {
    Credits::from_pico(match quota {
        Quota::Far => i64::MAX,
        Quota::Near(more) => used.saturating_add(more),
        Quota::Zero => 0,
    })
}
