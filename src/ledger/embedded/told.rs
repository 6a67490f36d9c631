//! What an account's operator was told of its refused calls: memory says which refusal is told.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::ledger::events::{Refused, Told, is_told_again};
use crate::pure::account::{AccountState, Denial};
use crate::pure::money::Credits;
use crate::pure::time::Timestamp;

/// What was told of an account's refused calls.
#[derive(Debug, Default)]
pub(super) struct ToldOf(Mutex<Told>);

impl ToldOf {
    pub(super) fn new(told: Told) -> ToldOf {
        ToldOf(Mutex::new(told))
    }

    fn lock(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Credit has come in. Called while the account is locked in which it is now.
    pub(super) fn credited(&self, _locked: &AccountState) {
        self.lock().exhausted = None;
    }

    /// Another process had the ledger: from now on it is what the file says. A refusal that was not written before is told once more.
    pub(super) fn read_anew(&self, stored: Told) {
        *self.lock() = stored;
    }

    /// What is to be told of a refusal, if it is the first of its kind, or leaves less than half of what the one told before left. Called while
    /// the account is locked that refused.
    pub(super) fn to_tell(&self, denial: &Denial, quota: Credits, now: Timestamp) -> Option<Refused> {
        match *denial {
            Denial::Credit { available, held, .. } => {
                let left = available.saturating_add(held).max(Credits::ZERO);
                let mut told = self.lock();
                let is_told = told.exhausted.is_none_or(|before| is_told_again(left, before));
                if is_told {
                    told.exhausted = Some(left);
                }
                is_told.then_some(Refused::Credit { available, held })
            }
            Denial::Quota { used, held, .. } => {
                let (month, left) = (now.month(), quota.saturating_sub(used).max(Credits::ZERO));
                let mut told = self.lock();
                let of_this = told.quota.filter(|(of, value, _)| (*of, *value) == (month, quota));
                let is_told = of_this.is_none_or(|(_, _, before)| is_told_again(left, before));
                if is_told {
                    told.quota = Some((month, quota, left));
                }
                let refused = Refused::Quota {
                    month,
                    quota,
                    used,
                    held,
                };
                is_told.then_some(refused)
            }
            Denial::Requests(_)
            | Denial::Tokens(_)
            | Denial::Concurrency(_)
            | Denial::Spent { .. }
            | Denial::EndUsers(_)
            | Denial::Stopped(_) => None,
        }
    }

    /// What is written with a refusal that is told: what it left itself, for one that follows may leave less, and is lost if the process dies
    /// before that one is written. Credit that came in since is in the file already, and so is what a refusal after it left more.
    pub(super) fn told_with(&self, refused: &Refused) -> Told {
        let mut told = *self.lock();
        match *refused {
            Refused::Credit { available, held } => {
                let left = available.saturating_add(held).max(Credits::ZERO);
                told.exhausted = told.exhausted.map(|later| later.max(left));
            }
            Refused::Quota { month, quota, used, .. } => {
                let left = quota.saturating_sub(used).max(Credits::ZERO);
                told.quota = told.quota.map(|_| (month, quota, left));
            }
        }
        told
    }

    /// What could not be written is told by the next.
    pub(super) fn forget(&self, refused: &Refused) {
        match refused {
            Refused::Credit { .. } => self.lock().exhausted = None,
            Refused::Quota { .. } => self.lock().quota = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::time::Month;

    #[test]
    fn with_a_refusal_is_written_what_it_left_and_that_credit_came_in_since() {
        let (told, pico) = (ToldOf::default(), Credits::from_pico);
        let refused = Refused::Credit {
            available: pico(4),
            held: pico(1),
        };
        // The last two: credit came in, and another call was refused or none.
        for (known, written) in [(Some(5), Some(5)), (Some(2), Some(5)), (Some(7), Some(7)), (None, None)] {
            told.lock().exhausted = known.map(pico);
            assert_eq!(told.told_with(&refused).exhausted, written.map(pico), "{known:?}");
        }
    }

    #[test]
    fn what_could_not_be_written_is_told_by_the_next_refusal() {
        let (told, now, quota) = (ToldOf::default(), Timestamp(0), Credits::from_pico(9));
        let zero = Credits::ZERO;
        let refused = [
            Refused::Credit {
                available: zero,
                held: zero,
            },
            Refused::Quota {
                month: Month(0),
                quota,
                used: zero,
                held: zero,
            },
        ];
        for refused in &refused {
            *told.lock() = Told {
                exhausted: Some(zero),
                quota: Some((now.month(), quota, zero)),
            };
            told.forget(refused);
            let is_credit = matches!(refused, Refused::Credit { .. });
            let left = *told.lock();
            assert_eq!(
                (left.exhausted.is_some(), left.quota.is_some()),
                (!is_credit, is_credit)
            );
        }
    }
}
