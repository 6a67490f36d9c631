//! The names of all accounts, in order, as this process knows them: they are a set in Redis, from which nothing is ever taken. So whoever
//! knows as many as there are knows them all, as long as Redis loses none.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::pure::ids::AccountId;

/// What this process knows.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// In their order, without one twice.
    known: Mutex<Arc<Vec<AccountId>>>,
    /// How often they were doubted.
    doubts: AtomicU64,
    /// Held while they are read.
    #[expect(
        clippy::disallowed_types,
        reason = "a reading ends with Redis' answers, each of which has its time-out"
    )]
    pub(super) reading: tokio::sync::Mutex<()>,
}

impl Names {
    pub(super) fn get(&self) -> Arc<Vec<AccountId>> {
        Arc::clone(&self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How often they were doubted, to be asked before they are read.
    pub(super) fn doubts(&self) -> u64 {
        self.doubts.load(Ordering::Acquire)
    }

    /// They were read, since they were doubted so often. Where they have been doubted meanwhile, they may be those of before.
    pub(super) fn set(&self, names: Arc<Vec<AccountId>>, doubts: u64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if self.doubts() == doubts {
            *known = names;
        }
    }

    /// Adds names that are in Redis. Whether any of them was not known.
    pub(super) fn learn(&self, mut names: Vec<AccountId>) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        names.retain(|name| known.binary_search(name).is_err());
        let is_new = !names.is_empty();
        if is_new {
            names.sort_unstable();
            let all = Arc::make_mut(&mut known);
            all.append(&mut names);
            // Two runs that are in order: this only merges them.
            all.sort();
            all.dedup();
        }
        is_new
    }

    /// A server was restarted or replaced: it may have lost the last names, and as many others may have been made since.
    pub(super) fn doubt(&self) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        self.doubts.fetch_add(1, Ordering::AcqRel);
        *known = Arc::default();
    }

    /// An account was made here.
    pub(super) fn add(&self, name: &AccountId) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Those who know none yet read them all when they need them.
        if let Err(place) = known.binary_search(name)
            && !known.is_empty()
        {
            Arc::make_mut(&mut known).insert(place, name.clone());
        }
    }
}
