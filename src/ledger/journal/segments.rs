//! A file that grows by segments, each mapped once and never moved.
//!
//! A segment is written before it is mapped, so that a full disk is an error when it grows and never a fault when it is used.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};

use memmap2::{Advice, MmapOptions, MmapRaw};

/// The file and its mappings.
#[derive(Debug)]
pub(super) struct Segments {
    file: File,
    /// Bytes in front of the first segment: whole pages.
    from: usize,
    /// Bytes of each: whole pages.
    each: usize,
    maps: [OnceLock<MmapRaw>; SEGMENTS_MAX],
}

/// How often a file can grow.
pub(super) const SEGMENTS_MAX: usize = 64;

impl Segments {
    /// A file without segments yet.
    pub(super) fn new(file: File, from: usize, each: usize) -> Segments {
        Segments {
            file,
            from,
            each,
            maps: [const { OnceLock::new() }; SEGMENTS_MAX],
        }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Adds the segment of this number, which is the next.
    ///
    /// # Errors
    /// When the disk is full, or there are [`SEGMENTS_MAX`] already.
    pub(super) fn grow(&self, number: usize) -> io::Result<()> {
        let full = || io::Error::new(io::ErrorKind::StorageFull, "the journal has grown to its limit");
        let place = self.maps.get(number).ok_or_else(full)?;
        let offset = offset(self.from + number * self.each)?;
        let mut written = 0;
        while written < self.each {
            let piece = ZEROS.get(..ZEROS.len().min(self.each - written)).unwrap_or_default();
            self.file
                .write_all_at(piece, offset + u64::try_from(written).map_err(io::Error::other)?)?;
            written += piece.len();
        }
        let map = MmapOptions::new().offset(offset).len(self.each).map_raw(&self.file)?;
        place
            .set(map)
            .map_err(|_| io::Error::other("a segment of the journal was mapped twice"))
    }

    /// Reads all that [`Segments::map_what_is_there`] can map, and what stands in front of it: a part that the disk cannot read is an error here,
    /// and a fault in a mapping.
    ///
    /// # Errors
    /// When some of it cannot be read.
    pub(super) fn read_through(&self) -> io::Result<()> {
        let about = self.file.metadata()?;
        let state = [about.dev(), about.ino(), about.size()];
        let state = (state, (about.mtime(), about.mtime_nsec()));
        let read = || READ.lock().unwrap_or_else(PoisonError::into_inner);
        if read().contains(&state) {
            return Ok(());
        }
        let end = offset(self.from + SEGMENTS_MAX * self.each)?;
        let (mut at, mut piece) = (0, vec![0; READ_BYTES]);
        while at < end {
            match self.file.read_at(&mut piece, at) {
                Ok(0) => break,
                Ok(count) => at += offset(count)?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let mut read = read();
        if read.len() >= READ_FILES_MAX {
            read.clear();
        }
        read.insert(state);
        Ok(())
    }

    /// Has every page that is mapped count as changed. The kernel does that, so that nobody here races with those who write there.
    ///
    /// # Errors
    /// Where a page cannot be written; of the kind `InvalidInput` from a kernel of before 5.14, which cannot do it.
    pub(super) fn dirty(&self) -> io::Result<()> {
        let maps = self.maps.iter().map_while(OnceLock::get);
        maps.map(|map| map.advise(Advice::PopulateWrite))
            .fold(Ok(()), Result::and)
    }

    /// Maps what another process wrote, as far as there are whole items of this size.
    ///
    /// # Errors
    /// When it cannot be mapped.
    pub(super) fn map_what_is_there(&self, item: usize) -> io::Result<()> {
        let length = usize::try_from(self.file.metadata()?.len()).unwrap_or(usize::MAX);
        let bytes = length.saturating_sub(self.from) / item * item;
        for (number, place) in self.maps.iter().enumerate() {
            let at = number * self.each;
            let length = bytes.saturating_sub(at).min(self.each);
            if length == 0 {
                break;
            }
            let map = MmapOptions::new()
                .offset(offset(self.from + at)?)
                .len(length)
                .map_raw(&self.file)?;
            place
                .set(map)
                .map_err(|_| io::Error::other("a segment of the journal was mapped twice"))?;
        }
        Ok(())
    }

    /// Bytes that are mapped.
    pub(super) fn bytes(&self) -> usize {
        self.maps.iter().map_while(OnceLock::get).map(MmapRaw::len).sum()
    }

    /// Where these bytes are, when all of them are mapped, in one segment. The pointer is good for as long as `self` lives.
    pub(super) fn at(&self, at: usize, bytes: usize) -> Option<*mut u8> {
        let map = self.maps.get(at / self.each)?.get()?;
        let within = at % self.each;
        if within.checked_add(bytes)? > map.len() {
            return None;
        }
        // SAFETY: within the mapping, as just checked.
        Some(unsafe { map.as_mut_ptr().add(within) })
    }
}

fn offset(at: usize) -> io::Result<u64> {
    u64::try_from(at).map_err(io::Error::other)
}

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
/// Files that were read through, as they were then: one that waits for months is not read again by each look. Its device, number and length,
/// and when it was changed last.
static READ: LazyLock<Mutex<HashSet<FileState>>> = LazyLock::new(Mutex::default);
type FileState = ([u64; 3], (i64, i64));
const READ_FILES_MAX: usize = 1024;
/// How much is read at once.
const READ_BYTES: usize = 64 << 10;
