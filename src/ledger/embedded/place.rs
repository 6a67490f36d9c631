//! Which file the ledger is: SQLite's log beside it (`ledger.db-wal`) belongs to one file alone. Replayed into another one, such as a copy
//! that was put in its place, it destroys that; and what is written to a file that was deleted is lost.
//!
//! The file of the lock keeps which file was opened last, and its name: lock and control socket are named by the ledger without its extension,
//! so that a copy beside it (`ledger.bak`) has the same ones.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use crate::ledger::sqlite::Database;
use crate::ledger::{StoreError, folder};

/// Opens the ledger's file, and keeps which one that is in the file of its `lock`, which this process holds.
///
/// # Errors
/// As [`check`], before anything is read from SQLite's log, and when the file cannot be opened.
pub(super) fn open(path: &Path, lock: &File) -> Result<Database, StoreError> {
    check(path, kept(lock))?;
    // Before the log gets its first page: a process that dies after that leaves a log that is known to be this file's.
    keep(path, lock);
    let database = Database::open(path)?;
    keep(path, lock);
    Ok(database)
}

/// Whether SQLite's log beside the file, where it holds anything, belongs to it. Changes nothing.
///
/// # Errors
/// When it does not, for the file is missing, empty, or another one than that which was opened last.
pub(super) fn check(path: &Path, opened_last: Option<Identity>) -> Result<(), StoreError> {
    let unavailable = |error: io::Error| StoreError::Unavailable(format!("cannot look at {}: {error}", path.display()));
    let (log, index) = (beside(path, "-wal"), beside(path, "-shm"));
    if bytes_of(&log).map_err(unavailable)? == 0 {
        return Ok(());
    }
    let (file, log, index) = (path.display(), log.display(), index.display());
    if bytes_of(path).map_err(unavailable)? == 0 {
        return Err(StoreError::Unavailable(format!(
            "{file} is missing or empty, and {log} holds what was written to it last: put the file back, or move {log} and {index} away for \
             a ledger that begins anew"
        )));
    }
    let is_same = match opened_last {
        Some(last) => last.is_same(Identity::of(path).map_err(unavailable)?),
        None => true,
    };
    if is_same {
        return Ok(());
    }
    let lock = path.with_extension("lock");
    Err(StoreError::Unavailable(format!(
        "{file} is another file than the one that {log} was written for. Where a copy was put in its place since the last stop, move {log} \
         and {index} away; where both were moved here together, or written by an earlier version, delete {}; else put back the file that \
         was there before",
        lock.display()
    )))
}

/// Checks that the log of the ledger at `path`, and its index, may be written, where they are there. It opens none: a file that is closed again
/// takes the locks on it along that this process has.
///
/// # Errors
/// When one may not.
pub(super) fn check_writable(path: &Path) -> Result<(), StoreError> {
    let files = [beside(path, "-wal"), beside(path, "-shm")];
    for file in files.iter().filter(|file| file.exists()) {
        folder::takes_writes(file).map_err(|error| {
            let why = folder::denied(file, &error);
            StoreError::Unavailable(format!("cannot write {}: {why}", file.display()))
        })?;
    }
    Ok(())
}

/// Checks that the lock and the control socket beside the ledger at `path` are not those of another one in its folder, whose owner would be asked
/// in its place. Changes nothing.
///
/// # Errors
/// When they are: the lock's file names another file, and that or its log holds something. When the ledger itself has the name of either.
pub(in crate::ledger) fn expect_lock_of(path: &Path) -> Result<(), StoreError> {
    let (lock, control) = (path.with_extension("lock"), path.with_extension("control"));
    let file = path.display();
    if path == lock || path == control {
        return Err(StoreError::Unavailable(format!(
            "{file} cannot be a ledger: its lock or its control socket would have that name"
        )));
    }
    let Some(name) = File::open(&lock).ok().and_then(|lock| kept_name(&lock)) else {
        return Ok(());
    };
    let other = path.with_file_name(name);
    let holds_something = |file: &Path| bytes_of(file).is_ok_and(|bytes| bytes > 0);
    let is_same = OpenFile::at(&other).is_ok_and(|other| OpenFile::at(path).is_ok_and(|own| own == other));
    if other == path || is_same || !(holds_something(&other) || holds_something(&beside(&other, "-wal"))) {
        return Ok(());
    }
    Err(StoreError::Unavailable(format!(
        "{} and {} are those of {}: give {file} another name before its extension, or a folder of its own",
        lock.display(),
        control.display(),
        other.display()
    )))
}

/// Whether opening a ledger at `path` makes a new, empty one: beside a log without its file it makes none.
pub(in crate::ledger) fn is_new(path: &Path) -> bool {
    let is_empty = |path: &Path| bytes_of(path).is_ok_and(|bytes| bytes == 0);
    is_empty(path) && is_empty(&beside(path, "-wal"))
}

/// Where the file itself is, or will be made, when `path` is a symbolic link to it: whoever opens it there has its lock and its control socket
/// beside it too.
pub(in crate::ledger) fn real(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(to) = std::fs::read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new("")).join(to); // An absolute one stands for all of it.
    }
    path
}

/// As many as Linux follows.
const LINKS_MAX: usize = 40;

/// Whether a file that is there has this name alone. Each name (hard link) has a lock and a log of its own: by two of them the file would have
/// two owners, who write over each other. Changes nothing.
///
/// # Errors
/// When it has others.
pub(super) fn check_names(path: &Path) -> Result<(), StoreError> {
    let about = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file);
    let names = about.map_or(1, |about| about.nlink());
    if names <= 1 {
        return Ok(());
    }
    let file = path.display();
    Err(StoreError::Unavailable(format!(
        "{file} has {names} names (hard links), by which several processes could own it at once: remove the others, which `find DIRECTORY \
         -samefile {file}` shows"
    )))
}

/// A file over restarts of the machine: that may give its device another number, some file systems number inodes anew with each mount, and
/// a new file may get the inode of one that was deleted. So the time of its birth decides, where that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    inode: u64,
    /// When it was made, in nanoseconds since 1970. 0 where the file system does not say.
    born_ns: u128,
}

impl Identity {
    fn of(path: &Path) -> io::Result<Identity> {
        let about = std::fs::metadata(path)?;
        let born = about.created().ok();
        let since = born.and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        Ok(Identity {
            inode: about.ino(),
            born_ns: since.map_or(0, |since| since.as_nanos()),
        })
    }

    fn is_same(self, other: Identity) -> bool {
        match self.born_ns != 0 && other.born_ns != 0 {
            true => self.born_ns == other.born_ns,
            false => self.inode == other.inode,
        }
    }

    /// None for anything else than what [`fmt::Display`] writes.
    fn read(text: &str) -> Option<Identity> {
        let mut words = text.split_whitespace();
        let mut number_after = |name: &str| words.next().filter(|word| *word == name).and_then(|_| words.next());
        let inode = number_after("inode")?.parse().ok()?;
        let born_ns = number_after("born_ns")?.parse().ok()?;
        Some(Identity { inode, born_ns })
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "inode {} born_ns {}", self.inode, self.born_ns)
    }
}

/// Which file was opened last, as the file of the lock says. None where it says nothing, as that of an earlier version.
pub(super) fn kept(lock: &File) -> Option<Identity> {
    Identity::read(&text_of(lock)?)
}

/// The name of that file in its folder. None where the file of the lock says none, as that of an earlier version.
fn kept_name(lock: &File) -> Option<String> {
    let text = text_of(lock)?;
    let (numbers, name) = text.strip_suffix('\n')?.split_once(NAME_AFTER)?;
    Identity::read(numbers)?;
    (Path::new(name).file_name() == Some(OsStr::new(name))).then(|| name.to_owned())
}

fn text_of(lock: &File) -> Option<String> {
    let mut bytes = [0; KEPT_BYTES_MAX];
    let count = lock.read_at(&mut bytes, 0).ok()?;
    Some(std::str::from_utf8(bytes.get(..count)?).ok()?.to_owned())
}

/// What the file of the lock keeps of the ledger at `path`: one line, which its name ends where that is text without control characters.
fn line_of(identity: Identity, path: &Path) -> String {
    let name = path.file_name().and_then(OsStr::to_str);
    let name = name.filter(|name| name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control));
    let named = name.map(|name| format!("{identity}{NAME_AFTER}{name}"));
    // Earlier versions read so many bytes, and find nothing there where these end within a character.
    let named = named.filter(|line| line.is_char_boundary(line.len().min(READ_BEFORE)));
    let mut line = named.unwrap_or_else(|| identity.to_string());
    line.push('\n');
    line
}

/// Keeps which file there is, or that there is none. Where that fails the lock's file says nothing, which is told.
fn keep(path: &Path, lock: &File) {
    let now = match Identity::of(path) {
        Ok(identity) => Ok(Some(identity)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    let written = now.and_then(|now| {
        let line = now.map(|identity| line_of(identity, path)).unwrap_or_default();
        if text_of(lock).is_some_and(|kept| kept == line) {
            return Ok(());
        }
        lock.set_len(0)?;
        lock.write_all_at(line.as_bytes(), 0)?;
        // A machine that dies must not leave the name of the file before beside the log of this one.
        lock.sync_all()
    });
    if let Err(error) = written {
        let lock = path.with_extension("lock");
        log::warn!("{} cannot keep which file the ledger is: {error}", lock.display());
    }
}

/// A file that SQLite has beside another one: there also where that is reached by a symbolic link.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut name = OsString::from(real);
    name.push(suffix);
    PathBuf::from(name)
}

/// A file's length; 0 where it is not there.
fn bytes_of(path: &Path) -> io::Result<u64> {
    match std::fs::metadata(path) {
        Ok(about) => Ok(about.len()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

/// A file that this process has open: nothing else has its numbers until it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenFile {
    device: u64,
    inode: u64,
}

impl OpenFile {
    /// The one at `path`.
    pub(super) fn at(path: &Path) -> io::Result<OpenFile> {
        let about = std::fs::metadata(path)?;
        Ok(OpenFile {
            device: about.dev(),
            inode: about.ino(),
        })
    }
}

/// More than the longest text that the file of a lock keeps: two numbers of at most 20 and 39 digits, a name, and what each is.
const KEPT_BYTES_MAX: usize = 512;
/// The longest name of a ledger that is kept, in bytes.
const NAME_BYTES_MAX: usize = 200;
const NAME_AFTER: &str = " file ";
/// How many bytes of it versions read that kept no name.
const READ_BEFORE: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_the_same_by_its_birth_and_by_its_inode_where_that_is_not_known() {
        let of = |inode, born_ns| Identity { inode, born_ns };
        for (one, other, is_same) in [
            (of(1, 5), of(2, 5), true),
            (of(1, 5), of(1, 6), false),
            (of(1, 0), of(1, 5), true),
            (of(1, 5), of(1, 0), true),
            (of(1, 0), of(2, 0), false),
            (of(1, 0), of(2, 5), false),
        ] {
            assert_eq!(one.is_same(other), is_same, "{one:?} {other:?}");
        }
    }

    /// No file is another thing than one that cannot be looked at.
    #[test]
    fn which_file_it_was_stays_kept_where_it_cannot_be_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ledger.db");
        std::fs::write(&file, "x").unwrap();
        let path = folder.path().join("ledger.lock");
        std::fs::write(&path, "").unwrap();
        let lock = File::options().read(true).write(true).open(path).unwrap();
        keep(&file, &lock);
        let known = kept(&lock);
        assert!(known.is_some());
        // A file has nothing below it.
        keep(&file.join("ledger.db"), &lock);
        assert_eq!(kept(&lock), known);
        keep(&folder.path().join("other.db"), &lock);
        assert_eq!(kept(&lock), None);
    }

    #[test]
    fn the_lock_says_the_name_of_its_ledger_behind_what_earlier_versions_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("the.lock");
        std::fs::write(&path, "").unwrap();
        let lock = File::options().read(true).write(true).open(&path).unwrap();
        let (longest, longer) = ("l".repeat(200), "l".repeat(201));
        for (name, is_said) in [
            ("ledger.db", true),
            (" a file b ", true),
            ("bücher.db", true),
            (&longest, true),
            (&longer, false),
            ("a\nb", false),
        ] {
            let file = folder.path().join(name);
            std::fs::write(&file, "x").unwrap();
            keep(&file, &lock);
            assert_eq!(kept(&lock), Some(Identity::of(&file).unwrap()), "{name}");
            assert_eq!(kept_name(&lock).as_deref(), Some(name).filter(|_| is_said), "{name}");
        }
        // Each begins with another byte of a character where earlier versions stop to read.
        for ascii in 0..3 {
            let file = folder.path().join("l".repeat(ascii) + &"€".repeat(60));
            std::fs::write(&file, "x").unwrap();
            keep(&file, &lock);
            let text = std::fs::read(&path).unwrap();
            let read_before = std::str::from_utf8(&text[..text.len().min(READ_BEFORE)]).unwrap();
            assert_eq!(Identity::read(read_before), Some(Identity::of(&file).unwrap()));
        }
    }

    /// As an earlier version leaves it, and as it is where the ledger was renamed.
    #[test]
    fn a_lock_without_the_name_or_with_another_one_gets_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ledger.db");
        std::fs::write(&file, "x").unwrap();
        let path = folder.path().join("ledger.lock");
        let identity = Identity::of(&file).unwrap();
        for before in [format!("{identity}\n"), format!("{identity} file ledger.bak\n")] {
            std::fs::write(&path, before).unwrap();
            let lock = File::options().read(true).write(true).open(&path).unwrap();
            keep(&file, &lock);
            assert_eq!(
                std::fs::read_to_string(&path).unwrap(),
                format!("{identity} file ledger.db\n")
            );
        }
    }
}
