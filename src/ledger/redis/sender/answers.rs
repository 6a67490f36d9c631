//! What Redis answered to a batch: what is let go of, what is sent again, and what to do when Redis misses something or has forgotten.

use std::sync::Arc;

use redis::{ServerErrorKind, Value};
use tokio::sync::oneshot;

use super::{LATER, Outcome, Settler};
use crate::ledger::StoreError;
use crate::ledger::journal::Entry;
use crate::ledger::redis::account::Account;
use crate::ledger::redis::admission_breaker::millis;
use crate::ledger::redis::link::{is_unknown_script, needs_another};
use crate::ledger::redis::queue::{Origin, QueuedDebit, ReleaseKind, Work};
use crate::ledger::redis::receipts;
use crate::ledger::redis::replay::Released;
use crate::ledger::redis::reply;
use crate::ledger::redis::reply::{SettleReply, SettledWith};
use crate::ledger::redis::script::EvalMode;
use crate::ledger::redis::slots::Elsewhere;
use crate::pure::account::Settled;
use crate::pure::ids::{AccountId, RequestId};
use crate::pure::money::Credits;
use crate::pure::numbers::{Birth, ProducerId, RULES};
use crate::pure::time::Timestamp;

impl Settler {
    /// Lets go of what is acknowledged and keeps the rest in front, in order. What waits for a slot that moves is put aside.
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
            let did_not_run = answer.as_ref().is_some_and(did_not_run);
            let answer = answer.map_or(Answer::Nothing, |value| self.answer(value, number));
            let is_progress = match work {
                Work::Settle(mut debit) => {
                    if did_not_run {
                        debit.sent = debit.sent.saturating_sub(1);
                    }
                    let settled = match answer {
                        Answer::Good(value) => Some(reply::settled(&value)),
                        Answer::Apart => Some(Ok(SettleReply::Apart)),
                        Answer::Nothing => None,
                    };
                    if let Some(Ok(SettleReply::Settled(with))) = &settled {
                        tell_if_anothers(&debit, with);
                    }
                    self.read_settled(debit, settled, &mut kept, &mut lost)
                }
                release @ Work::Release { .. } => self.read_released(release, &answer, &mut kept, &mut lost),
                Work::Barrier { account, reached } => self.read_barrier(account, reached, &mut kept),
            };
            if is_progress {
                outcome = Outcome::Progress;
            }
        }
        self.refusals.tell(self.shared.now_ms());
        self.put_in_front(kept);
        for (account, producer, numbers) in lost {
            self.send_lost(&account, producer, &numbers);
        }
        if self.by == EvalMode::Text {
            outcome = Outcome::Progress;
        }
        outcome
    }

    /// What an answer says.
    fn answer(&mut self, value: Value, number: u64) -> Answer {
        let error = match value.extract_error() {
            Ok(value) => return Answer::Good(value),
            Err(error) => error,
        };
        // Where it was asked for at the other master, that one has not run it either.
        if let Some(Elsewhere::Ask(_) | Elsewhere::Later) = self.shard.elsewhere(&error) {
            return Answer::Apart;
        }
        if is_unknown_script(&error) {
            self.by = EvalMode::Text;
        } else {
            self.refusals.heard(&error);
        }
        if needs_another(&error) {
            self.line.give_up(number);
        }
        Answer::Nothing
    }

    /// Whether the settlement is acknowledged, or the next try is another; else it is kept.
    pub(super) fn read_settled(
        &mut self,
        mut debit: QueuedDebit,
        settled: Option<Result<SettleReply, StoreError>>,
        kept: &mut Vec<Work>,
        lost: &mut Vec<Lost>,
    ) -> bool {
        let now = self.shared.now_ms();
        if let Some(Ok(SettleReply::Settled(_))) = &settled {
            debit.account.is_there();
        }
        if let Some(Ok(SettleReply::Settled(_) | SettleReply::NoAccount | SettleReply::NoMonth) | Err(_)) = &settled {
            kept.extend(self.moving.take_rest(&debit.account, debit.hold, now));
        }
        let with = match settled {
            Some(Ok(SettleReply::Settled(with))) => with,
            Some(Ok(SettleReply::Apart)) => {
                self.moving.put(Work::Settle(debit), now);
                return true;
            }
            Some(Ok(SettleReply::CountsAs(root))) => {
                debit.account.heard_counts_as(&debit.debit.key, root);
                kept.push(Work::Settle(debit));
                return true;
            }
            // Redis had it, long ago: this is another Redis, or one that was emptied, and nobody will make the account again for it.
            Some(Ok(SettleReply::NoAccount)) if debit.entry.kept_since().is_some_and(|at| self.is_past_replay(at)) => {
                let (account, cost) = (debit.account.id(), debit.debit.cost);
                log::error!(
                    "MONEY: the account {account} is not in Redis, which had acknowledged the debit of request {} ({cost}): its journal is kept",
                    debit.hold
                );
                self.suspend(debit);
                return true;
            }
            Some(Ok(SettleReply::NoAccount)) => {
                if debit.account.is_missing(now) {
                    let account = debit.account.id();
                    log::error!("MONEY: the account {account} is not in Redis; its settlements wait");
                }
                self.later
                    .push((now.saturating_add(millis(LATER)), Work::Settle(debit)));
                return false;
            }
            Some(Ok(SettleReply::NoMonth)) => {
                // It holds up no other account.
                if debit.account.is_missing(now) {
                    let account = debit.account.id();
                    log::error!(
                        "MONEY: what {account} has used in the month is not in range beside what it holds; its settlements wait"
                    );
                }
                self.later
                    .push((now.saturating_add(millis(LATER)), Work::Settle(debit)));
                return false;
            }
            Some(Err(error)) => {
                log::error!("MONEY: a settlement's answer cannot be read: {error}");
                kept.push(Work::Settle(debit));
                return false;
            }
            None => {
                kept.push(Work::Settle(debit));
                return false;
            }
        };
        match with.settled {
            Settled::Now { .. } | Settled::Already => {
                self.acknowledged(debit, &with, now, lost);
                true
            }
            Settled::Stale { forgotten } => {
                self.stale(debit, forgotten, kept);
                true
            }
            Settled::OutOfRange => {
                let (account, cost) = (debit.account.id(), debit.debit.cost);
                log::error!(
                    "MONEY: the debit of request {} ({cost}) would take {account} out of its range; it is taken as 0",
                    debit.hold
                );
                debit.debit.cost = Credits::ZERO;
                kept.push(Work::Settle(debit));
                false
            }
        }
    }

    fn acknowledged(&mut self, mut debit: QueuedDebit, with: &SettledWith, now: u64, lost: &mut Vec<Lost>) {
        lost.extend(lost_among(&debit.account, debit.number.producer, with.opened));
        if debit.origin == Origin::Own {
            debit.account.acknowledge(debit.number);
        }
        debit.account.end();
        self.shard.queue.settled();
        if debit.number.number == 1 {
            self.met.push(Arc::clone(&debit.account));
        }
        receipts::write_out(&self.shared, &mut debit, with.at);
        let (at, before) = (self.shared.options.clock.now(), debit.entry.kept_since());
        // A process before this one had heard it, and Redis has it still: it may lose it no longer than that one would have waited.
        let before = before.filter(|_| matches!(with.settled, Settled::Already));
        // One that takes no writes now may lose it longer than that: it may be replaced by one that has not got it.
        if before.is_some_and(|before| self.is_past_replay(before)) && !self.ring.stands_still() {
            return debit.entry.close();
        }
        debit.entry.keep(before.map_or(at, |before| before.min(at)));
        self.ring.push(debit, now);
    }

    /// Whether Redis had what it acknowledged then for so long that it loses it no more.
    fn is_past_replay(&self, acknowledged: Timestamp) -> bool {
        let age = self.shared.options.clock.now().since(acknowledged);
        u64::try_from(age).is_ok_and(|age| age > millis(self.shared.options.replay))
    }

    /// Whether a release is acknowledged, or the next try is another; else it is kept.
    fn read_released(&mut self, release: Work, answer: &Answer, kept: &mut Vec<Work>, lost: &mut Vec<Lost>) -> bool {
        let now = self.shared.now_ms();
        let opened = match answer {
            Answer::Good(value) if !reply::is_apart(value) => reply::released_run(value),
            Answer::Good(_) | Answer::Apart => {
                self.moving.put(release, now);
                return true;
            }
            Answer::Nothing => {
                kept.push(release);
                return false;
            }
        };
        if let Work::Release {
            account,
            hold,
            number,
            kind,
            entry,
        } = release
        {
            kept.extend(self.moving.take_rest(&account, hold, now));
            // Whoever comes after it is not told that these are open.
            lost.extend(number.and_then(|number| lost_among(&account, number.producer, opened)));
            // One that was doubtful may be a dead process': these are this one's.
            if let Some(number) = number
                && kind == ReleaseKind::Sure
            {
                if number.number == 1 {
                    self.met.push(Arc::clone(&account));
                }
                account.acknowledge_release(number);
                let account = Arc::clone(&account);
                self.ring.push_released(Released { account, hold, number }, now);
            }
            self.released(account, hold, kind, entry);
        }
        true
    }

    /// Whether a barrier is reached, or stands behind what waits for a slot that moves; else it is kept.
    fn read_barrier(&mut self, account: AccountId, reached: oneshot::Sender<()>, kept: &mut Vec<Work>) -> bool {
        let is_behind = kept.iter().any(|work| work.is_of(&account));
        if is_behind || self.moving.has(&account) {
            let barrier = Work::Barrier { account, reached };
            match is_behind {
                _ if barrier.is_abandoned() => {}
                true => kept.push(barrier),
                false => self.moving.put(barrier, self.shared.now_ms()),
            }
            return !is_behind;
        }
        if reached.send(()).is_err() {
            log::trace!("whoever waited for {account} has gone");
        }
        true
    }

    /// Drops the barriers that nobody waits for any more. Each call that asks for figures leaves one while the server does not answer.
    pub(super) fn drop_abandoned(&mut self) {
        self.backlog.retain(|work| !work.is_abandoned());
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
        if debit.entry.kept_since().is_some_and(|at| self.is_past_replay(at)) {
            log::warn!(
                "the debit of request {} ({}) was acknowledged longer ago than Redis remembers its gateway: it was taken",
                debit.hold,
                debit.debit.cost
            );
            debit.account.end();
            self.shard.queue.settled();
            return debit.entry.close();
        }
        log::error!(
            "MONEY: the debit of request {} ({}) comes too late to know whether it was taken before: it is not taken, its journal is kept",
            debit.hold,
            debit.debit.cost
        );
        self.suspend(debit);
    }

    /// Nobody will send it any more.
    fn suspend(&self, debit: QueuedDebit) {
        debit.account.end();
        self.shard.queue.settled();
        debit.entry.suspend();
    }
}

/// What an answer says of a settlement or a release.
enum Answer {
    Good(Value),
    /// It was not run: its account's slot moves, and has keys of it at two masters.
    Apart,
    /// Nothing: none came, or an error that says nothing of it.
    Nothing,
}

/// A call of this process that Redis says was settled before this process has told it: somebody else took it over, such as a gateway that was
/// given a copy of the journal. What that one billed stands, and the client may have been told another cost. Only an answer to what was sent says
/// so: what Redis had acknowledged here before is sent for the second time then, or is looked up.
fn tell_if_anothers(debit: &QueuedDebit, with: &SettledWith) {
    let is_first = debit.origin == Origin::Own && debit.sent == 1;
    if is_first && matches!(with.settled, Settled::Already) {
        log::error!(
            "MONEY: request {} of {} ({}) was settled by another before it ended here, as if its gateway had died: what that billed stands. \
             Was its journal copied to another gateway?",
            debit.hold,
            debit.account.id(),
            debit.debit.cost
        );
    }
}

/// Whether an answer proves that no server ran the script: as if it had not been sent. One that names another master (ASK) does not, for that one
/// was asked.
fn did_not_run(answer: &Value) -> bool {
    let Value::ServerError(error) = answer else {
        return false;
    };
    matches!(
        error.kind(),
        Some(
            ServerErrorKind::NoScript
                | ServerErrorKind::BusyLoading
                | ServerErrorKind::ReadOnly
                | ServerErrorKind::TryAgain
        )
    )
}

/// What Redis had acknowledged of a run of numbers that it did not know until now; none when it is nothing.
fn lost_among(account: &Arc<Account>, producer: ProducerId, opened: Option<(u64, u64)>) -> Option<Lost> {
    let numbers = account.acknowledged(producer, opened?);
    (!numbers.is_empty()).then(|| (Arc::clone(account), producer, numbers))
}

/// Numbers of an account that Redis had acknowledged and does not know.
type Lost = (Arc<Account>, ProducerId, Vec<u64>);
