//! The folders of ledger and journal: nobody but the gateway's user has business there, and what is made there stays in its place on disk.
//!
//! A file system that copies on write (btrfs) puts each change of a block elsewhere, so that a block which was written before may find no
//! room when it changes. For a mapped file, such as the journal's and SQLite's index of its log, that is SIGBUS. So new files are told to
//! be changed in place, by a flag of their folder.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Makes a folder, and those above it, where they are missing: for their owner alone. One that is there keeps its mode. New files in it
/// are changed in place, or the log says that they are not.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    if let Err(error) = change_in_place(&File::open(folder)?) {
        log::warn!(
            "{} copies on write, and cannot be told to do otherwise ({error}): a full disk may end the process there; see chattr +C",
            folder.display()
        );
    }
    Ok(())
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

/// `FS_IOC_GETFLAGS` of linux/fs.h: a read of a long, whatever the kernel reads or writes.
const GET_FLAGS: libc::Ioctl = libc::_IOR::<libc::c_long>(b'f' as u32, 1);
/// `FS_IOC_SETFLAGS`.
const SET_FLAGS: libc::Ioctl = libc::_IOW::<libc::c_long>(b'f' as u32, 2);
/// `FS_NOCOW_FL`.
const NOCOW: libc::c_int = 0x0080_0000;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

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
}
