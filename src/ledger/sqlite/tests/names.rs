//! By which blocks an answer's own id is found.

use super::receipts::receipt;
use super::*;
use crate::ledger::admin::ReceiptQuery;

impl Rig {
    fn with_receipts() -> Rig {
        let mut rig = Rig::new();
        let bounds = ReceiptBounds {
            days: 30,
            bytes_max: u64::MAX,
        };
        rig.database.keep_receipts(bounds, NOW.day()).unwrap();
        rig
    }

    /// Writes a group with a receipt of each of these names.
    fn write_named(&mut self, names: &[&str], now: Timestamp) {
        let before = u64::try_from(self.number("SELECT coalesce(max(seq), 0) FROM receipt_lists")).unwrap();
        let receipts: Vec<Receipt> = (before..)
            .zip(names)
            .map(|(n, name)| receipt("acme", 100 * before + n, now, Some(name)))
            .collect();
        let group = Default::default();
        self.database.know_time(now);
        let written = self
            .database
            .write_debits(&group, &receipts, &format!("after {before}"), now);
        written.unwrap();
    }

    /// Day, and names as they are noted and as they are, of each block.
    fn blocks(&self) -> Vec<(i64, i64, i64)> {
        let sql = "SELECT day, names, (SELECT count(*) FROM receipt_names_of_blocks n WHERE n.block = b.block)
                   FROM receipt_name_blocks b ORDER BY block";
        let mut statement = self.database.connection.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        rows.unwrap().map(Result::unwrap).collect()
    }

    fn finds(&self, name: &str) -> bool {
        let page = self.reader().page(&ReceiptQuery::named(&acme(), name)).unwrap();
        !page.receipts.is_empty()
    }
}

#[test]
fn a_block_ends_when_it_is_full_and_with_its_day() {
    let mut rig = Rig::with_receipts();
    let day = NOW.day().0;
    rig.write_named(&["a", "b"], NOW);
    rig.write_named(&["c"], NOW);
    assert_eq!(rig.blocks(), [(day, 3, 3)]);
    rig.change("UPDATE receipt_name_blocks SET names = 65535");
    rig.write_named(&["d"], NOW);
    assert_eq!(rig.blocks(), [(day, 65_536, 4)]);
    rig.write_named(&["e"], NOW);
    assert_eq!(rig.blocks(), [(day, 65_536, 4), (day, 1, 1)]);
    rig.write_named(&["f"], NOW.plus_millis(DAY_MS));
    assert_eq!(rig.blocks(), [(day, 65_536, 4), (day, 1, 1), (day + 1, 1, 1)]);
    for name in ["a", "b", "c", "d", "e", "f"] {
        assert!(rig.finds(name), "{name}");
    }
    assert!(!rig.finds("g"));
}

#[test]
fn the_newest_of_several_blocks_comes_first() {
    let mut rig = Rig::with_receipts();
    rig.write_named(&["a"], NOW);
    let later = NOW.plus_millis(DAY_MS);
    rig.write_named(&["a"], later);
    let page = rig.reader().page(&ReceiptQuery::named(&acme(), "a")).unwrap();
    assert_eq!(page.receipts.first().map(|receipt| receipt.resolved), Some(later));
}

/// What is deleted in one group is bounded, and a block goes with its last name.
#[test]
fn blocks_go_with_their_days_some_names_in_a_group() {
    let mut rig = Rig::with_receipts();
    let day = NOW.day().0;
    let names: Vec<String> = (0..150).map(|n| format!("n{n}")).collect();
    rig.write_named(&names.iter().map(String::as_str).collect::<Vec<_>>(), NOW);
    rig.write_named(&["later"], NOW.plus_millis(DAY_MS));
    let last = NOW.plus_millis(31 * DAY_MS);
    // The group writes one row, so it deletes those of two rows: 128.
    rig.write_named(&["last"], last);
    assert_eq!(rig.blocks(), [(day, 150, 22), (day + 1, 1, 1), (day + 31, 1, 1)]);
    rig.write_named(&["last 2"], last);
    assert_eq!(rig.blocks(), [(day + 1, 1, 1), (day + 31, 2, 2)]);
    rig.write_named(&["last 3"], last);
    assert_eq!(rig.blocks().len(), 2, "a day that is kept stays");
}

/// A file that an earlier version wrote: its names stand by day.
#[test]
fn names_of_earlier_versions_are_found_and_go_with_their_days() {
    let mut rig = Rig::with_receipts();
    rig.write_named(&["old"], NOW);
    rig.change(
        "INSERT INTO receipt_names SELECT day, name, seq FROM receipt_names_of_blocks JOIN receipt_name_blocks USING (block);
         DELETE FROM receipt_names_of_blocks; DELETE FROM receipt_name_blocks;",
    );
    assert!(rig.finds("old"));
    rig.write_named(&["new"], NOW);
    assert!(rig.finds("old") && rig.finds("new"));
    rig.write_named(&["last"], NOW.plus_millis(31 * DAY_MS));
    assert_eq!(rig.number("SELECT count(*) FROM receipt_names"), 0);
}
