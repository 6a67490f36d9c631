//! Events for webhooks on the embedded ledger. What a debit or a credit entry crosses is written with it; a refused call has nothing that is
//! written, so memory says which refusal is the first, and the ledger's thread writes that.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::Embedded;
use super::command::Command;
use super::commands::{failed, read_beside};
use super::keys_look::KeysLook;
use super::lease::Lease;
use super::shared::{EmbeddedAccount, Shared};
use super::writer::Committer;
use crate::clock::monotonic;
use crate::ledger::StoreError;
use crate::ledger::admin::events::{Event, EventOp, next_due};
use crate::ledger::admin::{AdminError, AdminOp, AdminReply};
use crate::ledger::events::{self, CLAIMED_MAX, EventTimes, Refused, Room};
use crate::pure::account::Denial;
use crate::pure::ids::{AccountId, KeyDigest};
use crate::pure::money::Credits;
use crate::pure::time::Timestamp;

impl Embedded {
    /// A call is refused, and is not tried again. Called while the account is locked.
    pub(super) fn refused(&self, cell: &Arc<EmbeddedAccount>, denial: &Denial, quota: Credits) {
        if let Some(refused) = cell.told.to_tell(denial, quota, self.shared.clock.now()) {
            let cell = Arc::clone(cell);
            // Where the thread has ended, nobody is told any more.
            drop(self.tell(Command::Refused { cell, refused }));
        }
    }

    /// Raises events of keys that expire; false where that is given up before all are. The ledger's thread looks at some at once, and has as much
    /// time for all else before it is asked for the next.
    pub(in crate::ledger) async fn raise_expiring(&self, is_given_up: &AtomicBool) -> Result<bool, AdminError> {
        while !is_given_up.load(Ordering::Relaxed) {
            let asked = monotonic();
            let looked = self.run(AdminOp::Event(EventOp::RaiseExpiring)).await?;
            if looked == AdminReply::Done {
                return Ok(true);
            }
            // It does what is due only while nothing is asked of it.
            tokio::time::sleep(asked.elapsed().min(PAUSE_MAX)).await;
        }
        Ok(false)
    }
}

impl Shared {
    /// Keys that expire soon.
    fn expiring(&self, now: Timestamp) -> Vec<KeyDigest> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let expiring = keys
            .iter()
            .filter(|(_, entry)| events::expires_soon(&entry.record, now).is_some());
        expiring.map(|(digest, _)| *digest).collect()
    }

    /// The events of those of these keys that expire soon.
    fn events_of(&self, digests: &[KeyDigest], now: Timestamp) -> Vec<(Event, Room)> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let entries = digests.iter().filter_map(|digest| keys.get(digest));
        entries
            .filter_map(|entry| events::expiring(&entry.record, now))
            .collect()
    }
}

impl Committer {
    /// Writes that a call was refused, and what that left.
    pub(super) fn raise_refused(&mut self, cell: &EmbeddedAccount, refused: &Refused) {
        let told = cell.told.told_with(refused);
        let account: AccountId = cell.record.load().id.clone();
        let now = self.shared.clock.now();
        if let Err(error) = self.database.raise_refused(&account, refused, told, now) {
            log::warn!("an event about {account} cannot be written, the next one is: {error}");
            cell.told.forget(refused);
        }
    }

    pub(super) fn event_op(&mut self, op: EventOp) -> Result<AdminReply, AdminError> {
        match op {
            EventOp::Raise(event) => {
                if let Some(account) = &event.account {
                    self.cell(account)?;
                }
                let now = self.shared.clock.now();
                self.database.raise_once(&event, now).map_err(failed)?;
                Ok(AdminReply::Events {
                    events: vec![event],
                    missed: None,
                })
            }
            EventOp::Claim { limit, lease_ms } => {
                let (events, unreadable) = self.claim(limit, lease_ms).map_err(failed)?;
                events::claimed(events, unreadable).map_err(failed)
            }
            EventOp::Settle {
                id,
                deliveries,
                is_dropped,
                ..
            } => {
                let due = next_due(&deliveries);
                let settled = match is_dropped && due.is_none() {
                    true => self.database.drop_event(&id),
                    false => self.database.settle_event(&id, &deliveries),
                };
                settled.map_err(failed)?;
                self.settled(&id, due);
                Ok(AdminReply::Done)
            }
            EventOp::RaiseExpiring => self.look_at_keys().map_err(failed),
            EventOp::Count => Err(read_beside()),
        }
    }

    /// Looks at some of the keys that expire: those that are next in a look that goes on, or the first of a new one. An error ends a look.
    fn look_at_keys(&mut self) -> Result<AdminReply, StoreError> {
        let (now, asked_ms) = (self.shared.clock.now(), self.shared.clock.passed_ms());
        let goes_on = |look: &KeysLook| asked_ms.saturating_sub(look.asked_ms) < LOOK_KEPT_MS;
        let (mut left, mut waiting) = match self.keys_look.take().filter(goes_on) {
            Some(look) => (look.left, look.waiting),
            None => (self.shared.expiring(now), BTreeSet::new()),
        };
        let some = left.split_off(left.len().saturating_sub(KEYS_AT_ONCE));
        let new = self.shared.events_of(&some, now);
        waiting.append(&mut self.database.raise_new(&new, now)?);
        let is_whole = left.is_empty();
        if is_whole {
            events::warn_of_waiting(waiting.len());
        } else {
            self.keys_look = Some(KeysLook {
                left,
                waiting,
                asked_ms,
            });
        }
        Ok(events::looked(is_whole))
    }

    /// What is still to be told is claimed until it is due: whoever goes on telling it has written a time at which its claim ends.
    fn settled(&mut self, id: &str, due: Option<Timestamp>) {
        let Some(due) = due else {
            self.leases.remove(id);
            return;
        };
        // Of one that ended long ago nothing is known.
        if let Some(lease) = self.leases.get_mut(id) {
            lease.renew(due, self.shared.clock.passed_ms());
        }
    }

    /// Leases are kept in memory: a process that dies has none. What it had claimed is due, or is when it wrote that it would be, where it
    /// settled that since. Beside them, why one of those that are due cannot be read.
    fn claim(&mut self, limit: u32, lease_ms: i64) -> Result<(Vec<Event>, Option<StoreError>), StoreError> {
        // Of a clock that is ahead a lease would last until it is as late.
        let passed = self.shared.clock.passed_ms();
        self.leases.retain(|_, lease| lease.until > passed);
        let limit = usize::try_from(limit.clamp(1, CLAIMED_MAX)).unwrap_or(1);
        let now = self.shared.clock.now();
        let (mut due, unreadable) = self
            .database
            .due_events(now, limit, |id| self.leases.contains_key(id))?;
        let known = self.known_time.of_events();
        let at = EventTimes {
            clock: now,
            known,
            latest: now,
        };
        due.iter_mut().for_each(|event| event.claimed_at(at));
        let lease = Lease::new((now, passed), lease_ms.max(0));
        self.leases.extend(due.iter().map(|event| (event.id.clone(), lease)));
        Ok((due, unreadable))
    }
}

/// Keys that are looked at in one transaction: what else is to be written waits for it.
const KEYS_AT_ONCE: usize = 200;
/// How long the rest of a look that nobody asks for is kept, in milliseconds: whoever began it has given it up.
pub(super) const LOOK_KEPT_MS: i64 = 60_000;
/// The longest that is waited between two parts of a look: a stop waits for it.
const PAUSE_MAX: Duration = Duration::from_secs(1);
