//! Receipts in the ledger's file: for how long they are kept, and what the audit makes of them.
//!
//! Longer than 400 lines: one case after another.

use std::path::PathBuf;

use rusqlite::Connection;

use super::rig::{NOW, audit, audit_is_clean, block_on, caller_of, debit, receipts_of, request};
use crate::clock::Clock;
use crate::ledger::Ledger;
use crate::ledger::admin::ReceiptQuery;
use crate::ledger::embedded::Embedded;
use crate::pure::ids::AccountId;

const DAY_MS: i64 = 86_400_000;

struct File {
    folder: tempfile::TempDir,
    clock: Clock,
}

impl File {
    fn new() -> File {
        File {
            folder: tempfile::tempdir().unwrap(),
            clock: Clock::manual(NOW),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("ledger.db")
    }

    fn open(&self, days: u32) -> Ledger {
        Ledger::Embedded(Embedded::open_keeping(&self.path(), days, self.clock.clone()).unwrap())
    }

    /// Calls of a ledger that keeps receipts for so many days.
    fn calls(&self, days: u32, calls: std::ops::Range<u64>) -> Ledger {
        let ledger = self.open(days);
        let caller = caller_of(
            &ledger,
            "acme",
            if calls.start == 0 { "100" } else { "0" },
            Default::default(),
        );
        for n in calls {
            let hold = block_on(caller.reserve(&request(n, "0.1"))).unwrap().unwrap();
            hold.settle(debit("0.1"));
        }
        block_on(ledger.usage(&acme(), None, crate::pure::time::Period::All)).unwrap();
        ledger
    }

    fn change(&self, sql: &str) {
        Connection::open(self.path()).unwrap().execute_batch(sql).unwrap();
    }

    /// Has the file say that it is as late as the clock says: as after an hour of a process that has it.
    fn know_time(&self) {
        let now = self.clock.now().0;
        self.change(&format!(
            "INSERT INTO settings (name, value) VALUES ('known time', '{now}') ON CONFLICT (name) DO UPDATE SET value = '{now}'"
        ));
    }

    /// Changes the kept lines of a day's receipts, oldest first.
    fn change_lines(&self, day: i64, change: impl Fn(&mut Vec<String>)) {
        let connection = Connection::open(self.path()).unwrap();
        let sql = "SELECT seq, list FROM receipt_lists WHERE day = ?1 ORDER BY seq";
        let mut statement = connection.prepare(sql).unwrap();
        let rows = statement.query_map([day], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)));
        let rows: Vec<_> = rows.unwrap().map(Result::unwrap).collect();
        let mut lines: Vec<_> = rows
            .iter()
            .flat_map(|(_, list)| list.lines().map(str::to_owned))
            .collect();
        change(&mut lines);
        // All in the first row of the day: where a line stands does not matter.
        for (index, (seq, _)) in rows.iter().enumerate() {
            let list = if index == 0 { lines.join("\n") } else { String::new() };
            let sql = "UPDATE receipt_lists SET list = ?2 WHERE seq = ?1";
            connection.execute(sql, rusqlite::params![seq, list]).unwrap();
        }
    }
}

fn acme() -> AccountId {
    "acme".parse().unwrap()
}

fn kept(ledger: &Ledger) -> usize {
    receipts_of(ledger, &acme()).len()
}

fn rules(ledger: &Ledger) -> Vec<String> {
    audit(ledger).findings.into_iter().map(|finding| finding.rule).collect()
}

#[test]
fn receipts_are_deleted_after_their_days_in_small_steps() {
    let file = File::new();
    drop(file.calls(3, 0..10));
    file.clock.advance(3 * DAY_MS);
    let ledger = file.calls(3, 10..12);
    assert_eq!(kept(&ledger), 12, "three days and today are kept");
    drop(ledger);
    file.know_time();
    let ledger = file.open(3);
    file.clock.advance(DAY_MS);
    let caller = caller_of(&ledger, "acme", "0", Default::default());
    // Each group deletes twice as many rows as it has.
    let rows = |file: &File| -> i64 {
        let connection = Connection::open(file.path()).unwrap();
        let sql = "SELECT count(*) FROM receipt_lists";
        connection.query_row(sql, [], |row| row.get(0)).unwrap()
    };
    for n in 20..25 {
        let before = rows(&file);
        block_on(caller.reserve(&request(n, "0.1")))
            .unwrap()
            .unwrap()
            .settle(debit("0.1"));
        kept(&ledger);
        assert!(before - rows(&file) <= 1);
    }
    assert_eq!(kept(&ledger), 7);
    audit_is_clean(&ledger);
}

/// What is too old was so at the last debit, and when it was last known what time it is: by the clock alone nobody knows.
#[test]
fn a_start_deletes_what_is_too_old() {
    let file = File::new();
    drop(file.calls(3, 0..10));
    file.know_time();
    file.clock.advance(4 * DAY_MS);
    assert_eq!(kept(&file.open(3)), 10);
    drop(file.calls(0, 10..11));
    assert_eq!(kept(&file.open(3)), 10);
    file.know_time();
    assert_eq!(kept(&file.open(3)), 0);
}

#[test]
fn without_days_no_receipts_are_written() {
    let file = File::new();
    let ledger = file.calls(0, 0..3);
    assert_eq!(kept(&ledger), 0);
    audit_is_clean(&ledger);
}

#[test]
fn days_on_which_others_wrote_without_receipts_are_not_held_against_them() {
    let file = File::new();
    drop(file.calls(30, 0..3));
    let without = file.calls(0, 3..5);
    audit_is_clean(&without);
    drop(without);
    let ledger = file.calls(30, 5..7);
    assert_eq!(kept(&ledger), 5);
    audit_is_clean(&ledger);
    // From the next day on each debit has its own.
    file.clock.advance(DAY_MS);
    drop(ledger);
    let ledger = file.calls(30, 7..9);
    audit_is_clean(&ledger);
    file.change_lines(NOW.day().0 + 1, |lines| drop(lines.pop()));
    assert_eq!(rules(&ledger).len(), 4);
}

#[test]
fn a_receipt_that_cannot_be_read_hides_no_other() {
    let file = File::new();
    let ledger = file.calls(30, 0..3);
    file.change_lines(NOW.day().0, |lines| lines[1].truncate(30));
    let mut query = ReceiptQuery::newest(&acme(), 2);
    let first = block_on(ledger.receipts(query.clone())).unwrap();
    assert_eq!((first.receipts.len(), first.unreadable), (1, 1));
    query.before = first.next;
    assert_eq!(block_on(ledger.receipts(query)).unwrap().receipts.len(), 1);
}

#[test]
fn the_audit_finds_a_receipt_that_is_missing_doubled_or_changed() {
    type Change = fn(&mut Vec<String>);
    fn change(line: &mut String, from: &str, to: &str) {
        assert!(line.contains(from), "{from} in {line}");
        *line = line.replacen(from, to, 1);
    }
    let all = vec!["calls", "prompt tokens", "completion tokens", "cost"];
    let wrong: [(Change, Vec<&str>); 6] = [
        (|lines| drop(lines.remove(1)), all.clone()),
        (|lines| lines.push(lines[0].clone()), all.clone()),
        (|lines| lines[0].truncate(40), all.clone()),
        (|lines| lines[2].insert(0, 'x'), all),
        (
            |lines| change(&mut lines[0], ",100000000000,", ",100000000001,"),
            vec!["cost"],
        ),
        (|lines| change(&mut lines[0], ",3,4,", ",4,4,"), vec!["prompt tokens"]),
    ];
    for (change, expected) in wrong {
        let file = File::new();
        let ledger = file.calls(30, 0..3);
        audit_is_clean(&ledger);
        file.change_lines(NOW.day().0, change);
        let expected: Vec<String> = expected
            .iter()
            .map(|what| format!("receipts = usage: {what} of a/m on {}", NOW.day()))
            .collect();
        assert_eq!(rules(&ledger), expected);
        // The same by the way of a gateway.
        let by_task = block_on(ledger.run(crate::ledger::admin::AdminOp::Audit)).unwrap();
        assert!(
            matches!(by_task, crate::ledger::admin::AdminReply::Audit(report) if report.findings.len() == expected.len())
        );
    }
}

#[test]
fn a_usage_row_that_was_changed_while_the_ledger_runs_is_found() {
    let file = File::new();
    let ledger = file.calls(30, 0..3);
    file.change("UPDATE usage SET requests = requests + 1, completion = completion - 1");
    assert_eq!(rules(&ledger).len(), 2);
}

#[test]
fn a_clock_that_was_ahead_leaves_no_false_finding() {
    let file = File::new();
    let ledger = file.calls(3, 0..4);
    file.clock.advance(400 * DAY_MS);
    drop(ledger);
    // For so long that it was believed.
    file.know_time();
    let ledger = file.calls(3, 4..6);
    file.clock.advance(-400 * DAY_MS);
    assert!(kept(&ledger) < 6);
    audit_is_clean(&ledger);
}

/// One call by such a clock, and a start behind it.
#[test]
fn a_clock_that_is_ahead_for_a_moment_has_no_receipt_deleted() {
    let file = File::new();
    drop(file.calls(3, 0..4));
    file.know_time();
    file.clock.set_by(90 * DAY_MS);
    let ledger = file.calls(3, 4..6);
    assert_eq!(kept(&ledger), 6);
    drop(ledger);
    assert_eq!(kept(&file.open(3)), 6);
    file.clock.set_by(-90 * DAY_MS);
    let ledger = file.calls(3, 6..7);
    assert_eq!(kept(&ledger), 7);
    audit_is_clean(&ledger);
}

#[test]
fn a_receipt_is_found_by_its_request_among_many() {
    let file = File::new();
    // Ids that say when their calls began, some of them long before others that were billed earlier.
    let id = |n: u64, began: i64| {
        let mut bytes = [0; 16];
        bytes[..6].copy_from_slice(&began.to_be_bytes()[2..]);
        bytes[8..].copy_from_slice(&n.to_be_bytes());
        crate::pure::ids::RequestId::from_bytes(bytes)
    };
    let ledger = file.open(30);
    let caller = caller_of(&ledger, "acme", "100", Default::default());
    let mut ids = Vec::new();
    for n in 0..600u64 {
        let began = NOW.0 - if n % 7 == 0 { 3_600_000 } else { 5 };
        // One whose call began before the clock was set back.
        let began = if n == 300 { NOW.0 + 600_000 } else { began };
        let request = crate::pure::account::ReserveRequest {
            id: id(n, began),
            ..request(n, "0.1")
        };
        block_on(caller.reserve(&request))
            .unwrap()
            .unwrap()
            .settle(debit("0.1"));
        ids.push(request.id);
        if n % 100 == 0 {
            assert_eq!(receipts_of(&ledger, &acme()).len(), ids.len());
            file.clock.advance(1_000);
        }
    }
    for id in ids {
        let found = block_on(ledger.receipt(&acme(), id)).unwrap();
        assert_eq!(found.map(|receipt| receipt.billed.id), Some(id));
    }
    assert_eq!(block_on(ledger.receipt(&acme(), id(600, NOW.0))).unwrap(), None);
    assert_eq!(block_on(ledger.receipt(&acme(), id(9, 0))).unwrap(), None);
    audit_is_clean(&ledger);
}

#[test]
fn a_file_with_receipts_in_rows_of_their_own_goes_on() {
    let file = File::new();
    drop(file.calls(0, 0..3));
    // As an earlier version left it: its own tables and settings, whose numbers mean nothing here.
    let day = NOW.day().0;
    file.change(&format!(
        "CREATE TABLE receipts (seq INTEGER PRIMARY KEY, account TEXT NOT NULL, id BLOB NOT NULL, day INTEGER NOT NULL) STRICT;
         CREATE TABLE receipt_days (day INTEGER PRIMARY KEY, first INTEGER NOT NULL) STRICT;
         INSERT INTO receipts VALUES (5000, 'acme', x'00', {day}), (5001, 'acme', x'01', {day}), (5002, 'acme', x'02', {day});
         INSERT INTO receipt_days VALUES ({day}, 5000);
         INSERT INTO settings VALUES ('receipts from', '0'), ('receipts noted', '3');"
    ));
    for calls in [3..5, 5..7] {
        let end = usize::try_from(calls.end).unwrap();
        let ledger = file.calls(3, calls);
        assert_eq!(kept(&ledger), end - 3);
        audit_is_clean(&ledger);
    }
}

/// The bytes that the lists of receipts have, as the file says and as it notes, and the names of answers in it.
fn bytes(file: &File) -> (i64, i64, i64) {
    let connection = Connection::open(file.path()).unwrap();
    let one = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    (
        one("SELECT coalesce(sum(octet_length(list)), 0) FROM receipt_lists"),
        one("SELECT CAST(value AS INTEGER) FROM settings WHERE name = 'receipt lists bytes'"),
        one("SELECT count(*) FROM receipt_names_of_blocks"),
    )
}

#[test]
fn receipts_have_a_bound_in_bytes_and_the_oldest_go_first() {
    use crate::ledger::sqlite::ReceiptBounds;
    use crate::pure::receipt::CallDetails;
    let file = File::new();
    let within = |bytes_max| {
        let bounds = ReceiptBounds { days: 30, bytes_max };
        Ledger::Embedded(Embedded::open_within(&file.path(), bounds, file.clock.clone()).unwrap())
    };
    let call = |ledger: &Ledger, n: u64| {
        let caller = caller_of(ledger, "acme", if n == 0 { "100" } else { "0" }, Default::default());
        let details = CallDetails {
            upstream_id: Some(format!("gen-{n}")),
            ..CallDetails::default()
        };
        let hold = block_on(caller.reserve(&request(n, "0.1"))).unwrap().unwrap();
        hold.settle(crate::ledger::Debit {
            details: Some(Box::new(details)),
            ..debit("0.1")
        });
        kept(ledger)
    };
    let ledger = within(u64::MAX);
    let mut each = 0;
    for n in 0..20 {
        assert_eq!(call(&ledger, n), usize::try_from(n).unwrap() + 1);
        let (found, noted, names) = bytes(&file);
        assert_eq!((found, names), (noted, i64::try_from(n).unwrap() + 1));
        each = found / (i64::try_from(n).unwrap() + 1) + 1;
    }
    drop(ledger);
    // A version that notes no bytes deletes some: they are added up anew.
    file.change("DELETE FROM receipt_lists WHERE seq <= 3");
    let ledger = within(u64::try_from(each * 10).unwrap());
    assert_eq!(kept(&ledger), 10);
    for n in 20..40 {
        assert_eq!(call(&ledger, n), 10);
        let (found, noted, _) = bytes(&file);
        assert_eq!(found, noted);
        assert!(found <= each * 10, "{found}");
    }
    let ids = |name: &str| {
        let query = ReceiptQuery::named(&acme(), name);
        block_on(ledger.receipts(query)).unwrap().receipts.len()
    };
    assert_eq!(
        [ids("gen-0"), ids("gen-29"), ids("gen-30"), ids("gen-39")],
        [0, 0, 1, 1]
    );
    // Days of which none is complete are not held against them, and their names go.
    audit_is_clean(&ledger);
    file.clock.advance(2 * DAY_MS);
    for n in 40..60 {
        call(&ledger, n);
    }
    assert_eq!(kept(&ledger), 10);
    audit_is_clean(&ledger);
    let (_, _, names) = bytes(&file);
    assert!(names <= 20, "{names}");
    drop(ledger);
    // A command that opens the file without a configuration keeps within the bound that was set.
    drop(Ledger::Embedded(
        Embedded::open(&file.path(), file.clock.clone()).unwrap(),
    ));
    assert_eq!(kept(&within(u64::try_from(each * 10).unwrap())), 10);
}

#[test]
fn what_is_noted_of_groups_is_what_their_rows_have() {
    let file = File::new();
    let ledger = file.open(30);
    let callers = ["acme", "beta", "gamma"].map(|name| caller_of(&ledger, name, "100", Default::default()));
    for day in 0..3 {
        for n in 0..12 {
            let caller = &callers[usize::try_from(n % 3).unwrap()];
            let hold = block_on(caller.reserve(&request(day * 100 + n, "0.1")))
                .unwrap()
                .unwrap();
            hold.settle(debit("0.1"));
        }
        // What was queued on both days is one group now and then; what it notes is the same.
        file.clock.advance(DAY_MS);
    }
    kept(&ledger);
    audit_is_clean(&ledger);
    let connection = Connection::open(file.path()).unwrap();
    let text = |sql: &str| -> String { connection.query_row(sql, [], |row| row.get(0)).unwrap() };
    assert_eq!(
        text("SELECT value FROM settings WHERE name = 'receipt lists bytes'"),
        text("SELECT sum(octet_length(list)) || ' ' || min(seq) || ' ' || max(seq) FROM receipt_lists"),
    );
    assert_eq!(
        text("SELECT group_concat(day || ' ' || first) FROM (SELECT * FROM receipt_list_days ORDER BY day)"),
        text("SELECT group_concat(day || ' ' || seq) FROM (SELECT day, min(seq) seq FROM receipt_lists GROUP BY day)"),
    );
}
