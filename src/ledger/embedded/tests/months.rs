//! What an account used in a month, which its usage says: what the audit finds, and what a repair mends.

use std::collections::BTreeMap;

use super::posts::thread_of;
use super::thread::queued;
use super::*;
use crate::ledger::admin::AuditFinding;
use crate::ledger::embedded::commands::Queued;

const RULE: &str = "debits of the month = used in the month";

/// A ledger with an account that has used 1.5, and one that has used nothing.
fn two_accounts() -> Rig {
    let rig = rig();
    let create = AdminOp::AccountCreate {
        account: "quiet".parse().unwrap(),
        tier: Tier::Pro,
        quota_pico: None,
        terms: Default::default(),
    };
    rig.store.run_blocking(create).unwrap();
    let caller = caller_of(&rig.store, &rig.key);
    let hold = block_on(caller.reserve(&request(1, "2"))).unwrap().unwrap();
    hold.settle(debit("1.5"));
    assert!(audit(&rig.store).findings.is_empty());
    rig
}

fn file_of(folder: &tempfile::TempDir) -> rusqlite::Connection {
    rusqlite::Connection::open(folder.path().join("ledger.db")).unwrap()
}

/// What the file says of an account's month, seen from [`NOW`], and of what it used then.
fn month_of(folder: &tempfile::TempDir, account: &str) -> (i64, i64) {
    let sql = "SELECT month, month_used FROM accounts WHERE id = ?1";
    let row = file_of(folder).query_row(sql, [account], |row| Ok((row.get::<_, i64>(0)?, row.get(1)?)));
    let (month, used) = row.unwrap();
    (month - NOW.month().0, used)
}

#[test]
fn a_repair_makes_the_month_what_the_usage_says_and_names_what_it_mended() {
    let used = 1_500_000_000_000;
    let cases = [
        ("acme", "month_used = 7", Some((used, 7))),
        // Of a clock that was ahead, and of a month that is over.
        ("acme", "month = month + 1", Some((used, 0))),
        ("acme", "month = month - 1", Some((used, 0))),
        ("quiet", "month = month + 1, month_used = 0", Some((0, 0))),
        ("quiet", "month = month - 1, month_used = 5", None),
    ];
    for (account, change, expected) in cases {
        let Rig { folder, store, .. } = two_accounts();
        drop(store);
        // An account that has never used anything has no month yet.
        let own = format!("UPDATE accounts SET month = {} WHERE month = 0", NOW.month().0);
        file_of(&folder).execute(&own, []).unwrap();
        let sql = format!("UPDATE accounts SET {change} WHERE id = '{account}'");
        assert_eq!(file_of(&folder).execute(&sql, []).unwrap(), 1);
        let store = open(&folder);
        let repair = || match store.run_blocking(AdminOp::Repair).unwrap() {
            AdminReply::Repaired { findings } => findings,
            other => panic!("{other:?}"),
        };
        let finding = expected.map(|(expected, found)| AuditFinding {
            account: account.parse().unwrap(),
            rule: RULE.to_owned(),
            expected: Credits::from_pico(expected),
            found: Credits::from_pico(found),
        });
        assert_eq!(repair(), finding.into_iter().collect::<Vec<_>>(), "{account}: {change}");
        if let Some((expected, _)) = expected {
            assert_eq!(month_of(&folder, account), (0, expected), "{account}: {change}");
        }
        assert_eq!(repair(), [], "{account}: {change}");
        assert!(audit(&store).findings.is_empty());
    }
}

/// What counts is what memory has, which the audit holds against the usage.
#[test]
fn a_repair_mends_the_month_in_memory_with_what_is_queued_since() {
    let mut thread = thread_of(two_accounts(), 0, Clock::manual(NOW));
    let [acme, quiet] = ["acme", "quiet"].map(|account| {
        let accounts = thread.shared.accounts.read().unwrap();
        Arc::clone(&accounts[&account.parse().unwrap()])
    });
    for cell in [&acme, &quiet] {
        cell.state().set_months(BTreeMap::from([(NOW.month(), credits("9"))]));
    }
    let mut stored = thread.committer.database.accounts().unwrap();
    let producer = thread.shared.producer.current();
    let queue = |n, cell| {
        let debit = queued(cell, CallNumber::new(producer, n), debit("0.25"));
        thread.shared.queue.lock().unwrap().push(debit);
    };
    let finding = |account: &str, expected: &str, found: &str| AuditFinding {
        account: account.parse().unwrap(),
        rule: RULE.to_owned(),
        expected: credits(expected),
        found: credits(found),
    };
    queue(2, &acme);
    queue(3, &quiet);
    let (of_quiet, of_acme) = (stored.remove(1), stored.remove(0));
    let mut queued = Queued::default();
    let mended = thread
        .committer
        .repair_month(of_acme, NOW.month(), &mut queued)
        .unwrap();
    assert_eq!(mended, Some(finding("acme", "1.5", "8.75")));
    assert_eq!(acme.state().month_used(NOW), credits("1.75"));
    // More comes until the next account is mended.
    queue(4, &quiet);
    let mended = thread
        .committer
        .repair_month(of_quiet, NOW.month(), &mut queued)
        .unwrap();
    assert_eq!(mended, Some(finding("quiet", "0", "8.5")));
    assert_eq!(quiet.state().month_used(NOW), credits("0.5"));
    // What is written for them has what memory has.
    let queue = thread.shared.queue.lock().unwrap();
    let used: Vec<Credits> = queue.iter().map(|queued| queued.month_used).collect();
    assert_eq!(used, ["1.75", "0.25", "0.5"].map(credits));
}

/// Usage that somebody else has changed while the ledger runs.
#[test]
fn the_audit_holds_what_was_used_in_the_month_against_the_usage() {
    let rig = two_accounts();
    let changed = file_of(&rig.folder).execute("UPDATE usage SET cost = cost + 1", []);
    assert_eq!(changed.unwrap(), 1);
    let findings = audit(&rig.store).findings;
    let of_month: Vec<_> = findings.iter().filter(|finding| finding.rule == RULE).collect();
    let [finding] = of_month[..] else {
        panic!("{findings:?}");
    };
    let pico = (finding.expected.pico(), finding.found.pico());
    assert_eq!(
        (finding.account.as_str(), pico),
        ("acme", (1_500_000_000_001, 1_500_000_000_000))
    );
}
