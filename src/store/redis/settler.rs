//! The ledger's thread: tells Redis what was queued, until Redis has acknowledged it.
//!
//! One batch is under way at a time, in the order of the queue, so the settlements of an account arrive in the order of their
//! numbers. Whatever has no good answer stays at the front and is sent again; Redis tells by the numbers what it knows already.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use redis::{RedisResult, Value};

use super::address::Connection;
use super::guard::millis;
use super::holds::OpenHold;
use super::link::{Link, is_unknown_script, needs_another};
use super::queue::{QueuedDebit, ReleaseKind, Work};
use super::replay::Ring;
use super::script::{self, By};
use super::{Account, Core, account::scope_text, reply, watch};
use crate::pure::account::{ProducerId, Settled};
use crate::pure::ids::{AccountId, RequestId};
use crate::pure::money::Credits;

/// The thread's state.
pub(super) struct Settler {
    core: Arc<Core>,
    link: Link,
    /// What has been taken from the queue and is not acknowledged, in order.
    backlog: VecDeque<Work>,
    /// What is sent again at a time of the ledger's monotonic clock.
    later: Vec<(u64, Work)>,
    ring: Ring,
    /// Which servers hold the ledger; another answer means that the last moments may be lost.
    servers: Option<String>,
    /// The number of the connection that `servers` was asked on, and when.
    asked: (u64, u64),
    by: By,
    /// When holds were looked through last.
    renewed_ms: u64,
    /// Accounts that this process has met, where producers of long ago may be forgotten.
    met: Vec<Arc<Account>>,
}

/// How a batch went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Something was acknowledged, or the next try is another.
    Progress,
    /// Nothing was: wait before the next try.
    Nothing,
}

impl Settler {
    pub(super) fn new(core: Arc<Core>) -> Settler {
        Settler {
            ring: Ring::new(core.options.replay),
            core,
            link: Link::default(),
            backlog: VecDeque::new(),
            later: Vec::new(),
            servers: None,
            asked: (0, 0),
            by: By::Hash,
            renewed_ms: 0,
            met: Vec::new(),
        }
    }

    /// Runs until the queue is closed and empty, or time is over.
    pub(super) fn run(mut self) {
        let runtime = match super::runtime() {
            Ok(runtime) => runtime,
            Err(error) => return log::error!("MONEY: settlements cannot be sent: {error}"),
        };
        runtime.block_on(async {
            let subscription = tokio::spawn(watch::subscribe(Arc::clone(&self.core)));
            self.work().await;
            subscription.abort();
        });
    }

    async fn work(&mut self) {
        let mut end_ms = None;
        let mut pause = PAUSE_MIN;
        loop {
            self.take();
            let now = self.core.guard.now_ms();
            if self.core.queue.is_closed() {
                let end = *end_ms.get_or_insert(now.saturating_add(millis(self.core.options.close_within)));
                if now >= end || self.core.queue.unsettled() == 0 && self.backlog.is_empty() {
                    return;
                }
            }
            let renew_every = (self.core.holds.shortest_ttl_ms() / 8).min(millis(RENEW_EVERY_MAX));
            if now.saturating_sub(self.renewed_ms) >= renew_every {
                self.renewed_ms = now;
                self.renew(now).await;
            }
            if self.backlog.is_empty() {
                self.forget_producers().await;
                self.idle().await;
                continue;
            }
            match self.send_batch().await {
                Outcome::Progress => pause = PAUSE_MIN,
                Outcome::Nothing => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    /// Takes what was queued, and what is due again.
    fn take(&mut self) {
        let now = self.core.guard.now_ms();
        if self.later.iter().any(|(due, _)| *due <= now) {
            let (due, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.later)
                .into_iter()
                .partition(|(due, _)| *due <= now);
            self.later = kept;
            let mut due: Vec<Work> = due.into_iter().map(|(_, work)| work).collect();
            due.sort_by_key(|work| match work {
                Work::Settle(debit) => debit.sequence,
                Work::Release { .. } | Work::Barrier { .. } => 0,
            });
            self.put_in_front(due);
        }
        self.backlog.extend(self.core.queue.take());
        let oldest = self.backlog.iter().find_map(|work| match work {
            Work::Settle(debit) => Some(debit.queued_ms),
            Work::Release { .. } | Work::Barrier { .. } => None,
        });
        self.core.queue.set_oldest(oldest.unwrap_or(0));
    }

    async fn idle(&mut self) {
        if self.core.guard.is_open() || self.is_time_to_ask() {
            // The answer, or the lack of it, is all that is wanted.
            drop(self.connection().await);
        }
        let queue = &self.core.queue;
        drop(tokio::time::timeout(TICK, queue.filled()).await);
    }

    fn is_time_to_ask(&self) -> bool {
        let since = self.core.guard.now_ms().saturating_sub(self.asked.1);
        since >= millis(ASK_EVERY)
    }

    /// The connection; when it is a new one, and every now and then, the servers behind it are asked who they are.
    async fn connection(&mut self) -> Option<(Connection, u64)> {
        let within = self.core.options.timeout;
        let asking = async {
            let (mut connection, number) = self.link.connection(&self.core.address).await?;
            let known = number == self.asked.0 && !self.core.guard.is_open() && !self.is_time_to_ask();
            let servers = if known {
                None
            } else {
                Some(watch::servers(&mut connection).await?)
            };
            RedisResult::Ok((connection, number, servers))
        };
        match tokio::time::timeout(within, asking).await {
            Ok(Ok((connection, number, servers))) => {
                self.core.guard.answered();
                if let Some(servers) = servers {
                    self.asked = (number, self.core.guard.now_ms());
                    self.asked_servers(servers);
                }
                Some((connection, number))
            }
            Ok(Err(error)) => {
                log::debug!("Redis: {error}");
                self.link.give_up_current();
                None
            }
            Err(_) => {
                self.link.give_up_current();
                None
            }
        }
    }

    fn asked_servers(&mut self, servers: String) {
        let before = self.servers.replace(servers);
        if before.is_none() || before == self.servers {
            return;
        }
        let again = self.ring.take_all();
        log::warn!(
            "Redis was restarted or replaced; the last {} settlements are sent again",
            again.len()
        );
        self.send_again(again);
    }

    /// Puts settlements that were acknowledged in front of everything else.
    fn send_again(&mut self, debits: Vec<QueuedDebit>) {
        let now = self.core.guard.now_ms().max(1);
        let work = debits.into_iter().map(|mut debit| {
            debit.account.begin();
            self.core.queue.unsettled_again();
            debit.queued_ms = now;
            Work::Settle(debit)
        });
        let work = work.collect();
        self.put_in_front(work);
    }

    fn put_in_front(&mut self, work: Vec<Work>) {
        for work in work.into_iter().rev() {
            self.backlog.push_front(work);
        }
    }

    async fn send_batch(&mut self) -> Outcome {
        let Some((mut connection, number)) = self.connection().await else {
            return Outcome::Nothing;
        };
        let count = self.backlog.len().min(BATCH_MAX);
        let batch: Vec<Work> = self.backlog.drain(..count).collect();
        let by = std::mem::replace(&mut self.by, By::Hash);
        let within = self.core.options.timeout;
        let mut answers: Vec<Option<Value>> = Vec::new();
        let sent = exchange(&self.core, &mut connection, &batch, by, &mut answers);
        if !matches!(tokio::time::timeout(within, sent).await, Ok(Ok(()))) {
            self.link.give_up(number);
        }
        let outcome = self.read_answers(batch, answers, number);
        if outcome == Outcome::Progress {
            self.core.guard.answered();
        }
        outcome
    }

    /// Lets go of what is acknowledged and keeps the rest in front, in order.
    fn read_answers(&mut self, batch: Vec<Work>, answers: Vec<Option<Value>>, number: u64) -> Outcome {
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
                Work::Release { account, hold, kind } => match answer {
                    Some(_) => {
                        outcome = Outcome::Progress;
                        self.released(account, hold, kind);
                    }
                    None => kept.push(Work::Release { account, hold, kind }),
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
        settled: Option<Result<Option<Settled>, crate::store::StoreError>>,
        kept: &mut Vec<Work>,
        gaps: &mut HashMap<AccountId, (ProducerId, u64)>,
    ) -> bool {
        let now = self.core.guard.now_ms();
        match settled {
            Some(Ok(Some(Settled::Now { .. } | Settled::Already))) => {
                debit.account.end();
                self.core.queue.settled();
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

    fn released(&mut self, account: Arc<Account>, hold: RequestId, kind: ReleaseKind) {
        match kind {
            ReleaseKind::Sure => account.end(),
            ReleaseKind::Doubtful => {
                account.end();
                let due = self.core.guard.now_ms().saturating_add(millis(LATER));
                let kind = ReleaseKind::Again;
                self.later.push((due, Work::Release { account, hold, kind }));
            }
            ReleaseKind::Again => {}
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
            return; // It had no good answer either, and goes first next time.
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
        let Ok(new) = super::fresh_producer() else {
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

    /// Forgets the producers of long ago in the accounts that were met. It can wait, and it does no harm when it fails.
    async fn forget_producers(&mut self) {
        if self.met.is_empty() {
            return;
        }
        let Some((mut connection, number)) = self.connection().await else {
            return;
        };
        let clock = self.core.now_text();
        for account in std::mem::take(&mut self.met) {
            let [name, _] = account.keys();
            let mut command = script::FORGET.call(By::Text, &[name]);
            command.arg(&clock);
            match tokio::time::timeout(self.core.options.timeout, connection.send(&command)).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => log::debug!("producers of {} are kept: {error}", account.id()),
                Err(_) => return self.link.give_up(number),
            }
        }
    }

    /// Renews the holds that have lived half of their life.
    async fn renew(&mut self, now: u64) {
        let due = self.core.holds.due(now);
        if due.is_empty() {
            return;
        }
        let Some((mut connection, number)) = self.connection().await else {
            return;
        };
        let clock = self.core.now_text();
        for (account, ttl_ms, ids) in due {
            for ids in ids.chunks(RENEW_MAX) {
                let mut command = script::RENEW.call(By::Text, &account.keys());
                command.arg(&clock).arg(ttl_ms);
                for id in ids {
                    command.arg(id.as_bytes());
                }
                let within = self.core.options.timeout;
                match tokio::time::timeout(within, connection.send(&command)).await {
                    Ok(Ok(gone)) => {
                        let gone = reply::list(&gone).map_or(0, <[Value]>::len);
                        if gone > 0 {
                            log::warn!("{gone} holds of running calls of {} are gone from Redis", account.id());
                        }
                        self.core.holds.renewed(ids, now);
                    }
                    Ok(Err(error)) => log::warn!("holds are not renewed: {error}"),
                    Err(_) => return self.link.give_up(number),
                }
            }
        }
    }
}

/// Sends a batch. Afterwards there is an answer for each settlement and release, in order, or none where there was none.
///
/// # Errors
/// When a connection failed: the answers that came before stand all the same.
async fn exchange(
    core: &Core,
    connection: &mut Connection,
    batch: &[Work],
    by: By,
    answers: &mut Vec<Option<Value>>,
) -> RedisResult<()> {
    let commands = batch.iter().filter_map(|work| command(core, work, by));
    if !core.address.is_cluster() {
        let mut pipeline = redis::pipe();
        for (_, command) in commands {
            pipeline.add_command(command);
        }
        answers.extend(send_group(connection.clone(), pipeline).await?.into_iter().map(Some));
        return Ok(());
    }
    // A cluster takes together what is of one slot; the account's order is kept within its group.
    let mut groups: HashMap<AccountId, (redis::Pipeline, Vec<usize>)> = HashMap::new();
    for (at, (account, command)) in commands.enumerate() {
        let (pipeline, places) = groups
            .entry(account.clone())
            .or_insert_with(|| (redis::pipe(), Vec::new()));
        pipeline.add_command(command);
        places.push(at);
        answers.push(None);
    }
    let sent = groups.into_values().map(|(pipeline, places)| {
        let connection = connection.clone();
        async move { (places, send_group(connection, pipeline).await) }
    });
    for (places, group) in futures::future::join_all(sent).await {
        match group {
            Ok(group) => {
                for (at, answer) in places.into_iter().zip(group) {
                    if let Some(place) = answers.get_mut(at) {
                        *place = Some(answer);
                    }
                }
            }
            // The cluster's client finds its way by itself, so one group's failure is not the connection's.
            Err(error) => log::debug!("Redis: {error}"),
        }
    }
    Ok(())
}

async fn send_group(mut connection: Connection, pipeline: redis::Pipeline) -> RedisResult<Vec<Value>> {
    if pipeline.is_empty() {
        return Ok(Vec::new());
    }
    connection.send_all(&pipeline).await
}

fn command<'a>(core: &Core, work: &'a Work, by: By) -> Option<(&'a AccountId, redis::Cmd)> {
    match work {
        Work::Settle(debit) => Some((debit.account.id(), settle_command(core, debit, by))),
        Work::Release { account, hold, .. } => {
            let mut command = script::RELEASE.call(by, &account.keys());
            command.arg(hold.as_bytes());
            Some((account.id(), command))
        }
        Work::Barrier { .. } => None,
    }
}

/// A settlement as its script takes it.
pub(super) fn settle_command(core: &Core, queued: &QueuedDebit, by: By) -> redis::Cmd {
    let debit = &queued.debit;
    let cost = debit.cost.pico().max(0);
    let tokens = debit.usage.prompt.0.saturating_add(debit.usage.completion.0);
    let known = queued.known.as_ref().and_then(|hold: &OpenHold| {
        let rest = hold.amount.pico().checked_sub(cost)?;
        Some((scope_text(&hold.scope), hold.amount.pico().to_string(), rest))
    });
    let (scope, held, rest) = known.unwrap_or_default();
    let mut command = script::SETTLE.call(by, &queued.account.keys());
    command
        .arg(core.now_text())
        .arg(queued.hold.as_bytes())
        .arg(scope)
        .arg(held)
        .arg(rest)
        .arg(cost)
        .arg(tokens.min(super::COUNT_MAX))
        .arg(format!("{:016x}", queued.producer.0))
        .arg(queued.sequence)
        .arg(debit.model.as_ref())
        .arg(debit.usage.prompt.0.min(super::COUNT_MAX))
        .arg(debit.usage.completion.0.min(super::COUNT_MAX));
    command
}

/// Settlements and releases in one batch.
const BATCH_MAX: usize = 256;
/// Holds in one renewal.
const RENEW_MAX: usize = 500;
/// Wait after a batch without any answer, and its limit.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(320);
/// How often the thread looks up when nothing happens.
const TICK: Duration = Duration::from_millis(250);
/// How often holds are looked through: an eighth of the shortest life, and at least this.
const RENEW_EVERY_MAX: Duration = Duration::from_secs(5);
/// How often the servers are asked who they are.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// When something is tried again that cannot succeed at once.
const LATER: Duration = Duration::from_secs(1);
