//! The reasons for ending a stream early, and how the ledger's refusals become one.

use crate::ledger::Uncovered;
use crate::pure::error::AccountStop;

/// Why a stream is given its end before the upstream ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum EarlyEnd {
    /// It has reached its client's maximum.
    Maximum,
    /// It has used what is held, or that is gone, and there is no more credit.
    NoCredit,
    /// It has used what is held, or that may be gone, and the ledger cannot say whether there is more.
    NoAnswer,
    /// Its account was stopped, and that ends its calls.
    Stopped(AccountStop),
}

impl EarlyEnd {
    /// Whether its client is told of an error: the answer is not there, and nothing is owed where nothing of it was delivered.
    pub(in crate::gateway) fn is_refusal(self) -> bool {
        match self {
            EarlyEnd::Maximum => false,
            EarlyEnd::NoCredit | EarlyEnd::NoAnswer | EarlyEnd::Stopped(_) => true,
        }
    }
}

impl From<Uncovered> for EarlyEnd {
    fn from(why: Uncovered) -> EarlyEnd {
        match why {
            Uncovered::NoCredit => EarlyEnd::NoCredit,
            Uncovered::NoAnswer => EarlyEnd::NoAnswer,
            Uncovered::Stopped(why) => EarlyEnd::Stopped(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::billing::tests::rig::{Books, STREAM, call_of};

    /// Their outcome tells an outage of the ledger from what is meant.
    #[test]
    fn only_a_stream_that_is_ended_since_the_ledger_does_not_answer_lacks_it() {
        let books = Books::with("10");
        let mut ctx = books.call(1, &STREAM);
        for (end, expected) in [
            (None, false),
            (Some(EarlyEnd::Maximum), false),
            (Some(EarlyEnd::NoCredit), false),
            (Some(EarlyEnd::Stopped(AccountStop::Suspended)), false),
            (Some(EarlyEnd::NoAnswer), true),
        ] {
            call_of(&mut ctx).early_end = end;
            assert_eq!(call_of(&mut ctx).lacks_ledger(), expected, "{end:?}");
        }
    }
}
