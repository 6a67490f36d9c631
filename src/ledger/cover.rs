//! Whether the credit of a running call is still set aside: a store whose holds expire says when it no longer can be sure.
//!
//! A call ends before the ledger may give its credit to another: that is what makes a hold worth something when a gateway and its store
//! lose sight of each other. And whether its account was stopped, where that is to end its calls.

use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use futures::task::AtomicWaker;

use crate::pure::error::AccountStop;
use crate::pure::spend::EndUser;

/// Why a call is no longer covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uncovered {
    /// Its hold is gone, and there is no credit for another.
    NoCredit,
    /// Its hold could not be renewed in time: the store does not answer.
    NoAnswer,
    /// Its account was stopped, and its gateway is configured to end such calls.
    Stopped(AccountStop),
}

/// What the store tells a running call.
#[derive(Debug, Default)]
pub(crate) struct Cover {
    state: AtomicU8,
    call: AtomicWaker,
    /// Under whose limit it counts beside its key's: here, for few calls have one, and what few have is in boxes.
    pub(super) end_user: Option<EndUser>,
}

impl Cover {
    /// That of a call of this end user.
    pub(super) fn of(end_user: Option<EndUser>) -> Cover {
        Cover {
            end_user,
            ..Cover::default()
        }
    }

    /// The call is to end.
    pub(crate) fn end(&self, why: Uncovered) {
        let state = match why {
            Uncovered::NoCredit => NO_CREDIT,
            Uncovered::NoAnswer => NO_ANSWER,
            Uncovered::Stopped(AccountStop::Suspended) => SUSPENDED,
            Uncovered::Stopped(AccountStop::Closed) => CLOSED,
        };
        self.state.store(state, Ordering::Release);
        self.call.wake();
    }

    /// Ready once the call has to end.
    pub(super) fn poll_ended(&self, context: &mut Context<'_>) -> Poll<Uncovered> {
        self.call.register(context.waker());
        self.ended().map_or(Poll::Pending, Poll::Ready)
    }

    /// Why the call has to end, once it has to.
    pub(super) fn ended(&self) -> Option<Uncovered> {
        match self.state.load(Ordering::Acquire) {
            COVERED => None,
            NO_CREDIT => Some(Uncovered::NoCredit),
            SUSPENDED => Some(Uncovered::Stopped(AccountStop::Suspended)),
            CLOSED => Some(Uncovered::Stopped(AccountStop::Closed)),
            _ => Some(Uncovered::NoAnswer),
        }
    }
}

const COVERED: u8 = 0;
const NO_CREDIT: u8 = 1;
const NO_ANSWER: u8 = 2;
const SUSPENDED: u8 = 3;
const CLOSED: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_has_to_end_says_why() {
        let cover = Cover::of(None);
        assert_eq!(cover.ended(), None);
        for why in [
            Uncovered::NoCredit,
            Uncovered::NoAnswer,
            Uncovered::Stopped(AccountStop::Suspended),
            Uncovered::Stopped(AccountStop::Closed),
        ] {
            cover.end(why);
            assert_eq!(cover.ended(), Some(why));
        }
    }
}
