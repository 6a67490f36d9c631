//! Receipts as files: a file a day, all of them, also after a disk was full.

use super::*;
use crate::ledger::tests::rig::{NOW, credits, request_id};
use crate::pure::numbers::{CallNumber, ProducerId};
use crate::pure::receipt::Billed;
use crate::pure::time::Timestamp;
use crate::pure::usage::Usage;

const DAY_MS: i64 = 86_400_000;

fn receipt(number: u64, resolved: Timestamp) -> Receipt {
    let billed = Billed::new(
        request_id(number),
        CallNumber::new(ProducerId(7), number),
        (&"acme".parse().unwrap(), &"key_x".to_owned().into()),
        &"a/m".into(),
        (Usage::default(), credits("0.5"), None),
        None,
    );
    Receipt { resolved, billed }
}

fn read(folder: &Path, day: &str) -> Vec<Receipt> {
    let text = std::fs::read_to_string(folder.join(format!("receipts-{day}.jsonl"))).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn each_day_has_its_file_and_all_are_written_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let files = ReceiptFiles::start(&folder.path().join("new/one"), 0, Clock::manual(NOW)).unwrap();
    let tomorrow = NOW.plus_millis(DAY_MS);
    let all = [(1, NOW), (2, NOW), (3, tomorrow), (4, NOW)].map(|(number, at)| receipt(number, at));
    for receipt in &all {
        files.push(receipt.clone());
    }
    files.close();
    files.close();
    let [one, two, three, four] = all;
    assert_eq!(read(&folder.path().join("new/one"), "2026-11-20"), [one, two, four]);
    assert_eq!(read(&folder.path().join("new/one"), "2026-11-21"), [three]);
}

#[test]
fn whoever_waits_finds_what_was_taken_written() {
    let folder = tempfile::tempdir().unwrap();
    let files = ReceiptFiles::start(folder.path(), 0, Clock::manual(NOW)).unwrap();
    for number in 1..=20 {
        files.push(receipt(number, NOW));
        assert!(files.flush());
        assert_eq!(read(folder.path(), "2026-11-20").len() as u64, number);
    }
}

#[test]
fn a_folder_that_is_taken_away_is_made_again_and_what_cannot_be_written_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("receipts");
    let files = ReceiptFiles::start(&path, 0, Clock::manual(NOW)).unwrap();
    std::fs::remove_dir_all(&path).unwrap();
    files.push(receipt(1, NOW));
    assert!(files.flush());
    assert_eq!(read(&path, "2026-11-20"), [receipt(1, NOW)]);
    std::fs::remove_dir_all(&path).unwrap();
    std::fs::write(&path, "").unwrap();
    files.push(receipt(2, NOW));
    assert!(!files.flush());
    std::fs::remove_file(&path).unwrap();
    files.close();
    assert_eq!(read(&path, "2026-11-20"), [receipt(2, NOW)]);
}

#[test]
fn what_cannot_be_written_waits_and_comes_whole() {
    let folder = tempfile::tempdir().unwrap();
    let state = State {
        folder: folder.path().to_owned(),
        keep_days: 0,
        clock: Clock::manual(NOW),
        queue: Mutex::default(),
        changed: Condvar::new(),
        progress: Condvar::new(),
    };
    let path = folder.path().join("receipts-2026-11-20.jsonl");
    std::fs::create_dir(&path).unwrap();
    let mut writing = Writing {
        receipts: vec![receipt(1, NOW), receipt(2, NOW)],
        ..Writing::default()
    };
    state.write(&mut writing);
    assert_eq!((writing.receipts.len(), writing.is_torn), (2, true));
    std::fs::remove_dir(&path).unwrap();
    std::fs::write(&path, "{\"resolved\":17").unwrap();
    state.write(&mut writing);
    assert_eq!((writing.receipts.len(), writing.is_torn), (0, false));
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<_> = text
        .lines()
        .skip(1)
        .map(|line| serde_json::from_str::<Receipt>(line).unwrap())
        .collect();
    assert_eq!(lines, [receipt(1, NOW), receipt(2, NOW)]);
}

#[test]
fn files_of_too_long_ago_are_deleted_and_others_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let names = [
        "receipts-2026-11-16.jsonl",
        "receipts-2026-11-17.jsonl",
        "receipts-old.jsonl",
        "receipts-2026-11-01.csv",
    ];
    for name in names {
        std::fs::write(folder.path().join(name), "").unwrap();
    }
    let files = ReceiptFiles::start(folder.path(), 3, Clock::manual(NOW)).unwrap();
    files.push(receipt(1, NOW));
    files.close();
    let has = names.map(|name| folder.path().join(name).exists());
    assert_eq!(has, [false, true, true, true]);
}

#[test]
fn without_days_every_file_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let old = folder.path().join("receipts-1999-01-01.jsonl");
    std::fs::write(&old, "").unwrap();
    let files = ReceiptFiles::start(folder.path(), 0, Clock::manual(NOW)).unwrap();
    files.push(receipt(1, NOW));
    // Whoever drops it has closed it.
    drop(files);
    assert_eq!(read(folder.path(), "2026-11-20"), [receipt(1, NOW)]);
    assert!(old.exists());
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = ReceiptFiles::start(&file, 0, Clock::manual(NOW))
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with(&format!("receipts.files: {}: ", file.display())),
        "{error}"
    );
}
