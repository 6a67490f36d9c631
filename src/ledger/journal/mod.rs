//! The journal: what clients were sent is what they pay, once, even when this process is killed.
//!
//! Each call that is admitted has an [`Entry`], written before anything is held in the store and freed after the store has acknowledged
//! the call's debit or release. While an answer passes, its tokens stand in the entry before they are sent; at the end the exact
//! debit does, before the store hears of it. The entries lie in memory-mapped files ([`file`]), so writing one is a few stores
//! and no system call, and what was written outlives the process. What a dead process left is resolved at the next start, or by any
//! other process with the same folder ([`recover`]).
//!
//! A killed process loses nothing. A machine that dies loses at most what was written since the last flush ([`FLUSH_EVERY`]) that the disk
//! took.

mod close;
mod file;
pub(crate) mod follow;
mod left;
mod listing;
mod prompt_place;
mod raise;
pub mod recover;
mod segments;
mod slot;
mod tend;
mod told;
mod waits;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;

use self::file::{Blocks, JournalFile};
pub(super) use self::raise::HeldSlot;
use self::slot::NumberedDebit;
pub use self::slot::{Intent, MODEL_BYTES_MAX};
use self::told::Told;
use super::{Debit, StoreError};
use crate::failpoints::point;
use crate::pure::ids::{AccountId, KeyId, RequestId};
use crate::pure::money::Credits;
use crate::pure::numbers::CallNumber;
use crate::pure::spend::EndUser;
use crate::pure::time::Timestamp;
use crate::pure::usage::{CompletionTokens, PromptTokens};

/// How often the journal is brought to the disk.
pub const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// A call that runs in another process, as that one's journal tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveHold {
    /// The request, and its hold.
    pub id: RequestId,
    /// Who pays.
    pub account: AccountId,
    /// The key that asked.
    pub key: KeyId,
    /// Under whose limit it counts beside its key's.
    pub end_user: Option<EndUser>,
    /// What is held; 0 for one that is free, or was granted nothing yet.
    pub amount: Credits,
}

/// This process' journal.
#[derive(Debug)]
pub struct Journal {
    folder: PathBuf,
    file: ArcSwapOption<JournalFile>,
    /// Why there is none.
    why: Mutex<String>,
    full: AtomicBool,
    /// The disk refused it when it was last to be brought there.
    unflushed: AtomicBool,
    /// Its file was not in its place when it was last looked for.
    moved: AtomicBool,
    /// It was closed: it is not looked for any more.
    closed: AtomicBool,
    /// What was told of journals of dead processes that wait.
    told_waiting: Mutex<Told>,
}

/// A call's place in the journal, until its end is known to the store.
///
/// Dropped without `Entry::close`, it stays in the journal, and the next recovery resolves it: that is what a call whose end is
/// unknown needs.
#[must_use = "an entry is closed once the store knows how its call ended"]
pub struct Entry(Option<Written>);

struct Written {
    file: Arc<JournalFile>,
    slot: u32,
    blocks: Blocks,
    id: RequestId,
    stage: Stage,
    number: Option<CallNumber>,
    delivered: CompletionTokens,
    prompt: Option<PromptTokens>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Held,
    Answered,
    Owed,
}

impl Journal {
    /// A journal in the folder. When none can be made there now, paid calls are refused until one can ([`Journal::tend`]).
    pub fn open(folder: &Path) -> Arc<Journal> {
        let journal = Arc::new(Journal {
            folder: folder.to_owned(),
            file: ArcSwapOption::empty(),
            why: Mutex::default(),
            full: AtomicBool::new(false),
            unflushed: AtomicBool::new(false),
            moved: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            told_waiting: Mutex::default(),
        });
        journal.make();
        journal
    }

    /// Writes that a call is about to hold credit.
    ///
    /// # Errors
    /// When it cannot be written: then the call must not run.
    pub fn begin(&self, intent: &Intent<'_>, prompt: &[u8]) -> Result<Entry, StoreError> {
        if intent.model.len() > MODEL_BYTES_MAX {
            return Err(StoreError::Corrupt(format!("the id of {} is too long", intent.model)));
        }
        let Some(file) = self.file.load_full().filter(|_| !self.is_moved()) else {
            let why = self.why.lock().unwrap_or_else(PoisonError::into_inner);
            return Err(StoreError::Unavailable(format!("there is no journal: {why}")));
        };
        point("intent", "before");
        let mut claim = file.claim(prompt).map_err(|error| self.refused(&error))?;
        if !claim.place.is_kept() {
            claim.place.bytes = u32::try_from(intent.text_bytes).unwrap_or(u32::MAX);
        }
        if self.full.load(Ordering::Relaxed) {
            self.has_room();
        }
        if let Some(slot) = file.slot(claim.slot) {
            // SAFETY: the slot was claimed a moment ago, for this call alone.
            unsafe { slot.hold(intent, claim.place) };
        }
        point("intent", "after");
        Ok(Entry(Some(Written {
            file,
            slot: claim.slot,
            blocks: claim.blocks,
            id: intent.id,
            stage: Stage::Held,
            number: None,
            delivered: CompletionTokens(0),
            prompt: None,
        })))
    }

    /// Where this process' own journal is.
    fn own(&self) -> Option<PathBuf> {
        self.file.load().as_ref().map(|file| file.path().to_owned())
    }

    /// Calls whose end the store does not know yet.
    pub fn depth(&self) -> usize {
        self.file.load().as_ref().map_or(0, |file| file.unknown())
    }

    /// When the oldest of them came, to the second. Cheap enough for a scrape, not for a request.
    pub fn oldest(&self) -> Option<Timestamp> {
        self.file.load().as_ref().and_then(|file| file.oldest())
    }

    /// Whether calls can be written now. Where they cannot, paid calls are refused.
    pub fn is_usable(&self) -> bool {
        self.file.load().is_some() && !self.is_moved() && !self.full.load(Ordering::Relaxed)
    }

    /// Whether what was written could be brought to the disk when that was last tried. Where it could not, calls go on: what stands here
    /// outlives this process all the same, and only a machine that dies loses more than it may.
    pub fn reaches_disk(&self) -> bool {
        !self.unflushed.load(Ordering::Relaxed)
    }

    fn make(&self) {
        let made = crate::ledger::folder::make(&self.folder).and_then(|()| JournalFile::create(&self.folder));
        let mut why = self.why.lock().unwrap_or_else(PoisonError::into_inner);
        match made {
            Ok(file) => {
                if !why.is_empty() {
                    log::warn!("the journal can be written again: {}", file.path().display());
                    why.clear();
                }
                self.file.store(Some(Arc::new(file)));
                self.moved.store(false, Ordering::Relaxed);
            }
            Err(error) => {
                let folder = self.folder.display();
                if why.is_empty() {
                    log::error!("MONEY: no journal can be made in {folder}, paid calls are refused: {error}");
                }
                *why = format!("none can be made in {folder}: {error}");
            }
        }
    }

    fn refused(&self, error: &io::Error) -> StoreError {
        if !self.full.swap(true, Ordering::Relaxed) {
            log::error!("MONEY: the journal is full, paid calls are refused: {error}");
        }
        StoreError::Unavailable(format!("the journal is full: {error}"))
    }
}

impl Entry {
    /// No entry: for a ledger without a journal, as tests and benches have it.
    pub const fn none() -> Entry {
        Entry(None)
    }

    /// Whether there is none.
    pub(super) fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// The name under which the call will be billed. It has to stand here before anything of an answer is passed on.
    pub(super) fn name(&mut self, number: CallNumber) {
        let Some(written) = &mut self.0 else { return };
        if let Some(slot) = written.file.slot(written.slot) {
            slot.name(number, written.id);
            written.number = Some(number);
        }
    }

    /// Tokens of an answer are about to be passed on: `delivered` in all, with the provider's report of the prompt where it has come.
    /// A store instruction, when something has changed.
    pub fn pass(&mut self, delivered: CompletionTokens, prompt: Option<PromptTokens>) {
        let Some(written) = &mut self.0 else { return };
        let Some(slot) = written.file.slot(written.slot) else {
            return;
        };
        if written.delivered != delivered {
            written.delivered = delivered;
            slot.deliver(delivered, written.id);
        }
        if let Some(tokens) = prompt
            && written.prompt != prompt
        {
            written.prompt = prompt;
            slot.report_prompt(tokens, written.id);
        }
        if written.stage == Stage::Held {
            written.stage = Stage::Answered;
            point("first-byte", "before");
            slot.answered();
            point("first-byte", "after");
        }
    }

    /// The store has granted this.
    pub(super) fn granted(&mut self, amount: Credits) {
        let Some(written) = &self.0 else { return };
        if let Some(slot) = written.file.slot(written.slot) {
            slot.granted(amount);
        }
    }

    /// Where it says what is held, for whoever raises that while the call has the entry.
    pub(super) fn held(&self) -> HeldSlot {
        let place = self.0.as_ref();
        HeldSlot::new(place.map(|written| (Arc::clone(&written.file), written.slot)))
    }

    /// The exact debit, with the number under which the store will be told. It stands here before that.
    pub(super) fn owe(&mut self, debit: &Debit, number: CallNumber) {
        let Some(written) = &mut self.0 else { return };
        let Some(slot) = written.file.slot(written.slot) else {
            return;
        };
        point("debit", "before");
        let debit = NumberedDebit {
            number,
            usage: debit.usage,
            cost: debit.cost,
        };
        // SAFETY: the entry has its slot from its claim until it is closed, and is borrowed by this call alone.
        unsafe { slot.owe(&debit, written.id, written.number == Some(number)) };
        (written.stage, written.number) = (Stage::Owed, Some(number));
        point("debit", "after");
        // The debit is exact: nobody will count the prompt again, and the next call's stands in the same memory.
        written.file.release_prompt(std::mem::take(&mut written.blocks));
    }

    /// The hold is given back though an answer may have begun: whoever finds the call here bills nothing. It stands here before the store
    /// is told, and before the call's idempotency key is free.
    pub(super) fn given_back(&mut self) {
        let Some(written) = &mut self.0 else { return };
        if written.stage == Stage::Answered
            && let Some(slot) = written.file.slot(written.slot)
        {
            slot.given_back();
            written.stage = Stage::Held;
            point("given-back", "after");
        }
    }

    /// The store knows how the call ended, but may still lose that: the entry stays for a while, and is no more one of those whose end
    /// is unknown.
    pub(super) fn acknowledged(&mut self) {
        if let Some(written) = &self.0 {
            point("acknowledged", "before");
            written.file.acknowledge(written.slot);
            point("acknowledged", "after");
        }
    }

    /// The same of a debit that the store acknowledged at `since`, and may lose for longer than this process lives: the entry stays for
    /// whoever starts next.
    pub(super) fn keep(&mut self, since: Timestamp) {
        if let Some(written) = &self.0 {
            point("acknowledged", "before");
            written.file.keep(written.slot, since);
            point("acknowledged", "after");
        }
    }

    /// When the store acknowledged the debit, in this process or in one before it; none where that is not known, or in doubt.
    pub(super) fn kept_since(&self) -> Option<Timestamp> {
        let written = self.0.as_ref()?;
        written.file.slot(written.slot)?.kept_since()
    }

    /// Whether it was found in a journal whose process had ended with it: its receipt is in the files, where there are some.
    pub(super) fn is_told(&self) -> bool {
        self.0.as_ref().is_some_and(|written| written.file.is_kept())
    }

    /// An entry that was acknowledged is unknown again: the store has lost it.
    pub(super) fn doubted(&mut self) {
        if let Some(written) = &self.0 {
            written.file.doubt(written.slot, written.id.time());
        }
    }

    /// Nobody knows whether the store has taken this debit, and nobody will: its journal is kept for the operator to look at.
    pub(super) fn suspend(self) {
        if let Some(written) = &self.0 {
            written.file.suspend_one();
        }
    }

    /// The store knows how the call ended.
    pub(super) fn close(&mut self) {
        if let Some(written) = self.0.take() {
            point("acknowledged", "before");
            written.file.release(written.slot, written.blocks);
            point("acknowledged", "after");
        }
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(written) => write!(f, "Entry({})", written.slot),
            None => f.write_str("Entry(none)"),
        }
    }
}

/// What becomes of a dead process' call that owes something, of a key that the ledger does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownKeys {
    /// It waits for the ledger that has its key.
    Wait,
    /// The account of its name is billed: the ledger was restored from a backup of before the key was made.
    Bill,
}

#[cfg(test)]
mod tests;
