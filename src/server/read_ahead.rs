//! Has what lies in the binary's file read before it is used: the tables of the tokenizers, of which the first count of a stream would
//! else wait for the disk.

use std::io::{Error, Result};

/// Asks the kernel to read these bytes into its cache. They take none of the process' memory before they are used.
///
/// # Errors
/// When it does not; then they are read when they are used.
pub(crate) fn read_ahead(bytes: &'static [u8]) -> Result<()> {
    // SAFETY: it only reads a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let page = usize::try_from(page).ok().filter(|page| page.is_power_of_two());
    let page = page.ok_or_else(Error::last_os_error)?;
    let before = bytes.as_ptr().addr() & (page - 1);
    let start = bytes.as_ptr().wrapping_byte_sub(before).cast_mut().cast();
    // SAFETY: the advice changes neither the bytes nor what they are, and the range begins with the page of the first and ends with the last.
    let advised = unsafe { libc::madvise(start, bytes.len() + before, libc::MADV_WILLNEED) };
    if advised == 0 {
        Ok(())
    } else {
        Err(Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::tokens::{Encoding, tables};

    #[test]
    fn all_tables_can_be_asked_for() {
        for encoding in [Encoding::O200k, Encoding::Cl100k] {
            for table in tables(encoding) {
                assert!(table.len() > 100_000);
                read_ahead(table).unwrap();
            }
        }
    }
}
