//! Receipts in the ledger's file: for how long they are kept, and what the audit makes of them.

use std::path::PathBuf;

use rusqlite::Connection;

use super::rig::{NOW, audit, audit_is_clean, block_on, caller_of, debit, receipts_of, request};
use crate::clock::Clock;
use crate::pure::ids::AccountId;
use crate::store::Ledger;
use crate::store::admin::ReceiptQuery;
use crate::store::embedded::Embedded;

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
            let hold = block_on(ledger.reserve(&caller, &request(n, "0.1"))).unwrap().unwrap();
            hold.settle(debit("0.1"));
        }
        block_on(ledger.usage(&acme(), crate::pure::time::Period::All)).unwrap();
        ledger
    }

    fn change(&self, sql: &str) {
        Connection::open(self.path()).unwrap().execute_batch(sql).unwrap();
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
    let ledger = file.open(3);
    file.clock.advance(DAY_MS);
    let caller = caller_of(&ledger, "acme", "0", Default::default());
    // Each group deletes twice as many as it has: the first ten are gone after five calls at the latest.
    for n in 20..25 {
        let before = kept(&ledger);
        block_on(ledger.reserve(&caller, &request(n, "0.1")))
            .unwrap()
            .unwrap()
            .settle(debit("0.1"));
        assert!(before - kept(&ledger) <= 1);
    }
    assert_eq!(kept(&ledger), 7);
    audit_is_clean(&ledger);
}

#[test]
fn a_start_deletes_what_is_too_old() {
    let file = File::new();
    drop(file.calls(3, 0..10));
    file.clock.advance(4 * DAY_MS);
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
    let day = NOW.day().0 + 1;
    file.change(&format!(
        "DELETE FROM receipts WHERE seq = (SELECT max(seq) FROM receipts WHERE day = {day})"
    ));
    assert_eq!(rules(&ledger).len(), 4);
}

#[test]
fn a_receipt_that_cannot_be_read_hides_no_other() {
    let file = File::new();
    let ledger = file.calls(30, 0..3);
    file.change("UPDATE receipts SET facts = '[0' WHERE seq = 2");
    let mut query = ReceiptQuery::newest(&acme(), 2);
    let first = block_on(ledger.receipts(query.clone())).unwrap();
    assert_eq!((first.receipts.len(), first.unreadable), (1, 1));
    query.before = first.next;
    assert_eq!(block_on(ledger.receipts(query)).unwrap().receipts.len(), 1);
}

#[test]
fn the_audit_finds_a_receipt_that_is_missing_doubled_or_changed() {
    let wrong = [
        ("DELETE FROM receipts WHERE seq = 2", vec!["calls", "prompt tokens", "completion tokens", "cost"]),
        (
            "INSERT INTO receipts SELECT 99, account, id, day, at, model, key, producer, number, prompt, completion, cost, held, facts
             FROM receipts WHERE seq = 1",
            vec!["calls", "prompt tokens", "completion tokens", "cost"],
        ),
        ("UPDATE receipts SET cost = cost + 1 WHERE seq = 1", vec!["cost"]),
        ("UPDATE receipts SET prompt = prompt + 1 WHERE seq = 1", vec!["prompt tokens"]),
    ];
    for (sql, expected) in wrong {
        let file = File::new();
        let ledger = file.calls(30, 0..3);
        audit_is_clean(&ledger);
        file.change(sql);
        let expected: Vec<String> = expected
            .iter()
            .map(|what| format!("receipts = usage: {what} of a/m on {}", NOW.day()))
            .collect();
        assert_eq!(rules(&ledger), expected, "{sql}");
        // The same by the way of a gateway.
        let by_task = block_on(ledger.run(crate::store::admin::AdminOp::Audit)).unwrap();
        assert!(
            matches!(by_task, crate::store::admin::AdminReply::Audit(report) if report.findings.len() == expected.len())
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
    let ledger = file.calls(3, 4..6);
    file.clock.advance(-400 * DAY_MS);
    assert!(kept(&ledger) < 6);
    audit_is_clean(&ledger);
}
