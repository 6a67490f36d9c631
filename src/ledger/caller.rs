//! Who calls, and what can be asked about the account's credit and limits.

use std::sync::Arc;

use super::cover::Cover;
use super::handle::AccountHandle;
use super::hold::Hold;
use super::journal::Entry;
use super::{AccountRecord, Figures, KeyRecord, StoreError};
use crate::config::SuspendedStreams;
use crate::failpoints::point;
use crate::pure::account::{Denial, ReserveRequest, Scope, Spent};
use crate::pure::ids::Tier;
use crate::pure::limits::{Limits, RateView};
use crate::pure::spend::Reset;
use crate::pure::time::Timestamp;

/// A key that was made, whatever became of it.
#[derive(Debug)]
pub struct FoundKey {
    /// The key.
    pub key: Arc<KeyRecord>,
    /// Its account.
    pub account: Arc<AccountRecord>,
    pub(crate) place: AccountHandle,
}

/// Who calls: a key that holds, and its account.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The key.
    pub key: Arc<KeyRecord>,
    /// The account.
    pub account: Arc<AccountRecord>,
    pub(crate) place: AccountHandle,
}

impl FoundKey {
    /// The caller. None when the key was revoked, or has expired at `now`.
    pub fn checked(self, now: Timestamp) -> Option<Caller> {
        let FoundKey { key, account, place } = self;
        let holds = key.revoked.is_none() && key.expires.is_none_or(|at| at > now);
        holds.then_some(Caller { key, account, place })
    }
}

// The futures of the Redis store are boxed: they are large, and a call on the embedded store should not carry their size.

impl Caller {
    /// The key's tier: its account's, or a lower one of its own.
    pub fn tier(&self) -> Tier {
        self.key
            .tier
            .map_or(self.account.tier, |own| own.min(self.account.tier))
    }

    /// Checks limits, credit and quota and records a hold, all or nothing, in one step.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot say: nothing is held that would not expire by itself.
    ///
    /// For tests and benches: a call of a client has an entry in the journal ([`Caller::reserve_journaled`]).
    pub async fn reserve(&self, request: &ReserveRequest) -> Result<Result<Hold, Denial>, StoreError> {
        self.reserve_journaled(request, Entry::none()).await
    }

    /// [`Caller::reserve`] for a call that stands in the journal already. The entry goes along with the hold, and is closed once the
    /// store knows how the call ended.
    ///
    /// # Errors
    /// As [`Caller::reserve`].
    pub async fn reserve_journaled(
        &self,
        request: &ReserveRequest,
        entry: Entry,
    ) -> Result<Result<Hold, Denial>, StoreError> {
        self.reserve_until(request, entry, SuspendedStreams::Finish).await
    }

    /// The same for a call that may have to end when its account is stopped: its hold says so then ([`Hold::uncovered`]).
    ///
    /// # Errors
    /// As [`Caller::reserve`].
    pub async fn reserve_until(
        &self,
        request: &ReserveRequest,
        mut entry: Entry,
        on_stop: SuspendedStreams,
    ) -> Result<Result<Hold, Denial>, StoreError> {
        let ends_when_stopped = on_stop == SuspendedStreams::End;
        point("reserve", "before");
        let reply = match &self.place {
            AccountHandle::Embedded(store, account) => {
                let reply = match store.reserve(account, request, &mut entry) {
                    Ok(Ok(reply)) => Ok(reply),
                    Ok(Err(why)) => Box::pin(store.reserve_later(account, (request, why), &mut entry)).await,
                    Err(error) => Err(error),
                };
                match &reply {
                    Ok(Ok(granted)) => entry.granted(granted.amount),
                    Ok(Err(_)) | Err(_) => entry.close(),
                }
                let end_user = request.spend.as_ref().and_then(|limits| limits.end_user());
                let is_covered = end_user.is_some() || ends_when_stopped;
                let cover = is_covered.then(|| Arc::new(Cover::of(end_user)));
                if let (true, Ok(Ok(_)), Some(cover)) = (ends_when_stopped, &reply, &cover) {
                    account.ends_when_stopped(cover);
                }
                reply?.map(|granted| (granted, entry, cover))
            }
            AccountHandle::Redis(store, account) => {
                let entry = (entry, ends_when_stopped);
                Box::pin(store.reserve(account, request, entry))
                    .await?
                    .map(|(granted, entry, cover)| (granted, entry, Some(cover)))
            }
        };
        point("reserve", "after");
        Ok(reply.map(|(granted, entry, cover)| Hold::new(self.place.clone(), request.id, granted, entry, cover)))
    }

    /// When a hold made at `now` expires unless it is renewed. In the embedded store a hold ends with its request, for both live in
    /// one process; in Redis the process that made it renews it.
    pub fn hold_expiry(&self, now: Timestamp) -> Timestamp {
        match &self.place {
            AccountHandle::Embedded(..) => Timestamp(i64::MAX),
            AccountHandle::Redis(store, _) => store.hold_expiry(now),
        }
    }

    /// The rate-limit counts for answers that admit nothing.
    pub fn rate(&self, scope: &Scope, limits: Limits) -> RateView {
        match &self.place {
            AccountHandle::Embedded(store, account) => store.rate(account, scope, limits),
            AccountHandle::Redis(store, account) => store.rate(account, scope, limits),
        }
    }

    /// Whether a request is left in this window, as far as this process knows. The process that has the ledger now knows it instead.
    ///
    /// # Errors
    /// The counts, when none is left.
    pub fn requests_left(&self, scope: &Scope, limits: Limits) -> Result<(), RateView> {
        if let AccountHandle::Embedded(store, _) = &self.place
            && store.is_handed_over()
        {
            return Ok(());
        }
        let rate = self.rate(scope, limits);
        if rate.remaining_requests == 0 {
            return Err(rate);
        }
        Ok(())
    }

    /// What the key has spent, and its open calls hold, in the period that is now of a limit that resets so.
    ///
    /// # Errors
    /// When the store cannot say.
    pub async fn key_spent(&self, reset: Reset) -> Result<Spent, StoreError> {
        match &self.place {
            AccountHandle::Embedded(store, account) => Box::pin(store.key_spent(account, &self.key.id, reset)).await,
            AccountHandle::Redis(store, account) => Box::pin(store.key_spent(account, &self.key.id, reset)).await,
        }
    }

    /// The account's figures now.
    ///
    /// # Errors
    /// When the store cannot say.
    pub async fn figures(&self) -> Result<Figures, StoreError> {
        match &self.place {
            AccountHandle::Embedded(store, account) if !store.is_ours() => {
                Box::pin(store.figures_at_successor(account)).await
            }
            AccountHandle::Embedded(store, account) => Ok(store.figures(account)),
            AccountHandle::Redis(store, account) => Box::pin(store.figures(account)).await,
        }
    }
}
