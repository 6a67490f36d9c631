//! Audits the books from time to time, on a thread of its own, so that a mistake in them is an alarm and not a surprise.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::clock::Clock;
use crate::ledger::Ledger;
use crate::ledger::admin::events::EventOp;
use crate::ledger::admin::{AdminError, AdminOp, AdminReply, AuditReport};
use crate::ledger::events::unbalanced;
use crate::pure::money::Credits;
use crate::pure::time::Timestamp;

/// The last audit's result.
#[derive(Debug, Default)]
pub(crate) struct Audited(Mutex<Option<Audit>>);

/// What an audit found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Audit {
    pub(crate) at: Timestamp,
    pub(crate) findings: u64,
    /// Accounts with a balance below zero.
    pub(crate) below_zero: Option<u64>,
}

impl Audited {
    pub(crate) fn last(&self) -> Option<Audit> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Audits the books once.
    pub(crate) async fn audit(&self, ledger: &Ledger, clock: &Clock) {
        match found(ledger, clock).await {
            Ok(audit) => *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(audit),
            // The age of the last one grows, and that is an alarm too.
            Err(error) => log::warn!("the books could not be audited: {error}"),
        }
    }

    /// Audits the books as often as `every` says, the first time at once, until nobody wants to know.
    pub(crate) fn watch(this: &Arc<Audited>, ledger: Ledger, clock: Clock, every: Duration) -> std::io::Result<()> {
        if every.is_zero() {
            return Ok(());
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let audited = Arc::downgrade(this);
        let work = move || {
            while let Some(audited) = Weak::upgrade(&audited) {
                runtime.block_on(audited.audit(&ledger, &clock));
                drop(audited);
                std::thread::sleep(every);
            }
        };
        let thread = std::thread::Builder::new().name("audit".to_owned());
        thread.spawn(work).map(|_| ())
    }
}

async fn found(ledger: &Ledger, clock: &Clock) -> Result<Audit, AdminError> {
    let wrong = || AdminError::Store("an answer of another kind".to_owned());
    let AdminReply::Audit(report) = ledger.run(AdminOp::Audit).await? else {
        return Err(wrong());
    };
    let AdminReply::Accounts { accounts } = ledger.run(AdminOp::AccountList).await? else {
        return Err(wrong());
    };
    let below_zero = accounts
        .iter()
        .filter(|view| view.figures.balance < Credits::ZERO)
        .count();
    let AuditReport { findings, .. } = report;
    for finding in &findings {
        let (account, rule) = (&finding.account, &finding.rule);
        let (expected, found) = (finding.expected, finding.found);
        log::error!("MONEY: the books of {account} do not balance: {rule}: {expected} expected, {found} found");
    }
    if !findings.is_empty() {
        let event = unbalanced(&findings, clock.now());
        if let Err(error) = ledger.run(AdminOp::Event(EventOp::Raise(event))).await {
            log::warn!("no event tells of it: {error}");
        }
    }
    Ok(Audit {
        at: clock.now(),
        findings: u64::try_from(findings.len()).unwrap_or(u64::MAX),
        below_zero: u64::try_from(below_zero).ok(),
    })
}
