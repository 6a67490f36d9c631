//! An account as this process knows it: the names of its keys in Redis, what is under way, and the last windows seen.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::script::PREFIX;
use super::slots::slot_of;
use crate::ledger::producer::AccountNumbers;
use crate::pure::account::{ReserveRequest, Scope};
use crate::pure::error::AccountStop;
use crate::pure::hash_map::FastMap;
use crate::pure::ids::{AccountId, KeyId};
use crate::pure::limits::Window;
use crate::pure::numbers::{Birth, CallNumber, Numbers, ProducerId};

/// Where an account's figures are.
#[derive(Debug)]
pub struct Account {
    id: AccountId,
    keys: [String; 2],
    slot: u16,
    /// The number of the shard whose queue has what is under way.
    queued_at: AtomicUsize,
    /// Settlements and releases that Redis has not acknowledged.
    under_way: AtomicUsize,
    /// When the oldest settlement was queued that waits for the account's slot, which a cluster moves, in milliseconds of the ledger's
    /// monotonic clock; 0 when none does.
    waits_since_ms: AtomicU64,
    /// When it was logged last that Redis does not have it; 0: it has it, as far as was heard.
    missing_told_ms: AtomicU64,
    /// What its keys count as, of those that Redis was asked of: a key itself, or the one that it came in place of.
    counts_as: Mutex<FastMap<KeyId, KeyId>>,
    /// When its credit entries were looked through for those that are in no order.
    credits_looked_at_ms: AtomicU64,
    /// Whether the account is stopped, as this process heard last.
    stopped: AtomicU8,
    /// Held by whoever reads the account's usage: one call at a time may ask Redis for so much.
    #[expect(
        clippy::disallowed_types,
        reason = "who waits for it gives up after the ledger's time-out"
    )]
    pub(super) reporting: tokio::sync::Mutex<()>,
    windows: Mutex<Vec<(Scope, Window)>>,
    pub(super) numbers: AccountNumbers,
    /// The numbers of this process that Redis has acknowledged.
    acknowledged: Mutex<Acknowledged>,
}

/// Numbers of one producer that Redis has acknowledged.
#[derive(Debug, Default)]
struct Acknowledged {
    producer: Option<ProducerId>,
    numbers: Numbers,
    /// Those among them of calls that gave their holds back, the highest [`RELEASED_MAX`].
    released: BTreeSet<u64>,
}

impl Account {
    pub(super) fn new(id: AccountId) -> Account {
        Account {
            keys: account_keys(&id),
            slot: slot_of(id.as_str().as_bytes()),
            id,
            queued_at: AtomicUsize::new(0),
            under_way: AtomicUsize::new(0),
            waits_since_ms: AtomicU64::new(0),
            missing_told_ms: AtomicU64::new(0),
            counts_as: Mutex::default(),
            credits_looked_at_ms: AtomicU64::new(0),
            stopped: AtomicU8::new(ACTIVE),
            reporting: Default::default(),
            windows: Mutex::default(),
            numbers: AccountNumbers::default(),
            acknowledged: Mutex::default(),
        }
    }

    pub(super) fn id(&self) -> &AccountId {
        &self.id
    }

    /// The account itself, and the order in which its holds expire.
    pub(super) fn keys(&self) -> [&str; 2] {
        let [account, order] = &self.keys;
        [account, order]
    }

    /// The slot of its keys in a cluster: an identifier has no braces, and stands between them in its keys.
    pub(super) fn slot(&self) -> u16 {
        self.slot
    }

    /// The number of the shard whose queue has what is under way.
    pub(super) fn queued_at(&self) -> usize {
        self.queued_at.load(Ordering::Acquire)
    }

    /// What is under way is in this shard's queue from now on.
    pub(super) fn queues_at(&self, number: usize) {
        self.queued_at.store(number, Ordering::Release);
    }

    /// Whether its credit entries are to be looked through again.
    pub(super) fn credits_are_old(&self, now_ms: u64) -> bool {
        let looked_at_ms = self.credits_looked_at_ms.load(Ordering::Relaxed);
        looked_at_ms == 0 || now_ms.saturating_sub(looked_at_ms) >= CREDITS_AGE_MAX_MS
    }

    /// They were looked through.
    pub(super) fn looked_at_credits(&self, now_ms: u64) {
        self.credits_looked_at_ms.store(now_ms.max(1), Ordering::Relaxed);
    }

    /// Redis does not have it. Whether that is to be logged now: at first, and then once a minute at most.
    pub(super) fn is_missing(&self, now_ms: u64) -> bool {
        let told_ms = self.missing_told_ms.load(Ordering::Relaxed);
        let is_told_now = told_ms == 0 || now_ms.saturating_sub(told_ms) >= MISSING_TOLD_EVERY_MS;
        if is_told_now {
            self.missing_told_ms.store(now_ms.max(1), Ordering::Relaxed);
        }
        is_told_now
    }

    /// Redis has it.
    pub(super) fn is_there(&self) {
        if self.is_gone() {
            self.missing_told_ms.store(0, Ordering::Relaxed);
        }
    }

    /// Whether Redis did not have it when it heard of the account last.
    pub(super) fn is_gone(&self) -> bool {
        self.missing_told_ms.load(Ordering::Relaxed) != 0
    }

    /// Why the account may not call, as this process heard last.
    pub(super) fn stop(&self) -> Option<AccountStop> {
        match self.stopped.load(Ordering::Acquire) {
            ACTIVE => None,
            SUSPENDED => Some(AccountStop::Suspended),
            _ => Some(AccountStop::Closed),
        }
    }

    /// That was heard.
    pub(super) fn heard_stop(&self, stop: Option<AccountStop>) {
        let stopped = match stop {
            None => ACTIVE,
            Some(AccountStop::Suspended) => SUSPENDED,
            Some(AccountStop::Closed) => CLOSED,
        };
        self.stopped.store(stopped, Ordering::Release);
    }

    pub(super) fn begin(&self) {
        self.under_way.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn end(&self) {
        self.under_way.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether Redis has yet to hear of something that happened here.
    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.load(Ordering::Acquire) > 0
    }

    /// A settlement that was queued then waits for the account's slot.
    pub(super) fn waits(&self, queued_ms: u64) {
        let queued_ms = queued_ms.max(1);
        let since_ms = self.waits_since_ms.load(Ordering::Acquire);
        if since_ms == 0 || queued_ms < since_ms {
            self.waits_since_ms.store(queued_ms, Ordering::Release);
        }
    }

    /// None does any more.
    pub(super) fn waits_no_more(&self) {
        self.waits_since_ms.store(0, Ordering::Release);
    }

    /// Since when the oldest of them waits; none when none does.
    pub(super) fn waits_since_ms(&self) -> Option<u64> {
        Some(self.waits_since_ms.load(Ordering::Acquire)).filter(|since_ms| *since_ms > 0)
    }

    /// For how long it has waited, in milliseconds; 0 when none waits.
    pub(super) fn waited_ms(&self, now_ms: u64) -> u64 {
        self.waits_since_ms()
            .map_or(0, |since_ms| now_ms.saturating_sub(since_ms))
    }

    /// What a key counts as, when Redis has said it.
    pub(super) fn counts_as(&self, key: &KeyId) -> Option<KeyId> {
        let counts_as = self.counts_as.lock().unwrap_or_else(PoisonError::into_inner);
        counts_as.get(key).cloned()
    }

    /// Redis has said what a key counts as.
    pub(super) fn heard_counts_as(&self, key: &KeyId, root: KeyId) {
        let mut counts_as = self.counts_as.lock().unwrap_or_else(PoisonError::into_inner);
        if counts_as.len() >= COUNTS_AS_MAX {
            counts_as.clear();
        }
        counts_as.insert(key.clone(), root);
    }

    /// Redis has acknowledged the settlement of this number.
    pub(super) fn acknowledge(&self, number: CallNumber) {
        self.lock_acknowledged().resolve(number, &self.numbers);
    }

    /// Redis has acknowledged that the call of this number gave its hold back: it owed nothing.
    pub(super) fn acknowledge_release(&self, number: CallNumber) {
        let mut acknowledged = self.lock_acknowledged();
        if acknowledged.resolve(number, &self.numbers) {
            acknowledged.released.insert(number.number);
            if acknowledged.released.len() > RELEASED_MAX {
                acknowledged.released.pop_first();
            }
        }
    }

    /// Those of the producer's numbers from `first` to `last` that Redis has acknowledged.
    pub(super) fn acknowledged(&self, producer: ProducerId, (first, last): (u64, u64)) -> Vec<u64> {
        let acknowledged = self.lock_acknowledged();
        let is_closed =
            |number: &u64| acknowledged.producer == Some(producer) && acknowledged.numbers.is_closed(*number);
        (first..=last.min(acknowledged.numbers.high()))
            .filter(is_closed)
            .collect()
    }

    /// These of the producer's numbers without those of calls that gave their holds back: a settlement is missing with each that Redis has lost.
    pub(super) fn settlements_among(&self, producer: ProducerId, numbers: &[u64]) -> Vec<u64> {
        let acknowledged = self.lock_acknowledged();
        let is_release =
            |number: &u64| acknowledged.producer == Some(producer) && acknowledged.released.contains(number);
        numbers.iter().copied().filter(|number| !is_release(number)).collect()
    }

    fn lock_acknowledged(&self) -> MutexGuard<'_, Acknowledged> {
        self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The scope's window as Redis had it last.
    pub(super) fn window(&self, scope: &Scope) -> Window {
        let windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        windows
            .iter()
            .find(|(s, _)| s == scope)
            .map(|(_, window)| *window)
            .unwrap_or_default()
    }

    pub(super) fn saw(&self, scope: &Scope, window: Window) {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        match windows.iter_mut().find(|(s, _)| s == scope) {
            Some((_, seen)) => *seen = window,
            None => {
                if windows.len() >= WINDOWS_MAX {
                    windows.remove(0);
                }
                windows.push((scope.clone(), window));
            }
        }
    }
}

impl Acknowledged {
    /// Closes a number. False where it is of the producer before, or of another process; `given` says which producer gave the last one.
    fn resolve(&mut self, number: CallNumber, given: &AccountNumbers) -> bool {
        if self.producer != Some(number.producer) {
            // The last one may be older by birth: the one before was born by a clock that was ahead.
            let is_last = |producer| given.are_of(producer);
            let is_younger = |known: ProducerId| known.born() > number.born && !is_last(number.producer);
            if self.producer.is_some_and(|known| is_last(known) || is_younger(known)) {
                return false;
            }
            *self = Acknowledged {
                producer: Some(number.producer),
                ..Acknowledged::default()
            };
        }
        self.numbers.resolve(number.number);
        true
    }
}

/// The keys of an account. They share one hash tag, so that a cluster keeps them in one slot and a script reaches them all.
pub(super) fn account_keys(id: &AccountId) -> [String; 2] {
    [format!("{PREFIX}{{{id}}}"), format!("{PREFIX}{{{id}}}:expiry")]
}

/// The digests of an account's keys.
pub(super) fn keys_of_account(id: &AccountId) -> String {
    format!("{PREFIX}{{{id}}}:keys")
}

/// What an account's key has used, in the account's slot.
pub(super) fn usage_of_key(id: &AccountId, key: &KeyId) -> String {
    format!("{PREFIX}{{{id}}}:usage:{key}")
}

/// Where an account keeps what it knows of a number's producer.
pub(super) fn producer_field(number: CallNumber) -> String {
    let kind = if number.born == Birth::default() { 'p' } else { 'n' };
    format!("{kind}{:016x}", number.producer.0)
}

/// The order of the account's credit entries, in its slot.
pub(super) fn credits_of_account(id: &AccountId) -> String {
    format!("{PREFIX}{{{id}}}:credits")
}

/// The payments that the account had claimed and not posted when another account took them, in its slot.
pub(super) fn ended_claims_of_account(id: &AccountId) -> String {
    format!("{PREFIX}{{{id}}}:ended_claims")
}

/// The account's receipts, in its slot.
pub(super) fn receipts_of_account(id: &AccountId) -> String {
    format!("{PREFIX}{{{id}}}:receipts")
}

/// What is known of the idempotency keys of an account's key, in the account's slot: records, order, answers, and the order of these.
pub(super) fn idempotency_of_key(id: &AccountId, key: &KeyId) -> [String; 4] {
    ["", ":order", ":answers", ":stored"].map(|part| format!("{PREFIX}{{{id}}}:idempotency:{key}{part}"))
}

/// How many requests a reserve counts. One blank behind it: it is tried again when it is refused, so that a refusal is no event yet. Two:
/// its caller tries it again as long as something is left, so that only a refusal is an event that leaves nothing even without what is held.
pub(super) fn counted_text(request: &ReserveRequest, is_answer: bool) -> &'static str {
    match (request.is_counted, is_answer, request.is_last) {
        (false, true, true) => "1",
        (true, true, true) => "0",
        (false, false, _) => "1 ",
        (true, false, _) => "0 ",
        (false, true, false) => "1  ",
        (true, true, false) => "0  ",
    }
}

/// How a scope is written.
pub(super) fn scope_text(scope: &Scope) -> &str {
    match scope {
        Scope::Account => "",
        Scope::Key(key) => key.as_str(),
    }
}

/// After how long entries of a gateway of an earlier version are listed.
const CREDITS_AGE_MAX_MS: u64 = 60_000;
/// How often it is logged at most that Redis does not have an account.
const MISSING_TOLD_EVERY_MS: u64 = 60_000;
const ACTIVE: u8 = 0;
const SUSPENDED: u8 = 1;
const CLOSED: u8 = 2;
/// Keys of which it is remembered what they count as, an account. Redis says it again of any other.
const COUNTS_AS_MAX: usize = 1024;
/// Calls of an account of which it is remembered that they gave their holds back, in some two kilobytes. The settler's ring has those of the last
/// while as well: of an older one that is not among them a Redis that goes further back is said to have lost a settlement.
const RELEASED_MAX: usize = 128;
/// Windows remembered for the headers of refusals, an account.
const WINDOWS_MAX: usize = 256;

#[cfg(test)]
mod tests;
