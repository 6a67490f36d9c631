//! The ledger's thread: tells Redis what was queued, until Redis has acknowledged it.
//!
//! Each shard has a settler of its own, so that one that does not answer holds up nobody else's. Of a shard one batch is under way at a
//! time, in the order of the queue. Whatever has no good answer stays at the front and is sent again, but for what waits for a slot that moves;
//! Redis tells by its number whether it knows a settlement already.

mod answers;
mod asked;
mod hand_over;
mod keys;
mod known;
mod lost;
mod moving;
mod producers;
mod refusals;
mod renew;
mod send;

use std::collections::{BTreeSet, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::stream::{FuturesUnordered, StreamExt};
use redis::RedisResult;

use self::lost::MissingSettlements;
use self::moving::Moving;
use self::refusals::Refusals;
#[cfg(test)]
pub(super) use self::send::settle_command;
use self::send::{exchange, redirect};
use super::account::Account;
use super::admission_breaker::millis;
use super::link::{Line, Link};
use super::queue::{QueuedDebit, Work};
use super::replay::{RING_MAX, ReplayBuffer};
use super::script::EvalMode;
use super::shards::Shard;
use super::shared::Shared;
use super::{subscription, topology};
use crate::failpoints::point;

/// The state of a shard's settler.
pub(super) struct Settler {
    shared: Arc<Shared>,
    shard: Arc<Shard>,
    line: Line,
    /// The ways to other shards, for what is asked there once.
    link: Arc<Link>,
    /// The generation of the cluster's map that the ring was looked through for.
    generation: u64,
    /// What has been taken from the queue and is not acknowledged, in order.
    backlog: VecDeque<Work>,
    /// Whether some of it may be known to Redis.
    has_doubted: bool,
    /// What is sent again at a time of the ledger's monotonic clock.
    later: Vec<(u64, Work)>,
    /// What waits for a slot that moves, beside all else.
    moving: Moving,
    ring: ReplayBuffer,
    /// What Redis has lost and nobody here has, until it is told.
    missing: Arc<MissingSettlements>,
    /// What Redis does not take, and when that was told.
    refusals: Refusals,
    /// The servers that were seen to hold the ledger; one more means that the last moments of another may be lost.
    servers: BTreeSet<String>,
    /// When that was seen last, or slots got another master or shard, by the ledger's monotonic clock.
    replaced_ms: Option<u64>,
    /// The number of the connection that the server was asked on who it is, and when.
    asked: (u64, u64),
    by: EvalMode,
    /// When the last batch was sent.
    sent: Option<Instant>,
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

/// Runs until the queues are closed and empty, or time is over.
pub(super) fn run(shared: &Arc<Shared>) {
    let runtime = match super::runtime() {
        Ok(runtime) => runtime,
        Err(error) => return log::error!("MONEY: settlements cannot be sent: {error}"),
    };
    runtime.block_on(async {
        #[expect(clippy::disallowed_methods, reason = "it is aborted below, when all is sent")]
        let subscription = tokio::spawn(subscription::subscribe(Arc::clone(shared)));
        #[expect(clippy::disallowed_methods, reason = "it is aborted below, when all is sent")]
        let topology = shared
            .shards
            .is_cluster()
            .then(|| tokio::spawn(topology::follow(Arc::clone(shared))));
        #[expect(clippy::disallowed_methods, reason = "it is waited for below, when all is sent")]
        let key_ends = tokio::spawn(keys::run(Arc::clone(shared)));
        settle(shared).await;
        shared.key_ends.close();
        let told = tokio::time::timeout(shared.options.close_within, key_ends).await;
        if told.is_err() {
            log::warn!("Redis was not told how calls under idempotency keys ended: they stay taken, without an answer");
        }
        subscription.abort();
        if let Some(topology) = topology {
            topology.abort();
        }
    });
}

/// A settler for each shard, those included that come to be.
async fn settle(shared: &Arc<Shared>) {
    let mut settlers = FuturesUnordered::new();
    let mut count = 0;
    loop {
        for shard in shared.shards.all().into_iter().skip(count) {
            settlers.push(Settler::new(Arc::clone(shared), shard).work());
            count += 1;
        }
        tokio::select! {
            () = shared.shards.added() => {}
            ended = settlers.next() => if ended.is_none() { return },
        }
    }
}

impl Settler {
    fn new(shared: Arc<Shared>, shard: Arc<Shard>) -> Settler {
        let replaced_ms = shared.shards.is_cluster().then(|| shared.now_ms());
        Settler {
            generation: shared.shards.generation(),
            ring: ReplayBuffer::new(shared.options.replay, shared.shards.share(RING_MAX)),
            moving: Moving::new(shared.options.hold_ttl),
            shared,
            shard,
            line: Line::default(),
            link: Arc::default(),
            backlog: VecDeque::new(),
            has_doubted: false,
            later: Vec::new(),
            missing: Arc::default(),
            refusals: Refusals::default(),
            servers: BTreeSet::new(),
            replaced_ms,
            asked: (0, 0),
            by: EvalMode::Hash,
            sent: None,
            renewed_ms: 0,
            met: Vec::new(),
        }
    }

    async fn work(mut self) {
        let (shared, link) = (Arc::clone(&self.shared), Arc::clone(&self.link));
        let missing = Arc::clone(&self.missing);
        tokio::select! {
            () = self.turns() => {}
            // Beside the batches and the renewals, and not between them: it asks other masters. It never returns.
            () = missing.tell_when_due(&shared, &link) => {}
        }
        self.end().await;
    }

    /// Sends what was queued and renews holds, until the queues are closed and empty, or time is over.
    async fn turns(&mut self) {
        let mut pause = PAUSE_MIN;
        loop {
            // Before the queue is emptied: whoever closes it after that may have put something in.
            let is_closed = self.shard.queue.is_closed();
            self.take();
            let now = self.shared.now_ms();
            if is_closed {
                let end = self.shared.shards.end_ms(now, self.shared.options.close_within);
                let is_sent = self.backlog.is_empty() && self.moving.is_empty();
                let is_done = self.shard.queue.unsettled() == 0 && is_sent;
                // Another shard may hand over what it still has.
                let is_over = now >= end || is_done && self.shared.shards.unsettled() == 0;
                if is_over {
                    return;
                }
            }
            let renew_every = (self.shared.holds.shortest_ttl_ms() / 8).min(millis(RENEW_EVERY_MAX));
            if now.saturating_sub(self.renewed_ms) >= renew_every {
                self.renewed_ms = now;
                self.renew(now).await;
            }
            self.look_up_doubted().await;
            if self.backlog.is_empty() {
                self.forget_producers().await;
                self.idle().await;
                self.gather().await;
                continue;
            }
            match self.send_batch().await {
                Outcome::Progress => {
                    pause = PAUSE_MIN;
                    if self.backlog.is_empty() && !self.shard.queue.is_empty() {
                        self.gather().await;
                    }
                }
                Outcome::Nothing => {
                    self.drop_abandoned();
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    /// What is known at the end is told, and what Redis may still lose stays in the journal for as long as it may.
    async fn end(mut self) {
        let told = self.missing.tell_due(&self.shared, &self.link, u64::MAX);
        drop(tokio::time::timeout(self.shared.options.timeout, told).await);
        self.missing.tell_unasked();
        // Also where Redis was away: its clock stood, and what the journal says did not.
        self.date_ring();
    }

    /// Takes what was queued, and what is due again.
    fn take(&mut self) {
        let now = self.shared.now_ms();
        // At the end there is no later: a second release comes at once.
        let closed = self.shard.queue.is_closed();
        let is_due = |(due, work): &(u64, Work)| *due <= now || closed && matches!(work, Work::Release { .. });
        if self.later.iter().any(is_due) {
            let (due, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.later).into_iter().partition(is_due);
            self.later = kept;
            self.put_in_front(due.into_iter().map(|(_, work)| due_again(work, now)).collect());
        }
        let tried = self.moving.take_due(now);
        self.put_in_front(tried);
        let queued = self.shard.queue.take();
        self.has_doubted |= queued.iter().any(Work::is_doubted);
        self.backlog.extend(queued);
        if self.shared.shards.is_cluster() {
            self.hand_over();
        }
        self.tell_oldest();
    }

    /// Tells the queue since when the oldest settlement waits that holds up calls, and the oldest of those that wait by themselves: for a slot
    /// that moves, or for an account that Redis does not have.
    fn tell_oldest(&self) {
        let earlier = |apart: Option<u64>, since_ms: u64| Some(apart.map_or(since_ms, |before| before.min(since_ms)));
        let later = self.later.iter().filter_map(|(_, work)| queued_ms(work));
        let mut apart = later.fold(self.moving.oldest_ms(), earlier);
        let mut oldest = None;
        for work in &self.backlog {
            let Work::Settle(debit) = work else { continue };
            if debit.account.is_gone() {
                apart = earlier(apart, debit.queued_ms);
            } else if debit.account.waits_since_ms().is_none() {
                oldest = Some(debit.queued_ms);
                break;
            }
        }
        self.shard.queue.set_oldest(oldest.unwrap_or(0), apart.unwrap_or(0));
    }

    async fn idle(&mut self) {
        if self.is_time_to_ask() && self.shared.shards.has_slots(self.shard.number) {
            // The answer, or the lack of it, is all that is wanted.
            drop(self.connection().await);
        }
        let within = self
            .moving
            .due_in(self.shared.now_ms())
            .map_or(TICK, |due| due.min(TICK));
        drop(tokio::time::timeout(within, self.shard.queue.filled()).await);
    }

    /// Lets a moment's settlements come together where another batch was sent in the same moment, unless somebody waits for one: each
    /// batch costs this thread and Redis a turn, whatever is in it.
    async fn gather(&self) {
        let left = self
            .sent
            .map_or(Duration::ZERO, |sent| GATHER.saturating_sub(sent.elapsed()));
        if !left.is_zero() && !self.shard.queue.is_closed() {
            drop(tokio::time::timeout(left, self.shard.queue.hurried()).await);
        }
    }

    /// Puts settlements that were acknowledged in front of everything else.
    fn send_again(&mut self, debits: Vec<QueuedDebit>) {
        let now = self.shared.now_ms().max(1);
        let work = debits.into_iter().map(|mut debit| {
            debit.account.begin();
            self.shard.queue.unsettled_again();
            debit.queued_ms = now;
            Work::Settle(debit)
        });
        let work = work.collect();
        self.put_in_front(work);
        self.has_doubted = true;
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
        let most = match self.shared.shards.is_cluster() {
            true => CLUSTER_BATCH_MAX,
            false => BATCH_MAX,
        };
        let count = self.backlog.len().min(most);
        let mut batch: Vec<Work> = self.backlog.drain(..count).collect();
        for work in &mut batch {
            if let Work::Settle(debit) = work {
                debit.sent = debit.sent.saturating_add(1);
            }
        }
        let by = std::mem::replace(&mut self.by, EvalMode::Hash);
        let within = self.shared.options.timeout;
        point("settlement", "before");
        self.sent = Some(crate::clock::monotonic());
        // Pinned where it is made: it is large, and would be copied on its way.
        let answers = in_time(within, pin!(exchange(&self.shared, &mut connection, &batch, by))).await;
        let mut answers = match answers {
            Some(answers) => answers,
            None => {
                self.line.give_up(number);
                self.is_away();
                Vec::new()
            }
        };
        if self.shared.shards.is_cluster() {
            let redirected = redirect(&self.shared, &self.shard, &self.link, &batch, &mut answers);
            drop(tokio::time::timeout(within, redirected).await);
        }
        point("settlement", "after");
        let outcome = self.read_answers(batch, answers, number);
        if outcome == Outcome::Progress {
            self.shard.guard.answered();
        }
        outcome
    }
}

/// When a settlement was queued.
fn queued_ms(work: &Work) -> Option<u64> {
    match work {
        Work::Settle(debit) => Some(debit.queued_ms),
        Work::Release { .. } | Work::Barrier { .. } => None,
    }
}

/// What waited for an account that is there again stands in the queue from now on: how long that took is nothing to the other accounts.
fn due_again(mut work: Work, now_ms: u64) -> Work {
    if let Work::Settle(debit) = &mut work
        && !debit.account.is_gone()
    {
        debit.queued_ms = now_ms.max(1);
    }
    work
}

/// What came of it, unless it failed or took too long.
async fn in_time<T>(within: Duration, asked: impl Future<Output = RedisResult<T>>) -> Option<T> {
    match tokio::time::timeout(within, asked).await {
        Ok(Ok(value)) => Some(value),
        Ok(Err(error)) => {
            log::debug!("Redis: {error}");
            None
        }
        Err(_) => None,
    }
}

/// Settlements and releases in one batch.
const BATCH_MAX: usize = 256;
/// The same in a cluster: what waits for a slot that moves must not fill the batch.
const CLUSTER_BATCH_MAX: usize = 4096;
/// Wait after a batch without any answer, and its limit.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(320);
/// The least time between batches that do not stand in line. While Redis runs a batch, a reserve waits: a longer time would make it longer.
const GATHER: Duration = Duration::from_millis(4);
/// How often the thread looks up when nothing happens.
const TICK: Duration = Duration::from_millis(250);
/// How often holds are looked through: an eighth of the shortest life, and at least this.
const RENEW_EVERY_MAX: Duration = Duration::from_secs(5);
/// When something is tried again that cannot succeed at once.
const LATER: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
