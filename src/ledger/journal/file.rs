//! A journal's two files: the slots, and the prompts of the calls that run (`prompts`).
//!
//! `NAME.journal` is locked by its owner for as long as it lives; whoever gets the lock of another's file knows that the owner is dead. Both
//! files grow with the calls that run ([`segments`](super::segments)). A prompt is wiped when its call ends; a journal without calls is deleted.
//! One of which the store has acknowledged all, and may still lose it, is called `NAME.acknowledged` (`kept`).

mod adopt;
mod kept;
mod place;
mod prompts;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

pub(super) use self::prompts::Blocks;
use self::prompts::{BLOCK_BYTES, SEGMENT_BLOCKS};
use super::prompt_place::PromptPlace;
use super::segments::Segments;
use super::slot::{SLOT_BYTES, Slot};
use crate::failpoints::fault;
use crate::pure::time::Timestamp;

/// How the file of slots is named.
pub(super) const EXTENSION: &str = "journal";
/// The same when the store has acknowledged all of it.
pub(super) const KEPT_EXTENSION: &str = "acknowledged";
const PROMPTS_EXTENSION: &str = "prompts";
/// And when something in it is not believed.
pub(super) const ASIDE_EXTENSION: &str = "refused";

/// A journal that this process owns: its own, or one of a process that has died.
#[derive(Debug)]
pub(super) struct JournalFile {
    path: PathBuf,
    slots: Segments,
    /// None where a dead process' prompts are not to be had.
    prompts: Option<Segments>,
    free: Mutex<Free>,
    in_use: AtomicUsize,
    /// Of those in use, the ones whose end the store knows: they stay for a while, for a store that loses its last moments.
    acknowledged: AtomicUsize,
    /// Calls in use that stay beyond this process' end, for the store has acknowledged their debits and may still lose them.
    kept: AtomicUsize,
    /// The name that it got when those were all.
    kept_as: OnceLock<PathBuf>,
    origin: Origin,
    /// Something in it is not believed: it is not deleted but put aside.
    keep_aside: AtomicBool,
    /// It has calls of accounts or keys that the ledger does not have, or did not say that it has: it stays.
    waits: AtomicBool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// Made by this process, which goes on to use it.
    Own,
    /// Of a process that has died: it is deleted once every call in it is resolved.
    Adopted,
}

/// What is free, the next to be used at the end.
#[derive(Debug, Default)]
struct Free {
    slots: Vec<u32>,
    slot_segments: usize,
    blocks: Vec<u32>,
    prompt_segments: usize,
}

/// A slot that was claimed, and where its prompt is.
pub(super) struct Claim {
    pub(super) slot: u32,
    pub(super) blocks: Blocks,
    pub(super) place: PromptPlace,
}

impl JournalFile {
    /// Makes a new journal in the folder and locks it.
    ///
    /// # Errors
    /// When the folder cannot be written or the disk is full.
    pub(super) fn create(folder: &Path) -> io::Result<JournalFile> {
        let name = crate::clock::unique().simple().to_string();
        let path = folder.join(name).with_extension(EXTENSION);
        // It gets its name once it is locked: nobody must take it for a dead process' in between.
        let new = path.with_extension("new");
        let slots_file = open(&new, true)?;
        let prompts_path = path.with_extension(PROMPTS_EXTENSION);
        let made = slots_file
            .try_lock()
            .map_err(io::Error::from)
            .and_then(|()| slots_file.write_all_at(&header(), 0))
            .and_then(|()| open(&prompts_path, true))
            // So that nobody takes them for what a dead process left, should the journal be moved away.
            .and_then(|prompts_file| prompts_file.try_lock().map_err(io::Error::from).map(|()| prompts_file))
            .and_then(|prompts_file| {
                let file = JournalFile::over(path.clone(), slots_file, Some(prompts_file), Origin::Own);
                let mut free = file.free();
                file.grow_slots(&mut free)?;
                file.grow_prompts(&mut free)?;
                drop(free);
                // Before it has its name: whoever finds it after the machine has died takes an empty one for damaged.
                file.slots.file().sync_data()?;
                std::fs::rename(&new, &path)?;
                File::open(folder)?.sync_all()?;
                Ok(file)
            });
        if made.is_err() {
            remove(&new);
            remove(&prompts_path);
        }
        made
    }

    fn over(path: PathBuf, slots_file: File, prompts_file: Option<File>, origin: Origin) -> JournalFile {
        let is_kept = path.extension().is_some_and(|extension| extension == KEPT_EXTENSION);
        JournalFile {
            kept_as: is_kept.then(|| path.clone()).map_or_else(OnceLock::new, OnceLock::from),
            path,
            slots: Segments::new(slots_file, HEADER_BYTES, SEGMENT_SLOTS * SLOT_BYTES),
            prompts: prompts_file.map(|file| Segments::new(file, 0, SEGMENT_BLOCKS * BLOCK_BYTES)),
            free: Mutex::default(),
            in_use: AtomicUsize::new(0),
            acknowledged: AtomicUsize::new(0),
            kept: AtomicUsize::new(0),
            origin,
            keep_aside: AtomicBool::new(false),
            waits: AtomicBool::new(false),
        }
    }

    pub(super) fn path(&self) -> &Path {
        self.kept_as.get().unwrap_or(&self.path)
    }

    /// Calls that stand in the journal.
    pub(super) fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Acquire)
    }

    /// When the oldest call came whose end the store does not know. It looks at every slot.
    pub(super) fn oldest(&self) -> Option<Timestamp> {
        if self.unknown() == 0 {
            return None;
        }
        let slots = (0..self.slots()).filter_map(|number| self.slot(number));
        slots.filter_map(Slot::since).min()
    }

    /// Claims a slot, and keeps the prompt where there is room for it.
    ///
    /// # Errors
    /// When the journal is full and cannot grow.
    pub(super) fn claim(&self, prompt: &[u8]) -> io::Result<Claim> {
        let mut free = self.with_room()?;
        let Some(slot) = free.slots.pop() else {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                "the journal has no free slot",
            ));
        };
        let numbers = self.take_blocks(&mut free, prompt.len());
        drop(free);
        self.in_use.fetch_add(1, Ordering::AcqRel);
        let mut place = PromptPlace {
            bytes: u32::try_from(prompt.len()).unwrap_or(u32::MAX),
            ..PromptPlace::default()
        };
        if let Some(first) = numbers.first() {
            self.write_prompt(&numbers, prompt);
            place.first_block = *first;
            place.checksum = crc32fast::hash(prompt);
        }
        let bytes = prompt.len();
        Ok(Claim {
            slot,
            blocks: Blocks { numbers, bytes },
            place,
        })
    }

    /// Counts a slot of an adopted journal as one to be resolved.
    pub(super) fn count_found(&self) {
        self.in_use.fetch_add(1, Ordering::AcqRel);
    }

    /// Frees a slot and wipes its prompt. The last one of an adopted journal deletes it.
    pub(super) fn release(&self, slot: u32, blocks: Blocks) {
        if let Some(place) = self.slot(slot) {
            if self.origin == Origin::Own && place.is_acknowledged() {
                self.acknowledged.fetch_sub(1, Ordering::AcqRel);
            }
            if place.kept_since().is_some() {
                self.kept.fetch_sub(1, Ordering::AcqRel);
            }
            place.free();
        }
        self.release_prompt(blocks);
        self.free().slots.push(slot);
        self.forget_found();
    }

    /// The contrary of [`JournalFile::count_found`].
    pub(super) fn forget_found(&self) {
        let left = self.in_use.fetch_sub(1, Ordering::AcqRel).saturating_sub(1);
        if self.origin == Origin::Own {
            return;
        }
        if left > 0 || self.waits.load(Ordering::Acquire) {
            return self.name_kept();
        }
        if !self.keep_aside.load(Ordering::Acquire) {
            return self.delete();
        }
        match JournalFile::put_aside(self.path()) {
            Ok(aside) => log::error!("what could not be believed is kept in {}", aside.display()),
            Err(error) => log::error!("{} cannot be put aside: {error}", self.path().display()),
        }
    }

    /// One of the calls in the journal is neither billed nor given back. The journal of this process keeps it for the next start.
    pub(super) fn suspend_one(&self) {
        self.keep_aside();
        if self.origin == Origin::Adopted {
            self.forget_found();
        }
    }

    /// The slot of a number.
    pub(super) fn slot(&self, number: u32) -> Option<&Slot> {
        let at = usize::try_from(number).ok()?.checked_mul(SLOT_BYTES)?;
        let place = self.slots.at(at, SLOT_BYTES)?;
        // SAFETY: these bytes stay mapped for as long as `self` lives, they begin at a multiple of the slot's alignment, and every pattern of
        // bits is a `Slot`.
        Some(unsafe { &*place.cast::<Slot>() })
    }

    /// How many slots there are, used or free.
    pub(super) fn slots(&self) -> u32 {
        u32::try_from(self.slots.bytes() / SLOT_BYTES).unwrap_or(u32::MAX)
    }

    /// Brings what was written to the disk, for the case that the machine dies: prompts, and slots whatever becomes of these. Blocks.
    ///
    /// # Errors
    /// When the disk does not take it. For this process and those after it on this machine it is there all the same.
    pub(super) fn flush(&self) -> io::Result<()> {
        let prompts = self.prompts.as_ref().map(|prompts| prompts.file().sync_data());
        self.slots.file().sync_data()?;
        prompts.unwrap_or(Ok(()))
    }

    /// Has every page count as changed, for the next [`JournalFile::flush`] writes it. What stands there stays, also what is written meanwhile.
    ///
    /// # Errors
    /// When a page of slots cannot be written.
    pub(super) fn dirty(&self) -> io::Result<()> {
        if let Some(Err(error)) = self.prompts.as_ref().map(Segments::dirty) {
            log::debug!("the prompts of the journal are not written again: {error}");
        }
        match self.slots.dirty() {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                let numbers = (0..self.slots()).step_by(PAGE_BYTES / SLOT_BYTES);
                numbers.filter_map(|number| self.slot(number)).for_each(Slot::dirty);
                Ok(())
            }
            dirty => dirty,
        }
    }

    /// Whether a file's name is one that [`JournalFile::create`] gives.
    pub(super) fn names(path: &Path) -> bool {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        stem.len() == 32 && stem.bytes().all(|byte| byte.is_ascii_hexdigit())
    }

    /// Deletes what a process left that died while it made its journal: a file without its name yet, or prompts without slots.
    pub(super) fn delete_if_unfinished(path: &Path) {
        let [new, prompts] = ["new", PROMPTS_EXTENSION].map(|extension| path.with_extension(extension));
        // Locked until both are gone, so that its maker cannot go on with it. In this order: a journal that is finished in between has
        // got its name.
        let dead = open(&new, false).ok().filter(|file| file.try_lock().is_ok());
        if dead.is_some()
            || !new.exists()
                && !path.with_extension(EXTENSION).exists()
                && !path.with_extension(ASIDE_EXTENSION).exists()
                && File::open(&prompts).is_ok_and(|file| file.try_lock().is_ok())
        {
            remove(&new);
            remove(&prompts);
        }
    }

    fn delete(&self) {
        let _free = self.free(); // So that it gets no other name meanwhile.
        remove(&self.path().with_extension(PROMPTS_EXTENSION));
        remove(self.path());
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees to it that there is a slot for the next call.
    ///
    /// # Errors
    /// When the journal is full and cannot grow.
    pub(super) fn make_room(&self) -> io::Result<()> {
        self.with_room().map(drop)
    }

    fn with_room(&self) -> io::Result<MutexGuard<'_, Free>> {
        let mut free = self.free();
        if free.slots.is_empty() {
            self.grow_slots(&mut free)?;
        }
        Ok(free)
    }

    fn grow_slots(&self, free: &mut Free) -> io::Result<()> {
        fault("journal-grow")?;
        let segment = free.slot_segments;
        self.slots.grow(segment)?;
        free.slot_segments += 1;
        free.slots.extend(numbers(segment * SEGMENT_SLOTS, SEGMENT_SLOTS));
        Ok(())
    }
}

/// In descending order, so that the lowest is used first.
fn numbers(from: usize, count: usize) -> impl Iterator<Item = u32> {
    (from..from + count)
        .rev()
        .filter_map(|number| u32::try_from(number).ok())
}

fn header() -> [u8; HEADER_BYTES] {
    let mut header = [0u8; HEADER_BYTES];
    if let Some(place) = header.first_chunk_mut::<8>() {
        *place = *MAGIC;
    }
    header
}

/// Opens a file that only its owner may read: prompts stand in it.
fn open(path: &Path, new: bool) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(new)
        .mode(0o600)
        .open(path)
}

fn remove(path: &Path) {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            log::warn!("{} cannot be deleted: {error}", path.display());
        }
        _ => {}
    }
}

const MAGIC: &[u8; 8] = b"TGJRNL01";
const HEADER_BYTES: usize = 4096;
/// No machine has smaller pages.
const PAGE_BYTES: usize = 4096;
/// 2 MiB of slots; 64 of them are 262,144 calls at once.
const SEGMENT_SLOTS: usize = 4096;
