//! A group of debits as the file gets it.

use super::shared::QueuedDebit;
use super::spending;
use crate::ledger::sqlite::AccountDebit;
use crate::pure::hash_map::FastMap;
use crate::pure::ids::AccountId;

/// One record an account, whatever the number of its debits: a commit's cost does not grow with the traffic of one account.
pub(super) fn sums(debits: &[QueuedDebit]) -> FastMap<AccountId, AccountDebit> {
    let mut group: FastMap<AccountId, AccountDebit> = FastMap::default();
    for queued in debits {
        let record = queued.cell.record.load();
        let sum = group.entry(record.id.clone()).or_default();
        sum.low = record.terms.low_balance;
        // Numbers of one account are queued in the order in which they were closed, so the last one knows all.
        let numbers = (queued.number.born, queued.numbers.clone());
        sum.numbers.insert(queued.number.producer, numbers);
        // The last one's, even when the clock has stepped back over a month's end: memory does the same.
        (sum.month, sum.month_used) = (queued.month, queued.month_used.pico());
        let Some(debit) = &queued.debit else { continue };
        sum.cost = sum.cost.saturating_add(i128::from(debit.cost.pico()));
        sum.usage.add(queued.day, debit);
        spending::add(sum, queued, debit);
    }
    group
}
