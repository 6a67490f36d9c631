//! Calls that are refused beside a reserve: before their body was taken, or for what it says.

use super::StoreError;
use super::caller::Caller;
use super::handle::AccountHandle;
use crate::pure::account::{Denial, Look, ReserveRequest, Scope};
use crate::pure::ids::RequestId;
use crate::pure::limits::{Limits, RateView};
use crate::pure::money::Credits;
use crate::pure::time::Timestamp;

impl Caller {
    /// Refuses a call whose body is still to come where this process knows already that it would be refused. Never asks the store.
    ///
    /// # Errors
    /// As [`AccountState::look`](crate::pure::account::AccountState::look); in Redis for the limit of requests alone.
    pub fn look(&self, look: &Look) -> Result<(), Denial> {
        match &self.place {
            AccountHandle::Embedded(store, account) => store.look(account, look),
            AccountHandle::Redis(store, account) => store.look(account, look),
        }
    }

    /// Counts a request that is refused for what it says. The counts after it; none when the store cannot say.
    pub async fn count_refused(&self, id: RequestId, scope: Scope, limits: Limits) -> Option<RateView> {
        match self.reserve(&self.uncharged(id, scope, limits)).await {
            Ok(Err(Denial::Requests(rate) | Denial::Concurrency(rate) | Denial::Tokens(rate))) => {
                Some(RateView { limits, ..rate })
            }
            Ok(_) | Err(_) => None,
        }
    }

    /// Counts a request that repeats another, and costs nothing. The counts after it: as an error where the limit of requests is reached.
    ///
    /// # Errors
    /// When the store cannot say.
    pub async fn count_repeated(
        &self,
        id: RequestId,
        scope: Scope,
        limits: Limits,
    ) -> Result<Result<RateView, RateView>, StoreError> {
        let of = scope.clone();
        Ok(match self.reserve(&self.uncharged(id, scope, limits)).await? {
            Err(Denial::Concurrency(rate) | Denial::Tokens(rate)) => Ok(RateView { limits, ..rate }),
            Err(Denial::Requests(rate)) => Err(RateView { limits, ..rate }),
            // Neither asks for credit, and no call is let through.
            Err(
                Denial::Credit { rate, .. }
                | Denial::Quota { rate, .. }
                | Denial::Spent { rate, .. }
                | Denial::EndUsers(rate),
            ) => Ok(RateView { limits, ..rate }),
            // Stopped a moment ago: what it is told again was asked for, and paid, before.
            Err(Denial::Stopped(_)) => Ok(self.rate(&of, limits)),
            Ok(hold) => {
                hold.release();
                return Err(StoreError::Corrupt(
                    "a request was granted that asks for nothing".to_owned(),
                ));
            }
        })
    }

    /// A reserve that leaves no room for a call: it is refused, and counted.
    fn uncharged(&self, id: RequestId, scope: Scope, limits: Limits) -> ReserveRequest {
        ReserveRequest {
            id,
            scope,
            limits: Limits {
                concurrency: 0,
                ..limits
            },
            quota: Credits::ZERO,
            wanted: Credits::ZERO,
            at_least: Credits::ZERO,
            tokens: 0,
            expires: self.hold_expiry(Timestamp::default()),
            is_counted: false,
            is_last: true,
            spend: None,
        }
    }
}
