//! Credit entries of which nobody knows whether the file has them.

use std::time::Instant;

use crate::ledger::admin::credits::CreditPost;
use crate::pure::ids::AccountId;

/// Credit entries whose write failed, and of which the file did not say whether it has them. Memory lacks what they take, and what they add.
#[derive(Default)]
pub(super) struct Doubtful {
    pub(super) posts: Vec<CreditPost>,
    /// When the file is asked for them next.
    pub(super) due_at: Option<Instant>,
}

impl Doubtful {
    /// Whether one of them is of this account.
    pub(super) fn has(&self, account: &AccountId) -> bool {
        self.posts.iter().any(|post| post.account == *account)
    }
}
