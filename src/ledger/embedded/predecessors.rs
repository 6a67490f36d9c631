//! The calls of the process before this one, which lives on after an upgrade until its last stream has ended: what they hold counts here.
//!
//! What has become of them is read in that process' journal, now and then, and always before a call is refused for what they hold. Each
//! reading has a number, and each call the number of the last reading that began before it was heard of: a reading says nothing of a call
//! that was heard of since it began.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;

use super::shared::EmbeddedAccount;
use crate::pure::ids::RequestId;

/// The calls of the process before that may run, as far as this one has heard of them.
#[derive(Default)]
pub(super) struct Predecessors {
    known: Mutex<Known>,
    /// Reads in that process' journal what has become of them.
    reader: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Held by whoever reads for others as well.
    reads: Mutex<()>,
    /// The thread that reads now and then.
    follower: OnceLock<Thread>,
}

#[derive(Debug, Default)]
struct Known {
    calls: HashMap<RequestId, Call>,
    /// How many readings have begun.
    readings: u64,
}

#[derive(Debug)]
struct Call {
    account: Arc<EmbeddedAccount>,
    /// How many readings had begun when it was last heard of.
    heard_after: u64,
}

/// A reading of the journals of the processes before, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ledger) struct Reading(u64);

impl Predecessors {
    /// A call runs there: its slot stands in that process' journal. Whoever reads now and then is woken with the first, and pauses for longer
    /// while there is none.
    pub(super) fn runs(&self, call: RequestId, account: Arc<EmbeddedAccount>) {
        let is_first = {
            let mut known = self.known();
            let (is_first, heard_after) = (known.calls.is_empty(), known.readings);
            known.calls.insert(call, Call { account, heard_after });
            is_first
        };
        if is_first && let Some(thread) = self.follower.get() {
            thread.unpark();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.known().calls.is_empty()
    }

    /// Whether a reading might say of a call of this account that it has ended.
    pub(super) fn may_have_ended(&self, account: &Arc<EmbeddedAccount>) -> bool {
        let is_of = |call: &Call| Arc::ptr_eq(&call.account, account);
        self.reader.get().is_some() && self.known().calls.values().any(is_of)
    }

    pub(super) fn ids(&self) -> HashSet<RequestId> {
        self.known().calls.keys().copied().collect()
    }

    /// The thread that reads now and then: the first that says so.
    pub(super) fn followed_by(&self, thread: Thread) {
        self.follower.get_or_init(|| thread);
    }

    /// How the journals are read: the first that is said. `reader` begins a reading and tells what it came to.
    pub(super) fn read_by(&self, reader: Box<dyn Fn() + Send + Sync>) {
        self.reader.get_or_init(|| reader);
    }

    /// The reading that began last.
    pub(super) fn last_reading(&self) -> Reading {
        Reading(self.known().readings)
    }

    /// A reading begins: to be called before anything is read.
    pub(super) fn begin_reading(&self) -> Reading {
        let mut known = self.known();
        known.readings = known.readings.saturating_add(1);
        Reading(known.readings)
    }

    /// Returns once a reading has ended that began after `seen`: reads, unless somebody has done so meanwhile. Blocks.
    pub(super) fn read_since(&self, seen: Reading) {
        let Some(reader) = self.reader.get() else { return };
        let _one_at_a_time = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        if self.last_reading() == seen {
            reader();
        }
    }

    /// The calls that a reading did not find: they were heard of before it began, and are not among `running`.
    pub(super) fn missing(
        &self,
        reading: Reading,
        running: &HashSet<RequestId>,
    ) -> Vec<(RequestId, Arc<EmbeddedAccount>)> {
        let known = self.known();
        let calls = known.calls.iter();
        calls
            .filter(|&(id, call)| call.heard_after < reading.0 && !running.contains(id))
            .map(|(id, call)| (*id, Arc::clone(&call.account)))
            .collect()
    }

    /// Forgets a call that a reading did not find. False when it was heard of since the reading began, or was forgotten before.
    pub(super) fn forget(&self, id: RequestId, reading: Reading) -> bool {
        let mut known = self.known();
        let call = known.calls.get(&id);
        let has_ended = call.is_some_and(|call| call.heard_after < reading.0);
        has_ended && known.calls.remove(&id).is_some()
    }

    /// Forgets all of them.
    pub(super) fn take(&self) -> Vec<(RequestId, Arc<EmbeddedAccount>)> {
        let calls = std::mem::take(&mut self.known().calls);
        calls.into_iter().map(|(id, call)| (id, call.account)).collect()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Predecessors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Predecessors")
            .field("known", &self.known)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// What is read for one is read for all that came before it began.
    #[test]
    fn a_reading_is_not_made_again_for_whoever_came_before_it_began() {
        let (all, made) = (Arc::new(Predecessors::default()), Arc::new(AtomicU64::new(0)));
        let (of, count) = (Arc::downgrade(&all), Arc::clone(&made));
        all.read_by(Box::new(move || {
            of.upgrade().unwrap().begin_reading();
            count.fetch_add(1, Ordering::Relaxed);
        }));
        let made = || made.load(Ordering::Relaxed);
        let before = all.last_reading();
        all.read_since(before);
        assert_eq!(made(), 1);
        all.read_since(before);
        assert_eq!(made(), 1, "it has begun since");
        all.read_since(all.last_reading());
        assert_eq!(made(), 2, "another may have ended since that began");
        // One that somebody else has begun.
        let before = all.last_reading();
        all.begin_reading();
        all.read_since(before);
        assert_eq!(made(), 2);
    }

    #[test]
    fn without_a_way_to_read_nothing_is_read() {
        let all = Predecessors::default();
        let before = all.last_reading();
        all.read_since(before);
        assert_eq!(all.last_reading(), before);
    }
}
