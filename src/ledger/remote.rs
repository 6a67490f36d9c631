//! A reserve, a wish to raise a hold, and their answers as the control socket carries them, from a process to the one that took its ledger
//! over.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::pure::account::{Denial, Extended, Granted, ReserveRequest, Scope};
use crate::pure::error::AccountStop;
use crate::pure::estimate::HoldRange;
use crate::pure::ids::{AccountId, KeyId, RequestId};
use crate::pure::limits::{Limits, RateView};
use crate::pure::money::Credits;
use crate::pure::spend::{SpendLimits, Spender};
use crate::pure::time::Timestamp;

/// A reserve of the process before, as the control socket carries it. Amounts are in 10^-12 credit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteReserve {
    account: AccountId,
    id: [u8; 16],
    key: Option<KeyId>,
    limits: Limits,
    quota: i64,
    wanted: i64,
    at_least: i64,
    tokens: u64,
    expires: Timestamp,
    #[serde(default)]
    is_counted: bool,
    /// A build that does not say it tells of each refusal.
    #[serde(default = "is_last_unsaid")]
    is_last: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spend: Option<SpendLimits>,
}

/// The answer to a [`RemoteReserve`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemoteReply {
    /// It is held.
    Granted {
        /// How much.
        amount: i64,
        /// For the headers.
        rate: RateView,
    },
    /// [`Denial::Requests`].
    Requests(RateView),
    /// [`Denial::Tokens`].
    Tokens(RateView),
    /// [`Denial::Concurrency`].
    Concurrency(RateView),
    /// [`Denial::Credit`].
    Credit {
        /// What is left.
        available: i64,
        /// What is held.
        held: i64,
        /// For the headers.
        rate: RateView,
    },
    /// [`Denial::Quota`].
    Quota {
        /// Spent this month.
        used: i64,
        /// What is held.
        held: i64,
        /// For the headers.
        rate: RateView,
    },
    /// [`Denial::Spent`].
    Spent {
        /// Whether it is the end user's limit, not the key's.
        is_end_users: bool,
        /// Spent in the period.
        spent: i64,
        /// What is held.
        held: i64,
        /// For the headers.
        rate: RateView,
    },
    /// [`Denial::EndUsers`].
    EndUsers(RateView),
    /// [`Denial::Stopped`].
    Stopped {
        /// For good, not only suspended.
        is_closed: bool,
    },
}

/// A wish of the process before to raise what one of its calls holds. Amounts are in 10^-12 credit, and what the call holds in all: the same
/// wish twice raises nothing twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteExtend {
    account: AccountId,
    id: [u8; 16],
    wanted: i64,
    at_least: i64,
    quota: i64,
    /// Of a call that runs in another process only that one knows how much its limits allow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spend: Option<SpendLimits>,
}

/// The answer to a [`RemoteExtend`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemoteExtended {
    /// [`Extended::To`].
    To {
        /// What is held now.
        amount: i64,
    },
    /// [`Extended::Refused`].
    Refused,
    /// [`Extended::Gone`].
    Gone,
}

impl RemoteExtend {
    pub(super) fn of(
        account: AccountId,
        (id, range, quota): (RequestId, &HoldRange, Credits),
        spend: Option<SpendLimits>,
    ) -> RemoteExtend {
        RemoteExtend {
            account,
            id: *id.as_bytes(),
            wanted: range.wanted.pico(),
            at_least: range.at_least.pico(),
            quota: quota.pico(),
            spend,
        }
    }

    pub(super) fn account(&self) -> &AccountId {
        &self.account
    }

    pub(super) fn hold(&self) -> RequestId {
        RequestId::from_bytes(self.id)
    }

    pub(super) fn range(&self) -> HoldRange {
        HoldRange {
            wanted: Credits::from_pico(self.wanted),
            at_least: Credits::from_pico(self.at_least),
        }
    }

    pub(super) fn quota(&self) -> Credits {
        Credits::from_pico(self.quota)
    }

    pub(super) fn limits(&self) -> Option<&SpendLimits> {
        self.spend.as_ref()
    }
}

impl From<Extended> for RemoteExtended {
    fn from(extended: Extended) -> RemoteExtended {
        match extended {
            Extended::To(amount) => RemoteExtended::To { amount: amount.pico() },
            Extended::Refused => RemoteExtended::Refused,
            Extended::Gone => RemoteExtended::Gone,
        }
    }
}

impl From<RemoteExtended> for Extended {
    fn from(extended: RemoteExtended) -> Extended {
        match extended {
            RemoteExtended::To { amount } => Extended::To(Credits::from_pico(amount)),
            RemoteExtended::Refused => Extended::Refused,
            RemoteExtended::Gone => Extended::Gone,
        }
    }
}

impl RemoteReserve {
    pub(super) fn of(account: AccountId, request: &ReserveRequest) -> RemoteReserve {
        RemoteReserve {
            account,
            id: *request.id.as_bytes(),
            key: match &request.scope {
                Scope::Account => None,
                Scope::Key(key) => Some(key.clone()),
            },
            limits: request.limits,
            quota: request.quota.pico(),
            wanted: request.wanted.pico(),
            at_least: request.at_least.pico(),
            tokens: request.tokens,
            expires: request.expires,
            is_counted: request.is_counted,
            is_last: request.is_last,
            spend: request.spend.as_deref().cloned(),
        }
    }

    pub(super) fn account(&self) -> &AccountId {
        &self.account
    }

    pub(super) fn request(&self) -> ReserveRequest {
        ReserveRequest {
            id: RequestId::from_bytes(self.id),
            scope: self.key.clone().map_or(Scope::Account, Scope::Key),
            limits: self.limits,
            quota: Credits::from_pico(self.quota),
            wanted: Credits::from_pico(self.wanted),
            at_least: Credits::from_pico(self.at_least),
            tokens: self.tokens,
            expires: self.expires,
            is_counted: self.is_counted,
            is_last: self.is_last,
            spend: self.spend.clone().map(Arc::new),
        }
    }
}

fn is_last_unsaid() -> bool {
    true
}

impl From<Result<Granted, Denial>> for RemoteReply {
    fn from(reply: Result<Granted, Denial>) -> RemoteReply {
        match reply {
            Ok(Granted { amount, rate }) => RemoteReply::Granted {
                amount: amount.pico(),
                rate,
            },
            Err(Denial::Requests(rate)) => RemoteReply::Requests(rate),
            Err(Denial::Tokens(rate)) => RemoteReply::Tokens(rate),
            Err(Denial::Concurrency(rate)) => RemoteReply::Concurrency(rate),
            Err(Denial::Credit { available, held, rate }) => {
                let [available, held] = [available, held].map(Credits::pico);
                RemoteReply::Credit { available, held, rate }
            }
            Err(Denial::Quota { used, held, rate }) => {
                let [used, held] = [used, held].map(Credits::pico);
                RemoteReply::Quota { used, held, rate }
            }
            Err(Denial::Spent {
                spender,
                spent,
                held,
                rate,
            }) => {
                let [spent, held] = [spent, held].map(Credits::pico);
                RemoteReply::Spent {
                    is_end_users: spender == Spender::EndUser,
                    spent,
                    held,
                    rate,
                }
            }
            Err(Denial::EndUsers(rate)) => RemoteReply::EndUsers(rate),
            Err(Denial::Stopped(stop)) => RemoteReply::Stopped {
                is_closed: stop == AccountStop::Closed,
            },
        }
    }
}

impl From<RemoteReply> for Result<Granted, Denial> {
    fn from(reply: RemoteReply) -> Result<Granted, Denial> {
        let credits = Credits::from_pico;
        match reply {
            RemoteReply::Granted { amount, rate } => Ok(Granted {
                amount: credits(amount),
                rate,
            }),
            RemoteReply::Requests(rate) => Err(Denial::Requests(rate)),
            RemoteReply::Tokens(rate) => Err(Denial::Tokens(rate)),
            RemoteReply::Concurrency(rate) => Err(Denial::Concurrency(rate)),
            RemoteReply::Credit { available, held, rate } => {
                let [available, held] = [available, held].map(credits);
                Err(Denial::Credit { available, held, rate })
            }
            RemoteReply::Quota { used, held, rate } => {
                let [used, held] = [used, held].map(credits);
                Err(Denial::Quota { used, held, rate })
            }
            RemoteReply::Spent {
                is_end_users,
                spent,
                held,
                rate,
            } => {
                let [spent, held] = [spent, held].map(credits);
                let spender = if is_end_users { Spender::EndUser } else { Spender::Key };
                Err(Denial::Spent {
                    spender,
                    spent,
                    held,
                    rate,
                })
            }
            RemoteReply::EndUsers(rate) => Err(Denial::EndUsers(rate)),
            RemoteReply::Stopped { is_closed: true } => Err(Denial::Stopped(AccountStop::Closed)),
            RemoteReply::Stopped { is_closed: false } => Err(Denial::Stopped(AccountStop::Suspended)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::admin::{AdminOp, AdminReply};

    #[test]
    fn a_wish_to_raise_a_hold_and_its_answer_are_the_same_after_the_wire() {
        let range = HoldRange {
            wanted: Credits::from_pico(3),
            at_least: Credits::from_pico(2),
        };
        let limits = SpendLimits {
            key: KeyId::from("key_x".to_owned()),
            own: None,
            end_user: None,
        };
        for spend in [None, Some(limits)] {
            let id = RequestId::from_bytes([7; 16]);
            let wish = (id, &range, Credits::from_pico(9));
            let op = AdminOp::Extend(RemoteExtend::of("acme".parse().unwrap(), wish, spend.clone()));
            let text = serde_json::to_string(&op).unwrap();
            let AdminOp::Extend(read) = serde_json::from_str(&text).unwrap() else {
                panic!("{text}");
            };
            assert_eq!((read.account().as_str(), read.hold()), ("acme", id), "{text}");
            assert_eq!((read.range(), read.quota()), (range, Credits::from_pico(9)), "{text}");
            assert_eq!(read.limits(), spend.as_ref(), "{text}");
        }
        for extended in [Extended::To(Credits::from_pico(3)), Extended::Refused, Extended::Gone] {
            let text = serde_json::to_string(&AdminReply::Extended(extended.into())).unwrap();
            let AdminReply::Extended(read) = serde_json::from_str(&text).unwrap() else {
                panic!("{text}");
            };
            assert_eq!(Extended::from(read), extended, "{text}");
        }
    }

    #[test]
    fn an_answer_is_the_same_after_the_wire() {
        let rate = || RateView {
            limits: Limits {
                rpm: 6,
                tpm: 7,
                concurrency: 8,
            },
            remaining_requests: 9,
            remaining_tokens: 10,
            reset_ms: 11,
        };
        let credits = Credits::from_pico;
        let (available, spent, held, used) = (credits(1), credits(2), credits(3), credits(4));
        let spent_by = |spender| Denial::Spent {
            spender,
            spent,
            held,
            rate: rate(),
        };
        let denials = [
            Denial::Requests(rate()),
            Denial::Tokens(rate()),
            Denial::Concurrency(rate()),
            Denial::Credit {
                available,
                held,
                rate: rate(),
            },
            Denial::Quota {
                used,
                held,
                rate: rate(),
            },
            spent_by(Spender::Key),
            spent_by(Spender::EndUser),
            Denial::EndUsers(rate()),
            Denial::Stopped(AccountStop::Suspended),
            Denial::Stopped(AccountStop::Closed),
        ];
        let granted = Ok(Granted {
            amount: credits(5),
            rate: rate(),
        });
        for answer in denials.map(Err).into_iter().chain([granted]) {
            let text = serde_json::to_string(&RemoteReply::from(answer)).unwrap();
            let read: RemoteReply = serde_json::from_str(&text).unwrap();
            assert_eq!(Result::from(read), answer, "{text}");
        }
    }
}
