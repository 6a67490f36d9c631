//! Settlements that Redis acknowledged a short while ago: it may still lose them.
//!
//! A Redis that restarts or fails over can come back without its last moments. Then these are sent again, which changes nothing
//! where they are not missing.

use std::collections::VecDeque;
use std::time::Duration;

use super::guard::millis;
use super::queue::QueuedDebit;
use crate::pure::account::ProducerId;
use crate::pure::ids::AccountId;

/// The settlements of the last while, oldest first.
#[derive(Debug)]
pub(super) struct Ring {
    acknowledged: VecDeque<(u64, QueuedDebit)>,
    keep: Duration,
}

impl Ring {
    pub(super) fn new(keep: Duration) -> Ring {
        Ring {
            acknowledged: VecDeque::new(),
            keep,
        }
    }

    /// Keeps a settlement acknowledged at `now_ms`, and lets go of those that are old enough. Nothing grows old while Redis
    /// acknowledges nothing.
    pub(super) fn push(&mut self, debit: QueuedDebit, now_ms: u64) {
        let oldest = now_ms.saturating_sub(millis(self.keep));
        while self.acknowledged.len() >= RING_MAX || self.acknowledged.front().is_some_and(|(at, _)| *at < oldest) {
            self.acknowledged.pop_front();
        }
        self.acknowledged.push_back((now_ms, debit));
    }

    /// Takes everything, oldest first.
    pub(super) fn take_all(&mut self) -> Vec<QueuedDebit> {
        self.acknowledged.drain(..).map(|(_, debit)| debit).collect()
    }

    /// Takes the settlements of an account and producer from a number on, in order.
    pub(super) fn take_from(&mut self, account: &AccountId, producer: ProducerId, from: u64) -> Vec<QueuedDebit> {
        let (taken, kept) = std::mem::take(&mut self.acknowledged)
            .into_iter()
            .partition(|(_, debit)| {
                debit.account.id() == account && debit.producer == producer && debit.sequence >= from
            });
        self.acknowledged = kept;
        let mut taken: Vec<QueuedDebit> = VecDeque::into_iter(taken).map(|(_, debit)| debit).collect();
        taken.sort_by_key(|debit| debit.sequence);
        taken
    }

    /// Whether the settlement of this number is here.
    pub(super) fn has(&self, account: &AccountId, producer: ProducerId, sequence: u64) -> bool {
        self.acknowledged
            .iter()
            .any(|(_, debit)| debit.sequence == sequence && debit.producer == producer && debit.account.id() == account)
    }
}

/// Settlements that are kept at most, about 20 MB: those of six seconds from a gateway that keeps one Redis busy by itself. Redis loses
/// two at most when it runs as README says.
const RING_MAX: usize = 131_072;
