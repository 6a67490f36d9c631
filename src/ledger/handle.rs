//! An account in the store that has it.

use std::sync::Arc;

use super::embedded::{Embedded, EmbeddedAccount};
use super::journal::Entry;
use super::redis::{Account, RedisLedger};
use super::{Orphan, StoreError};
use crate::pure::ids::{KeyId, RequestId};
use crate::pure::numbers::CallNumber;

/// An account's figures in the store that has them, so that no step has to look the account up again.
#[derive(Clone, Debug)]
pub(crate) enum AccountHandle {
    Embedded(Arc<Embedded>, Arc<EmbeddedAccount>),
    Redis(Arc<RedisLedger>, Arc<Account>),
}

impl AccountHandle {
    /// The number under which the account's next call is billed.
    pub(super) fn next_number(&self) -> CallNumber {
        match self {
            AccountHandle::Embedded(store, account) => store.next_number(account),
            AccountHandle::Redis(store, account) => store.next_number(account),
        }
    }

    /// Whether the account may have this key. Asks nobody, so of one in Redis it says that it may: a recovery asks Redis itself.
    pub(crate) fn has_key(&self, key: &KeyId) -> bool {
        match self {
            AccountHandle::Embedded(store, account) => store.has_key(account, key),
            AccountHandle::Redis(..) => true,
        }
    }

    /// Settles or releases a call that a dead process left. False when its debit is known to have been taken before.
    ///
    /// # Errors
    /// When nobody knows whether the debit was taken; the entry stays in its journal then.
    pub(crate) fn take_over(&self, hold: RequestId, orphan: Orphan, entry: Entry) -> Result<bool, StoreError> {
        match self {
            AccountHandle::Embedded(store, account) => store.take_over(account, hold, orphan, entry),
            AccountHandle::Redis(store, account) => Ok(store.take_over(account, hold, orphan, entry)),
        }
    }
}
