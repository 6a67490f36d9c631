//! Repair, which reads the file as a whole.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use super::super::shared::{EmbeddedAccount, QueuedDebit, Shared};
use super::super::writer::Committer;
use super::failed;
use crate::ledger::admin::{AdminError, AdminReply, AuditFinding};
use crate::ledger::sqlite::{SPENT_RULE, StoredAccount, WrongSpent};
use crate::pure::money::Credits;
use crate::pure::spend::SpendPeriod;
use crate::pure::time::Month;

impl Committer {
    /// Makes what each account used in a month, and what each key with limits has spent in all, what the usage says.
    pub(super) fn repair(&mut self) -> Result<AdminReply, AdminError> {
        self.commit().map_err(failed)?;
        let month = self.shared.clock.now().month();
        let (mut findings, mut queued) = (Vec::new(), Queued::default());
        for stored in self.database.accounts().map_err(failed)? {
            findings.extend(self.repair_month(stored, month, &mut queued)?);
        }
        for wrong in self.database.repair_spending().map_err(failed)? {
            findings.push(self.repair_spent(wrong)?);
        }
        Ok(AdminReply::Repaired { findings })
    }

    /// Makes an account's months in memory, which count, and the month in its record what its usage says: `stored`, with which all is
    /// written that was queued until then.
    pub(in crate::ledger::embedded) fn repair_month(
        &mut self,
        stored: StoredAccount,
        month: Month,
        queued: &mut Queued,
    ) -> Result<Option<AuditFinding>, AdminError> {
        let account = stored.record.id;
        let cell = self.cell(&account)?;
        let expected = stored.kept.months.get(&month).copied().unwrap_or_default();
        let in_memory = {
            let mut state = cell.state();
            queued.read(&self.shared);
            // What was queued since is in memory alone.
            let (mut months, mut waits) = (stored.kept.months, Credits::ZERO);
            for (of, cost) in queued.of(&cell) {
                let used = months.entry(*of).or_default();
                *used = used.saturating_add(*cost);
                if *of == month {
                    waits = waits.saturating_add(*cost);
                }
            }
            let used = state.months().get(&month).copied().unwrap_or_default();
            let in_memory = used.saturating_sub(waits);
            if in_memory != expected {
                // They were queued with what memory said.
                count_anew(&self.shared, &cell, (month, expected));
            }
            state.set_months(months);
            in_memory
        };
        let (kept_month, kept) = self.database.month(&account).map_err(failed)?;
        let in_record = if kept_month == month { kept } else { Credits::ZERO };
        let is_record_wrong = kept_month > month || in_record != expected;
        if is_record_wrong {
            self.database.set_month(&account, month, expected).map_err(failed)?;
        }
        let found = if in_memory == expected { in_record } else { in_memory };
        let is_wrong = is_record_wrong || in_memory != expected;
        Ok(is_wrong.then(|| AuditFinding {
            account,
            rule: "debits of the month = used in the month".to_owned(),
            expected,
            found,
        }))
    }

    /// The file was mended of this: memory has it too, with what was queued since.
    fn repair_spent(&self, wrong: WrongSpent) -> Result<AuditFinding, AdminError> {
        let WrongSpent {
            account,
            key,
            expected,
            found,
        } = wrong;
        let cell = self.cell(&account)?;
        let mut state = cell.state();
        let mut spent = expected;
        for_each_queued(&self.shared, &cell, |queued| {
            let debit = queued.debit.as_ref().filter(|_| queued.is_tracked);
            if let Some(debit) = debit.filter(|debit| *state.counted_as(&debit.key) == key) {
                spent = spent.saturating_add(debit.cost);
            }
        });
        state.set_spent(&key, SpendPeriod::Life, spent);
        Ok(AuditFinding {
            account,
            rule: SPENT_RULE.to_owned(),
            expected,
            found,
        })
    }
}

/// What debits cost that were queued for the file since a repair began, by account. The thread that would write them repairs.
#[derive(Default)]
pub(in crate::ledger::embedded) struct Queued {
    /// So many of the queue were looked at: settlements wait meanwhile.
    seen: usize,
    costs: HashMap<*const EmbeddedAccount, Vec<(Month, Credits)>>,
}

impl Queued {
    /// Looks at those that have come since. Of an account that is locked, all have.
    fn read(&mut self, shared: &Shared) {
        let queue = shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
        for queued in queue.iter().skip(self.seen) {
            let cost = queued.debit.as_ref().map_or(Credits::ZERO, |debit| debit.cost);
            self.costs
                .entry(Arc::as_ptr(&queued.cell))
                .or_default()
                .push((queued.month, cost));
        }
        self.seen = queue.len();
    }

    fn of(&self, cell: &Arc<EmbeddedAccount>) -> &[(Month, Credits)] {
        self.costs.get(&Arc::as_ptr(cell)).map_or(&[], Vec::as_slice)
    }
}

/// Sets what was used in the month after each of the account's queued debits, where it was so much before the first. To be called while the
/// account is locked.
fn count_anew(shared: &Shared, cell: &Arc<EmbeddedAccount>, (month, mut used): (Month, Credits)) {
    let mut queue = shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
    let of_account = queue.iter_mut().filter(|queued| Arc::ptr_eq(&queued.cell, cell));
    for queued in of_account.filter(|queued| queued.month == month) {
        used = used.saturating_add(queued.debit.as_ref().map_or(Credits::ZERO, |debit| debit.cost));
        queued.month_used = used;
    }
}

/// Looks at the account's calls that are queued for the file. To be called while the account is locked: nothing of it is queued then.
fn for_each_queued(shared: &Shared, cell: &Arc<EmbeddedAccount>, look: impl FnMut(&QueuedDebit)) {
    let queue = shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
    let of_account = queue.iter().filter(|queued| Arc::ptr_eq(&queued.cell, cell));
    of_account.for_each(look);
}
