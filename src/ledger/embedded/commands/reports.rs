//! What a command reads of the file as a whole: usage, audit, repair.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use super::super::writer::Committer;
use super::failed;
use crate::ledger::admin::{AdminError, AdminReply, AuditFinding, AuditReport};
use crate::ledger::query::{EndUserQuery, KeyedRow, UsageQuery};
use crate::pure::money::Credits;
use crate::pure::time::Month;

impl Committer {
    pub(super) fn usage(&mut self, query: &UsageQuery) -> Result<Vec<KeyedRow>, AdminError> {
        self.cell(&query.account)?;
        self.commit().map_err(failed)?;
        self.database
            .usage(query, self.shared.clock.now().day())
            .map_err(failed)
    }

    pub(super) fn end_users(&mut self, query: &EndUserQuery) -> Result<AdminReply, AdminError> {
        self.cell(&query.account)?;
        self.commit().map_err(failed)?;
        let usage = self.database.end_users(query, self.shared.clock.now().day());
        let usage = usage.map_err(failed)?;
        Ok(AdminReply::EndUsers { usage })
    }

    pub(super) fn audit(&mut self) -> Result<AuditReport, AdminError> {
        self.commit().map_err(failed)?;
        let mut findings = Vec::new();
        let accounts = self.database.audit(&mut findings).map_err(failed)?;
        let month = self.shared.clock.now().month();
        for stored in self.database.accounts().map_err(failed)? {
            let cell = self.cell(&stored.record.id)?;
            let state = cell.state();
            let mut rule = |rule: &str, expected: Credits, found: Credits| {
                if expected != found {
                    let (account, rule) = (stored.record.id.clone(), rule.to_owned());
                    findings.push(AuditFinding {
                        account,
                        rule,
                        expected,
                        found,
                    });
                }
            };
            rule("sum of holds = held", state.held_counted(), state.held());
            if self
                .shared
                .queue
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .is_empty()
            {
                let used = |months: &BTreeMap<Month, Credits>| months.get(&month).copied().unwrap_or_default();
                rule(
                    "debits of the month = used in the month",
                    used(&stored.kept.months),
                    used(state.months()),
                );
                rule(
                    "balance in memory = balance in the file",
                    state.balance(),
                    stored.kept.balance,
                );
            }
        }
        Ok(AuditReport {
            accounts,
            at: self.shared.clock.now(),
            findings,
        })
    }

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
