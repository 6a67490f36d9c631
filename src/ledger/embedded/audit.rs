//! The audit: the file is read as one moment has it, beside the ledger's thread, and held against what memory had at that moment.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;
use std::sync::PoisonError;

use super::shared::{EmbeddedAccount, Shared};
use crate::ledger::StoreError;
use crate::ledger::admin::{AdminError, AuditFinding, AuditReport};
use crate::ledger::sqlite::Database;
use crate::pure::ids::AccountId;
use crate::pure::money::Credits;
use crate::pure::time::{Month, Timestamp};

/// One moment: what the file had is read later, what memory had stands here.
pub(super) struct Moment {
    file: Database,
    at: Timestamp,
    accounts: HashMap<AccountId, InMemory>,
}

/// What memory had of an account.
#[derive(Clone, Copy, Debug)]
struct InMemory {
    /// The sum of its holds, and what it says that they are.
    held: (Credits, Credits),
    /// The balance, and what was used in the month; nothing where debits were queued that the file has not.
    written: Option<(Credits, Credits)>,
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Moment").field("at", &self.at).finish_non_exhaustive()
    }
}

impl Moment {
    pub(super) fn over(path: &Path) -> Result<Moment, StoreError> {
        Ok(Moment {
            file: Database::open_to_read(path)?,
            at: Timestamp(0),
            accounts: HashMap::new(),
        })
    }

    /// Takes the moment that is now, on the ledger's thread: all that is committed is in it, and nothing that comes later.
    pub(super) fn take(&mut self, shared: &Shared) -> Result<(), StoreError> {
        self.file.begin_moment()?;
        self.at = shared.clock.now();
        let accounts = shared.accounts.read().unwrap_or_else(PoisonError::into_inner);
        self.accounts = accounts
            .iter()
            .map(|(id, cell)| (id.clone(), in_memory(shared, cell, self.at.month())))
            .collect();
        Ok(())
    }
}

fn in_memory(shared: &Shared, cell: &EmbeddedAccount, month: Month) -> InMemory {
    let state = cell.state();
    // While the account is locked nothing of it is queued.
    let is_written = shared.queue.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
    InMemory {
        held: (state.held_counted(), state.held()),
        written: is_written.then(|| (state.balance(), used(state.months(), month))),
    }
}

fn used(months: &BTreeMap<Month, Credits>, month: Month) -> Credits {
    months.get(&month).copied().unwrap_or_default()
}

impl Moment {
    /// Reads the file as it was then, and holds it against memory. Blocks.
    pub(super) fn report(self) -> Result<AuditReport, AdminError> {
        let (month, mut findings) = (self.at.month(), Vec::new());
        let accounts = self.file.audit(&mut findings)?;
        for stored in self.file.accounts()? {
            let id = &stored.record.id;
            let Some(found) = self.accounts.get(id) else {
                return Err(AdminError::NoAccount(id.clone()));
            };
            let mut rule = |rule: &str, expected: Credits, found: Credits| {
                if expected != found {
                    let (account, rule) = (id.clone(), rule.to_owned());
                    findings.push(AuditFinding {
                        account,
                        rule,
                        expected,
                        found,
                    });
                }
            };
            rule("sum of holds = held", found.held.0, found.held.1);
            if let Some((balance, month_used)) = found.written {
                let expected = used(&stored.kept.months, month);
                rule("debits of the month = used in the month", expected, month_used);
                rule("balance in memory = balance in the file", balance, stored.kept.balance);
            }
        }
        Ok(AuditReport {
            accounts,
            at: self.at,
            findings,
            ..AuditReport::default()
        })
    }
}
