//! Messages about payments elsewhere that nothing is done about until somebody looks. Each that comes counts: those that are accepted come once,
//! as a rule, and refunds of what was not credited come again for days.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counts of a process.
#[derive(Debug, Default)]
pub struct Payments {
    unassigned: AtomicU64,
    disputes: AtomicU64,
    refunds: AtomicU64,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PaymentCounts {
    /// Payments that were credited to nobody.
    pub unassigned: u64,
    /// Disputes.
    pub disputes: u64,
    /// Refunds of payments that were not credited.
    pub refunds_unassigned: u64,
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

    /// A refund came of a payment that was not credited, or not yet.
    pub fn refund_unassigned(&self) {
        self.refunds.fetch_add(1, Ordering::Relaxed);
    }

    /// All of them.
    pub fn counts(&self) -> PaymentCounts {
        PaymentCounts {
            unassigned: self.unassigned.load(Ordering::Relaxed),
            disputes: self.disputes.load(Ordering::Relaxed),
            refunds_unassigned: self.refunds.load(Ordering::Relaxed),
        }
    }
}
