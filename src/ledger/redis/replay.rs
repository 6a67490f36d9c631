//! Settlements that Redis acknowledged a short while ago: it may still lose them.
//!
//! A Redis that restarts or fails over can come back without its last moments. Then these are sent again, which changes nothing
//! where they are not missing. Until then they stand in the journal, so that a gateway that ends in the same minute as its Redis loses
//! nothing either, whether it dies or is stopped: whoever starts next finds them there.

use std::collections::VecDeque;
use std::time::Duration;

use super::account::Account;
use super::admission_breaker::millis;
use super::queue::QueuedDebit;
use crate::pure::numbers::ProducerId;

/// The settlements of the last while, oldest first.
#[derive(Debug)]
pub(super) struct ReplayBuffer {
    acknowledged: VecDeque<(u64, QueuedDebit)>,
    keep: Duration,
    most: usize,
}

impl ReplayBuffer {
    /// Keeps at most so many. Each shard has a ring, so that nothing is pushed out by what another acknowledges.
    pub(super) fn new(keep: Duration, most: usize) -> ReplayBuffer {
        ReplayBuffer {
            acknowledged: VecDeque::new(),
            keep,
            most,
        }
    }

    /// Keeps a settlement acknowledged at `now_ms`. When this ends, it stays in the journal.
    pub(super) fn push(&mut self, mut debit: QueuedDebit, now_ms: u64) {
        self.tend(now_ms);
        while self.acknowledged.len() >= self.most {
            self.let_go();
        }
        // It would keep the memory of the call's task as long, and saves Redis work only where the hold is there.
        debit.known = None;
        self.acknowledged.push_back((now_ms, debit));
    }

    /// Lets go of what is old enough at `now_ms`, when the servers that acknowledged it are known to live. Nothing grows old while they
    /// are not.
    pub(super) fn tend(&mut self, now_ms: u64) {
        let oldest = now_ms.saturating_sub(millis(self.keep));
        while self.acknowledged.front().is_some_and(|(at, _)| *at < oldest) {
            self.let_go();
        }
    }

    /// Takes everything, oldest first.
    pub(super) fn take_all(&mut self) -> Vec<QueuedDebit> {
        self.acknowledged.drain(..).map(|(_, debit)| doubted(debit)).collect()
    }

    /// Takes those that are another's now, oldest first.
    pub(super) fn take_those(&mut self, is_taken: impl Fn(&QueuedDebit) -> bool) -> Vec<QueuedDebit> {
        let (taken, kept): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.acknowledged)
            .into_iter()
            .partition(|(_, debit)| is_taken(debit));
        self.acknowledged = kept;
        taken.into_iter().map(|(_, debit)| doubted(debit)).collect()
    }

    /// Takes these of an account's settlements, as far as they are here.
    pub(super) fn take(&mut self, account: &Account, producer: ProducerId, numbers: &[u64]) -> Vec<QueuedDebit> {
        self.take_those(|debit| {
            debit.account.id() == account.id()
                && debit.number.producer == producer
                && numbers.contains(&debit.number.number)
        })
    }

    fn let_go(&mut self) {
        if let Some((_, mut debit)) = self.acknowledged.pop_front() {
            debit.entry.close();
        }
    }
}

/// Redis may have lost it.
fn doubted(mut debit: QueuedDebit) -> QueuedDebit {
    debit.entry.doubted();
    debit.is_doubted = true;
    debit
}

/// Settlements that all shards together keep at most, half of a journal: those of six seconds from a gateway that keeps one Redis busy by
/// itself. Redis loses two at most when it runs as conf/README.md says. With what its receipt says, and its slot in the journal, each takes
/// some two kilobytes: a gateway that keeps so many has 320 to 380 MiB.
pub(super) const RING_MAX: usize = 131_072;
