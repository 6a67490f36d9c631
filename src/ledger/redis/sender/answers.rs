//! What Redis answered to a batch: what is let go of, what is sent again, and what to do when Redis misses something or has forgotten.

use std::sync::Arc;

use redis::Value;

use super::{LATER, Outcome, Settler};
use crate::ledger::StoreError;
use crate::ledger::journal::Entry;
use crate::ledger::redis::account::Account;
use crate::ledger::redis::admission_breaker::millis;
use crate::ledger::redis::link::{is_unknown_script, needs_another};
use crate::ledger::redis::queue::{Origin, QueuedDebit, ReleaseKind, Work};
use crate::ledger::redis::receipts;
use crate::ledger::redis::reply;
use crate::ledger::redis::reply::SettledWith;
use crate::ledger::redis::script::EvalMode;
use crate::pure::account::Settled;
use crate::pure::ids::RequestId;
use crate::pure::money::Credits;
use crate::pure::numbers::{Birth, ProducerId, RULES};

impl Settler {
    /// Lets go of what is acknowledged and keeps the rest in front, in order.
    pub(super) fn read_answers(&mut self, batch: Vec<Work>, answers: Vec<Option<Value>>, number: u64) -> Outcome {
        let mut answers = answers.into_iter();
        let mut kept: Vec<Work> = Vec::new();
        let mut lost: Vec<Lost> = Vec::new();
        let mut outcome = Outcome::Nothing;
        for work in batch {
            let answer = match work {
                Work::Settle(_) | Work::Release { .. } => answers.next().flatten(),
                Work::Barrier { .. } => None,
            };
            let answer = answer.and_then(|value| self.good(value, number));
            match work {
                Work::Settle(debit) => {
                    let settled = answer.map(|value| reply::settled(&value));
                    if self.read_settled(debit, settled, &mut kept, &mut lost) {
                        outcome = Outcome::Progress;
                    }
                }
                Work::Release {
                    account,
                    hold,
                    number,
                    kind,
                    entry,
                } => match answer {
                    Some(_) => {
                        outcome = Outcome::Progress;
                        // One that was doubtful may be a dead process': these are this one's.
                        if let Some(number) = number
                            && kind == ReleaseKind::Sure
                        {
                            account.acknowledge(number);
                        }
                        self.released(account, hold, kind, entry);
                    }
                    None => kept.push(Work::Release {
                        account,
                        hold,
                        number,
                        kind,
                        entry,
                    }),
                },
                Work::Barrier { account, reached } => {
                    if kept.iter().any(|work| work.is_of(&account)) {
                        kept.push(Work::Barrier { account, reached });
                    } else {
                        outcome = Outcome::Progress;
                        if reached.send(()).is_err() {
                            log::trace!("whoever waited for {account} has gone");
                        }
                    }
                }
            }
        }
        self.put_in_front(kept);
        for (account, producer, numbers) in lost {
            self.send_lost(&account, producer, &numbers);
        }
        if self.by == EvalMode::Text {
            outcome = Outcome::Progress;
        }
        outcome
    }

    /// The answer, unless it is an error.
    fn good(&mut self, value: Value, number: u64) -> Option<Value> {
        match value.extract_error() {
            Ok(value) => Some(value),
            Err(error) => {
                if is_unknown_script(&error) {
                    self.by = EvalMode::Text;
                } else {
                    log::warn!("Redis does not take a settlement or release: {error}");
                }
                if needs_another(&error) {
                    self.line.give_up(number);
                }
                None
            }
        }
    }

    /// Whether the settlement is acknowledged; else it is kept.
    pub(super) fn read_settled(
        &mut self,
        mut debit: QueuedDebit,
        settled: Option<Result<Option<SettledWith>, StoreError>>,
        kept: &mut Vec<Work>,
        lost: &mut Vec<Lost>,
    ) -> bool {
        let now = self.shared.now_ms();
        match settled {
            Some(Ok(Some(SettledWith {
                settled: Settled::Now { .. } | Settled::Already,
                opened,
                at,
            }))) => {
                let producer = debit.number.producer;
                let known = opened.map(|run| debit.account.acknowledged(producer, run));
                if let Some(known) = known.filter(|known| !known.is_empty()) {
                    lost.push((Arc::clone(&debit.account), producer, known));
                }
                if debit.origin == Origin::Own {
                    debit.account.acknowledge(debit.number);
                }
                debit.account.end();
                self.shard.queue.settled();
                if debit.number.number == 1 {
                    self.met.push(Arc::clone(&debit.account));
                }
                receipts::write_out(&self.shared, &mut debit, at);
                self.ring.push(debit, now);
                return true;
            }
            Some(Ok(Some(SettledWith {
                settled: Settled::Stale { forgotten },
                ..
            }))) => {
                self.stale(debit, forgotten, kept);
                return true;
            }
            Some(Ok(Some(SettledWith {
                settled: Settled::OutOfRange,
                ..
            }))) => {
                let (account, cost) = (debit.account.id(), debit.debit.cost);
                log::error!(
                    "MONEY: the debit of request {} ({cost}) would take {account} out of its range; it is taken as 0",
                    debit.hold
                );
                debit.debit.cost = Credits::ZERO;
                kept.push(Work::Settle(debit));
            }
            Some(Ok(None)) => {
                let account = debit.account.id();
                log::error!("MONEY: the account {account} is not in Redis; its settlements wait");
                self.later
                    .push((now.saturating_add(millis(LATER)), Work::Settle(debit)));
            }
            Some(Err(error)) => {
                log::error!("MONEY: a settlement's answer cannot be read: {error}");
                kept.push(Work::Settle(debit));
            }
            None => kept.push(Work::Settle(debit)),
        }
        false
    }

    fn released(&mut self, account: Arc<Account>, hold: RequestId, kind: ReleaseKind, mut entry: Entry) {
        match kind {
            ReleaseKind::Sure => {
                account.end();
                entry.close();
            }
            ReleaseKind::Doubtful => {
                account.end();
                let due = self.shared.now_ms().saturating_add(millis(LATER));
                let kind = ReleaseKind::Again;
                self.later.push((
                    due,
                    Work::Release {
                        account,
                        hold,
                        number: None,
                        kind,
                        entry,
                    },
                ));
            }
            ReleaseKind::Again => entry.close(),
        }
    }

    /// Redis has forgotten the producer of a settlement, and cannot tell whether it was taken before. One that it cannot have taken gets
    /// another number; any other is kept for the operator to look at.
    fn stale(&self, mut debit: QueuedDebit, forgotten: Birth, kept: &mut Vec<Work>) {
        if debit.origin == Origin::Own && (RULES.may_renumber)(debit.sent) {
            self.shared.producer.renew_after(self.shared.redis_now(), forgotten);
            debit.number = debit.account.numbers.next(&self.shared.producer);
            debit.sent = 0;
            debit.entry.owe(&debit.debit, debit.number);
            kept.push(Work::Settle(debit));
            return;
        }
        log::error!(
            "MONEY: the debit of request {} ({}) comes too late to know whether it was taken before: it is not taken, its journal is kept",
            debit.hold,
            debit.debit.cost
        );
        debit.account.end();
        self.shard.queue.settled();
        debit.entry.suspend();
    }

    /// Redis has lost settlements that it had acknowledged.
    pub(super) fn send_lost(&mut self, account: &Account, producer: ProducerId, numbers: &[u64]) {
        let again = self.ring.take(account, producer, numbers);
        let (id, count) = (account.id(), numbers.len());
        log::warn!("Redis has lost {count} settlements of {id}; they are sent again");
        if again.len() < count {
            // A slot that has just come to this shard: those that its master before acknowledged may be handed over in a moment.
            let unless = match self.shared.shards.is_cluster() {
                true => ", unless they are handed over by the slot's master before",
                false => "",
            };
            log::error!(
                "MONEY: Redis has lost {} settlements of {id} for good{unless}",
                count - again.len()
            );
        }
        self.send_again(again);
    }
}

/// Numbers of an account that Redis had acknowledged and does not know.
type Lost = (Arc<Account>, ProducerId, Vec<u64>);
