//! Exports that are held against receipts of which some cannot be read.

use super::*;

#[test]
fn receipts_that_cannot_be_read_end_no_account_and_are_no_agreement() {
    let calls = Calls::told(false);
    let sql = "UPDATE receipt_lists SET list = list || ?1
               WHERE seq = (SELECT seq FROM receipt_lists ORDER BY at DESC, oldest DESC, seq DESC LIMIT 1)";
    let file = rusqlite::Connection::open(calls.place.ledger()).unwrap();
    // As many as a page has, newer than all that can be read.
    assert_eq!(file.execute(sql, ["x\n".repeat(1_000)]).unwrap(), 1);
    drop(file);
    let (status, listed, sums) = calls.reconcile(AGREES, "");
    for (name, expected) in [("receipts", 4), ("matched", 3), ("missing", 0), ("unreadable", 1_000)] {
        assert_eq!(sums[name], expected, "{name}: {sums}");
    }
    assert_eq!((status, &sums["agrees"]), (1, &Value::from(false)));
    let day = sums["unreadable_receipts"][0]["day"].as_str().unwrap();
    assert_eq!(listed, [format!("unreadable 1000 receipts of acme, billed on {day}")]);
    let path = calls.place.folder.path().join("export");
    let text = calls.place.run(&format!("ledger reconcile {}", path.display())).stdout;
    assert_eq!(
        text.lines().last(),
        Some("1000 receipts could not be read: what is missing may be among them")
    );
}

/// One of them had each comparison end with 1 for as long as it was kept, whatever its days, and nothing said whose it was.
#[test]
fn a_receipt_that_cannot_be_read_counts_for_its_days_alone_and_is_named() {
    let calls = Calls::told(false);
    let today = Clock::System.now().day();
    let file = rusqlite::Connection::open(calls.place.ledger()).unwrap();
    let [before, behind] = [-10, 10].map(|days| Day(today.0 + days));
    for (account, day) in [("acme", before), ("other", behind)] {
        let sql = "INSERT INTO receipt_lists (account, day, at, oldest, list) VALUES (?1, ?2, ?3, ?3, 'x\n')";
        let written = file
            .execute(sql, rusqlite::params![account, day.0, day.start().0])
            .unwrap();
        assert_eq!(written, 1);
    }
    drop(file);
    let of_days = |from: Day, to: Day| format!("--from {from} --to {to}");
    // A test that begins before midnight may end behind it.
    let (first, last) = (Day(today.0 - 1), Day(today.0 + 1));
    let named = [("acme", before), ("other", behind)]
        .map(|(account, day)| format!("unreadable 1 receipt of {account}, billed on {day}"));
    for (days, expected, others) in [
        (String::new(), &named[..], 0),
        (of_days(first, last), &named[..0], 2),
        (format!("--from {first}"), &named[1..], 1),
        (format!("--to {last}"), &named[..1], 1),
        (of_days(Day(before.0 + 1), last), &named[..1], 1),
        (of_days(Day(before.0 + 2), last), &named[..0], 2),
        (of_days(first, Day(behind.0 - 1)), &named[1..], 1),
        (of_days(first, Day(behind.0 - 2)), &named[..0], 2),
        (format!("--account other --to {last}"), &named[..0], 1),
    ] {
        let (status, listed, sums) = calls.reconcile("id,prompt,completion\n", &days);
        assert_eq!(
            (status, &listed[..]),
            (u8::from(!expected.is_empty()), expected),
            "{days}: {sums}"
        );
        let counted = ["unreadable", "unreadable_of_other_days"].map(|name| sums[name].as_u64().unwrap());
        assert_eq!(counted, [expected.len() as u64, others], "{days}");
        assert_eq!(
            sums["unreadable_receipts"].as_array().unwrap().len(),
            expected.len(),
            "{days}"
        );
    }
}
