//! What is held for a call that stands in the journal, for whoever raises it beside the call's owner.

use std::sync::Arc;

use super::file::JournalFile;
use crate::pure::money::Credits;

/// Where the journal says what is held for a call; nowhere without a journal. Only good while the store holds something for the call: its
/// place in the journal is another call's once that is over.
#[derive(Debug, Default)]
pub(in crate::ledger) struct HeldSlot(Option<(Arc<JournalFile>, u32)>);

impl HeldSlot {
    pub(super) fn new(place: Option<(Arc<JournalFile>, u32)>) -> HeldSlot {
        HeldSlot(place)
    }

    /// The store has raised the hold to this. To be called under the lock under which the store ends holds, while it has this one.
    pub(in crate::ledger) fn raised(&self, amount: Credits) {
        let Some((file, number)) = &self.0 else { return };
        if let Some(slot) = file.slot(*number) {
            slot.raised(amount);
        }
    }
}
