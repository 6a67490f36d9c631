//! Receipts that cannot be read: whose they are, and on which days they were billed.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::cli::output::counted;
use crate::ledger::admin::ReceiptPage;
use crate::pure::ids::AccountId;
use crate::pure::time::Day;

/// How many there are of each account and day of billing. Those of which no day is known have none.
#[derive(Debug, Default)]
pub(super) struct Unreadable(BTreeMap<(AccountId, Option<Day>), u64>);

/// Those of an account that were billed on one day.
#[derive(Debug, Serialize)]
pub(super) struct UnreadableOfDay {
    account: AccountId,
    /// Null where it is not known.
    day: Option<String>,
    receipts: u64,
}

impl Unreadable {
    /// Adds those of a page of an account.
    pub(super) fn add(&mut self, account: &AccountId, page: &ReceiptPage) {
        let mut left = page.unreadable;
        for (day, count) in &page.unreadable_days {
            left = left.saturating_sub(*count);
            self.count(account, Some(*day), *count);
        }
        self.count(account, None, left);
    }

    fn count(&mut self, account: &AccountId, day: Option<Day>, count: u64) {
        if count > 0 {
            let sum = self.0.entry((account.clone(), day)).or_default();
            *sum = sum.saturating_add(count);
        }
    }

    /// Those that count, by when they were billed, and how many others there are.
    pub(super) fn counting(self, counts: impl Fn(Option<Day>) -> bool) -> (Vec<UnreadableOfDay>, u64) {
        let (mut counting, mut others) = (Vec::new(), 0u64);
        for ((account, day), receipts) in self.0 {
            match counts(day) {
                true => counting.push(UnreadableOfDay {
                    account,
                    day: day.map(|day| day.to_string()),
                    receipts,
                }),
                false => others = others.saturating_add(receipts),
            }
        }
        (counting, others)
    }
}

impl UnreadableOfDay {
    /// How many receipts these are in all.
    pub(super) fn sum(all: &[UnreadableOfDay]) -> u64 {
        all.iter().map(|of_day| of_day.receipts).fold(0, u64::saturating_add)
    }

    /// As a line says it: `2 receipts of acme, billed on 2026-11-20`.
    pub(super) fn said(&self) -> String {
        let receipts = counted(self.receipts, "receipt");
        let billed = self.day.as_ref().map(|day| format!(", billed on {day}"));
        format!("{receipts} of {}{}", self.account, billed.unwrap_or_default())
    }
}
