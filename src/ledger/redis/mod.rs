//! The ledger in Redis: for one node or many, on a standalone Redis, behind Sentinels, or on a cluster.
//!
//! Every step of an account is one script, atomic in Redis and by Redis' clock; the steps are those of
//! [`AccountState`](crate::pure::account::AccountState), reply by reply. Callers wait for a reserve, at most as long as
//! [`Options::timeout`]; settlements and releases go through a queue that a thread of the ledger empties, each under its call's number
//! and sent again until Redis acknowledges it. When too many of them wait, no more calls are admitted: nothing is dropped.
//!
//! Each master of a cluster is a failure domain of its own (`shards`): one that does not answer refuses the calls of its own accounts
//! and leaves those of the others alone.
//!
//! Longer than 400 lines: the store's one face, a short method for each thing that it does.

mod account;
mod account_keys;
mod account_pages;
mod acts;
mod admission_breaker;
mod audit;
mod audit_turns;
mod cache;
mod commands;
mod confirm;
mod credits;
mod events;
mod extend;
mod holds;
mod idempotency;
mod kept_terms;
mod key_ends;
mod key_limits;
mod key_lookup;
mod key_rotate;
mod known_keys;
mod link;
mod maintenance;
mod names;
mod nonce;
mod open_places;
mod options;
mod payments;
mod queue;
mod receipts;
mod replay;
mod reply;
mod script;
mod sender;
mod sentinel;
mod server_facts;
mod server_health;
mod server_rights;
mod server_time;
mod shards;
mod shared;
mod slots;
mod spending;
mod statement;
mod stops;
mod subscription;
mod terms;
mod topology;
mod unconfirmed;
mod url;
mod usage_rows;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

pub use self::account::Account;
use self::cache::Cache;
use self::holds::{OpenHold, OpenHolds};
use self::key_ends::KeyEnds;
pub(in crate::ledger) use self::known_keys::{KeyOfAccount, KnownCalls};
use self::link::Link;
use self::maintenance::Maintenance;
use self::names::Names;
use self::open_places::OpenPlaces;
pub use self::options::Options;
use self::options::unavailable;
use self::queue::{Origin, QueuedDebit, ReleaseKind};
use self::shards::Shards;
use self::shared::Shared;
use self::url::Address;
use super::admin::{AdminError, AdminOp, AdminReply, AuditReport};
use super::cover::{Cover, Uncovered};
use super::journal::Entry;
use super::producer::Producer;
use super::store_metrics::{StoreMetrics, Times};
use super::{Debit, Figures, Found, Orphan, ReceiptFiles, StoreError};
use crate::pure::account::{Denial, Granted, Look, ReserveRequest, Scope};
use crate::pure::ids::{AccountId, KeyDigest, RequestId};
use crate::pure::limits::{Limits, RateView};
use crate::pure::numbers::CallNumber;
use crate::pure::time::Timestamp;

/// The ledger, with its thread.
#[derive(Debug)]
pub struct RedisLedger {
    shared: Arc<Shared>,
    settler: Mutex<Option<std::thread::JoinHandle<()>>>,
    commands: Mutex<Option<tokio::runtime::Runtime>>,
}

impl RedisLedger {
    /// Connects, and refuses a Redis that would lose money by design. Blocks; called on a thread that is on no runtime.
    ///
    /// # Errors
    /// When the address cannot be read, Redis cannot be reached, it evicts keys, or it refuses its user a right that the ledger needs.
    pub fn connect(url: &str, options: Options) -> Result<Arc<RedisLedger>, StoreError> {
        let (shared, runtime) = RedisLedger::reach(url, options)?;
        let senders = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("redis-ledger".to_owned())
            .spawn(move || sender::run(&senders))
            .map_err(|error| unavailable(&format!("cannot start the ledger's thread: {error}")))?;
        Ok(Arc::new(RedisLedger {
            shared,
            settler: Mutex::new(Some(thread)),
            commands: Mutex::new(Some(runtime)),
        }))
    }

    /// Asks what [`RedisLedger::connect`] asks, and goes.
    ///
    /// # Errors
    /// As [`RedisLedger::connect`].
    pub(super) fn preflight(url: &str, options: Options) -> Result<(), StoreError> {
        RedisLedger::reach(url, options).map(drop)
    }

    fn reach(url: &str, options: Options) -> Result<(Arc<Shared>, tokio::runtime::Runtime), StoreError> {
        let runtime = runtime()?;
        match RedisLedger::reach_on(&runtime, url, options) {
            Ok(shared) => Ok((shared, runtime)),
            Err(error) => {
                // A name that is still looked up is waited for no longer.
                runtime.shutdown_background();
                Err(error)
            }
        }
    }

    fn reach_on(runtime: &tokio::runtime::Runtime, url: &str, options: Options) -> Result<Arc<Shared>, StoreError> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let address = Address::parse(url, options.ca.clone(), options.timeout)?;
        let started = crate::clock::monotonic();
        let shards = if address.is_cluster() {
            let layout = runtime.block_on(topology::read(&address, server_health::connect_within(&options)))?;
            Shards::cluster(address, &layout, options.waiting_max, started)?
        } else {
            Shards::one(address, options.waiting_max, started)
        };
        let shared = Arc::new(Shared {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            started,
            shards,
            cache: Cache::default(),
            producer: Producer::new(options.clock.now())?,
            takes_over_ms: AtomicU64::new(TAKES_OVER_MS_MAX),
            holds: OpenHolds::default(),
            key_ends: KeyEnds::default(),
            events: OpenPlaces::default(),
            names: Names::default(),
            maintenance: Maintenance::default(),
            has_accounts: AtomicBool::new(false),
            is_emptied: AtomicBool::new(false),
            receipt_files: OnceLock::new(),
            began_ms: AtomicI64::new(server_time::NOT_HEARD),
            times: Times::default(),
            options,
        });
        runtime.block_on(server_health::check_servers(&shared))?;
        runtime.block_on(server_rights::check(&shared))?;
        // Before it gives a number: the servers have said what time it is.
        shared.producer.born_at(shared.redis_now())?;
        Ok(shared)
    }

    /// Where receipts are written to as well.
    pub(super) fn receipt_files(&self) -> &OnceLock<Arc<ReceiptFiles>> {
        &self.shared.receipt_files
    }

    pub(super) async fn find_key(&self, digest: &KeyDigest) -> Result<Option<Found<Arc<Account>>>, StoreError> {
        let known = self.shared.find_key(digest).await?;
        Ok(known.map(|known| Found {
            key: known.key,
            account: known.facts,
            place: known.account,
        }))
    }

    pub(super) async fn reserve(
        &self,
        account: &Arc<Account>,
        request: &ReserveRequest,
        (entry, ends_when_stopped): (Entry, bool),
    ) -> Result<Result<(Granted, Entry, Arc<Cover>), Denial>, StoreError> {
        let shared = &self.shared;
        let options = &shared.options;
        // Wherever this ends, or is given up, without a hold: the entry is closed, unless a doubtful reserve has taken it along.
        let mut entry = ClosesEntry(Some(entry));
        // The hold's life begins when Redis makes it, which is later.
        let asked_ms = shared.now_ms();
        let unsettled_max = shared.shards.share(options.unsettled_max);
        {
            let shard = shared.shards.of(account);
            shard.eviction.check(&shard.address)?;
            shard.queue.check(asked_ms, unsettled_max, options.unsettled_age_max)?;
        }
        let waited_ms = account.waited_ms(asked_ms);
        if Duration::from_millis(waited_ms) > options.unsettled_age_max {
            let why =
                format!("a settlement of the account has waited for {waited_ms} ms for its slot, which is moving");
            return Err(unavailable(&why));
        }
        let link = shared.link();
        let under_way = account.is_under_way();
        let began = crate::clock::monotonic();
        let mut outcome = shared
            .try_reserve(&link, account, (request, !under_way), &mut entry.0)
            .await?;
        // What a caller's earlier call gives back may still have been on its way. Nobody is refused for that, and where it does not come in
        // time, nobody knows whether there is credit.
        if let Err(denial) = &outcome
            && !matches!(denial, Denial::Stopped(_) | Denial::Requests(_))
            && request.limits.concurrency > 0
            && under_way
        {
            shared.barrier(account).await?;
            let again = ReserveRequest {
                is_counted: request.is_counted || denial.is_counted(),
                ..request.clone()
            };
            outcome = shared.try_reserve(&link, account, (&again, true), &mut entry.0).await?;
        }
        shared.times.observe(began.elapsed());
        let cover = Arc::new(Cover::of(request.spend.as_ref().and_then(|limits| limits.end_user())));
        if let Ok(granted) = &outcome {
            let ttl = request.expires.since(options.clock.now());
            let open = OpenHold {
                account: Arc::clone(account),
                scope: request.scope.clone(),
                amount: granted.amount,
                quota: request.quota,
                ttl_ms: u64::try_from(ttl).unwrap_or(0),
                renewed_ms: asked_ms,
                raised_ms: None,
                cover: Arc::clone(&cover),
                spend: request.spend.clone(),
                ends_when_stopped,
            };
            shared.holds.insert(request.id, open);
            if ends_when_stopped && let Some(stop) = account.stop() {
                cover.end(Uncovered::Stopped(stop));
            }
        }
        Ok(outcome.map(|granted| (granted, entry.0.take().unwrap_or(Entry::none()), cover)))
    }

    /// The account's next number.
    pub(super) fn next_number(&self, account: &Account) -> CallNumber {
        account.numbers.next(&self.shared.producer)
    }

    pub(super) fn settle(
        &self,
        account: &Arc<Account>,
        hold: RequestId,
        number: Option<CallNumber>,
        debit: Debit,
        entry: Entry,
    ) {
        let known = self.shared.holds.remove(hold);
        self.queue(account, (hold, known), (number, Origin::Own), debit, entry);
    }

    pub(super) fn release(&self, account: &Arc<Account>, hold: RequestId, number: Option<CallNumber>, entry: Entry) {
        self.shared.holds.remove(hold);
        let shard = self.shared.shards.queue_of(account);
        shard.queue.release(account, hold, number, ReleaseKind::Sure, entry);
    }

    fn queue(
        &self,
        account: &Arc<Account>,
        (hold, known): (RequestId, Option<OpenHold>),
        (number, origin): (Option<CallNumber>, Origin),
        debit: Debit,
        mut entry: Entry,
    ) {
        let number = number.unwrap_or_else(|| self.next_number(account));
        entry.owe(&debit, number);
        let is_written_out = entry.is_told();
        let shard = self.shared.shards.queue_of(account);
        shard.queue.settle(QueuedDebit {
            account: Arc::clone(account),
            hold,
            known,
            debit,
            number,
            origin,
            is_doubted: origin == Origin::Adopted,
            is_written_out,
            sent: 0,
            queued_ms: self.shared.now_ms().max(1),
            entry,
        });
    }

    /// Where the account's figures are.
    pub(super) fn place(&self, account: &AccountId) -> Arc<Account> {
        self.shared.cache.account(account)
    }

    /// Settles or releases a call that a dead process left. False when Redis had acknowledged its debit.
    pub(super) fn take_over(&self, account: &Arc<Account>, hold: RequestId, orphan: Orphan, entry: Entry) -> bool {
        let is_new = entry.kept_since().is_none();
        match orphan {
            // Its reserve may be on its way still, from a process that died a moment ago.
            Orphan::Held { number } => {
                let shard = self.shared.shards.queue_of(account);
                shard.queue.release(account, hold, number, ReleaseKind::Doubtful, entry);
            }
            // One that has no number yet was never sent: this process gives it its own.
            Orphan::Owed { debit, number } => {
                self.wait_for_room(account);
                let origin = number.map_or(Origin::Own, |_| Origin::Adopted);
                self.queue(account, (hold, None), (number, origin), debit, entry);
            }
        }
        is_new
    }

    /// Waits while half of the debits wait with which no more calls are admitted: what dead processes left refuses no calls. Blocks, but not for
    /// long in all, for Redis may be away.
    fn wait_for_room(&self, account: &Account) {
        let shared = &self.shared;
        let most = shared.shards.share(shared.options.unsettled_max) / 2;
        while shared.shards.of(account).queue.unsettled() >= most.max(1) {
            let left = shared.takes_over_ms.load(Ordering::Relaxed);
            if left < ROOM_LOOK_MS {
                return;
            }
            shared.takes_over_ms.store(left - ROOM_LOOK_MS, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(ROOM_LOOK_MS));
        }
    }

    /// For how long Redis may lose what it has acknowledged.
    pub(super) fn replay(&self) -> Duration {
        self.shared.options.replay
    }

    /// Redis' time, as far as it is known here.
    pub(super) fn now(&self) -> Timestamp {
        self.shared.redis_now()
    }

    pub(super) fn hold_expiry(&self, now: Timestamp) -> Timestamp {
        let ttl = i64::try_from(self.shared.options.hold_ttl.as_millis()).unwrap_or(i64::MAX);
        now.plus_millis(ttl)
    }

    /// As this process saw it last: another node's calls of the same moment are not in it.
    pub(super) fn rate(&self, account: &Account, scope: &Scope, limits: Limits) -> RateView {
        let now = self.shared.redis_now();
        account.window(scope).at(now).view(limits, now)
    }

    /// By the window as this process saw it last: there are at least as many requests in it by now.
    pub(super) fn look(&self, account: &Account, look: &Look) -> Result<(), Denial> {
        let rate = self.rate(account, &look.scope, look.limits);
        if rate.remaining_requests == 0 {
            return Err(Denial::Requests(rate));
        }
        Ok(())
    }

    pub(super) async fn figures(&self, account: &Account) -> Result<Figures, StoreError> {
        let shared = &self.shared;
        shared.barrier(account).await?;
        let shown = shared.show(&shared.link(), account.keys()).await?;
        shown.map(|shown| shown.figures).ok_or_else(reply::no_account)
    }

    pub(super) fn store_metrics(&self) -> StoreMetrics {
        let shared = &self.shared;
        let (holds_open, held) = shared.holds.sums();
        StoreMetrics {
            kind: "redis",
            holds_open,
            held,
            unsettled: u64::try_from(shared.shards.unsettled()).unwrap_or(u64::MAX),
            unsettled_age: Duration::from_millis(shared.shards.oldest_age_ms(shared.now_ms())),
            below_zero: None,
            latency: shared.times.histogram(),
        }
    }

    pub(super) async fn run(&self, op: AdminOp) -> Result<AdminReply, AdminError> {
        if let AdminOp::By(acted) = op {
            return acts::to_its_end(&self.shared, *acted).await;
        }
        self.shared.execute(&self.shared.link(), op).await
    }

    pub(super) async fn raise_expiring(&self, is_given_up: &AtomicBool) -> Result<bool, AdminError> {
        self.shared.raise_expiring(&self.shared.link(), is_given_up).await
    }

    pub(super) async fn audit_in_turn(
        &self,
        within: Duration,
        every: Duration,
    ) -> Result<(AuditReport, Duration), AdminError> {
        self.shared.audit_in_turn(&self.shared.link(), within, every).await
    }

    /// Runs an operator's command from a thread that is on no runtime.
    pub fn run_blocking(&self, op: AdminOp) -> Result<AdminReply, AdminError> {
        let runtime = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        match &*runtime {
            Some(runtime) => runtime.block_on(self.run(op)),
            None => Err(AdminError::Store("the ledger has stopped".to_owned())),
        }
    }

    pub(super) fn in_maintenance(&self) -> bool {
        self.shared.maintenance.is_on()
    }

    /// Admits no more calls, sends what is left, and ends the thread. Says how many settlements Redis has not acknowledged
    /// within [`Options::close_within`]. A second call does nothing.
    pub fn close(&self) -> usize {
        self.shared.shards.close();
        let thread = self.settler.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            if thread.join().is_err() {
                log::error!("MONEY: the ledger's thread panicked");
            }
            let left = self.shared.shards.unsettled();
            if left > 0 {
                log::error!("MONEY: {left} settlements are not acknowledged at the end");
            }
        }
        self.shared.shards.unsettled()
    }
}

impl Drop for RedisLedger {
    fn drop(&mut self) {
        self.close();
        Link::forget_ledger(self.shared.number);
        let runtime = self.commands.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(runtime) = runtime {
            runtime.shutdown_background();
        }
    }
}

/// Closes an entry that nobody took.
struct ClosesEntry(Option<Entry>);

impl Drop for ClosesEntry {
    fn drop(&mut self) {
        if let Some(entry) = &mut self.0 {
            entry.close();
        }
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, StoreError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| unavailable(&format!("cannot start a runtime: {error}")))
}

/// How long all debits that a process takes over may wait for one another, in milliseconds.
const TAKES_OVER_MS_MAX: u64 = 10_000;
/// How often it is looked whether there is room for more of them.
const ROOM_LOOK_MS: u64 = 20;

#[cfg(test)]
pub(super) mod tests;
