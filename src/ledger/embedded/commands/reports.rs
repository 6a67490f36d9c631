//! Repair, which reads the file as a whole.

use std::sync::PoisonError;

use super::super::writer::Committer;
use super::failed;
use crate::ledger::admin::{AdminError, AdminReply, AuditFinding};
use crate::pure::money::Credits;

impl Committer {
    /// Makes what each account used in the month what its usage says. What memory counts is held against its quota, and the audit looks at it:
    /// that is told where it was mended. What the account's record says is kept for earlier versions alone, and a clock that was wrong for a
    /// moment leaves it behind while the books balance: it is made right without a word.
    pub(super) fn repair(&mut self) -> Result<AdminReply, AdminError> {
        self.commit().map_err(failed)?;
        let month = self.shared.clock.now().month();
        let mut findings = Vec::new();
        for stored in self.database.accounts().map_err(failed)? {
            let account = stored.record.id;
            let cell = self.cell(&account)?;
            let expected = stored.kept.months.get(&month).copied().unwrap_or_default();
            let (kept_month, kept) = self.database.month(&account).map_err(failed)?;
            let of_record = if kept_month == month { kept } else { Credits::ZERO };
            if kept_month > month || of_record != expected {
                self.database.set_month(&account, month, expected).map_err(failed)?;
            }
            let mut state = cell.state();
            // What was queued since is in memory alone.
            if self
                .shared
                .queue
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .is_empty()
            {
                let found = state.months().get(&month).copied().unwrap_or_default();
                state.set_months(stored.kept.months);
                if found != expected {
                    let rule = "debits of the month = used in the month".to_owned();
                    findings.push(AuditFinding {
                        account,
                        rule,
                        expected,
                        found,
                    });
                }
            }
        }
        Ok(AdminReply::Repaired { findings })
    }
}
