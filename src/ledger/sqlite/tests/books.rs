//! Groups of debits, what the audit makes of them, and what is on the disk.

use rusqlite::StatementStatus;

use super::*;
use crate::ledger::KeyRecord;
use crate::ledger::admin::AuditFinding;
use crate::ledger::admin::operators::OperatorRecord;
use crate::ledger::sqlite::spending::{usage_of_sharers, usage_of_spenders};
use crate::ledger::tests::rig::debit;
use crate::pure::ids::{ApiKey, KeyId};
use crate::pure::limits::LimitOverrides;

impl Rig {
    /// Writes a group that is a debit of so much.
    fn debit(&mut self, cost: i128, name: &str) {
        let of_account = AccountDebit {
            cost,
            month: NOW.day().month(),
            ..AccountDebit::default()
        };
        let group = [(acme(), of_account)].into_iter().collect();
        self.database.write_debits(&group, &[], name, NOW).unwrap();
    }

    fn findings(&self) -> (u64, Vec<(String, String, i64, i64)>) {
        let mut findings = Vec::new();
        let accounts = self.database.audit(&mut findings).unwrap();
        let shown = |finding: AuditFinding| {
            let AuditFinding { account, rule, .. } = finding;
            (account.to_string(), rule, finding.expected.pico(), finding.found.pico())
        };
        (accounts, findings.into_iter().map(shown).collect())
    }
}

#[test]
fn a_group_is_written_once_by_its_name() {
    let mut rig = Rig::new();
    for (name, expected) in [("a", -5), ("a", -5), ("b", -10), ("b", -10), ("a", -15)] {
        rig.debit(5, name);
        assert_eq!(rig.balance(), expected, "{name}");
    }
}

#[test]
fn a_group_may_cost_more_than_one_amount_can_be() {
    let mut rig = Rig::new();
    rig.change(&format!("UPDATE accounts SET balance = {}", i64::MAX));
    rig.debit(i128::from(i64::MAX) + 5, "a");
    assert_eq!(rig.balance(), -5);
    rig.debit(0, "b");
    assert_eq!(rig.balance(), -5);
}

#[test]
fn the_audit_adds_up_what_came_in_and_what_was_spent() {
    let mut rig = Rig::new();
    rig.add_account("beta");
    // More than one credit each, with a rest: 2.75 + 3.5 - 1.25 - 1.5.
    rig.change(
        "INSERT INTO topups (account, reference, amount, at) VALUES ('acme', 'a', 2750000000000, 0), ('acme', 'b', 3500000000000, 0),
             ('beta', 'a', 7, 0);
         INSERT INTO usage (account, day, model, requests, prompt, completion, cost) VALUES
             ('acme', 1, 'a/m', 1, 1, 1, 1250000000000), ('acme', 2, 'a/m', 1, 1, 1, 1500000000000);
         UPDATE accounts SET balance = 3500000000000 WHERE id = 'acme';
         UPDATE accounts SET balance = 7 WHERE id = 'beta';",
    );
    assert_eq!(rig.findings(), (2, Vec::new()));
    rig.change("UPDATE accounts SET balance = balance + 1 WHERE id = 'acme'");
    let expected = (
        "acme".to_owned(),
        "top-ups - debits = balance".to_owned(),
        3_500_000_000_000,
        3_500_000_000_001,
    );
    assert_eq!(rig.findings(), (2, vec![expected]));
}

#[test]
fn the_audit_holds_what_a_key_has_spent_against_its_usage() {
    let rig = Rig::new();
    rig.change(
        "INSERT INTO key_usage (account, key, day, model, requests, prompt, completion, cost) VALUES
             ('acme', 'key_x', 1, 'a/m', 1, 1, 1, 1750000000000), ('acme', 'key_x', 2, 'a/m', 1, 1, 1, 2500000000000),
             ('acme', 'key_y', 2, 'a/m', 1, 1, 1, 9);
         INSERT INTO spent (account, key, end_user, period, spent) VALUES
             ('acme', 'key_x', '', 't', 4250000000000), ('acme', 'key_x', '', 'd1', 3), ('acme', 'key_y', '', 't', 9),
             ('acme', 'key_x', '0123456789abcdef012345', 't', 4);",
    );
    assert_eq!(rig.findings(), (1, Vec::new()));
    rig.change("UPDATE spent SET spent = spent - 1 WHERE key = 'key_x' AND end_user = '' AND period = 't'");
    let expected = (
        "acme".to_owned(),
        "usage of the key = spent by the key".to_owned(),
        4_250_000_000_000,
        4_249_999_999_999,
    );
    assert_eq!(rig.findings(), (1, vec![expected]));
}

#[test]
fn the_audit_counts_usage_under_the_key_that_its_key_counts_as() {
    let mut rig = Rig::new();
    rig.add_account("beta");
    // A key that is none of the file's any more, one with two that count as it, one without usage, and another account's of the same name.
    rig.change(
        r#"INSERT INTO keys (digest, account, domains, created, settings) VALUES
             ('000000000000000a', 'acme', '[]', 0, '{}'),
             ('000000000000000b', 'acme', '[]', 0, '{"counts_as":"key_000000000000000a"}'),
             ('000000000000000c', 'acme', '[]', 0, '{"counts_as":"key_000000000000000a"}'),
             ('000000000000000d', 'acme', '[]', 0, '{"counts_as":"key_000000000000000d"}'),
             ('000000000000000e', 'beta', '[]', 0, '{"counts_as":"key_000000000000000a"}');
         INSERT INTO key_usage (account, key, day, model, requests, prompt, completion, cost) VALUES
             ('acme', 'key_000000000000000a', 1, 'a/m', 1, 1, 1, 1750000000000),
             ('acme', 'key_000000000000000b', 1, 'a/m', 1, 1, 1, 1500000000000),
             ('acme', 'key_000000000000000b', 2, 'b/m', 1, 1, 1, 1),
             ('acme', 'key_000000000000000d', 1, 'a/m', 1, 1, 1, 16),
             ('acme', 'key_gone', 1, 'a/m', 1, 1, 1, 32),
             ('beta', 'key_000000000000000a', 1, 'a/m', 1, 1, 1, 64),
             ('beta', 'key_000000000000000e', 1, 'a/m', 1, 1, 1, 128);
         INSERT INTO spent (account, key, end_user, period, spent) VALUES
             ('acme', 'key_000000000000000a', '', 't', 3250000000001), ('acme', 'key_000000000000000d', '', 't', 16),
             ('acme', 'key_gone', '', 't', 32), ('acme', 'key_unused', '', 't', 0),
             ('beta', 'key_000000000000000a', '', 't', 192);"#,
    );
    assert_eq!(rig.findings(), (2, Vec::new()));
    rig.change("UPDATE key_usage SET cost = cost + 1 WHERE key = 'key_000000000000000b' AND day = 2");
    rig.change("UPDATE spent SET spent = 1 WHERE key = 'key_unused'");
    let finding = |expected, found| {
        let rule = "usage of the key = spent by the key".to_owned();
        ("acme".to_owned(), rule, expected, found)
    };
    let findings = vec![finding(3_250_000_000_002, 3_250_000_000_001), finding(0, 1)];
    assert_eq!(rig.findings(), (2, findings));
}

#[test]
fn the_audit_of_twice_as_many_keys_takes_twice_as_many_steps() {
    let rig = Rig::new();
    let mut steps = Vec::new();
    for numbers in [0..100, 100..200] {
        rig.change("BEGIN");
        for n in numbers {
            let [root, sharer] = ["a", "b"].map(|last| format!("{n:015}{last}"));
            rig.change(&format!(
                r#"INSERT INTO keys (digest, account, domains, created, settings) VALUES
                     ('{root}', 'acme', '[]', 0, '{{}}'), ('{sharer}', 'acme', '[]', 0, '{{"counts_as":"key_{root}"}}');
                 INSERT INTO key_usage (account, key, day, model, requests, prompt, completion, cost) VALUES
                     ('acme', 'key_{root}', 1, 'a/m', 1, 1, 1, 2), ('acme', 'key_{sharer}', 1, 'a/m', 1, 1, 1, 3);
                 INSERT INTO spent (account, key, end_user, period, spent) VALUES ('acme', 'key_{root}', '', 't', 5);"#
            ));
        }
        rig.change("COMMIT");
        assert_eq!(rig.findings(), (1, Vec::new()));
        // What the audit has run is kept, and counts the steps that it took.
        steps.push([usage_of_spenders(), usage_of_sharers()].map(|sql| {
            let statement = rig.database.connection.prepare_cached(&sql).unwrap();
            statement.reset_status(StatementStatus::VmStep)
        }));
    }
    let [few, many]: [[i32; 2]; 2] = steps.try_into().unwrap();
    for (few, many) in few.into_iter().zip(many) {
        assert!(few > 100 && many < few * 3, "{few} {many}");
    }
}

#[test]
fn the_audit_of_receipts_tells_counts_as_credits_and_costs_as_they_are() {
    let mut rig = Rig::new();
    rig.database.keep_receipts(ReceiptBounds::days(30), NOW.day()).unwrap();
    let mut of_account = AccountDebit {
        month: NOW.day().month(),
        ..AccountDebit::default()
    };
    of_account.usage.add(NOW.day(), &debit("0.5"));
    let group = [(acme(), of_account)].into_iter().collect();
    let receipt = super::receipts::receipt("acme", 1, NOW, None);
    rig.database.write_debits(&group, &[receipt], "a", NOW).unwrap();
    let witness = || {
        let mut findings = Vec::new();
        rig.reader().witness(NOW.day(), &mut findings).unwrap();
        let shown = |finding: AuditFinding| (finding.rule, finding.expected.pico(), finding.found.pico());
        findings.into_iter().map(shown).collect::<Vec<_>>()
    };
    assert_eq!(witness(), []);
    rig.change("UPDATE usage SET requests = requests + 1, cost = cost + 1");
    let rule = |what: &str| format!("receipts = usage: {what} of a/m on {}", NOW.day());
    assert_eq!(
        witness(),
        [
            (rule("calls"), 2_000_000_000_000, 1_000_000_000_000),
            (rule("cost"), 500_000_000_001, 500_000_000_000)
        ]
    );
}

/// Usage is never deleted, and a new process has the ledger while it reads.
#[test]
fn a_start_reads_the_usage_of_the_months_that_may_count_alone() {
    let mut rig = Rig::new();
    rig.add_account("beta");
    rig.add_account("quiet");
    let last = Day::parse("2026-11-20").unwrap();
    for (account, day, cost) in [
        ("acme", "2026-11-20", 2_500_000_000_000_i64),
        ("acme", "2026-11-01", 1_500_000_000_001),
        ("acme", "2026-10-31", 4),
        ("beta", "2026-12-01", 8),
        ("beta", "2026-10-01", 16),
    ] {
        let day = Day::parse(day).unwrap().0;
        for model in ["a/m", "b/m"] {
            rig.change(&format!(
                "INSERT INTO usage (account, day, model, requests, prompt, completion, cost)
                     VALUES ('{account}', {day}, '{model}', 1, 1, 1, {cost})"
            ));
        }
    }
    let months = |stored: Vec<StoredAccount>| {
        let each = stored.into_iter().map(|stored| {
            let months = stored
                .kept
                .months
                .into_iter()
                .map(|(month, used)| (month.0, used.pico()));
            (stored.record.id.to_string(), months.collect::<Vec<_>>())
        });
        each.collect::<Vec<_>>()
    };
    let november = (202_611, 8_000_000_000_002);
    let of = |acme: Vec<(i64, i64)>, beta: Vec<(i64, i64)>| {
        let named = |(name, months): (&str, Vec<(i64, i64)>)| (name.to_owned(), months);
        [("acme", acme), ("beta", beta), ("quiet", Vec::new())].map(named)
    };
    let read = rig.database.accounts_spending(last, last).unwrap();
    assert_eq!(months(read), of(vec![november], vec![(202_612, 16)]));
    let all = of(vec![(202_610, 8), november], vec![(202_610, 32), (202_612, 16)]);
    let october = Day::parse("2026-10-20").unwrap();
    let read = rig.database.accounts_spending(last, october).unwrap();
    assert_eq!(months(read), all);
    assert_eq!(months(rig.database.accounts().unwrap()), all);

    let plan = format!("EXPLAIN QUERY PLAN {}", super::super::months::sums_of_days());
    let mut statement = rig.database.connection.prepare(&plan).unwrap();
    let steps = statement.query_map([last.0], |row| row.get::<_, String>(3)).unwrap();
    let steps: Vec<String> = steps.map(Result::unwrap).collect();
    assert!(steps.iter().all(|step| !step.starts_with("SCAN usage")), "{steps:?}");
    let is_search = |step: &String| step.starts_with("SEARCH usage") && step.contains("account=? AND day>?");
    assert!(steps.iter().any(is_search), "{steps:?}");
}

/// By the name of the last group: only where somebody else wrote it are all calls added up.
#[test]
fn a_start_after_an_own_group_adds_up_no_calls() {
    let mut rig = Rig::new();
    let setting = |rig: &Rig, name: &str| {
        let sql = format!("SELECT value FROM settings WHERE name = 'receipt lists {name}'");
        rig.text(&sql)
    };
    let from = |rig: &Rig| setting(rig, "from");
    let keep = |rig: &mut Rig| rig.database.keep_receipts(ReceiptBounds::days(30), NOW.day()).unwrap();
    let group = |rig: &mut Rig, receipts: &[Receipt], name: &str| {
        let mut of_account = AccountDebit {
            month: NOW.day().month(),
            ..AccountDebit::default()
        };
        of_account.usage.add(NOW.day(), &debit("0.5"));
        let group = [(acme(), of_account)].into_iter().collect();
        rig.database.write_debits(&group, receipts, name, NOW).unwrap();
    };
    let own = [super::receipts::receipt("acme", 1, NOW, None)];
    keep(&mut rig);
    group(&mut rig, &own, "a");
    // Were the rows read, this would be found.
    rig.change("UPDATE usage SET requests = requests + 1");
    keep(&mut rig);
    assert_eq!(from(&rig), i64::MIN.to_string());
    rig.change("UPDATE usage SET requests = requests - 1");
    // A version that writes receipts and notes no groups: all days are complete.
    group(&mut rig, &own, "b");
    rig.change("UPDATE settings SET value = 'a' WHERE name = 'receipt lists group'");
    keep(&mut rig);
    assert_eq!(from(&rig), i64::MIN.to_string());
    assert_eq!(setting(&rig, "group"), "b");
    // A version that writes none.
    group(&mut rig, &[], "c");
    rig.change("UPDATE settings SET value = 'b' WHERE name = 'receipt lists group'");
    keep(&mut rig);
    assert_eq!(from(&rig), (NOW.day().0 + 1).to_string());
    // Without receipts no group is noted, and with them all are added up again.
    rig.database.keep_receipts(ReceiptBounds::days(0), NOW.day()).unwrap();
    group(&mut rig, &[], "d");
    let left = "SELECT count(*) FROM settings WHERE name IN ('receipt lists from', 'receipt lists noted', 'receipt lists group')";
    assert_eq!(rig.number(left), 0);
}

#[test]
fn an_audit_reads_all_as_one_moment_has_it() {
    let rig = Rig::new();
    let read = Database::open_to_read(&rig.path()).unwrap();
    read.begin_moment().unwrap();
    rig.change("UPDATE accounts SET balance = 5");
    let balance = |database: &Database| database.accounts().unwrap().first().unwrap().kept.balance.pico();
    assert_eq!((balance(&read), balance(&rig.database)), (0, 5));
}

#[test]
fn the_pages_in_memory_and_in_the_log_are_bounded() {
    let rig = Rig::new();
    assert_eq!(rig.number("PRAGMA cache_size"), -16_000);
    assert_eq!(rig.number("PRAGMA wal_autocheckpoint"), 8_000);
}

#[test]
fn the_file_has_the_keys_and_operators_that_were_added() {
    let mut rig = Rig::new();
    let [key, operator] = [1, 2].map(|byte| ApiKey::from_random("tg_", [byte; 32]).digest());
    let id = "op_0123456789abcdef";
    let has = |rig: &Rig| {
        let keys = [&key, &operator].map(|digest| rig.database.has_key(digest).unwrap());
        let operators = [id, "op_else"].map(|id| rig.database.has_operator(id).unwrap());
        (keys, operators)
    };
    assert_eq!(has(&rig), ([false; 2], [false; 2]));
    let record = KeyRecord {
        id: KeyId::of(&key),
        account: acme(),
        tier: None,
        domains: Vec::new(),
        expires: None,
        limits: LimitOverrides::default(),
        revoked: None,
        created: NOW,
        settings: Default::default(),
    };
    rig.database.insert_key(&key, &record).unwrap();
    assert_eq!(has(&rig), ([true, false], [false; 2]));
    let record = OperatorRecord {
        id: id.to_owned(),
        name: "ann".to_owned(),
        role: crate::pure::operator::Role::Read,
        created: NOW,
        expires: None,
        revoked: None,
    };
    rig.database.insert_operator(&operator, &record).unwrap();
    assert_eq!(has(&rig), ([true, false], [true, false]));
    // Revoked once, it stays as it was.
    for at in [5, 9].map(Timestamp) {
        rig.database.revoke_operator(id, at).unwrap();
        rig.database.revoke_key(&key, at).unwrap();
    }
    let revoked = (
        rig.database.keys().unwrap().first().unwrap().1.revoked,
        rig.database.operators().unwrap().first().unwrap().1.revoked,
    );
    assert_eq!(revoked, (Some(Timestamp(5)), Some(Timestamp(5))));
}
