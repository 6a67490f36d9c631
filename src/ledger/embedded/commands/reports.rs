//! Repair, which reads the file as a whole.

use std::sync::PoisonError;

use super::super::writer::Committer;
use super::failed;
use crate::ledger::admin::{AdminError, AdminReply, AuditFinding};
use crate::pure::money::Credits;

impl Committer {
    /// Makes what each account used in a month what its usage says.
    pub(super) fn repair(&mut self) -> Result<AdminReply, AdminError> {
        self.commit().map_err(failed)?;
        let month = self.shared.clock.now().month();
        let mut findings = Vec::new();
        for stored in self.database.accounts().map_err(failed)? {
            let account = stored.record.id;
            let cell = self.cell(&account)?;
            let expected = stored.kept.months.get(&month).copied().unwrap_or_default();
            let (kept_month, kept) = self.database.month(&account).map_err(failed)?;
            let found = if kept_month == month { kept } else { Credits::ZERO };
            if kept_month > month || found != expected {
                self.database.set_month(&account, month, expected).map_err(failed)?;
                let rule = "debits of the month = used in the month".to_owned();
                findings.push(AuditFinding {
                    account,
                    rule,
                    expected,
                    found,
                });
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
                state.set_months(stored.kept.months);
            }
        }
        Ok(AdminReply::Repaired { findings })
    }
}
