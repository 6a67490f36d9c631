//! What could not be taken for refunds.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::pure::money::Credits;

/// The counts of a process.
#[derive(Debug, Default)]
pub struct Refunds {
    /// In 10^-12 credit.
    short_pico: AtomicI64,
}

impl Refunds {
    /// So much of a refund was spent, and was not taken.
    pub fn short(&self, credits: Credits) {
        self.short_pico.fetch_add(credits.pico(), Ordering::Relaxed);
    }

    /// All of it.
    pub fn all_short(&self) -> Credits {
        Credits::from_pico(self.short_pico.load(Ordering::Relaxed))
    }
}
