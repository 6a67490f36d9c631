//! What calls, commands and the ledger's thread share: the way to Redis, and the steps that callers wait for.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures::FutureExt;
use redis::Value;

use super::account::{Account, counted_text, scope_text};
use super::admission_breaker::millis_since;
use super::cache::Cache;
use super::holds::OpenHolds;
use super::key_ends::KeyEnds;
use super::link::{Call, Link, Sent, Unanswered};
use super::maintenance::Maintenance;
use super::names::Names;
use super::open_places::OpenPlaces;
use super::options::Options;
use super::queue::ReleaseKind;
use super::reply;
use super::script::{self, EvalMode, PREFIX, Script};
use super::shards::{Of, Shards};
use super::slots::{Elsewhere, slot_of_command};
use super::spending::{end_users_of, reserve_arguments};
use crate::clock::Clock;
use crate::ledger::journal::Entry;
use crate::ledger::producer::Producer;
use crate::ledger::store_metrics::Times;
use crate::ledger::{KeyRecord, ReceiptFiles, StoreError};
use crate::pure::account::{Denial, Granted, ReserveRequest};
use crate::pure::ids::{KeyDigest, RequestId};
use crate::pure::money::Credits;
use crate::pure::time::Timestamp;

/// What calls, commands and the ledger's thread share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Tells this ledger's connections from another's.
    pub(super) number: u64,
    pub(super) started: Instant,
    pub(super) options: Options,
    pub(super) shards: Shards,
    pub(super) cache: Cache,
    pub(super) producer: Producer,
    pub(super) holds: OpenHolds,
    pub(super) key_ends: KeyEnds,
    pub(super) events: OpenPlaces,
    /// Those of all accounts.
    pub(super) names: Names,
    pub(super) maintenance: Maintenance,
    /// It was seen to have accounts.
    pub(super) has_accounts: AtomicBool,
    /// And then none any more.
    pub(super) is_emptied: AtomicBool,
    /// Where receipts are written to as well.
    pub(super) receipt_files: OnceLock<Arc<ReceiptFiles>>,
    /// For how much longer the debits of dead processes may wait for one another, in milliseconds.
    pub(super) takes_over_ms: AtomicU64,
    /// What time it was by Redis' clock as [`Clock::passed_ms`] began, in milliseconds since 1970, or `NOT_HEARD`.
    pub(super) began_ms: AtomicI64,
    /// How long reserves took.
    pub(super) times: Times,
}

impl Shared {
    /// This runtime's way to Redis.
    pub(super) fn link(&self) -> Arc<Link> {
        Link::of_runtime(self.number)
    }

    /// Milliseconds since the ledger was opened, by the monotonic clock.
    pub(super) fn now_ms(&self) -> u64 {
        millis_since(self.started)
    }

    pub(super) async fn run_script(
        &self,
        link: &Link,
        script: &'static Script,
        keys: &[&str],
        arguments: &[&str],
    ) -> Result<Value, StoreError> {
        let mut command = script.call(EvalMode::Hash, keys);
        command.arg(arguments);
        let call = Call {
            command,
            script: Some(script),
        };
        Ok(self.ask(link, &call).await?)
    }

    pub(super) async fn command(&self, link: &Link, command: redis::Cmd) -> Result<Value, StoreError> {
        Ok(self.ask(link, &Call { command, script: None }).await?)
    }

    /// Asks the server that has the call's first key.
    pub(super) async fn ask(&self, link: &Link, call: &Call) -> Result<Value, Unanswered> {
        let within = self.options.timeout;
        if self.shards.is_cluster() {
            // Apart, so that what waits for the one server of others is as small as before.
            return self.ask_cluster(link, call, within).boxed().await;
        }
        let shard = self.shards.of_slot(0);
        link.line(&shard).ask(&shard, call, Sent::Plain, within).await
    }

    /// The same in a cluster: goes where the servers send it, as long as there is time.
    async fn ask_cluster(&self, link: &Link, call: &Call, within: Duration) -> Result<Value, Unanswered> {
        let until = crate::clock::monotonic() + within;
        let slot = slot_of_command(&call.command);
        let own = || slot.map_or_else(|| Of::Other(self.shards.any()), |slot| self.shards.of_slot(slot));
        let (mut shard, mut how) = (own(), Sent::Plain);
        let (mut left, mut asked) = (within, 0);
        loop {
            let unanswered = match link.line(&shard).ask(&shard, call, how, left).await {
                Ok(value) => return Ok(value),
                Err(unanswered) => unanswered,
            };
            (shard, how) = match &unanswered.elsewhere {
                None => {
                    // Its slots may have another master by now.
                    self.shards.doubt();
                    return Err(unanswered);
                }
                Some(Elsewhere::Moved(slot, node)) => (self.shards.moved(*slot, node), Sent::Plain),
                Some(Elsewhere::Ask(node)) => (self.shards.named(node), Sent::Asking),
                Some(Elsewhere::Later) => {
                    tokio::time::sleep(AGAIN).await;
                    (own(), Sent::Plain)
                }
            };
            asked += 1;
            left = until.saturating_duration_since(crate::clock::monotonic());
            if asked > REDIRECTIONS_MAX || left.is_zero() {
                return Err(unanswered);
            }
        }
    }

    /// Waits until all that was queued for the account before is acknowledged.
    ///
    /// # Errors
    /// When that takes longer than a call may.
    pub(super) async fn barrier(&self, account: &Account) -> Result<(), StoreError> {
        let shard = self.shards.queue_of(account);
        shard.queue.barrier(account, self.options.timeout).await
    }

    /// `is_answer`: a refusal is the answer to the request, and told by an event as [`ReserveRequest::tells_of`] says; else the request is
    /// made again, and no refusal is told.
    pub(super) async fn try_reserve(
        &self,
        link: &Link,
        account: &Arc<Account>,
        (request, is_answer): (&ReserveRequest, bool),
        entry: &mut Option<Entry>,
    ) -> Result<Result<Granted, Denial>, StoreError> {
        let call = Call {
            command: self.reserve_command(account, request, is_answer),
            script: Some(&script::RESERVE),
        };
        let mut doubt = Doubt {
            shared: self,
            account,
            hold: request.id,
            entry,
            armed: true,
        };
        let answered = self.ask(link, &call).await;
        doubt.armed = matches!(&answered, Err(unanswered) if unanswered.sent);
        let reserved = reply::reserved(&answered?, request)?;
        account.saw(&request.scope, reserved.window);
        self.heard_time(reserved.now);
        Ok(reserved.outcome)
    }

    pub(super) fn reserve_command(&self, account: &Account, request: &ReserveRequest, is_answer: bool) -> redis::Cmd {
        let limits = request.limits;
        let tpm = limits.tpm.min(COUNT_MAX);
        let zero_or = |amount: Credits| amount.pico().max(0);
        let (wanted, at_least, quota) = (zero_or(request.wanted), request.at_least.pico(), request.quota.pico());
        let spend = request.spend.as_deref();
        let mut command = match spend {
            None => script::RESERVE.call(EvalMode::Hash, &account.keys()),
            Some(_) => {
                let end_users = end_users_of(account.id(), request.spend.as_ref(), request.id);
                let keys: Vec<&str> = account.keys().into_iter().chain(end_users.as_deref()).collect();
                script::RESERVE.call(EvalMode::Hash, &keys)
            }
        };
        command
            .arg(request.id.as_bytes())
            .arg(scope_text(&request.scope))
            .arg(limits.rpm)
            .arg(tpm)
            .arg(limits.concurrency)
            .arg(wanted)
            .arg(at_least)
            .arg(quota.saturating_sub(wanted))
            .arg(quota.saturating_sub(at_least))
            .arg(request.tokens.min(tpm))
            .arg(request.expires.since(self.options.clock.now()))
            .arg(counted_text(request, is_answer));
        if let Clock::Manual(_) = self.redis_clock() {
            command.arg(self.now_text());
        } else if spend.is_some() {
            command.arg("");
        }
        if let Some(limits) = spend {
            reserve_arguments(&mut command, request, limits, self.redis_now());
        }
        command
    }

    pub(super) async fn show(&self, link: &Link, keys: [&str; 2]) -> Result<Option<reply::Shown>, StoreError> {
        let now = self.now_text();
        reply::shown(&self.run_script(link, &script::SHOW, &keys, &[&now]).await?)
    }
}

/// A reserve whose answer did not come, or whose caller went away, may have held something: it is given back.
struct Doubt<'a> {
    shared: &'a Shared,
    account: &'a Arc<Account>,
    hold: RequestId,
    entry: &'a mut Option<Entry>,
    armed: bool,
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        if self.armed {
            let entry = self.entry.take().unwrap_or(Entry::none());
            let shard = self.shared.shards.queue_of(self.account);
            shard
                .queue
                .release(self.account, self.hold, None, ReleaseKind::Doubtful, entry);
        }
    }
}

/// All accounts' names.
pub(super) fn accounts_key() -> String {
    format!("{PREFIX}accounts")
}

/// The name of a key's record.
pub(super) fn key_name(digest: &KeyDigest) -> String {
    format!("{PREFIX}key:{}", digest.to_hex())
}

/// Reads the fields `record` and `revoked`, which may have others behind them; nothing when there is no such key.
pub(super) fn read_record(value: &Value) -> Result<Option<KeyRecord>, StoreError> {
    let [record, revoked, ..] = reply::list(value)? else {
        return Ok(None);
    };
    let Some(record) = reply::optional_text(record)? else {
        return Ok(None);
    };
    let kept = record.strip_prefix(RESTRICTED).or_else(|| record.strip_prefix(SHARED));
    let record = kept.unwrap_or(record);
    let mut key: KeyRecord =
        serde_json::from_str(record).map_err(|error| StoreError::Corrupt(format!("a key's record: {error}")))?;
    if let Some(at) = reply::optional_text(revoked)? {
        key.revoked = Some(Timestamp(reply::number(Some(at))?));
    }
    Ok(Some(key))
}

/// A key's record as it is kept. Versions that know no limits cannot read that of a key that has some, and let it do nothing.
pub(super) fn record_text(key: &KeyRecord) -> Result<String, StoreError> {
    let text = serde_json::to_string(key).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    Ok(match (&key.settings.counts_as, key.settings.is_restricted()) {
        (Some(_), _) => format!("{SHARED}{text}"),
        (None, true) => format!("{RESTRICTED}{text}"),
        (None, false) => text,
    })
}

/// What the record of a key begins with that is restricted by what earlier versions do not know.
const RESTRICTED: &str = "restricted ";
/// And that of a key that counts as another one: to gateways that would count it alone, and so let it spend a limit twice.
const SHARED: &str = "shared ";

/// How often a call is sent elsewhere at most, and the wait where it is sent to the same place.
const REDIRECTIONS_MAX: u32 = 8;
const AGAIN: Duration = Duration::from_millis(20);

/// The largest count that a script keeps exactly.
pub(super) const COUNT_MAX: u64 = 1 << 53;
