//! Receipts as files: a file a day, all of them, also after a disk was full.

mod ages;
mod lines;
mod synced;

use std::os::unix::fs::PermissionsExt;

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

/// From it is known what the clock has said before, should that be set back.
#[test]
fn the_newest_day_is_that_of_the_newest_file_that_has_receipts() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(newest_day(folder.path()), None);
    for (name, text) in [
        ("receipts-2026-11-21.jsonl", "{}"),
        ("receipts-2026-11-23.jsonl", "{}"),
        ("receipts-2026-11-22.jsonl", "{}"),
        ("receipts-2026-11-24.jsonl", ""),
        ("receipts-2026-11-25.jsonl.part", "{}"),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    assert_eq!(newest_day(folder.path()), Day::parse("2026-11-23"));
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

/// They were readable by everybody, as the process' umask left them.
#[test]
fn what_is_made_is_for_its_owner_alone_and_what_is_there_keeps_its_mode() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/one");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let files = ReceiptFiles::start(&path, 0, Clock::manual(NOW)).unwrap();
    let file = path.join("receipts-2026-11-20.jsonl");
    let modes = || [folder.path().join("new"), path.clone(), file.clone()].map(|path| mode(&path));
    assert_eq!(modes(), [0o700, 0o700, 0o600]);
    std::fs::remove_dir_all(&path).unwrap();
    files.push(receipt(1, NOW));
    assert!(files.flush());
    assert_eq!(modes(), [0o700, 0o700, 0o600], "also when it was taken away");
    for (path, mode) in [(&path, 0o750), (&file, 0o640)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    files.push(receipt(2, NOW));
    assert!(files.flush());
    assert_eq!(modes(), [0o700, 0o750, 0o640]);
    files.close();
}

/// The disk is a pipe that nobody reads.
#[test]
fn the_end_waits_a_bounded_time_for_a_disk_that_does_not_answer() {
    let folder = tempfile::tempdir().unwrap();
    let files = ReceiptFiles::start(folder.path(), 0, Clock::manual(NOW)).unwrap();
    let file = folder.path().join("receipts-2026-11-21.jsonl");
    let made = std::process::Command::new("mkfifo").arg(&file).status().unwrap();
    assert!(made.success());
    files.push(receipt(1, NOW.plus_millis(DAY_MS)));
    let (closed, closes) = std::sync::mpsc::channel();
    let closing = Arc::clone(&files);
    std::thread::spawn(move || {
        closing.close_within(Duration::from_millis(10));
        closed.send(()).unwrap();
    });
    assert_eq!(closes.recv_timeout(Duration::from_secs(30)), Ok(()));
    // It is written when the disk answers again.
    let written = std::fs::read_to_string(&file).unwrap();
    assert_eq!(written.lines().count(), 1, "{written}");
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

/// Files that no thread writes.
fn state(folder: &Path) -> State {
    State {
        folder: folder.to_owned(),
        keep_days: 0,
        known_time: KnownTime::new(&Clock::manual(NOW), None),
        queue: Mutex::default(),
        changed: Condvar::new(),
        progress: Condvar::new(),
    }
}

#[test]
fn what_cannot_be_written_waits_and_comes_whole() {
    let folder = tempfile::tempdir().unwrap();
    let state = state(folder.path());
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

/// The disk was full in the middle of a line, and the process that wrote it has ended.
#[test]
fn after_a_line_that_an_earlier_process_left_torn_a_new_one_begins() {
    let folder = tempfile::tempdir().unwrap();
    for (day, number) in [("2026-11-20", 1u64), ("2026-11-21", 2)] {
        let path = folder.path().join(format!("receipts-{day}.jsonl"));
        std::fs::write(&path, "{\"resolved\":17").unwrap();
        let resolved = NOW.plus_millis(i64::try_from(number - 1).unwrap() * DAY_MS);
        for whole in [1, 2] {
            let files = ReceiptFiles::start(folder.path(), 0, Clock::manual(NOW)).unwrap();
            files.push(receipt(number, resolved));
            files.close();
            let text = std::fs::read_to_string(&path).unwrap();
            let lines: Vec<_> = text.lines().collect();
            assert_eq!(lines.len(), 1 + whole, "{text}");
            for line in lines.iter().skip(1) {
                let read: Receipt = serde_json::from_str(line).unwrap();
                assert_eq!(read, receipt(number, resolved));
            }
        }
    }
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

/// Whether the thread has ended: it has the state too for as long as it runs.
fn has_ended(files: &ReceiptFiles) -> bool {
    Arc::strong_count(&files.state) == 1
}

#[test]
fn the_thread_has_ended_once_the_files_are_closed() {
    let folder = tempfile::tempdir().unwrap();
    for count in [0, 1, 3] {
        let path = folder.path().join(count.to_string());
        let files = ReceiptFiles::start(&path, 0, Clock::manual(NOW)).unwrap();
        let all: Vec<Receipt> = (0..count).map(|number| receipt(number, NOW)).collect();
        all.iter().for_each(|receipt| files.push(receipt.clone()));
        assert!(!has_ended(&files));
        files.close();
        assert!(has_ended(&files), "{count}");
        assert_eq!(read(&path, "2026-11-20"), all);
    }
}

#[test]
fn the_thread_ends_also_when_the_last_receipts_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("receipts");
    let files = ReceiptFiles::start(&path, 0, Clock::manual(NOW)).unwrap();
    std::fs::remove_dir_all(&path).unwrap();
    std::fs::write(&path, "").unwrap();
    files.push(receipt(1, NOW));
    files.close();
    assert!(has_ended(&files));
}

/// A thread that has ended is not waited for.
#[test]
fn files_whose_thread_is_gone_are_closed_at_once() {
    let files = ReceiptFiles {
        state: Arc::new(state(Path::new("nowhere"))),
        thread: Mutex::new(Some(std::thread::spawn(|| {}))),
    };
    while files
        .thread
        .lock()
        .unwrap()
        .as_ref()
        .is_some_and(|thread| !thread.is_finished())
    {
        std::thread::yield_now();
    }
    let began = monotonic();
    files.close();
    assert!(began.elapsed() < CLOSE_MAX);
}

/// Waits until so many were written, with nobody to hurry the thread.
fn wait_for(files: &ReceiptFiles, written: u64) {
    let less = |queue: &mut Queue| queue.written < written;
    let progress = &files.state.progress;
    let (queue, _) = progress
        .wait_timeout_while(files.state.queue(), 20 * WRITE_EVERY, less)
        .unwrap();
    assert_eq!(queue.written, written);
}

#[test]
fn a_receipt_wakes_the_thread_that_waits_for_the_first() {
    let files = ReceiptFiles {
        state: Arc::new(state(Path::new("nowhere"))),
        thread: Mutex::new(None),
    };
    let (waits, waiting) = std::sync::mpsc::channel();
    std::thread::scope(|threads| {
        let waiter = threads.spawn(|| {
            let queue = files.state.queue();
            waits.send(()).unwrap();
            // Only now is the queue free for who pushes.
            let (queue, ended) = files.state.changed.wait_timeout(queue, 20 * WRITE_EVERY).unwrap();
            (queue.receipts.len(), ended.timed_out())
        });
        waiting.recv().unwrap();
        files.push(receipt(1, NOW));
        assert_eq!(waiter.join().unwrap(), (1, false));
    });
}

#[test]
fn what_could_not_be_written_is_written_as_soon_as_it_can_be() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("receipts");
    let files = ReceiptFiles::start(&path, 0, Clock::manual(NOW)).unwrap();
    let is_broken = |is_broken: bool| match is_broken {
        true => {
            std::fs::remove_dir_all(&path).unwrap();
            std::fs::write(&path, "").unwrap();
        }
        false => std::fs::remove_file(&path).unwrap(),
    };
    is_broken(true);
    files.push(receipt(1, NOW));
    assert!(!files.flush());
    // Nothing new comes, and nobody asks for it.
    is_broken(false);
    wait_for(&files, 1);
    is_broken(true);
    files.push(receipt(2, NOW));
    assert!(!files.flush());
    // That one is the thread's now, and this one waits behind it.
    files.push(receipt(3, NOW));
    is_broken(false);
    files.close();
    assert_eq!(read(&path, "2026-11-20"), [2, 3].map(|number| receipt(number, NOW)));
}

#[test]
fn who_hurries_does_not_wait_for_what_may_come_together() {
    let folder = tempfile::tempdir().unwrap();
    let files = ReceiptFiles::start(folder.path(), 0, Clock::manual(NOW)).unwrap();
    assert!(files.flush());
    assert!(!files.state.queue().hurries, "nobody waits for anything");
    let began = monotonic();
    for number in 1..=30 {
        files.push(receipt(number, NOW));
        assert!(files.flush());
    }
    assert!(began.elapsed() < 30 * WRITE_EVERY);
}

#[test]
fn what_comes_within_a_pause_is_written_together() {
    let folder = tempfile::tempdir().unwrap();
    let state = state(folder.path());
    state.queue().receipts.push(receipt(1, NOW));
    let began = monotonic();
    assert!(!state.wait(false), "the end has not come");
    assert!(began.elapsed() >= WRITE_EVERY);
    let both = |closes, hurries| {
        let mut queue = state.queue();
        (queue.closes, queue.hurries) = (closes, hurries);
    };
    both(false, true);
    assert!(!state.wait(true));
    assert!(!state.queue().hurries, "it has been hurried");
    both(true, false);
    assert!(state.wait(true));
}

#[test]
fn a_day_is_four_two_and_two_digits() {
    for (text, expected) in [
        ("2026-11-23", true),
        ("0000-99-99", true),
        ("2026-11-2", false),
        ("2026-11-231", false),
        ("", false),
        ("2026/11/23", false),
        ("2026-11-2x", false),
        ("20261-1-23", false),
    ] {
        assert_eq!(is_day(text), expected, "{text}");
    }
}

#[test]
fn a_file_in_place_of_the_folder_is_said_to_be_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = state(&file).open(NOW.day()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotADirectory);
}
