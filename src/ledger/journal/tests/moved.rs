//! A journal whose file is deleted or replaced while its process runs: whatever is written to it then is lost with the process.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::ledger::folder::as_nobody;
use crate::ledger::tests::logged::logged;
use crate::ledger::tests::rig::{NOW, request_at};

fn begin(process: &Process) -> Result<Entry, StoreError> {
    process.journal.begin(&process.intent(request_at(2, NOW)), PROMPT)
}

#[test]
fn a_journal_that_is_not_in_its_place_takes_no_calls_until_it_is_again() {
    let rig = Rig::new();
    let process = rig.process();
    let tend = || logged(|| process.journal.tend());
    let mut runs = process.begin_as(request_at(1, NOW), PROMPT);
    let path = process.journal.own().unwrap();
    let aside = path.with_extension("aside");
    for is_replaced in [false, true] {
        assert_eq!(tend(), Vec::<String>::new());
        std::fs::rename(&path, &aside).unwrap();
        if is_replaced {
            std::fs::copy(&aside, &path).unwrap();
        }
        let lines = tend();
        let told = format!("ERROR MONEY: {} ", path.display());
        assert!(lines.len() == 1 && lines[0].starts_with(&told), "{lines:?}");
        assert_eq!(tend(), Vec::<String>::new(), "it is known");
        assert!(!process.journal.is_usable());
        assert!(matches!(begin(process), Err(StoreError::Unavailable(_))));
        assert_eq!(process.journal.depth(), 1, "what runs goes on");
        std::fs::rename(&aside, &path).unwrap();
        assert_eq!(tend(), [format!("WARN {} is the journal again", path.display())]);
        assert!(process.journal.is_usable());
        begin(process).unwrap().close();
    }
    runs.close();
}

#[test]
fn another_journal_is_made_once_no_call_stands_in_one_that_is_gone() {
    let rig = Rig::new();
    let process = rig.process();
    let mut runs = process.begin_as(request_at(1, NOW), PROMPT);
    let path = process.journal.own().unwrap();
    std::fs::remove_file(&path).unwrap();
    for _ in 0..2 {
        process.journal.tend();
        assert!(!process.journal.is_usable(), "a call stands in it");
    }
    runs.close();
    let lines = logged(|| process.journal.tend());
    let new = process.journal.own().unwrap();
    assert_eq!(
        lines,
        [format!("WARN the journal can be written again: {}", new.display())]
    );
    assert!(new != path && new.exists() && process.journal.is_usable());
    begin(process).unwrap().close();
}

#[test]
fn a_journal_that_may_not_be_looked_at_is_not_told_as_gone() {
    let rig = Rig::new();
    let process = rig.process();
    let mut runs = process.begin_as(request_at(1, NOW), PROMPT);
    let path = process.journal.own().unwrap();
    let folder = path.parent().unwrap();
    let set_mode = |mode| std::fs::set_permissions(folder, std::fs::Permissions::from_mode(mode)).unwrap();
    set_mode(0o000);
    let journal = &process.journal;
    let lines = as_nobody(|| logged(|| journal.tend()));
    set_mode(0o700);
    let says = format!("ERROR MONEY: {} cannot be looked at: Permission denied", path.display());
    assert!(lines.len() == 1 && lines[0].starts_with(&says), "{lines:?}");
    assert!(!process.journal.is_usable());
    runs.close();
}
