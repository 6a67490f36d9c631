//! Messages about payments elsewhere that nothing is done about until somebody looks: they are accepted, and come once.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counts of a process.
#[derive(Debug, Default)]
pub struct Payments {
    unassigned: AtomicU64,
    disputes: AtomicU64,
}

impl Payments {
    /// A payment came that names no account which could be credited.
    pub fn unassigned(&self) {
        self.unassigned.fetch_add(1, Ordering::Relaxed);
    }

    /// A payment is disputed.
    pub fn disputed(&self) {
        self.disputes.fetch_add(1, Ordering::Relaxed);
    }

    /// All of both: payments that were credited to nobody, and disputes.
    pub fn counts(&self) -> (u64, u64) {
        (
            self.unassigned.load(Ordering::Relaxed),
            self.disputes.load(Ordering::Relaxed),
        )
    }
}
