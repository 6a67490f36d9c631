//! Which process the embedded ledger belongs to.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// Who owns the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// This process.
    This,
    /// The process that this one has handed it to.
    Successor,
    /// This process again, once what its successor has left is billed: nothing is granted yet.
    TakesBack,
}

/// An [`Owner`] that changes.
#[derive(Debug, Default)]
pub(super) struct OwnedBy(AtomicU8);

impl OwnedBy {
    pub(super) fn now(&self) -> Owner {
        match self.0.load(Ordering::Acquire) {
            0 => Owner::This,
            1 => Owner::Successor,
            _ => Owner::TakesBack,
        }
    }

    pub(super) fn set(&self, owner: Owner) {
        let number = match owner {
            Owner::This => 0,
            Owner::Successor => 1,
            Owner::TakesBack => 2,
        };
        self.0.store(number, Ordering::Release);
    }
}

/// How long a successor may have the ledger without serving.
pub(crate) const SERVES_WITHIN: Duration = Duration::from_secs(30);
