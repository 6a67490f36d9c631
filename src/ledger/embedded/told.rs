//! What an account's operator was told of its refused calls: memory says which refusal is the first.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::ledger::events::{Refused, Told};
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

    pub(super) fn lock(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Credit has come in. Called while the account is locked in which it is now.
    pub(super) fn credited(&self, _locked: &AccountState) {
        self.lock().exhausted = false;
    }

    /// What is to be told of a refusal, if it is the first of its kind. Called while the account is locked that refused.
    pub(super) fn first(&self, denial: &Denial, quota: Credits, now: Timestamp) -> Option<Refused> {
        match *denial {
            Denial::Credit { available, held, .. } => {
                let was_told = std::mem::replace(&mut self.lock().exhausted, true);
                (!was_told).then_some(Refused::Credit { available, held })
            }
            Denial::Quota { used, held, .. } => {
                let month = now.month();
                let was = self.lock().quota.replace((month, quota));
                let refused = Refused::Quota {
                    month,
                    quota,
                    used,
                    held,
                };
                (was != Some((month, quota))).then_some(refused)
            }
            Denial::Requests(_)
            | Denial::Tokens(_)
            | Denial::Concurrency(_)
            | Denial::Spent { .. }
            | Denial::EndUsers(_)
            | Denial::Stopped(_) => None,
        }
    }

    /// What could not be written is told by the next.
    pub(super) fn forget(&self, refused: &Refused) {
        match refused {
            Refused::Credit { .. } => self.lock().exhausted = false,
            Refused::Quota { .. } => self.lock().quota = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::time::Month;

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
                exhausted: true,
                quota: Some((now.month(), quota)),
            };
            told.forget(refused);
            let is_credit = matches!(refused, Refused::Credit { .. });
            let left = *told.lock();
            assert_eq!((left.exhausted, left.quota.is_some()), (!is_credit, is_credit));
        }
    }
}
