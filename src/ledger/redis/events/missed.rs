//! What could not be asked for or read, where other things could.

use std::collections::BTreeSet;

use crate::ledger::StoreError;
use crate::ledger::redis::shards::Shard;

/// What could not be asked for or read. An answer that lacks it says so.
#[derive(Debug, Default)]
pub(super) struct Missed {
    /// Of what came first.
    why: Option<StoreError>,
    /// The numbers of shards that gave no answer. No more is asked of them for now: each question may wait for its time-out.
    silent: BTreeSet<usize>,
}

impl Missed {
    /// Something cannot be read, or nobody said why it has no answer.
    pub(super) fn note(&mut self, why: StoreError) {
        self.why.get_or_insert(why);
    }

    /// A shard did not answer, or refused one question alone.
    pub(super) fn note_at(&mut self, shard: &Shard, why: StoreError) {
        if shard.guard.is_failing() {
            self.silent.insert(shard.number);
        }
        self.note(why);
    }

    pub(super) fn is_silent(&self, shard: &Shard) -> bool {
        self.silent.contains(&shard.number)
    }

    /// Why the answer is not whole; none where it is.
    pub(super) fn why(self) -> Option<StoreError> {
        self.why
    }
}
