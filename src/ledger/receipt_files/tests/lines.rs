//! What is logged of receipts that are not in their files.

use super::*;
use crate::ledger::tests::logged::logged;

/// The lines of a thread that writes these, with so many dropped before, and ends.
fn lines(state: &State, receipts: Vec<Receipt>, dropped: u64) -> Vec<String> {
    {
        let mut queue = state.queue();
        (queue.receipts, queue.dropped, queue.closes) = (receipts, dropped, true);
    }
    logged(|| state.run())
}

#[test]
fn receipts_that_were_dropped_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let state = state(folder.path());
    assert_eq!(lines(&state, vec![receipt(1, NOW)], 0), Vec::<String>::new());
    for dropped in [1, 2] {
        let told = format!("ERROR {dropped} receipts are not in the files: they could not be written for too long");
        assert_eq!(lines(&state, Vec::new(), dropped), [told]);
    }
}

#[test]
fn the_last_receipts_are_told_when_they_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, "").unwrap();
    let lines = lines(&state(&path), vec![receipt(1, NOW)], 0);
    let waits = format!("ERROR receipts cannot be written to {}, and wait: ", path.display());
    assert!(lines.len() == 2 && lines[0].starts_with(&waits), "{lines:?}");
    assert_eq!(lines[1], "ERROR the last receipts are not in their files");
}

#[test]
fn a_folder_that_cannot_be_written_is_told_once_and_that_it_can_again_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("receipts");
    std::fs::write(&path, "").unwrap();
    let state = state(&path);
    let mut writing = Writing {
        receipts: vec![receipt(1, NOW)],
        ..Writing::default()
    };
    let mut again = || logged(|| state.write(&mut writing)).len();
    assert_eq!((again(), again()), (1, 0));
    std::fs::remove_file(&path).unwrap();
    assert_eq!(
        logged(|| state.write(&mut writing)),
        [format!("WARN receipts can be written to {} again", path.display())]
    );
}
