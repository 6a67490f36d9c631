//! The producer of a process: who gives the numbers that calls are billed under.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::StoreError;
use crate::pure::numbers::{Birth, CallNumber, Numbering, ProducerId, RULES};
use crate::pure::time::Timestamp;

/// The producer of the moment. A process begins with a new one, so that its numbers never continue another's.
#[derive(Debug)]
pub(super) struct Producer(AtomicU64);

/// Gives the calls of one account their numbers.
#[derive(Debug, Default)]
pub(super) struct AccountNumbers(Mutex<Numbering>);

impl Producer {
    /// A new one, born at `now` by the ledger's clock.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub(super) fn new(now: Timestamp) -> Result<Producer, StoreError> {
        Ok(Producer(AtomicU64::new(fresh(Birth::at(now))?.0)))
    }

    /// Who gives numbers now.
    pub(super) fn current(&self) -> ProducerId {
        ProducerId(self.0.load(Ordering::Acquire))
    }

    /// Another one from now on, younger than those that an account has forgotten.
    fn renew(&self, now: Timestamp, forgotten: Option<Birth>) {
        match fresh((RULES.born)(Birth::at(now), forgotten)) {
            Ok(producer) => self.0.store(producer.0, Ordering::Release),
            Err(error) => log::error!("there is no new producer of numbers, the one before goes on: {error}"),
        }
    }

    /// The same, unless the one of the moment is young enough.
    pub(super) fn renew_after(&self, now: Timestamp, forgotten: Birth) {
        if self.current().born() <= forgotten {
            self.renew(now, Some(forgotten));
        }
    }

    /// Another one from now on when this one has given numbers for long enough.
    pub(super) fn renew_when_old(&self, now: Timestamp) {
        if self.current().is_old(now) {
            self.renew(now, None);
        }
    }
}

impl AccountNumbers {
    /// The account's next number.
    pub(super) fn next(&self, producer: &Producer) -> CallNumber {
        let mut numbering = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Asked for under the lock: a producer that was replaced does not come back.
        numbering.next(producer.current())
    }
}

fn fresh(born: Birth) -> Result<ProducerId, StoreError> {
    let mut bytes = [0u8; 4];
    getrandom::fill(&mut bytes).map_err(|error| StoreError::Unavailable(format!("no random numbers: {error}")))?;
    Ok(ProducerId::new(born, u32::from_le_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_795_132_800_000);

    #[test]
    fn a_producer_is_replaced_when_it_is_no_younger_than_what_was_forgotten() {
        let producer = Producer::new(NOW).unwrap();
        let first = producer.current();
        assert_eq!(first.born(), Birth::at(NOW));
        producer.renew_after(NOW, Birth::at(NOW.plus_millis(-1_000)));
        assert_eq!(producer.current(), first);
        // Whatever this process' clock says, the next one is younger.
        producer.renew_after(NOW.plus_millis(-60_000), Birth::at(NOW));
        assert!(producer.current().born() > Birth::at(NOW));
    }

    #[test]
    fn a_producer_is_replaced_when_it_is_old_and_its_numbers_begin_anew() {
        let producer = Producer::new(NOW).unwrap();
        let numbers = AccountNumbers::default();
        let [one, two] = [(); 2].map(|()| numbers.next(&producer));
        assert_eq!((one.number, two.number), (1, 2));
        producer.renew_when_old(NOW.plus_millis(3_600_000));
        assert_eq!(numbers.next(&producer).producer, one.producer);
        let later = NOW.plus_millis(100 * 86_400_000);
        producer.renew_when_old(later);
        let next = numbers.next(&producer);
        assert_ne!(next.producer, one.producer);
        assert_eq!((next.born, next.number), (Birth::at(later), 1));
    }
}
