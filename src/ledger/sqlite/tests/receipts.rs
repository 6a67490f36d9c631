//! Receipts in the file: how they stand in rows, and which rows go.

use super::*;
use crate::ledger::admin::ReceiptQuery;
use crate::ledger::tests::rig::{credits, request_at};
use crate::pure::numbers::CallNumber;
use crate::pure::receipt::{Billed, CallDetails};
use crate::pure::usage::{CompletionTokens, PromptTokens, Usage};

/// The receipt of a call that was billed then, whose answer may have had a name.
pub(super) fn receipt(account: &str, n: u64, resolved: Timestamp, name: Option<&str>) -> Receipt {
    of_model("a/m", account, n, (resolved, name))
}

fn of_model(model: &str, account: &str, n: u64, (resolved, name): (Timestamp, Option<&str>)) -> Receipt {
    let usage = Usage {
        prompt: PromptTokens(3),
        completion: CompletionTokens(4),
    };
    let details = CallDetails {
        upstream_id: name.map(str::to_owned),
        ..CallDetails::default()
    };
    let billed = Billed::new(
        request_at(n, resolved),
        CallNumber::new(ProducerId(7), n),
        (&account.parse().unwrap(), &"key_x".to_owned().into()),
        &model.into(),
        (usage, credits("0.5"), None),
        Some(&details),
    );
    Receipt { resolved, billed }
}

impl Rig {
    fn keep(&mut self, days: u32, bytes_max: u64) {
        let bounds = ReceiptBounds { days, bytes_max };
        self.database.keep_receipts(bounds, NOW.day()).unwrap();
    }

    fn write_receipts(&mut self, receipts: &[Receipt], now: Timestamp) {
        let name = self
            .number("SELECT coalesce(max(seq), 0) FROM receipt_lists")
            .to_string();
        let group = Default::default();
        self.database.know_time(now);
        self.database.write_debits(&group, receipts, &name, now).unwrap();
    }

    /// How many receipts each row has, oldest first. What is noted of them is as they are.
    fn rows(&self) -> Vec<usize> {
        let sql = "SELECT list FROM receipt_lists ORDER BY seq";
        let mut statement = self.database.connection.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
        let rows = rows.map(|list| list.unwrap().lines().count()).collect();
        let noted = "SELECT value FROM settings WHERE name = 'receipt lists bytes'";
        let found = "SELECT coalesce(sum(octet_length(list)), 0) || ' ' || coalesce(min(seq), 0) || ' ' || coalesce(max(seq), 0)
                     FROM receipt_lists";
        assert_eq!(self.text(noted), self.text(found));
        rows
    }
}

#[test]
fn the_bounds_of_receipts_are_those_that_were_set_last() {
    let mut rig = Rig::new();
    assert_eq!(rig.database.receipt_bounds_before(), Ok(None));
    for (days, bytes_max) in [(30, 1_000), (30, 1_000), (0, 1_000), (7, 1_000), (7, 2_000), (7, 2_000)] {
        rig.keep(days, bytes_max);
        let bounds = ReceiptBounds { days, bytes_max };
        assert_eq!(rig.database.receipt_bounds_before(), Ok(Some(bounds)));
        assert_eq!(rig.database.receipt_days(), days);
    }
}

#[test]
fn a_row_has_256_receipts_at_most_and_no_row_has_none() {
    for (days, count, expected) in [
        (30, 0, vec![]),
        (30, 1, vec![1]),
        (30, 256, vec![256]),
        (30, 257, vec![256, 1]),
        (30, 512, vec![256, 256]),
        (0, 3, vec![]),
    ] {
        let mut rig = Rig::new();
        rig.keep(30, u64::MAX);
        rig.keep(days, u64::MAX);
        let receipts: Vec<Receipt> = (0..count).map(|n| receipt("acme", n, NOW, None)).collect();
        rig.write_receipts(&receipts, NOW);
        assert_eq!(rig.rows(), expected, "{count} in {days} days");
    }
}

#[test]
fn a_group_deletes_twice_as_many_rows_of_too_long_ago_as_it_writes() {
    let mut rig = Rig::new();
    rig.keep(30, u64::MAX);
    for n in 0..9 {
        rig.write_receipts(&[receipt("acme", n, NOW, Some(&format!("gen-{n}")))], NOW);
    }
    let names = |rig: &Rig| rig.number("SELECT count(*) FROM receipt_names_of_blocks");
    let complete_from = |rig: &Rig| rig.text("SELECT value FROM settings WHERE name = 'receipt lists from'");
    assert_eq!((rig.rows().len(), names(&rig)), (9, 9));
    let last = NOW.plus_millis(30 * DAY_MS);
    rig.write_receipts(&[receipt("acme", 10, last, None)], last);
    assert_eq!((rig.rows().len(), names(&rig)), (10, 9), "it is kept for 30 days");
    assert_eq!(complete_from(&rig), i64::MIN.to_string());
    let later = last.plus_millis(DAY_MS);
    let two = ["acme", "beta"].map(|account| receipt(account, 11, later, None));
    rig.write_receipts(&two, later);
    assert_eq!((rig.rows().len(), names(&rig)), (10 + 2 - 4, 0));
    assert_eq!(complete_from(&rig), (NOW.day().0 + 1).to_string());
    rig.write_receipts(&two[..1], later);
    assert_eq!(rig.rows().len(), 8 + 1 - 2);
    rig.write_receipts(&two, later);
    assert_eq!(rig.rows().len(), 7 + 2 - 3, "those of a day that is kept stay");
}

/// One call by a clock that is ahead: it is known to be no later than it was, and a moment.
#[test]
fn by_a_clock_that_is_ahead_nothing_is_too_old() {
    let mut rig = Rig::new();
    rig.keep(30, u64::MAX);
    for n in 0..5 {
        rig.write_receipts(&[receipt("acme", n, NOW, Some(&format!("gen-{n}")))], NOW);
    }
    let ahead = NOW.plus_millis(90 * DAY_MS);
    rig.database.know_time(NOW.plus_millis(5));
    let group = Default::default();
    let of_ahead = [receipt("acme", 9, ahead, Some("gen-9"))];
    rig.database.write_debits(&group, &of_ahead, "ahead", ahead).unwrap();
    let names = |rig: &Rig| rig.number("SELECT count(*) FROM receipt_names_of_blocks");
    assert_eq!((rig.rows().len(), names(&rig)), (6, 6));
    // Nor at a start by that clock, as long as the file does not say that it is so late.
    let bounds = ReceiptBounds::days(30);
    rig.database.keep_known_time(NOW.plus_millis(9)).unwrap();
    rig.database.keep_receipts(bounds, ahead.day()).unwrap();
    assert_eq!((rig.rows().len(), names(&rig)), (6, 6));
    rig.database.keep_known_time(ahead).unwrap();
    rig.database.keep_receipts(bounds, ahead.day()).unwrap();
    assert_eq!(rig.rows().len(), 1);
}

/// Its row is the oldest then, and of a late day: by that the names of all days before went, each with the group that wrote it.
#[test]
fn a_row_of_a_clock_that_was_ahead_takes_no_names_with_it() {
    let mut rig = Rig::new();
    rig.keep(30, u64::MAX);
    rig.write_receipts(&[receipt("acme", 0, NOW.plus_millis(90 * DAY_MS), None)], NOW);
    let names = |rig: &Rig| rig.number("SELECT count(*) FROM receipt_names_of_blocks");
    for n in 1..=3 {
        rig.write_receipts(&[receipt("acme", n, NOW, Some(&format!("gen-{n}")))], NOW);
        assert_eq!(names(&rig), i64::try_from(n).unwrap());
    }
}

/// A row has up to 256 receipts: by a bound for each row, more names came than went.
#[test]
fn as_many_names_go_as_come() {
    let mut rig = Rig::new();
    rig.keep(30, u64::MAX);
    let names = |rig: &Rig| rig.number("SELECT count(*) FROM receipt_names_of_blocks");
    let day = |rig: &mut Rig, days: i64| {
        let now = NOW.plus_millis(days * DAY_MS);
        let of_day: Vec<Receipt> = (0..250)
            .map(|n| receipt("acme", n, now, Some(&format!("gen-{days}-{n}"))))
            .collect();
        rig.write_receipts(&of_day, now);
    };
    for days in 0..40 {
        day(&mut rig, days);
    }
    assert!(names(&rig) <= 32 * 250, "{}", names(&rig));
}

#[test]
fn the_oldest_rows_go_until_what_is_left_is_within_the_bytes() {
    let mut rig = Rig::new();
    rig.keep(30, u64::MAX);
    for n in 1..=4 {
        rig.write_receipts(&[receipt("acme", n, NOW, None)], NOW);
        assert_eq!(rig.rows().len(), usize::try_from(n).unwrap());
    }
    let each = u64::try_from(rig.number("SELECT min(octet_length(list)) FROM receipt_lists")).unwrap();
    for (bytes_max, expected) in [
        (4 * each, 4),
        (4 * each - 1, 3),
        (2 * each, 2),
        (each, 1),
        (each - 1, 0),
    ] {
        rig.keep(30, bytes_max);
        assert_eq!(rig.rows().len(), expected, "{bytes_max}");
    }
    // With a group it is the same.
    rig.keep(30, 2 * each);
    for n in 5..=8 {
        rig.write_receipts(&[receipt("acme", n, NOW, None)], NOW);
        assert_eq!(rig.rows().len(), usize::try_from(n - 4).unwrap().min(2));
    }
}

#[test]
fn a_call_is_found_by_its_answers_name_and_not_by_a_model_of_that_name() {
    let mut rig = Rig::new();
    rig.keep(30, u64::MAX);
    let named = receipt("acme", 1, NOW, Some("gen-1"));
    let other = of_model("gen-1", "acme", 2, (NOW, Some("gen-2")));
    let older = receipt("acme", 3, NOW.plus_millis(-5), Some("gen-1"));
    rig.write_receipts(std::slice::from_ref(&older), NOW);
    rig.write_receipts(&[named.clone(), other.clone()], NOW);
    for (name, expected) in [
        ("gen-1", Some(&named)),
        ("gen-2", Some(&other)),
        ("a/m", None),
        ("key_x", None),
        (&older.billed.id.to_string(), Some(&older)),
    ] {
        let page = rig.reader().page(&ReceiptQuery::named(&acme(), name)).unwrap();
        assert_eq!(page.receipts.first(), expected, "{name}");
        assert_eq!(
            (page.receipts.len(), page.unreadable),
            (usize::from(expected.is_some()), 0)
        );
    }
}

/// Whoever asks for an id that they made up has so many rows looked at and so much text read, whatever time the id says.
#[test]
fn the_search_for_a_request_is_bounded_on_both_sides_of_its_time() {
    let later = NOW.plus_millis(3_600_000);
    // It ended an hour after it began; in the other file the clock was set back by an hour meanwhile.
    let long = Receipt {
        resolved: later,
        ..receipt("acme", 1, NOW, None)
    };
    let back = Receipt {
        resolved: NOW,
        ..receipt("acme", 1, later, None)
    };
    for (receipt, most, list) in [(long, 20_000, "''"), (back, 84, "hex(zeroblob(50000))")] {
        let mut rig = Rig::new();
        rig.keep(30, u64::MAX);
        rig.write_receipts(std::slice::from_ref(&receipt), later);
        let (account, id) = (acme(), receipt.billed.id);
        let between = |rig: &Rig, count: i64| {
            let now = NOW.0;
            rig.change(&format!(
                "INSERT INTO receipt_lists (account, day, at, oldest, list)
                 WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {count})
                 SELECT 'acme', 0, {now} + n, {now} + n, {list} FROM n"
            ));
            let page = rig.reader().page(&ReceiptQuery::of(&account, id)).unwrap();
            page.receipts.first() == Some(&receipt)
        };
        assert!(between(&rig, most - 1));
        assert!(!between(&rig, 1), "{most}");
    }
}

#[test]
fn pages_of_receipts_go_on_where_the_page_before_ended() {
    let mut rig = Rig::new();
    rig.keep(30, u64::MAX);
    let all: Vec<Receipt> = (0..7).map(|n| receipt("acme", n, NOW, None)).collect();
    // Within rows and between them.
    for group in all.chunks(3) {
        rig.write_receipts(group, NOW);
    }
    for limit in 1..=8 {
        let mut query = ReceiptQuery::newest(&acme(), limit);
        let mut found = Vec::new();
        loop {
            let page = rig.reader().page(&query).unwrap();
            assert!(page.receipts.len() <= usize::try_from(limit).unwrap());
            found.extend(page.receipts);
            match page.next {
                Some(next) => query.before = Some(next),
                None => break,
            }
        }
        found.reverse();
        assert_eq!(found, all, "{limit} a page");
    }
}

/// It ended the page, and every audit with all that this had found.
#[test]
fn a_byte_that_is_no_text_spoils_its_own_receipt_alone() {
    let mut rig = Rig::new();
    rig.keep(30, u64::MAX);
    let all: Vec<Receipt> = (0..3).map(|n| receipt("acme", n, NOW, None)).collect();
    rig.write_receipts(&all, NOW);
    let list: Vec<u8> = rig.text("SELECT list FROM receipt_lists").into_bytes();
    // In the second line.
    let at = list.iter().position(|byte| *byte == b'\n').unwrap() + 20;
    let mut hex = String::new();
    for (place, byte) in list.iter().enumerate() {
        let byte = if place == at { byte | 0x80 } else { *byte };
        hex.push_str(&format!("{byte:02x}"));
    }
    rig.change(&format!("UPDATE receipt_lists SET list = CAST(x'{hex}' AS TEXT)"));
    let page = rig.reader().page(&ReceiptQuery::newest(&acme(), 10)).unwrap();
    assert_eq!((page.receipts.len(), page.unreadable), (2, 1));
    assert_eq!(page.unreadable_days, [(NOW.day(), 1)]);
    rig.reader().witness(NOW.day(), &mut Vec::new()).unwrap();
}
