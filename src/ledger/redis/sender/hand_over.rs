//! What a shard of a cluster still has of an account whose slot is another's by now: after a fail-over, or when slots have moved.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Settler;
use crate::ledger::redis::account::Account;
use crate::ledger::redis::queue::Work;
use crate::ledger::redis::replay::RING_MAX;

impl Settler {
    /// Hands what belongs to another shard by now over to it. What this one acknowledged of it is sent there once more: it may have become
    /// the master without it.
    pub(super) fn hand_over(&mut self) {
        let shared = Arc::clone(&self.shared);
        let (number, now) = (self.shard.number, self.shared.now_ms());
        let is_others = |account: &Account| shared.shards.of(account).number != number;
        // Before the generation: whoever sees a new share sees whose the slots are with it, too.
        let share = shared.shards.share(RING_MAX);
        let generation = shared.shards.generation();
        if generation != self.generation {
            self.generation = generation;
            self.replaced_ms = Some(now);
            for mut debit in self.ring.take_those(|debit| is_others(&debit.account)) {
                let owner = shared.shards.of(&debit.account);
                debit.account.begin();
                debit.account.queues_at(owner.number);
                debit.queued_ms = now.max(1);
                owner.queue.put(Work::Settle(debit), now);
            }
            for released in self.ring.take_released(|released| is_others(&released.account)) {
                let owner = shared.shards.of(&released.account);
                released.account.queues_at(owner.number);
                owner.queue.put(released.again(), now);
            }
        }
        // After what is another's by now has left it, which another master may not have.
        self.ring.keep_at_most(share);
        let is_mine = |work: &Work| shared.shards.of_slot(work.slot()).number == number;
        let mut others: VecDeque<Work> = VecDeque::new();
        if !self.backlog.iter().all(is_mine) {
            (self.backlog, others) = std::mem::take(&mut self.backlog).into_iter().partition(is_mine);
        }
        for work in &mut others {
            // How long its slot took to move is nothing to the accounts of its owner.
            if let Work::Settle(debit) = work
                && debit.account.waits_since_ms().is_some()
            {
                debit.queued_ms = now.max(1);
            }
        }
        // Behind those in front: who waits for all that happened before may be among them.
        others.extend(self.moving.take_those(is_others, now));
        for work in others {
            let owner = shared.shards.of_slot(work.slot());
            match &work {
                Work::Settle(debit) => {
                    debit.account.queues_at(owner.number);
                    self.shard.queue.settled();
                }
                Work::Release { account, .. } => account.queues_at(owner.number),
                Work::Barrier { .. } => {}
            }
            owner.queue.put(work, now);
        }
    }
}
