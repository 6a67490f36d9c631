//! Settlements that Redis had acknowledged and does not know any more: those that are here are sent again, and the others are told.
//!
//! In a cluster a slot may have come to this shard a moment ago: those that its master before acknowledged are in the hands of that one's
//! settler, and are handed over. So whether the others are lost is asked a while later.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Settler;
use super::send::producer_field;
use crate::ledger::StoreError;
use crate::ledger::redis::account::Account;
use crate::ledger::redis::reply;
use crate::pure::ids::AccountId;
use crate::pure::numbers::{CallNumber, ProducerId};

/// Numbers of an account that Redis had acknowledged and did not know, and that are not here.
#[derive(Debug)]
pub(super) struct Missing {
    /// When it is asked whether it knows them by then, by the ledger's monotonic clock.
    due_ms: u64,
    account: Arc<Account>,
    producer: ProducerId,
    numbers: Vec<u64>,
}

impl Settler {
    /// Redis has lost settlements that it had acknowledged.
    pub(super) fn send_lost(&mut self, account: &Arc<Account>, producer: ProducerId, numbers: &[u64]) {
        let again = self.ring.take(account, producer, numbers);
        let count = numbers.len();
        log::warn!(
            "Redis has lost {count} settlements of {}; they are sent again",
            account.id()
        );
        let here: BTreeSet<u64> = again.iter().map(|debit| debit.number.number).collect();
        let missing: Vec<u64> = numbers.iter().copied().filter(|n| !here.contains(n)).collect();
        let may_come = self.shared.shards.is_cluster() && self.missing.len() < MISSING_MAX;
        if !missing.is_empty() && may_come {
            self.missing.push(Missing {
                due_ms: self.shared.now_ms().saturating_add(HANDED_OVER_WITHIN_MS),
                account: Arc::clone(account),
                producer,
                numbers: missing,
            });
        } else if !missing.is_empty() {
            tell(account.id(), missing.len(), "");
        }
        self.send_again(again);
    }

    /// Asks for what was missing some time before `now`, and tells what Redis still does not know.
    pub(super) async fn tell_missing(&mut self, now: u64) {
        while let Some(place) = self.missing.iter().position(|missing| missing.due_ms <= now) {
            let mut missing = self.missing.swap_remove(place);
            match self.still_open(&missing).await {
                Ok(0) => {}
                Ok(open) => tell(missing.account.id(), open, ""),
                Err(error) => {
                    log::debug!(
                        "what Redis has lost of {} is asked for later: {error}",
                        missing.account.id()
                    );
                    missing.due_ms = self.shared.now_ms().saturating_add(HANDED_OVER_WITHIN_MS);
                    self.missing.push(missing);
                    return;
                }
            }
        }
    }

    /// At the end, when Redis cannot be asked any more.
    pub(super) fn tell_missing_unasked(&mut self) {
        for missing in self.missing.drain(..) {
            let unless = ", unless they were handed over by the slot's master before";
            tell(missing.account.id(), missing.numbers.len(), unless);
        }
    }

    /// How many of them Redis does not know now, wherever the account's slot is.
    async fn still_open(&self, missing: &Missing) -> Result<usize, StoreError> {
        let first = missing.numbers.first().copied().unwrap_or_default();
        let [name, _] = missing.account.keys();
        let mut command = redis::cmd("HGET");
        command
            .arg(name)
            .arg(producer_field(CallNumber::new(missing.producer, first)));
        let answer = self.shared.command(&self.link, command).await?;
        let known = reply::numbers(&answer);
        let is_open = |number: &&u64| known.as_ref().is_none_or(|known| !known.is_closed(**number));
        Ok(missing.numbers.iter().filter(is_open).count())
    }
}

fn tell(account: &AccountId, count: usize, unless: &str) {
    log::error!("MONEY: Redis has lost {count} settlements of {account} for good{unless}");
}

/// How long another shard's settler has to hand over what it has of an account.
const HANDED_OVER_WITHIN_MS: u64 = 2_000;
/// Accounts that wait for that at most: what others have lost is told at once.
const MISSING_MAX: usize = 1024;
