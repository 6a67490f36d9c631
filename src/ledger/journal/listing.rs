//! Which journals lie in a folder, for whoever recovers or follows those of other processes.

use std::io;
use std::path::{Path, PathBuf};

use super::file::JournalFile;

/// The journals in the folder that are named so, oldest first, and whether that is all of them. What a process left that died while it made
/// its journal is deleted.
///
/// # Errors
/// When the folder cannot be listed. In one that is not there are none.
pub(super) fn journals(folder: &Path, extensions: &[&str]) -> io::Result<(Vec<PathBuf>, bool)> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), true)),
        Err(error) => return Err(error),
    };
    let (mut journals, mut is_whole) = (Vec::new(), true);
    for entry in entries {
        let Ok(path) = entry.map(|entry| entry.path()) else {
            is_whole = false;
            continue;
        };
        if !JournalFile::names(&path) {
            continue; // Somebody else's file.
        }
        match path.extension().and_then(|extension| extension.to_str()) {
            Some(extension) if extensions.contains(&extension) => journals.push(path),
            Some("new" | "prompts") => JournalFile::delete_if_unfinished(&path),
            _ => {}
        }
    }
    journals.sort();
    Ok((journals, is_whole))
}

/// Whether what cannot be opened for this is no process' before this one that lives: each makes its journal with the rights of its user, who is
/// this one's too.
pub(super) fn is_nobodys(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::IsADirectory
    )
}

/// The same for who tells of a folder that cannot be listed in the log alone.
pub(super) fn journals_or_none(folder: &Path, extensions: &[&str]) -> (Vec<PathBuf>, bool) {
    journals(folder, extensions).unwrap_or_else(|error| {
        // Too many open files pass, and whoever recovers tells of them.
        if !crate::ledger::folder::is_out_of_files(&error) {
            log::error!("MONEY: {}: {error}", folder.display());
        }
        (Vec::new(), false)
    })
}
