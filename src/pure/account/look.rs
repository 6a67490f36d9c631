//! What is known of a call before its body is there: a refusal that nothing in the body could turn.

use super::{AccountState, Denial, Scope};
use crate::pure::limits::Limits;
use crate::pure::money::Credits;
use crate::pure::time::Timestamp;

/// What is known of a call before its body is there.
#[derive(Clone, Debug)]
pub struct Look {
    /// Whose limits count.
    pub scope: Scope,
    /// The limits.
    pub limits: Limits,
    /// The account's quota for a month.
    pub quota: Credits,
    /// Whether it will cost something, whatever it asks for.
    pub is_paid: bool,
}

impl Look {
    /// The same where it is not known how many calls run: none is refused for that.
    pub fn beside_any_calls(&self) -> Look {
        let limits = Limits {
            concurrency: u64::MAX,
            ..self.limits
        };
        Look { limits, ..self.clone() }
    }
}

impl AccountState {
    /// Refuses a call that [`AccountState::reserve`] would refuse as things are, whatever its body says; a refusal counts as there. What
    /// passes is neither counted nor held.
    ///
    /// # Errors
    /// No request, or no call at once, is left; or nothing is left to pay with, even if nothing were held.
    pub fn look(&mut self, look: &Look, now: Timestamp) -> Result<(), Denial> {
        self.expire(now);
        let scope = self.scope_index(&look.scope);
        let Some((_, counts)) = self.scopes.get(scope) else {
            return Ok(());
        };
        let (window, open) = (counts.window.at(now), counts.open);
        if window.requests() >= look.limits.rpm {
            return Err(Denial::Requests(window.view(look.limits, now)));
        }
        let window = window.with_requests(1);
        let rate = window.view(look.limits, now);
        let (held, used) = (self.held, self.month_used(now));
        let denial = if open >= look.limits.concurrency {
            Denial::Concurrency(rate)
        } else if look.is_paid && self.balance <= Credits::ZERO {
            let available = self.balance.saturating_sub(held);
            Denial::Credit { available, held, rate }
        } else if look.is_paid && used >= look.quota {
            Denial::Quota { used, held, rate }
        } else {
            return Ok(());
        };
        if let Some((_, counts)) = self.scopes.get_mut(scope) {
            counts.window = window;
        }
        Err(denial)
    }
}
