//! Calls whose end the store knows, and whose places are kept all the same: it may lose its last moments.
//!
//! Those of a store that only has to write them to its disk wait for that here ([`JournalFile::acknowledge`]). Those of a store that may be
//! replaced by one that is a moment behind are kept for longer than this process may live ([`JournalFile::keep`]). A journal that has no others
//! gets another name: nothing in it has to be resolved, and whoever starts next asks the store whether it has them still.

use std::sync::atomic::Ordering;

use super::{JournalFile, KEPT_EXTENSION, Origin, PROMPTS_EXTENSION, remove};
use crate::ledger::journal::slot::Slot;
use crate::pure::time::Timestamp;

impl JournalFile {
    /// Calls whose end the store does not know.
    pub(in crate::ledger::journal) fn unknown(&self) -> usize {
        self.in_use().saturating_sub(self.acknowledged.load(Ordering::Acquire))
    }

    /// The store knows how the call in this slot ended, which stays all the same.
    pub(in crate::ledger::journal) fn acknowledge(&self, slot: u32) {
        if let Some(slot) = self.slot(slot).filter(|slot| !slot.is_acknowledged()) {
            slot.set_since(None);
            self.acknowledged.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The store acknowledged the debit in this slot at `since`: it stays beyond this process' end, for whoever starts next.
    pub(in crate::ledger::journal) fn keep(&self, slot: u32, since: Timestamp) {
        if self.origin == Origin::Own {
            self.acknowledge(slot);
        }
        let Some(slot) = self.slot(slot) else { return };
        if slot.kept_since().is_none() {
            self.kept.fetch_add(1, Ordering::AcqRel);
        }
        slot.keep_since(Some(since));
        if self.origin == Origin::Adopted {
            self.name_kept();
        }
    }

    /// The contrary of [`JournalFile::acknowledge`] and [`JournalFile::keep`], for a call that came at `since`.
    pub(in crate::ledger::journal) fn doubt(&self, slot: u32, since: Timestamp) {
        let Some(slot) = self.slot(slot) else { return };
        if slot.kept_since().is_some() {
            slot.keep_since(None);
            self.kept.fetch_sub(1, Ordering::AcqRel);
        }
        if self.origin == Origin::Own && slot.is_acknowledged() {
            slot.set_since(Some(since));
            self.acknowledged.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Counts a slot of an adopted journal in which a call was found.
    pub(in crate::ledger::journal) fn count_call(&self, slot: u32) {
        self.count_found();
        if self.slot(slot).is_some_and(|slot| slot.kept_since().is_some()) {
            self.kept.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Whether it has the name of a journal of which the store has acknowledged all.
    pub(in crate::ledger::journal) fn is_kept(&self) -> bool {
        self.kept_as.get().is_some()
    }

    /// What is kept in an adopted journal: how many debits, and when the last of them was acknowledged.
    pub(in crate::ledger::journal) fn kept(&self) -> (u64, Option<Timestamp>) {
        let slots = (0..self.slots()).filter_map(|number| self.slot(number));
        slots
            .filter_map(Slot::kept_since)
            .fold((0, None::<Timestamp>), |(count, last), since| {
                (count + 1, last.max(Some(since)))
            })
    }

    /// Whether a call stands in it that has neither ended nor been given back.
    pub(in crate::ledger::journal) fn has_running(&self) -> bool {
        let mut slots = (0..self.slots()).filter_map(|number| self.slot(number));
        slots.any(Slot::runs)
    }

    /// At this process' end: deletes the files when no call stands in them, and names them when the store has acknowledged all that do.
    /// How many others there are, for the next start.
    pub(in crate::ledger::journal) fn end(&self) -> usize {
        if self.in_use() == 0 {
            self.delete();
            return 0;
        }
        self.name_kept();
        self.in_use().saturating_sub(self.kept.load(Ordering::Acquire))
    }

    /// Gives the journal its other name once the store has acknowledged all that stands in it. One that was restored beside it may have its
    /// old name, so its new one is nobody's.
    pub(super) fn name_kept(&self) {
        let _free = self.free(); // So that it is not deleted meanwhile, nor named twice.
        let in_use = self.in_use();
        let is_all_kept = in_use > 0 && in_use == self.kept.load(Ordering::Acquire);
        let stays = self.keep_aside.load(Ordering::Acquire) || self.waits.load(Ordering::Acquire);
        if self.is_kept() || !is_all_kept || stays {
            return;
        }
        let name = crate::clock::unique().simple().to_string();
        let new = self.path.with_file_name(name).with_extension(KEPT_EXTENSION);
        if let Err(error) = std::fs::rename(&self.path, &new) {
            return log::debug!("{} keeps its name: {error}", self.path.display());
        }
        // The debits are exact: nobody will count a prompt again.
        remove(&self.path.with_extension(PROMPTS_EXTENSION));
        self.kept_as.get_or_init(|| new);
    }
}
