//! An account as this process knows it: the names of its keys in Redis, what is under way, and the last windows seen.

use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::script::PREFIX;
use super::slots::slot_of;
use crate::ledger::producer::AccountNumbers;
use crate::pure::account::Scope;
use crate::pure::error::AccountStop;
use crate::pure::ids::{AccountId, KeyId};
use crate::pure::limits::Window;
use crate::pure::numbers::{CallNumber, Numbers, ProducerId};

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
    /// The numbers of this process that Redis has acknowledged, by their producer.
    acknowledged: Mutex<(Option<ProducerId>, Numbers)>,
}

impl Account {
    pub(super) fn new(id: AccountId) -> Account {
        Account {
            keys: account_keys(&id),
            slot: slot_of(id.as_str().as_bytes()),
            id,
            queued_at: AtomicUsize::new(0),
            under_way: AtomicUsize::new(0),
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

    /// Redis has acknowledged this number.
    pub(super) fn acknowledge(&self, number: CallNumber) {
        let mut acknowledged = self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        let (producer, numbers) = &mut *acknowledged;
        if *producer != Some(number.producer) {
            if producer.is_some_and(|known| known.born() > number.born) {
                return; // Of the producer before, or of another process.
            }
            (*producer, *numbers) = (Some(number.producer), Numbers::default());
        }
        numbers.resolve(number.number);
    }

    /// Those of the producer's numbers from `first` to `last` that Redis has acknowledged.
    pub(super) fn acknowledged(&self, producer: ProducerId, (first, last): (u64, u64)) -> Vec<u64> {
        let acknowledged = self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, numbers) = &*acknowledged;
        let is_closed = |number: &u64| *known == Some(producer) && numbers.is_closed(*number);
        (first..=last.min(numbers.high())).filter(is_closed).collect()
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

/// How many requests a reserve counts. A blank behind it: it is tried again when it is refused, so that a refusal is no event yet.
pub(super) fn counted_text(is_counted: bool, is_last: bool) -> &'static str {
    match (is_counted, is_last) {
        (false, true) => "1",
        (true, true) => "0",
        (false, false) => "1 ",
        (true, false) => "0 ",
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
const ACTIVE: u8 = 0;
const SUSPENDED: u8 = 1;
const CLOSED: u8 = 2;
/// Windows remembered for the headers of refusals, an account.
const WINDOWS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::numbers::Birth;
    use crate::pure::time::Timestamp;

    fn account() -> Account {
        Account::new("acme".parse().unwrap())
    }

    /// The producer that was born so many days after the other one of these tests.
    fn producer(days: i64) -> ProducerId {
        let born = Birth::at(Timestamp(1_795_132_800_000 + days * 86_400_000));
        ProducerId::new(born, 7)
    }

    #[test]
    fn credit_entries_are_looked_through_again_after_a_while() {
        let account = account();
        assert!(account.credits_are_old(0), "they were never looked through");
        account.looked_at_credits(0);
        assert!(!account.credits_are_old(0));
        account.looked_at_credits(5_000);
        assert!(!account.credits_are_old(5_000 + CREDITS_AGE_MAX_MS - 1));
        assert!(account.credits_are_old(5_000 + CREDITS_AGE_MAX_MS));
    }

    #[test]
    fn what_was_heard_last_of_a_stop_counts() {
        let account = account();
        assert_eq!(account.stop(), None);
        for stop in [Some(AccountStop::Suspended), Some(AccountStop::Closed), None] {
            account.heard_stop(stop);
            assert_eq!(account.stop(), stop);
        }
    }

    #[test]
    fn what_was_acknowledged_is_that_of_the_youngest_producer() {
        let account = account();
        let (one, two) = (producer(0), producer(1));
        let acknowledge = |producer, numbers: &[u64]| {
            for number in numbers {
                account.acknowledge(CallNumber::new(producer, *number));
            }
        };
        acknowledge(one, &[1, 2, 4]);
        assert_eq!(account.acknowledged(one, (1, 9)), [1, 2, 4]);
        assert_eq!(account.acknowledged(one, (2, 3)), [2]);
        assert_eq!(account.acknowledged(two, (1, 9)), [0; 0]);
        acknowledge(two, &[2]);
        acknowledge(one, &[3]);
        assert_eq!(account.acknowledged(two, (1, 9)), [2]);
        assert_eq!(account.acknowledged(one, (1, 9)), [0; 0], "it was replaced");
    }

    #[test]
    fn something_is_under_way_until_all_of_it_was_heard() {
        let account = account();
        assert!(!account.is_under_way());
        account.begin();
        account.begin();
        account.end();
        assert!(account.is_under_way());
        account.end();
        assert!(!account.is_under_way());
    }

    #[test]
    fn of_two_producers_of_one_birth_the_last_one_counts() {
        let account = account();
        let born = Birth::at(Timestamp(1_795_132_800_000));
        let [one, two] = [7, 8].map(|random| ProducerId::new(born, random));
        account.acknowledge(CallNumber::new(one, 1));
        account.acknowledge(CallNumber::new(two, 2));
        assert_eq!(account.acknowledged(one, (1, 9)), [0; 0]);
        assert_eq!(account.acknowledged(two, (1, 9)), [2]);
    }

    #[test]
    fn an_account_knows_its_queue_and_the_names_of_its_keys() {
        let account = account();
        assert_eq!(account.queued_at(), 0);
        account.queues_at(2);
        assert_eq!(account.queued_at(), 2);
        assert_eq!(account.keys(), ["tg1:{acme}", "tg1:{acme}:expiry"]);
        // Other versions find them by these names.
        for (name, expected) in [
            (keys_of_account(account.id()), "tg1:{acme}:keys"),
            (credits_of_account(account.id()), "tg1:{acme}:credits"),
            (ended_claims_of_account(account.id()), "tg1:{acme}:ended_claims"),
            (receipts_of_account(account.id()), "tg1:{acme}:receipts"),
        ] {
            assert_eq!(name, expected);
        }
    }
}
