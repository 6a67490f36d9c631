//! What an account used in a month, which its usage says: what the audit finds, and what a repair mends.

use super::*;
use crate::ledger::admin::AuditFinding;

const RULE: &str = "debits of the month = used in the month";

/// A ledger with an account that has used 1.5, and one that has used nothing.
fn two_accounts() -> Rig {
    let rig = rig();
    let create = AdminOp::AccountCreate {
        account: "quiet".parse().unwrap(),
        tier: Tier::Pro,
        quota_pico: None,
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

fn repair(store: &Embedded) -> Vec<AuditFinding> {
    match store.run_blocking(AdminOp::Repair).unwrap() {
        AdminReply::Repaired { findings } => findings,
        other => panic!("{other:?}"),
    }
}

/// The record is kept for earlier versions alone: while it is wrong, the books balance.
#[test]
fn a_repair_makes_the_month_of_the_record_what_the_usage_says_and_names_nothing_that_balances() {
    let used = 1_500_000_000_000;
    let cases = [
        ("acme", "month_used = 7", (0, used)),
        // Of a clock that was ahead, and of a month that is over.
        ("acme", "month = month + 1", (0, used)),
        ("acme", "month = month - 1", (0, used)),
        ("quiet", "month = month + 1, month_used = 0", (0, 0)),
        // Of a month that is over.
        ("quiet", "month = month - 1, month_used = 5", (-1, 5)),
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
        assert_eq!(audit(&store).findings, [], "{account}: {change}");
        assert_eq!(repair(&store), [], "{account}: {change}");
        assert_eq!(month_of(&folder, account), expected, "{account}: {change}");
        assert_eq!(audit(&store).findings, [], "{account}: {change}");
    }
}

/// What memory counts, which the audit holds against the usage.
#[test]
fn a_repair_names_what_the_audit_finds_of_the_month() {
    let Rig { folder, store, .. } = two_accounts();
    let changed = file_of(&folder).execute("UPDATE usage SET cost = cost + 1", []);
    assert_eq!(changed.unwrap(), 1);
    let of_month = || {
        let mut findings = audit(&store).findings;
        findings.retain(|finding| finding.rule == RULE);
        findings
    };
    let found = of_month();
    assert_eq!(found.len(), 1);
    assert_eq!(repair(&store), found);
    assert_eq!(of_month(), []);
    assert_eq!(repair(&store), []);
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
