//! Audits the books from time to time, on a thread of its own, so that a mistake in them is an alarm and not a surprise. Of several gateways on
//! one Redis one audits, and all of them tell what it found.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::clock::Clock;
use crate::ledger::Ledger;
use crate::ledger::admin::events::EventOp;
use crate::ledger::admin::{AdminError, AdminOp, AdminReply, AuditReport};
use crate::ledger::events::unbalanced;
use crate::pure::ids::AccountId;
use crate::pure::money::Credits;
use crate::pure::time::Timestamp;
use crate::telemetry::exposition::AuditGauges;

/// How often the books are audited, and the last audit's result.
#[derive(Debug, Default)]
pub(crate) struct Audited {
    /// None where they are not audited.
    schedule: Option<Schedule>,
    last: Mutex<Option<Audit>>,
    /// How many findings each account has that does not balance.
    found: Mutex<BTreeMap<AccountId, u64>>,
}

/// How often the books are audited, and since when.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    every: Duration,
    since: Timestamp,
}

/// What an audit found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Audit {
    pub(crate) at: Timestamp,
    pub(crate) findings: u64,
    /// Accounts that it could not check.
    pub(crate) unchecked: u64,
    /// Accounts with a balance below zero.
    pub(crate) below_zero: Option<u64>,
}

impl Audited {
    /// Books that are audited as often as `every` says, from `now` on; never when it is zero.
    pub(crate) fn new(every: Duration, now: Timestamp) -> Audited {
        let schedule = Schedule { every, since: now };
        Audited {
            schedule: Some(schedule).filter(|schedule| !schedule.every.is_zero()),
            last: Mutex::default(),
            found: Mutex::default(),
        }
    }

    pub(crate) fn last(&self) -> Option<Audit> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is told of audits at `now`. The age grows from the start on, so that audits that never succeed are an alarm too; none where the
    /// books are not audited.
    pub(crate) fn gauges(&self, now: Timestamp) -> Option<AuditGauges> {
        let (Schedule { every, since }, last) = (self.schedule?, self.last());
        let age_ms = now.since(last.map_or(since, |audit| audit.at));
        Some(AuditGauges {
            age_secs: age_ms.max(0) / 1_000,
            interval_secs: i64::try_from(every.as_secs()).unwrap_or(i64::MAX),
            findings: last.map(|audit| audit.findings),
            unchecked: last.map(|audit| audit.unchecked),
        })
    }

    /// Audits the books once.
    pub(crate) async fn audit(&self, ledger: &Ledger, clock: &Clock) {
        let every = self.schedule.map_or(Duration::ZERO, |schedule| schedule.every);
        // A process that starts looks for itself: its ledger may have been restored meanwhile.
        let within = self.last().map_or(Duration::ZERO, |_| every);
        match found(ledger, clock, (within, every)).await {
            Ok((audit, report)) => self.keep(audit, &report),
            Err(error) => log::warn!("the books could not be audited: {error}"),
        }
    }

    /// Findings count until their account is checked again. Of an audit that has passed some over, the age is that of the last whole one: it
    /// grows, and that is an alarm too. Until then the accounts that were passed over tell that the books are not known to balance.
    fn keep(&self, audit: Audit, report: &AuditReport) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let passed_over: BTreeSet<&AccountId> = report.passed_over.iter().collect();
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.retain(|account, _| passed_over.contains(account));
        let mut found_now: BTreeMap<&AccountId, u64> = BTreeMap::new();
        for finding in &report.findings {
            let count = found_now.entry(&finding.account).or_default();
            *count = count.saturating_add(1);
        }
        // An account may be passed over after a part of it was checked. What that has found may be among what was found before: it has so many at
        // least.
        for (account, count) in found_now {
            let kept = found.entry(account.clone()).or_default();
            *kept = count.max(*kept);
        }
        let findings = found.values().fold(0, |sum: u64, count| sum.saturating_add(*count));
        let since = self.schedule.map(|schedule| schedule.since);
        let at = match (report.unchecked, last.map(|last| last.at).or(since)) {
            (0, _) | (_, None) => audit.at,
            (_, Some(at)) => at,
        };
        // Before a whole one nothing is known, unless it is that something is wrong.
        if report.unchecked == 0 || findings > 0 || last.is_some() {
            *last = Some(Audit { at, findings, ..audit });
        }
    }

    /// Audits the books as often as they are to be, the first time at once, until nobody wants to know.
    pub(crate) fn watch(this: &Arc<Audited>, ledger: Ledger, clock: Clock) -> std::io::Result<()> {
        let Some(Schedule { every, .. }) = this.schedule else {
            return Ok(());
        };
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

/// Audits the books, and tells of what does not balance.
async fn found(
    ledger: &Ledger,
    clock: &Clock,
    (within, every): (Duration, Duration),
) -> Result<(Audit, AuditReport), AdminError> {
    let (report, age) = ledger.audit_in_turn(within, every).await?;
    let at = clock
        .now()
        .plus_millis(-i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
    let findings = &report.findings;
    for finding in findings {
        let (account, rule) = (&finding.account, &finding.rule);
        let (expected, found) = (finding.expected, finding.found);
        log::error!("MONEY: the books of {account} do not balance: {rule}: {expected} expected, {found} found");
    }
    if let Some(first) = report.why_unchecked.first() {
        log::error!(
            "the books of {} accounts could not be audited, such as {first}",
            report.unchecked
        );
    }
    if !findings.is_empty() {
        let event = unbalanced(&report, clock.now());
        if let Err(error) = ledger.run(AdminOp::Event(EventOp::Raise(event))).await {
            log::warn!("no event tells of it: {error}");
        }
    }
    let audit = Audit {
        at,
        findings: u64::try_from(findings.len()).unwrap_or(u64::MAX),
        unchecked: report.unchecked,
        below_zero: below_zero(ledger).await,
    };
    Ok((audit, report))
}

/// How many accounts have a balance below zero. None where that is not known.
async fn below_zero(ledger: &Ledger) -> Option<u64> {
    let accounts = match ledger.run(AdminOp::AccountList).await {
        Ok(AdminReply::Accounts { accounts }) => accounts,
        Ok(_) => return None,
        Err(error) => {
            log::warn!("how many accounts are below zero is not known: {error}");
            return None;
        }
    };
    let below = accounts.iter().filter(|view| view.figures.balance < Credits::ZERO);
    u64::try_from(below.count()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::admin::AuditFinding;
    use crate::ledger::redis::RedisLedger;
    use crate::ledger::tests::redis_server::RedisServer;
    use crate::ledger::tests::rig::{NOW, Rig, block_on, caller_of, patient};
    use crate::pure::limits::LimitOverrides;

    const EVERY: Duration = Duration::from_secs(300);

    /// `known`: the findings, and how many accounts were not checked.
    fn gauges(age_secs: i64, known: Option<(u64, u64)>) -> Option<AuditGauges> {
        Some(AuditGauges {
            age_secs,
            interval_secs: 300,
            findings: known.map(|(findings, _)| findings),
            unchecked: known.map(|(_, unchecked)| unchecked),
        })
    }

    #[test]
    fn the_age_grows_from_the_start_until_an_audit_succeeds_and_from_the_last_that_did() {
        let rig = Rig::embedded();
        let audited = Audited::new(EVERY, rig.clock.now());
        rig.clock.advance(7_999);
        assert_eq!(audited.gauges(rig.clock.now()), gauges(7, None));
        block_on(audited.audit(&rig.ledger, &rig.clock));
        assert_eq!(audited.gauges(rig.clock.now()), gauges(0, Some((0, 0))));
        rig.ledger.close();
        rig.clock.advance(60_000);
        block_on(audited.audit(&rig.ledger, &rig.clock));
        assert_eq!(audited.gauges(rig.clock.now()), gauges(60, Some((0, 0))), "it failed");
    }

    /// Findings that were mended were told for as long as one account could not be read.
    #[test]
    fn what_an_audit_of_a_part_finds_counts_and_its_age_is_that_of_the_last_whole_one() {
        let server = RedisServer::start();
        let clock = Clock::manual(NOW);
        let store = RedisLedger::connect(&server.url(), patient(clock.clone())).unwrap();
        let ledger = Ledger::Redis(store);
        for name in ["acme", "beta"] {
            caller_of(&ledger, name, "10", LimitOverrides::default());
        }
        let audited = Audited::new(EVERY, clock.now());
        let audits = |findings: u64, unchecked: u64, age_secs: i64| {
            server.ask("DEL tg1:audit:found");
            block_on(audited.audit(&ledger, &clock));
            assert_eq!(
                audited.gauges(clock.now()),
                gauges(age_secs, Some((findings, unchecked)))
            );
        };
        clock.advance(5_000);
        server.ask("HSET tg1:{beta} used x");
        block_on(audited.audit(&ledger, &clock));
        assert_eq!(
            audited.gauges(clock.now()),
            gauges(5, None),
            "nothing is known of the whole"
        );
        server.ask("HINCRBY tg1:{acme} avail 7");
        audits(1, 1, 5);
        server.ask("HINCRBY tg1:{acme} avail -7");
        // It has found nothing, and the books are not known to balance.
        audits(0, 1, 5);
        server.ask("HSET tg1:{beta} used 0");
        audits(0, 0, 0);
        // Those of an account that cannot be read any more stay, and those of others go when they are mended.
        clock.advance(5_000);
        for name in ["acme", "beta"] {
            server.ask(&format!("HINCRBY tg1:{{{name}}} avail 7"));
        }
        audits(2, 0, 0);
        clock.advance(5_000);
        server.ask("HSET tg1:{beta} used x");
        audits(2, 1, 5);
        server.ask("HINCRBY tg1:{acme} avail -7");
        audits(1, 1, 5);
        server.ask("HSET tg1:{beta} used 0");
        server.ask("HINCRBY tg1:{beta} avail -7");
        audits(0, 0, 0);
    }

    /// A part of an account was checked: each audit counted its findings anew, and told of another subset of them.
    #[test]
    fn what_a_part_of_an_account_has_comes_to_is_found_once() {
        let finding = |rule: &str| AuditFinding {
            account: "acme".parse().unwrap(),
            rule: rule.to_owned(),
            expected: Credits::ZERO,
            found: Credits::ZERO,
        };
        let report = |rules: &[&str], passed_over: bool| {
            let mut report = AuditReport {
                findings: rules.iter().map(|rule| finding(rule)).collect(),
                ..AuditReport::default()
            };
            if passed_over {
                report.pass_over(&"acme".parse().unwrap(), "its server does not answer");
            }
            report
        };
        let audited = Audited::new(EVERY, NOW);
        let audit = Audit {
            at: NOW,
            findings: 0,
            unchecked: 0,
            below_zero: None,
        };
        for (found, known) in [
            (&["a", "b"][..], 2),
            (&["a", "b"], 2),
            (&["a"], 2),
            (&["a", "b", "c"], 3),
            (&[], 3),
        ] {
            audited.keep(audit, &report(found, true));
            assert_eq!(audited.last().unwrap().findings, known, "{found:?}");
        }
        audited.keep(audit, &report(&["a"], false));
        assert_eq!(audited.last().unwrap().findings, 1);
        let id = |rules: &[&str], passed_over| unbalanced(&report(rules, passed_over), NOW).id;
        assert_eq!(id(&["a"], true), id(&["a", "b"], true));
        assert_ne!(id(&["a"], false), id(&["a", "b"], false));
    }

    #[test]
    fn an_audit_that_fails_from_the_start_on_leaves_the_age_to_grow() {
        let rig = Rig::embedded();
        let audited = Audited::new(EVERY, rig.clock.now());
        rig.ledger.close();
        rig.clock.advance(3_600_000);
        block_on(audited.audit(&rig.ledger, &rig.clock));
        assert_eq!(audited.gauges(rig.clock.now()), gauges(3_600, None));
    }

    #[test]
    fn books_that_are_not_audited_have_no_age() {
        let rig = Rig::embedded();
        for audited in [Audited::new(Duration::ZERO, rig.clock.now()), Audited::default()] {
            assert_eq!(audited.gauges(rig.clock.now()), None);
        }
    }
}
