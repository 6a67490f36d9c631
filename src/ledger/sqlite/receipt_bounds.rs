//! How much of the receipts is kept.

use crate::config::Receipts;

/// How much is kept of the receipts in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiptBounds {
    /// For how many days; with 0 none are written.
    pub days: u32,
    /// The most bytes of all receipts together, as they are kept, without what SQLite and its indices add; the oldest are dropped.
    pub bytes_max: u64,
}

impl ReceiptBounds {
    /// So many days, and as many bytes as without a setting.
    pub fn days(days: u32) -> ReceiptBounds {
        ReceiptBounds {
            days,
            bytes_max: Receipts::default().bytes_max,
        }
    }
}
