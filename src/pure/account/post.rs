//! Credit that is posted: top-ups and bonuses add, corrections and refunds may take away, but nothing that is held.

use super::AccountState;
use crate::pure::money::Credits;

/// Why an amount is not posted. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostRefusal {
    /// It would take more than is available.
    Short {
        /// Balance less holds; may be below zero after an overrun.
        available: Credits,
        /// Sum of the open holds.
        held: Credits,
    },
    /// The balance would leave the range of [`Credits`].
    OutOfRange,
}

impl AccountState {
    /// Adds an amount to the balance; one below zero takes at most what is available, unless that `may_exceed` it.
    ///
    /// # Errors
    /// When it would take more, or a figure would leave the range.
    pub fn post(&mut self, amount: Credits, may_exceed: bool) -> Result<(), PostRefusal> {
        let balance = self.balance.checked_add(amount);
        let available = balance.and_then(|balance| balance.checked_sub(self.held));
        let (Some(balance), Some(available)) = (balance, available) else {
            return Err(PostRefusal::OutOfRange);
        };
        if amount < Credits::ZERO && available < Credits::ZERO && !may_exceed {
            return Err(PostRefusal::Short {
                available: self.balance.saturating_sub(self.held),
                held: self.held,
            });
        }
        self.balance = balance;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::account::KeptState;

    fn account(balance: i64, held: i64) -> AccountState {
        let mut state = AccountState::restored(KeptState {
            balance: Credits::from_pico(balance),
            ..KeptState::default()
        });
        state.held = Credits::from_pico(held);
        state
    }

    #[test]
    fn what_is_held_is_not_taken_away() {
        let mut state = account(10, 4);
        let refused = PostRefusal::Short {
            available: Credits::from_pico(6),
            held: Credits::from_pico(4),
        };
        assert_eq!(state.post(Credits::from_pico(-7), false), Err(refused));
        assert_eq!(state.balance(), Credits::from_pico(10), "nothing has changed");
        assert_eq!(state.post(Credits::from_pico(-6), false), Ok(()));
        assert_eq!(state.post(Credits::from_pico(-1), true), Ok(()));
        assert_eq!(state.balance(), Credits::from_pico(3));
        assert_eq!(
            state.post(Credits::from_pico(1), false),
            Ok(()),
            "whatever is added fits"
        );
    }

    #[test]
    fn nothing_is_no_more_than_there_is() {
        assert_eq!(account(1, 4).post(Credits::ZERO, false), Ok(()));
    }

    #[test]
    fn a_figure_does_not_leave_its_range() {
        let refused = Err(PostRefusal::OutOfRange);
        assert_eq!(account(i64::MAX, 0).post(Credits::PICO, true), refused);
        assert_eq!(account(i64::MIN, 0).post(Credits::from_pico(-1), true), refused);
        assert_eq!(
            account(i64::MIN + 5, 3).post(Credits::from_pico(-3), true),
            refused,
            "less holds"
        );
        assert_eq!(account(i64::MIN + 5, 3).post(Credits::from_pico(-2), true), Ok(()));
    }
}
