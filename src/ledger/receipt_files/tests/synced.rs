//! Receipts are written once the disk has them: then the journal lets go of their calls.

use super::*;
use crate::failpoints::fails_here;

#[test]
fn receipts_that_the_disk_did_not_take_wait_and_are_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let state = state(folder.path());
    let path = folder.path().join("receipts-2026-11-20.jsonl");
    let bytes = || std::fs::metadata(&path).unwrap().len();
    let all = [receipt(1, NOW), receipt(2, NOW.plus_millis(DAY_MS)), receipt(3, NOW)];
    let mut writing = Writing {
        receipts: all.to_vec(),
        ..Writing::default()
    };
    fails_here(Some("receipts-sync"));
    state.write(&mut writing);
    assert_eq!((writing.receipts.len(), writing.is_torn), (3, true));
    let first = bytes();
    state.write(&mut writing);
    assert_eq!((writing.receipts.len(), writing.is_torn), (3, true));
    assert!(bytes() <= first + 1, "all was written to a disk that takes nothing");
    fails_here(None);
    state.write(&mut writing);
    assert_eq!((writing.receipts.len(), writing.is_torn), (0, false));
    let [one, two, three] = all;
    let found = read(folder.path(), "2026-11-20");
    assert_eq!(found, [one.clone(), three.clone(), one, three]);
    assert_eq!(read(folder.path(), "2026-11-21"), [two.clone(), two]);
}

/// What could be written before it is not written again.
#[test]
fn what_the_disk_took_before_an_error_waits_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let state = state(folder.path());
    std::fs::create_dir(folder.path().join("receipts-2026-11-21.jsonl")).unwrap();
    let all = [receipt(1, NOW), receipt(2, NOW.plus_millis(DAY_MS)), receipt(3, NOW)];
    let mut writing = Writing {
        receipts: all.to_vec(),
        ..Writing::default()
    };
    state.write(&mut writing);
    assert!(writing.is_torn);
    assert_eq!(writing.receipts, all[1..]);
    assert_eq!(read(folder.path(), "2026-11-20"), all[..1]);
}
