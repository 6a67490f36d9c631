//! What processes that have ended have left in a folder, for whoever asks. Nothing is resolved here.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::file::{ASIDE_EXTENSION, EXTENSION, JournalFile, KEPT_EXTENSION};
use super::listing::journals_or_none;
use crate::pure::time::Timestamp;

/// How many debits stand in journals of processes that have ended though the store has acknowledged them, for it may still lose them; and
/// when it acknowledged the last of them. None when none does.
pub fn kept(folder: &Path) -> Option<(u64, Timestamp)> {
    kept_but(folder, &HashSet::new())
}

/// The same without what stands in the journals that `wait`: until when that stays, nobody knows.
pub fn kept_but(folder: &Path, wait: &HashSet<PathBuf>) -> Option<(u64, Timestamp)> {
    // One of which something is not believed, or unknown, has its name still.
    let (paths, _) = journals_or_none(folder, &[EXTENSION, KEPT_EXTENSION]);
    let (mut debits, mut last) = (0_u64, None::<Timestamp>);
    for path in paths.into_iter().filter(|path| !wait.contains(path)) {
        match JournalFile::adopt(&path) {
            Ok(Some(file)) => {
                let (count, latest) = file.kept();
                debits += count;
                last = last.max(latest);
            }
            Ok(None) => {} // It is another process', which lives.
            Err(error) => log::warn!("{}: {error}", path.display()),
        }
    }
    last.map(|last| (debits, last))
}

/// How many journals lie in the folder whose processes have died without settling all that stands there. They are not read, and those of
/// processes that live are left alone.
pub fn waiting(folder: &Path) -> u64 {
    nobodys(folder, EXTENSION)
}

/// The same of journals of which Redis has acknowledged all. A gateway on that Redis has those in hand that it keeps: what nobody has in hand
/// stays until one is started there, or somebody recovers there.
pub fn acknowledged(folder: &Path) -> u64 {
    nobodys(folder, KEPT_EXTENSION)
}

fn nobodys(folder: &Path, named: &str) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    let is_nobodys = |path: &PathBuf| {
        let is_journal = path.extension().is_some_and(|extension| extension == named) && JournalFile::names(path);
        // Shared, so that two who look at once do not take each other for its owner.
        is_journal && std::fs::File::open(path).is_ok_and(|file| file.try_lock_shared().is_ok())
    };
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    u64::try_from(paths.filter(is_nobodys).count()).unwrap_or(u64::MAX)
}

/// Journals in the folder that were put aside, for something in them was damaged or too old to be billed.
pub fn put_aside(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let is_aside = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == ASIDE_EXTENSION) && JournalFile::names(path)
    };
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let mut aside: Vec<PathBuf> = paths.filter(is_aside).collect();
    aside.sort();
    aside
}
