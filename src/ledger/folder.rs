//! The folders of ledger and journal: nobody but the gateway's user has business there, and what is made there stays in its place on disk.
//!
//! A file system that copies on write (btrfs) puts each change of a block elsewhere, so that a block which was written before may find no
//! room when it changes. For a mapped file, such as the journal's and SQLite's index of its log, that is SIGBUS. So new files are told to
//! be changed in place, by a flag of their folder.

use std::ffi::CString;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, fchown};
use std::path::Path;

/// Makes a folder, and those above it, where they are missing: for their owner alone. One that is there keeps its mode. New files in it
/// are changed in place, or the log says that they are not.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn make(folder: &Path) -> io::Result<()> {
    make_for_unmapped(folder)?;
    if let Err(error) = change_in_place(&File::open(folder)?) {
        log::warn!(
            "{} copies on write, and cannot be told to do otherwise ({error}): a full disk may end the process there; see chattr +C",
            folder.display()
        );
    }
    Ok(())
}

/// Makes a folder, and those above it, as [`make`] does, for files that are never mapped: they may change their places on disk.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn make_for_unmapped(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Whether files can be made in a folder once [`make`] has made it, as far as can be told without making anything.
///
/// # Errors
/// When it, or the first folder above it that is there, is none, may not be written in, or has no room on its disk.
pub(crate) fn can_be_made(folder: &Path) -> io::Result<()> {
    let is_there = |folder: &&Path| folder.symlink_metadata().is_ok();
    let above = folder.ancestors().map(here).find(is_there);
    let above = above.unwrap_or(here(Path::new("")));
    takes_files(above)?;
    suffices(free_bytes(above)?)
}

/// # Errors
/// When so much room is not enough for a start.
fn suffices(free: u64) -> io::Result<()> {
    match free < START_BYTES {
        true => Err(io::Error::new(
            io::ErrorKind::StorageFull,
            format!("the disk is full: {free} bytes are free, a start needs {START_BYTES}"),
        )),
        false => Ok(()),
    }
}

/// What may still be written on the disk of a folder.
fn free_bytes(folder: &Path) -> io::Result<u64> {
    let path = CString::new(folder.as_os_str().as_bytes())?;
    let mut about = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the path is a string that lives until the call returns, and there is room for what is written.
    if unsafe { libc::statvfs(path.as_ptr(), about.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has written all of it.
    let about = unsafe { about.assume_init() };
    Ok(about.f_bavail.saturating_mul(about.f_frsize))
}

/// Whether files can be made in a folder that is there.
///
/// # Errors
/// When it is not there, is no folder, or may not be written in.
pub(crate) fn takes_files(folder: &Path) -> io::Result<()> {
    let folder = here(folder);
    if !folder.metadata()?.is_dir() {
        return Err(io::Error::from_raw_os_error(libc::ENOTDIR));
    }
    accessible(folder, libc::W_OK | libc::X_OK)
}

/// Whether a file that is there may be written.
///
/// # Errors
/// When it may not.
pub(crate) fn takes_writes(file: &Path) -> io::Result<()> {
    accessible(file, libc::W_OK)
}

/// Gives a file that root has just made at `path` to whoever has its folder: a command that is run by root before the first start would
/// else leave files that the user of the service cannot open. For anybody but root it does nothing; where it fails, the log says so.
pub(crate) fn give_to_owner(made: &File, path: &Path) {
    // SAFETY: the call has no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return;
    }
    let given = here(path.parent().unwrap_or(Path::new("")))
        .metadata()
        .and_then(|folder| {
            let file = made.metadata()?;
            match (folder.uid(), folder.gid()) == (file.uid(), file.gid()) {
                true => Ok(()),
                false => fchown(made, Some(folder.uid()), Some(folder.gid())),
            }
        });
    if let Err(error) = given {
        log::warn!("{} stays root's: {error}", path.display());
    }
}

/// What is said of a file that cannot be opened: where this user may not, also why.
pub(crate) fn denied(path: &Path, error: &io::Error) -> String {
    match path.metadata() {
        Ok(about) if error.kind() == io::ErrorKind::PermissionDenied => {
            // SAFETY: the call has no arguments and cannot fail.
            let user = unsafe { libc::geteuid() };
            format!("{error}{}", why_denied(user, about.uid(), about.mode()))
        }
        _ => error.to_string(),
    }
}

/// What is said of a file that was opened here, and that `error` keeps from being looked at again: that it is gone only where nothing is there.
pub(crate) fn why_not_found(path: &Path, error: &io::Error) -> String {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => format!("{path} is no longer there: {error}"),
        _ => format!("{path} cannot be looked at: {error}"),
    }
}

/// Why this user may not open a file of that owner and mode, as far as these tell.
fn why_denied(user: u32, owner: u32, mode: u32) -> String {
    match (user == owner, mode & OWNERS_RIGHTS) {
        (false, _) => format!("; it belongs to the user with the uid {owner}: run this as the user of the service"),
        // Something else forbids it.
        (true, OWNERS_RIGHTS) => String::new(),
        (true, _) => format!(
            "; it belongs to this user, the uid {owner}, whom its mode {:04o} does not let read and write it: chmod u+rw",
            mode & MODE_BITS
        ),
    }
}

/// Whether too many files are open, in this process or on this machine, for another one: that passes, and is nothing that a file is to
/// blame for.
pub(crate) fn is_out_of_files(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Whether this process may read and write a file that is there. Does not open it.
///
/// # Errors
/// When it may not.
pub(crate) fn may_be_written(file: &Path) -> io::Result<()> {
    accessible(file, libc::R_OK | libc::W_OK)
}

/// # Errors
/// When this process has not these rights to what is at `path`, or nothing is there.
fn accessible(path: &Path, rights: libc::c_int) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path is a string that lives until the call returns.
    match unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), rights, libc::AT_EACCESS) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The folder above a name without one is the current one.
fn here(folder: &Path) -> &Path {
    match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    }
}

/// # Errors
/// When the file system copies on write and cannot do otherwise in this folder.
fn change_in_place(folder: &File) -> io::Result<()> {
    if !copies_on_write(folder)? {
        return Ok(());
    }
    let mut flags: libc::c_int = 0;
    // SAFETY: the descriptor is open, and the kernel writes an int (ioctl_iflags(2)), which outlives the call.
    if unsafe { libc::ioctl(folder.as_raw_fd(), GET_FLAGS, &raw mut flags) } != 0 {
        return Err(io::Error::last_os_error());
    }
    flags |= NOCOW;
    // SAFETY: as above; the kernel reads an int.
    if unsafe { libc::ioctl(folder.as_raw_fd(), SET_FLAGS, &raw const flags) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn copies_on_write(file: &File) -> io::Result<bool> {
    let mut about = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the descriptor is open, and there is room for what is written.
    if unsafe { libc::fstatfs(file.as_raw_fd(), about.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has written all of it.
    let about = unsafe { about.assume_init() };
    Ok(about.f_type == libc::BTRFS_SUPER_MAGIC)
}

/// Room for the journal's first files, 6 MiB, and the ledger's.
const START_BYTES: u64 = 8 << 20;
/// The bits of a mode, and those by which its owner may read and write a file.
const MODE_BITS: u32 = 0o7777;
const OWNERS_RIGHTS: u32 = 0o600;
/// `FS_IOC_GETFLAGS` of linux/fs.h: a read of a long, whatever the kernel reads or writes.
const GET_FLAGS: libc::Ioctl = libc::_IOR::<libc::c_long>(b'f' as u32, 1);
/// `FS_IOC_SETFLAGS`.
const SET_FLAGS: libc::Ioctl = libc::_IOW::<libc::c_long>(b'f' as u32, 2);
/// `FS_NOCOW_FL`.
const NOCOW: libc::c_int = 0x0080_0000;

/// Does this as a user who may write only what everybody may: root may write everywhere.
#[cfg(test)]
pub(super) fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let work = || {
        const NOBODY: libc::uid_t = 65534;
        const SAME: libc::uid_t = libc::uid_t::MAX;
        // SAFETY: this call, unlike libc's, changes who this thread is and no other, and the thread ends.
        let changed = unsafe { libc::geteuid() != 0 || libc::syscall(libc::SYS_setresuid, SAME, NOBODY, SAME) == 0 };
        assert!(changed);
        work()
    };
    std::thread::scope(|scope| scope.spawn(work).join().unwrap())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_folder_that_could_be_made_is_told_from_one_that_could_not_and_nothing_is_made() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("file"), b"").unwrap();
        std::os::unix::fs::symlink("nowhere", place.path().join("dangling")).unwrap();
        let kind = |name: &str| can_be_made(&place.path().join(name)).map_err(|error| error.kind());
        assert_eq!((kind(""), kind("new"), kind("new/below")), (Ok(()), Ok(()), Ok(())));
        assert_eq!(kind("file"), Err(io::ErrorKind::NotADirectory));
        assert_eq!(kind("file/below"), Err(io::ErrorKind::NotADirectory));
        assert_eq!(kind("dangling"), Err(io::ErrorKind::NotFound));
        assert_eq!(can_be_made(Path::new("new")).map_err(|error| error.kind()), Ok(()));
        assert_eq!(
            takes_files(&place.path().join("new")).map_err(|error| error.kind()),
            Err(io::ErrorKind::NotFound)
        );
        assert!(!place.path().join("new").exists());
    }

    #[test]
    fn a_new_folder_is_its_owners_and_one_that_is_there_keeps_its_mode() {
        let place = tempfile::tempdir().unwrap();
        let (shared, new) = (place.path().join("shared"), place.path().join("shared/data"));
        std::fs::create_dir(&shared).unwrap();
        std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o750)).unwrap();
        make(&new).unwrap();
        make(&new).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&shared), mode(&new)), (0o750, 0o700));
    }

    #[test]
    fn who_may_not_open_a_file_is_told_whose_it_is_or_that_its_mode_forbids_it() {
        let of_another = why_denied(1000, 65534, 0o600);
        assert!(of_another.contains("the uid 65534: run this as"), "{of_another}");
        let own = why_denied(65534, 65534, 0o100_400);
        assert!(own.contains("the uid 65534, whom its mode 0400 does not let"), "{own}");
        assert!(!own.contains("run this as"), "{own}");
        assert_eq!(why_denied(65534, 65534, 0o100_640), "");
    }

    #[test]
    fn why_a_file_is_denied_is_told_of_no_other_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o400)).unwrap();
        let told = |kind: io::ErrorKind| denied(file.path(), &io::Error::from(kind));
        assert!(told(io::ErrorKind::PermissionDenied).contains("its mode 0400"));
        assert!(!told(io::ErrorKind::StorageFull).contains("mode"));
    }

    #[test]
    fn a_file_is_told_as_gone_only_where_nothing_is_there() {
        for (code, expected) in [
            (libc::ENOENT, true),
            (libc::ENOTDIR, true),
            (libc::EACCES, false),
            (libc::EIO, false),
        ] {
            let told = why_not_found(Path::new("/data/ledger.db"), &io::Error::from_raw_os_error(code));
            assert!(told.starts_with("/data/ledger.db "), "{told}");
            assert_eq!(told.contains("no longer there"), expected, "{told}");
            assert_eq!(told.contains("cannot be looked at"), !expected, "{told}");
        }
    }

    #[test]
    fn too_many_open_files_are_told_from_what_else_fails() {
        for (code, expected) in [
            (libc::EMFILE, true),
            (libc::ENFILE, true),
            (libc::EACCES, false),
            (libc::ENOENT, false),
        ] {
            assert_eq!(is_out_of_files(&io::Error::from_raw_os_error(code)), expected, "{code}");
        }
        assert!(!is_out_of_files(&io::Error::other("")));
    }

    #[test]
    fn a_start_needs_8_mib() {
        for (free, expected) in [
            (0, Err(io::ErrorKind::StorageFull)),
            (START_BYTES - 1, Err(io::ErrorKind::StorageFull)),
            (START_BYTES, Ok(())),
            (u64::MAX, Ok(())),
        ] {
            assert_eq!(suffices(free).map_err(|error| error.kind()), expected, "{free}");
        }
    }

    /// Root may write everywhere, so this is somebody else's look.
    #[test]
    fn a_folder_that_may_not_be_written_takes_no_files() {
        let place = tempfile::tempdir().unwrap();
        let mode = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        let [read_only, open] = ["read-only", "open"].map(|name| place.path().join(name));
        for (folder, bits) in [(&read_only, 0o555), (&open, 0o777)] {
            std::fs::create_dir(folder).unwrap();
            mode(folder, bits);
        }
        mode(place.path(), 0o755);
        assert!(takes_files(&open).is_ok());
        let looked = as_nobody(|| takes_files(&read_only).map_err(|error| error.kind()));
        assert_eq!(looked, Err(io::ErrorKind::PermissionDenied));
    }

    #[test]
    fn a_file_system_that_does_not_copy_on_write_is_left_as_it_is() {
        let folder = File::open("/proc").unwrap();
        assert!(!copies_on_write(&folder).unwrap());
        // It has no flags, so that whoever asked for them got an error.
        change_in_place(&folder).unwrap();
    }
}
