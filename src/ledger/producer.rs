//! The producer of a process: who gives the numbers that calls are billed under.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::StoreError;
use crate::pure::numbers::{Birth, CallNumber, Numbering, ProducerId, RULES};
use crate::pure::time::Timestamp;

/// The producer of the moment. A process begins with a new one, so that its numbers never continue another's.
#[derive(Debug)]
pub(super) struct Producer {
    current: AtomicU64,
    /// When the youngest was born that accounts have forgotten, as far as they have said so; 0 until one has.
    forgotten: AtomicU32,
}

/// Gives the calls of one account their numbers.
#[derive(Debug, Default)]
pub(super) struct AccountNumbers(Mutex<Numbering>);

impl Producer {
    /// A new one, born at `now` by the ledger's clock.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub(super) fn new(now: Timestamp) -> Result<Producer, StoreError> {
        Ok(Producer {
            current: AtomicU64::new(fresh(Birth::at(now))?.0),
            forgotten: AtomicU32::new(0),
        })
    }

    /// Another one, born at `now`: the ledger has said what time it is before this one gave a number.
    ///
    /// # Errors
    /// As [`Producer::new`].
    pub(super) fn born_at(&self, now: Timestamp) -> Result<(), StoreError> {
        self.current.store(fresh(Birth::at(now))?.0, Ordering::Release);
        Ok(())
    }

    /// Who gives numbers now.
    pub(super) fn current(&self) -> ProducerId {
        ProducerId(self.current.load(Ordering::Acquire))
    }

    /// When one is born that is made at `now`: later than those that accounts have forgotten.
    fn birth(&self, now: Timestamp) -> Birth {
        let forgotten = Birth(self.forgotten.load(Ordering::Acquire));
        (RULES.born)(Birth::at(now), Some(forgotten))
    }

    /// Another one from now on.
    fn renew(&self, now: Timestamp) {
        match fresh(self.birth(now)) {
            Ok(producer) => self.current.store(producer.0, Ordering::Release),
            Err(error) => log::error!("there is no new producer of numbers, the one before goes on: {error}"),
        }
    }

    /// The same where the one of the moment is no younger than what an account has forgotten.
    pub(super) fn renew_after(&self, now: Timestamp, forgotten: Birth) {
        self.forgotten.fetch_max(forgotten.0, Ordering::AcqRel);
        if self.current().born() <= forgotten {
            self.renew(now);
        }
    }

    /// The same when this one has given numbers for long enough, or was born by a clock that was ahead: once it was forgotten, all others would
    /// be taken for forgotten too.
    pub(super) fn renew_when_old(&self, now: Timestamp) {
        let current = self.current();
        let ahead = i64::from(current.born().0).saturating_sub(i64::from(self.birth(now).0));
        if current.is_old(now) || ahead > AHEAD_SECS_MAX {
            self.renew(now);
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

    /// Whether the account's numbers are this one's now: it gave the last.
    pub(super) fn are_of(&self, producer: ProducerId) -> bool {
        let numbering = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        numbering.producer() == Some(producer)
    }
}

fn fresh(born: Birth) -> Result<ProducerId, StoreError> {
    let mut bytes = [0u8; 4];
    getrandom::fill(&mut bytes).map_err(|error| StoreError::Unavailable(format!("no random numbers: {error}")))?;
    Ok(ProducerId::new(born, u32::from_le_bytes(bytes)))
}

/// So much later than now one may be born, in seconds: what is known of the ledger's time goes up and down a little.
const AHEAD_SECS_MAX: i64 = 60;

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
    #[test]
    fn a_producer_that_was_born_ahead_is_replaced_but_by_none_that_was_forgotten() {
        let ahead = NOW.plus_millis(400 * 86_400_000);
        let producer = Producer::new(ahead).unwrap();
        producer.renew_when_old(ahead.plus_millis(-AHEAD_SECS_MAX * 1_000));
        assert_eq!(producer.current().born(), Birth::at(ahead));
        producer.renew_when_old(NOW);
        assert_eq!(producer.current().born(), Birth::at(NOW));
        // An account knows only younger ones: the next is born when those have been.
        let forgotten = Birth::at(NOW.plus_millis(86_400_000));
        producer.renew_after(NOW, forgotten);
        let younger = producer.current();
        assert_eq!(younger.born(), Birth(forgotten.0 + 1));
        producer.renew_when_old(NOW);
        producer.renew_after(NOW, Birth::at(NOW));
        assert_eq!(producer.current(), younger);
    }

    #[test]
    fn before_its_first_number_a_producer_is_born_when_the_ledger_says() {
        let producer = Producer::new(NOW).unwrap();
        let earlier = NOW.plus_millis(-60 * 86_400_000);
        producer.born_at(earlier).unwrap();
        assert_eq!(producer.current().born(), Birth::at(earlier));
    }
}
