//! What Redis answered to a batch: what is let go of, what is sent again, and what to do when Redis misses something.

use std::collections::HashMap;
use std::sync::Arc;

use redis::Value;

use super::{LATER, Outcome, Settler};
use crate::pure::account::{ProducerId, Settled};
use crate::pure::ids::{AccountId, RequestId};
use crate::pure::money::Credits;
use crate::store::StoreError;
use crate::store::journal::Entry;
use crate::store::redis::account::Account;
use crate::store::redis::guard::millis;
use crate::store::redis::link::{is_unknown_script, needs_another};
use crate::store::redis::queue::{QueuedDebit, ReleaseKind, Work};
use crate::store::redis::script::By;
use crate::store::redis::{fresh_producer, reply};

impl Settler {
    /// Lets go of what is acknowledged and keeps the rest in front, in order.
    pub(super) fn read_answers(&mut self, batch: Vec<Work>, answers: Vec<Option<Value>>, number: u64) -> Outcome {
        let mut answers = answers.into_iter();
        let mut kept: Vec<Work> = Vec::new();
        let mut gaps: HashMap<AccountId, (ProducerId, u64)> = HashMap::new();
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
                    if self.read_settled(debit, settled, &mut kept, &mut gaps) {
                        outcome = Outcome::Progress;
                    }
                }
                Work::Release {
                    account,
                    hold,
                    kind,
                    entry,
                } => match answer {
                    Some(_) => {
                        outcome = Outcome::Progress;
                        self.released(account, hold, kind, entry);
                    }
                    None => kept.push(Work::Release {
                        account,
                        hold,
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
        for (account, (producer, expected)) in gaps {
            self.fill_gap(&account, producer, expected);
        }
        if self.by == By::Text {
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
                    self.by = By::Text;
                } else {
                    log::warn!("Redis does not take a settlement or release: {error}");
                }
                if needs_another(&error) {
                    self.link.give_up(number);
                }
                None
            }
        }
    }

    /// Whether the settlement is acknowledged; else it is kept.
    fn read_settled(
        &mut self,
        mut debit: QueuedDebit,
        settled: Option<Result<Option<Settled>, StoreError>>,
        kept: &mut Vec<Work>,
        gaps: &mut HashMap<AccountId, (ProducerId, u64)>,
    ) -> bool {
        let now = self.core.guard.now_ms();
        match settled {
            Some(Ok(Some(Settled::Now { .. } | Settled::Already))) => {
                debit.account.end();
                self.core.queue.settled();
                debit.entry.close();
                if debit.sequence == 1 {
                    self.met.push(Arc::clone(&debit.account));
                }
                self.ring.push(debit, now);
                return true;
            }
            Some(Ok(Some(Settled::Gap { expected }))) => {
                gaps.entry(debit.account.id().clone())
                    .or_insert((debit.producer, expected));
                kept.push(Work::Settle(debit));
            }
            Some(Ok(Some(Settled::OutOfRange))) => {
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
                let due = self.core.guard.now_ms().saturating_add(millis(LATER));
                let kind = ReleaseKind::Again;
                self.later.push((
                    due,
                    Work::Release {
                        account,
                        hold,
                        kind,
                        entry,
                    },
                ));
            }
            ReleaseKind::Again => entry.close(),
        }
    }

    /// Redis misses a settlement that comes before one that it was sent.
    fn fill_gap(&mut self, account: &AccountId, producer: ProducerId, expected: u64) {
        let is_it = |work: &Work| match work {
            Work::Settle(debit) => {
                debit.sequence == expected && debit.producer == producer && debit.account.id() == account
            }
            Work::Release { .. } | Work::Barrier { .. } => false,
        };
        if self.backlog.iter().any(is_it) {
            // It had no good answer either, or stands behind: they go first next time, in order.
            let mine =
                |work: &Work| matches!(work, Work::Settle(d) if d.producer == producer && d.account.id() == account);
            let (mut first, others): (Vec<Work>, Vec<Work>) =
                std::mem::take(&mut self.backlog).into_iter().partition(mine);
            first.sort_by_key(|work| match work {
                Work::Settle(debit) => debit.sequence,
                Work::Release { .. } | Work::Barrier { .. } => 0,
            });
            self.backlog = others.into();
            self.put_in_front(first);
            return;
        }
        if self.later.iter().any(|(_, work)| is_it(work)) {
            // It waits, so they all wait.
            let due = self.core.guard.now_ms().saturating_add(millis(LATER));
            let (of_account, others): (Vec<Work>, Vec<Work>) = std::mem::take(&mut self.backlog)
                .into_iter()
                .partition(|work| matches!(work, Work::Settle(debit) if debit.account.id() == account));
            self.backlog = others.into();
            self.later.extend(of_account.into_iter().map(|work| (due, work)));
            return;
        }
        let known = self.ring.has(account, producer, expected);
        let again = self.ring.take_from(account, producer, expected);
        log::warn!("Redis has lost settlements of {account} from number {expected} on; they are sent again");
        self.send_again(again);
        if !known {
            self.restart_numbers(account, producer, expected);
        }
    }

    /// Settlements that Redis misses are not kept here any more (or Redis has forgotten a producer that was silent for long):
    /// those that are here get numbers of their own. Redis has taken none of them under their old numbers, and never will.
    fn restart_numbers(&mut self, account: &AccountId, old: ProducerId, expected: u64) {
        let Ok(new) = fresh_producer() else {
            return; // Tried again with the next answer.
        };
        let mine = |work: &&mut Work| matches!(work, Work::Settle(d) if d.producer == old && d.account.id() == account);
        let mut first = u64::MAX;
        let debits = self.backlog.iter_mut().filter(mine).filter_map(|work| match work {
            Work::Settle(debit) => {
                first = first.min(debit.sequence);
                Some(debit)
            }
            Work::Release { .. } | Work::Barrier { .. } => None,
        });
        self.core.queue.renumber(account, old, new, debits);
        if expected > 1 {
            log::error!(
                "MONEY: Redis has lost the settlements {expected} to {} of {account} for good",
                first - 1
            );
        }
    }
}
