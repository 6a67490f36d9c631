//! What calls have spent of the limits of keys and end users: what is written, and how much of it stays in memory.

use std::collections::HashMap;
use std::sync::Arc;

use super::shared::{EmbeddedAccount, QueuedDebit};
use crate::ledger::journal::LiveHold;
use crate::ledger::sqlite::AccountDebit;
use crate::ledger::{Debit, KeyRecord};
use crate::pure::account::AccountState;
use crate::pure::money::Credits;
use crate::pure::spend::{SpendLimit, SpendLimits, SpendPeriod};
use crate::pure::time::Day;

/// Counts what a key with limits spends from now on, which has spent what is known already, or nothing.
pub(super) fn track(cell: &EmbeddedAccount, key: &KeyRecord) {
    if let Some(with) = &key.settings.counts_as {
        cell.state().share(&key.id, with);
    } else if key.settings.has_limits() {
        cell.state().track(&key.id, &HashMap::new());
    }
}

/// Adds a debit to what its group says that keys and end users have spent.
pub(super) fn add(sum: &mut AccountDebit, queued: &QueuedDebit, debit: &Debit) {
    if !queued.is_tracked && debit.end_user.is_none() {
        return;
    }
    let key = queued.cell.state().counted_as(&debit.key).clone();
    let mut add = |end_user, period| {
        let spent = sum.spent.entry((key.clone(), end_user, period)).or_default();
        *spent = spent.saturating_add(debit.cost);
    };
    if queued.is_tracked {
        for period in SpendPeriod::all_of(queued.id.time().day()) {
            add(None, period);
        }
    }
    // As in memory: a call that cost nothing makes no end user known.
    if let Some(end_user) = debit.end_user.filter(|_| debit.cost > Credits::ZERO) {
        add(Some(end_user.id), end_user.period(queued.id));
    }
}

/// Lets go of periods that are over where an account has more than `most` end users in memory: the file has what was spent. It is `today` as far
/// as that is known: by a clock that was set ahead, what still counts would be let go of, and be spent a second time.
pub(super) fn bound(written: &[QueuedDebit], today: Day, most: usize) {
    let with_end_user = |queued: &&QueuedDebit| queued.debit.as_ref().is_some_and(|debit| debit.end_user.is_some());
    if let Some(queued) = written.iter().find(with_end_user) {
        let mut state = queued.cell.state();
        if state.end_users_known() > most {
            state.forget_spending(Day(today.0.saturating_sub(1)));
        }
    }
}

/// The limits that a call of the process before counts under: it was admitted, and only has to be counted.
pub(super) fn of_predecessor(state: &AccountState, hold: &LiveHold) -> Option<Arc<SpendLimits>> {
    let limit = |reset| SpendLimit {
        amount: Credits::MAX,
        reset,
    };
    let limits = SpendLimits {
        key: hold.key.clone(),
        own: None,
        end_user: hold.end_user.map(|end_user| (end_user.id, limit(end_user.reset))),
    };
    (state.tracks(&hold.key) || hold.end_user.is_some()).then(|| Arc::new(limits))
}

/// From how many end users of an account on periods that are over are not kept in memory: about 20 MB.
pub(super) const END_USERS_IN_MEMORY: usize = 200_000;
