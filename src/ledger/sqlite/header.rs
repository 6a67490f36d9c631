//! What the first bytes of a database file say, for a start to be tried: a reader of SQLite's would make files beside it.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Read};
use std::path::Path;

use crate::ledger::{StoreError, folder};

/// Whether `Database::open` finds a database of this program at `path`, or nothing, and may write there. Makes
/// and changes nothing.
///
/// # Errors
/// When the file cannot be written, is no database of SQLite, is shorter than its header says, or has another schema.
pub(in crate::ledger) fn check(path: &Path) -> Result<(), StoreError> {
    let unavailable = |error: std::io::Error| {
        StoreError::Unavailable(format!(
            "cannot open {}: {}",
            path.display(),
            folder::denied(path, &error)
        ))
    };
    // Looked at first: where the log has pages that the file has not got yet, the file may be shorter than its header says.
    let has_log = std::fs::metadata(log_of(path)).is_ok_and(|log| log.len() > 0);
    let mut file = match OpenOptions::new().read(true).append(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unavailable(error)),
    };
    let mut head = Vec::with_capacity(HEAD_BYTES);
    let head_of_file = file.by_ref().take(HEAD_BYTES as u64);
    { head_of_file }.read_to_end(&mut head).map_err(unavailable)?;
    if head.is_empty() {
        return Ok(());
    }
    let version = head.get(USER_VERSION_AT..).and_then(|rest| rest.first_chunk::<4>());
    let (true, Some(version)) = (head.starts_with(MAGIC), version) else {
        let path = path.display();
        return Err(StoreError::Corrupt(format!("{path} is not a database of SQLite")));
    };
    let bytes = file.metadata().map_err(unavailable)?.len();
    if let Some(expected) = bytes_expected(&head).filter(|expected| bytes < *expected && !has_log) {
        return Err(StoreError::Corrupt(format!(
            "{} is damaged: it has {bytes} bytes, and by its header {expected}; restore a copy",
            path.display()
        )));
    }
    match i64::from(u32::from_be_bytes(*version)) {
        // What has just been made may still stand in SQLite's log.
        0 if has_log || !has_tables(&head) => Ok(()),
        0 => Err(of_another(path)),
        SCHEMA_VERSION => Ok(()),
        other => Err(other_schema(path, other)),
    }
}

/// Whether the file has ever had a table.
fn has_tables(head: &[u8]) -> bool {
    let cookie = head.get(SCHEMA_COOKIE_AT..).and_then(|rest| rest.first_chunk::<4>());
    cookie.is_some_and(|cookie| *cookie != [0; 4])
}

/// How many bytes the file has by its header; None where that does not say so, as one that was written by a very old SQLite.
fn bytes_expected(head: &[u8]) -> Option<u64> {
    let number = |at: usize| Some(u32::from_be_bytes(*head.get(at..)?.first_chunk::<4>()?));
    if number(CHANGES_AT)? != number(VALID_FOR_AT)? {
        return None;
    }
    let page_bytes = match u16::from_be_bytes(*head.get(PAGE_BYTES_AT..)?.first_chunk::<2>()?) {
        1 => 65_536,
        bytes => u64::from(bytes),
    };
    u64::from(number(PAGES_AT)?).checked_mul(page_bytes)
}

/// SQLite's log beside the file.
fn log_of(path: &Path) -> OsString {
    let mut name = path.canonicalize().unwrap_or_else(|_| path.to_owned()).into_os_string();
    name.push("-wal");
    name
}

/// What is said of a database at `path` that has tables and no version of a schema: nothing of it is to be changed.
pub(super) fn of_another(path: &Path) -> StoreError {
    StoreError::Corrupt(format!(
        "{} is a database of another program: choose another path",
        path.display()
    ))
}

/// What is said of a database at `path` with a schema of another version.
pub(super) fn other_schema(path: &Path, version: i64) -> StoreError {
    StoreError::Corrupt(format!(
        "{} has schema version {version}; this program reads {SCHEMA_VERSION}",
        path.display()
    ))
}

/// The version of the schema that this program makes and reads, as `PRAGMA user_version` has it.
pub(super) const SCHEMA_VERSION: i64 = 1;
/// Of SQLite's file format, "The Database Header": <https://www.sqlite.org/fileformat.html>.
const MAGIC: &[u8] = b"SQLite format 3\0";
/// Two bytes; 1 stands for 65,536.
const PAGE_BYTES_AT: usize = 16;
/// How often the file was changed.
const CHANGES_AT: usize = 24;
/// How many pages the file has, where the two counts of its changes agree.
const PAGES_AT: usize = 28;
/// A number that changes with the schema, and is 0 where there has been none.
const SCHEMA_COOKIE_AT: usize = 40;
const USER_VERSION_AT: usize = 60;
/// The count of changes when the number of pages was written.
const VALID_FOR_AT: usize = 92;
const HEAD_BYTES: usize = 100;

#[cfg(test)]
mod tests {
    use super::super::Database;
    use super::*;

    #[test]
    fn it_says_what_opening_would_say() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(
            path("text"),
            b"once upon a time, long enough for a header: \
            ------------------------------------------------------------",
        )
        .unwrap();
        std::fs::write(path("short"), MAGIC).unwrap();
        std::fs::write(path("empty"), b"").unwrap();
        std::fs::create_dir(path("folder")).unwrap();
        drop(Database::open(&path("ours")).unwrap());
        let newer = rusqlite::Connection::open(path("newer")).unwrap();
        newer
            .execute_batch("CREATE TABLE t (a); PRAGMA user_version = 7")
            .unwrap();
        drop(newer);
        let other = rusqlite::Connection::open(path("other")).unwrap();
        other.execute_batch("CREATE TABLE t (a)").unwrap();
        drop(other);
        let before = listing(folder.path());
        for name in ["text", "short", "folder", "newer", "other", "ours", "empty", "absent"] {
            let is_good = matches!(name, "ours" | "empty" | "absent");
            assert_eq!(check(&path(name)).is_ok(), is_good, "{name}");
        }
        assert_eq!(listing(folder.path()), before);
        let opened = |name: &str| Database::open(&path(name)).map(drop);
        assert_eq!(check(&path("newer")), opened("newer"));
        assert_eq!(check(&path("folder")), opened("folder"));
        // What is not ours is as it was.
        let other = std::fs::read(path("other")).unwrap();
        assert_eq!(check(&path("other")), opened("other"));
        assert_eq!(std::fs::read(path("other")).unwrap(), other);
        for name in ["text", "short"] {
            assert!(opened(name).is_err(), "{name}");
        }
        for name in ["ours", "empty", "absent"] {
            assert_eq!(opened(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn a_file_that_is_shorter_than_its_header_says_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        drop(Database::open(&path).unwrap());
        assert_eq!(check(&path), Ok(()));
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let bytes = file.metadata().unwrap().len();
        file.set_len(bytes - 1).unwrap();
        let refused = check(&path);
        assert!(
            matches!(&refused, Err(StoreError::Corrupt(why)) if why.contains("ledger.db is damaged: ")),
            "{refused:?}"
        );
        // What is missing may stand in the log until it is written back.
        std::fs::write(log_of(&path), "pages").unwrap();
        assert_eq!(check(&path), Ok(()));
    }

    fn listing(folder: &Path) -> Vec<std::ffi::OsString> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }
}
