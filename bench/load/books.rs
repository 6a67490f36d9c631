//! What accounts owe, computed from what was sent and seen, and how that differs from their balances.

use crate::operator::Standing;

/// What a call costs, in 10^-12 credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Debit {
    Exactly(u128),
    /// What a kill left open: from what was delivered to what the whole answer costs.
    Between(u128, u128),
}

/// What an account owes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owed {
    low: u128,
    high: u128,
    /// Calls of which only the bounds are known.
    pub(crate) open_calls: u64,
}

impl Owed {
    pub(crate) fn add(&mut self, debit: Debit) {
        let (low, high) = match debit {
            Debit::Exactly(amount) => (amount, amount),
            Debit::Between(low, high) => {
                self.open_calls += 1;
                (low, high)
            }
        };
        self.low += low;
        self.high += high;
    }

    /// Of several accounts together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            low: self.low + other.low,
            high: self.high + other.high,
            open_calls: self.open_calls + other.open_calls,
        }
    }

    /// In credits: one amount, or two between which it lies.
    pub(crate) fn text(self) -> String {
        if self.low == self.high {
            return credits(self.low);
        }
        format!("{} to {}", credits(self.low), credits(self.high))
    }

    /// How an account that had `before` and has `after` differs. None when it does not.
    pub(crate) fn difference(self, name: &str, before: Standing, after: Standing) -> Option<String> {
        let seen = before.balance - after.balance;
        let is_right = u128::try_from(seen).is_ok_and(|seen| (self.low..=self.high).contains(&seen));
        if is_right && after.held == 0 {
            return None;
        }
        let (sign, held) = (if seen < 0 { "-" } else { "" }, after.held.unsigned_abs());
        Some(format!(
            "{name}: computed {}, seen {sign}{}, still held {}",
            self.text(),
            credits(seen.unsigned_abs()),
            credits(held)
        ))
    }
}

/// An amount of 10^-12 credit as decimal text.
pub(crate) fn credits(pico: u128) -> String {
    format!("{}.{:012}", pico / PICO, pico % PICO)
}

const PICO: u128 = 1_000_000_000_000;
