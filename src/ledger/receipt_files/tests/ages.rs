//! Which files are deleted for their age, and by which time.

use super::*;

const HOUR_MS: i64 = 3_600_000;

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
    let clock = Clock::manual(NOW);
    let files = ReceiptFiles::start(folder.path(), 3, clock.clone()).unwrap();
    clock.advance(HOUR_MS);
    files.push(receipt(1, NOW));
    files.close();
    let has = names.map(|name| folder.path().join(name).exists());
    assert_eq!(has, [false, true, true, true]);
}

/// Set ahead while the gateway runs, and ahead at its start; then it is set right, and a day passes.
#[test]
fn a_clock_that_is_ahead_for_a_moment_deletes_no_file() {
    for from in [0, 4 * DAY_MS] {
        let folder = tempfile::tempdir().unwrap();
        let days = ["2026-11-19", "2026-11-20"];
        let paths = days.map(|day| folder.path().join(format!("receipts-{day}.jsonl")));
        paths.iter().for_each(|path| std::fs::write(path, "{}\n").unwrap());
        let clock = Clock::manual(NOW.plus_millis(from));
        let files = ReceiptFiles::start(folder.path(), 1, clock.clone()).unwrap();
        let has = |number| {
            files.push(receipt(number, clock.now()));
            assert!(files.flush());
            paths.each_ref().map(|path| path.exists())
        };
        clock.set_by(4 * DAY_MS - from);
        assert_eq!(has(1), [true, true], "{from}");
        clock.set_by(-4 * DAY_MS);
        assert_eq!(has(2), [true, true], "{from}");
        clock.advance(DAY_MS);
        assert_eq!(has(3), [false, true], "{from}");
    }
}

/// The process that was ahead died, and the newest file is of its clock.
#[test]
fn a_start_while_the_clock_is_ahead_deletes_no_file_though_one_is_of_that_day() {
    let folder = tempfile::tempdir().unwrap();
    let [old, ahead] = ["2026-11-19", "2026-11-24"].map(|day| folder.path().join(format!("receipts-{day}.jsonl")));
    [&old, &ahead]
        .iter()
        .for_each(|path| std::fs::write(path, "{}\n").unwrap());
    let clock = Clock::manual(NOW.plus_millis(4 * DAY_MS));
    let files = ReceiptFiles::start(folder.path(), 1, clock.clone()).unwrap();
    files.push(receipt(1, clock.now()));
    assert!(files.flush() && old.exists());
    clock.set_by(-4 * DAY_MS);
    clock.advance(HOUR_MS);
    files.push(receipt(2, clock.now()));
    assert!(files.flush() && old.exists());
}

/// It was off for long, or its clock is ahead: an hour later that is known.
#[test]
fn files_of_before_a_long_rest_are_deleted_once_the_clock_is_believed() {
    let folder = tempfile::tempdir().unwrap();
    let old = folder.path().join("receipts-2026-11-01.jsonl");
    std::fs::write(&old, "{}\n").unwrap();
    let clock = Clock::manual(NOW);
    let files = ReceiptFiles::start(folder.path(), 3, clock.clone()).unwrap();
    let has = |number| {
        files.push(receipt(number, clock.now()));
        assert!(files.flush());
        old.exists()
    };
    assert!(has(1));
    clock.advance(HOUR_MS - 1);
    assert!(has(2));
    clock.advance(1);
    assert!(!has(3));
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
