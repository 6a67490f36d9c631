//! The calls of an account that end when its operator stops it: only those of a gateway that is configured so.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::ledger::cover::{Cover, Uncovered};
use crate::pure::error::AccountStop;

/// What such calls look at.
#[derive(Debug, Default)]
pub(super) struct Stoppable(Mutex<Covers>);

#[derive(Debug, Default)]
struct Covers {
    of_calls: Vec<Weak<Cover>>,
    /// How many there may be before those of calls that have ended are left out.
    looked_through_at: usize,
}

impl Stoppable {
    /// A call runs.
    pub(super) fn add(&self, cover: &Arc<Cover>) {
        let mut covers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if covers.of_calls.len() >= covers.looked_through_at.max(FEW) {
            covers.of_calls.retain(|cover| cover.strong_count() > 0);
            covers.looked_through_at = covers.of_calls.len().saturating_mul(2);
        }
        covers.of_calls.push(Arc::downgrade(cover));
    }

    /// Whether one of them runs.
    pub(super) fn runs(&self) -> bool {
        let covers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        covers.of_calls.iter().any(|cover| cover.strong_count() > 0)
    }

    /// The account is stopped.
    pub(super) fn end(&self, why: AccountStop) {
        let covers = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for cover in covers.of_calls.iter().filter_map(Weak::upgrade) {
            cover.end(Uncovered::Stopped(why));
        }
    }
}

const FEW: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_have_ended_are_left_out_and_the_others_end() {
        let stoppable = Stoppable::default();
        let count = || stoppable.0.lock().unwrap().of_calls.len();
        assert!(!stoppable.runs());
        let mut most = 0;
        for _ in 0..FEW * 10 {
            stoppable.add(&Arc::new(Cover::of(None)));
            assert!(count() <= FEW, "nothing is kept of so many that have ended");
            most = most.max(count());
        }
        assert_eq!(most, FEW, "not each call looks through all of them");
        assert!(!stoppable.runs());
        // As many as run are kept, however many they are.
        let running: Vec<_> = (0..FEW * 10).map(|_| Arc::new(Cover::of(None))).collect();
        running.iter().for_each(|cover| stoppable.add(cover));
        assert!(stoppable.runs());
        stoppable.end(AccountStop::Suspended);
        for cover in &running {
            assert_eq!(cover.ended(), Some(Uncovered::Stopped(AccountStop::Suspended)));
        }
        assert!(!stoppable.runs(), "they are not looked at again");
    }
}
