//! Events for webhooks. Each is kept with the account that it is about, and written by the script that is its cause (`event.lua`); those about
//! none are in a hash of their own.
//!
//! Whoever raises one publishes where, and every gateway hears it: a claim then looks only there. What nobody heard is found by looking
//! through all accounts, at the first claim, when the subscription was away, and now and then.
//!
//! A server that does not answer holds up no event of another's: what is claimed or counted without it says so, and where it was not looked, it
//! is looked once it answers.

mod expiring;
mod missed;
mod read;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::{join_all, try_join};
use redis::Value;

use self::missed::Missed;
use super::account::account_keys;
use super::link::Link;
use super::open_places::Place;
use super::reply;
use super::script::{self, PREFIX};
use super::shards::{Of, Shard};
use super::shared::{Shared, accounts_key};
use super::slots::slot_of;
use crate::ledger::StoreError;
use crate::ledger::admin::events::{Delivery, Event, EventCount, EventOp, next_due};
use crate::ledger::admin::{AdminError, AdminReply};
use crate::ledger::events::{self, CLAIMED_MAX, KEEP_MS, REMEMBERED_MS};
use crate::pure::ids::AccountId;
use crate::pure::time::Timestamp;

impl Shared {
    pub(super) async fn event_op(&self, link: &Link, op: EventOp) -> Result<AdminReply, AdminError> {
        match op {
            EventOp::Raise(event) => {
                self.raise(link, &event).await?;
                Ok(AdminReply::Events {
                    events: vec![event],
                    missed: None,
                })
            }
            EventOp::Claim { limit, lease_ms } => self.claim(link, limit.clamp(1, CLAIMED_MAX), lease_ms.max(0)).await,
            EventOp::Settle {
                id,
                account,
                deliveries,
                is_dropped,
            } => {
                self.settle_event(link, &id, account, (deliveries.as_slice(), is_dropped))
                    .await?;
                Ok(AdminReply::Done)
            }
            EventOp::RaiseExpiring => {
                let is_whole = self.raise_expiring(link, &AtomicBool::new(false)).await?;
                Ok(events::looked(is_whole))
            }
            EventOp::Count => self.count_events(link).await.map(AdminReply::EventCount),
        }
    }

    async fn raise(&self, link: &Link, event: &Event) -> Result<(), AdminError> {
        let raised = self.raise_once(link, event, &[]).await?;
        match (reply::text(&raised)?, &event.account) {
            ("none", Some(account)) => Err(AdminError::NoAccount(account.clone())),
            _ => Ok(()),
        }
    }

    /// The script's answer. `bounds`: with how many open events of its kind at its place it is not raised but `full`, as it is where it would
    /// drop another one, unless a 1 follows; none where it is raised in any case.
    async fn raise_once(&self, link: &Link, event: &Event, bounds: &[&str]) -> Result<Value, StoreError> {
        let key = key_of(event.account.as_ref());
        let data = event.data.to_string();
        let age = self.options.clock.now().since(event.at).clamp(0, KEEP_MS);
        let (now, ago, known) = (self.now_text(), age.to_string(), REMEMBERED_MS.to_string());
        let of_account = if event.account.is_some() { "1" } else { "" };
        let arguments = [
            now.as_str(),
            &event.id,
            event.kind.name(),
            &ago,
            &data,
            &known,
            of_account,
        ];
        let arguments: Vec<&str> = arguments.into_iter().chain(bounds.iter().copied()).collect();
        self.run_script(link, &script::EVENT_RAISE, &[&key], &arguments).await
    }

    async fn claim(&self, link: &Link, limit: u32, lease_ms: i64) -> Result<AdminReply, AdminError> {
        let mut missed = Missed::default();
        self.search(link, &mut missed).await;
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut claimed = Vec::new();
        for place in self.events.due_at(self.redis_now()) {
            let left = limit.saturating_sub(claimed.len());
            if left == 0 {
                break;
            }
            let shard = self.shard_of(&place);
            if missed.is_silent(&shard) {
                continue;
            }
            let all = (&mut claimed, &mut missed);
            if let Err(error) = self.claim_at(link, place, (left, lease_ms), all).await {
                missed.note_at(&shard, error);
            }
        }
        Ok(events::claimed(claimed, missed.why())?)
    }

    async fn claim_at(
        &self,
        link: &Link,
        place: Place,
        (most, lease_ms): (usize, i64),
        (claimed, missed): (&mut Vec<Event>, &mut Missed),
    ) -> Result<(), StoreError> {
        let key = key_of(place.as_ref());
        // What is raised from here on is heard, and looked for again.
        self.events.lock().remove(&place);
        let (now, lease, most) = (self.now_text(), lease_ms.to_string(), most.to_string());
        let arguments = [now.as_str(), &lease, &most];
        let answered = self.run_script(link, &script::EVENT_CLAIM, &[&key], &arguments).await;
        let read = answered.and_then(|value| read::claimed(&value, place.as_ref(), claimed, missed));
        match read {
            Ok((next, dropped)) => {
                // Where nothing is open any more, nobody asks for it again.
                self.events.note_dropped(&place, dropped);
                if let Some(next) = next {
                    self.events.due(place, next);
                }
            }
            Err(error) => {
                self.events.due(place, Timestamp(0));
                return Err(error);
            }
        }
        Ok(())
    }

    async fn settle_event(
        &self,
        link: &Link,
        id: &str,
        account: Place,
        (deliveries, is_dropped): (&[Delivery], bool),
    ) -> Result<(), AdminError> {
        let key = key_of(account.as_ref());
        let due = next_due(deliveries);
        let dropped = if is_dropped { "1" } else { "" };
        let arguments = match due {
            None => [id.to_owned(), String::new(), String::new(), dropped.to_owned()],
            Some(due) => {
                let text = serde_json::to_string(deliveries).map_err(|error| StoreError::Corrupt(error.to_string()))?;
                [id.to_owned(), due.0.to_string(), text, String::new()]
            }
        };
        let arguments = arguments.each_ref().map(String::as_str);
        self.run_script(link, &script::EVENT_SETTLE, &[&key], &arguments)
            .await?;
        if let Some(due) = due {
            self.events.due(account, due);
        }
        Ok(())
    }

    async fn count_events(&self, link: &Link) -> Result<EventCount, AdminError> {
        let mut missed = Missed::default();
        self.search(link, &mut missed).await;
        let places: Vec<Place> = self.events.lock().keys().cloned().collect();
        let (before, mut counted) = (self.events.counted(), HashMap::new());
        let (mut all, mut is_answered) = (EventCount::default(), false);
        for some in places.chunks(AT_ONCE) {
            let counts = join_all(some.iter().map(|place| self.count_at(link, place))).await;
            for (place, count) in some.iter().zip(counts) {
                let count = match count {
                    Ok(count) => {
                        is_answered = true;
                        count
                    }
                    Err(error) => {
                        missed.note(error);
                        before.get(place).copied().unwrap_or_default()
                    }
                };
                all.open = all.open.saturating_add(count.open);
                all.oldest = [all.oldest, count.oldest].into_iter().flatten().min();
                if count.open > 0 {
                    counted.insert(place.clone(), count);
                }
            }
        }
        self.events.set_counted(counted);
        match missed.why() {
            Some(why) if !is_answered && !self.is_another_answering() => return Err(why.into()),
            missed => all.is_partial = missed.is_some(),
        }
        all.dropped = self.events.dropped();
        Ok(all)
    }

    /// Whether there are several masters, of which one at least has answered when it was last asked.
    fn is_another_answering(&self) -> bool {
        let masters = self.shards.masters();
        masters.len() > 1 && masters.iter().any(|master| !master.guard.is_failing())
    }

    async fn count_at(&self, link: &Link, place: &Place) -> Result<EventCount, StoreError> {
        let key = key_of(place.as_ref());
        let count = self.run_script(link, &script::EVENT_COUNT, &[&key], &[]).await?;
        let count = read::count(&count)?;
        self.events.note_dropped(place, count.dropped);
        Ok(count)
    }

    /// Looks for open events, and for how many were dropped: through all accounts if that was not done lately, and else where nobody answered
    /// then.
    async fn search(&self, link: &Link, missed: &mut Missed) {
        let now_ms = self.now_ms().max(1);
        let is_due = self.events.is_search_due(now_ms);
        // What is left of an earlier search is asked for all that it was.
        let is_left = self.events.lacks_names() || self.events.has_unsearched();
        if is_due || self.events.lacks_names() {
            if is_due {
                // First: what is doubted meanwhile is searched for again.
                self.events.searched_ms.store(now_ms, Ordering::Relaxed);
            }
            // Until they are read, also where whoever asks gives up.
            self.events.set_lacks_names(true);
            match self.read_names(link).await {
                Ok(names) => {
                    self.events.to_search(names);
                    self.events.set_lacks_names(false);
                }
                Err(error) => {
                    missed.note_at(&self.shard_of_key(&accounts_key()), error);
                    if is_due {
                        self.events.to_search(self.cache.account_names());
                    }
                }
            }
        }
        let places = self.events.unsearched();
        let asks_dropped = !places.is_empty() && (is_left || self.events.asks_dropped(now_ms));
        for some in places.chunks(AT_ONCE) {
            let is_asked = |place: &&Place| !missed.is_silent(&self.shard_of(place));
            let asked: Vec<&Place> = some.iter().filter(is_asked).collect();
            let looked = join_all(asked.iter().map(|place| self.search_place(link, place, asks_dropped))).await;
            for (place, looked) in asked.into_iter().zip(looked) {
                match looked {
                    Ok(is_open) => {
                        if is_open {
                            self.events.due(place.clone(), Timestamp(0));
                        }
                        self.events.searched(place);
                    }
                    Err(error) => missed.note_at(&self.shard_of(place), error),
                }
            }
        }
    }

    /// Whether events are open there. Notes how many were dropped, where that is asked.
    async fn search_place(&self, link: &Link, place: &Place, asks_dropped: bool) -> Result<bool, StoreError> {
        let key = key_of(place.as_ref());
        let mut open = redis::cmd("HSTRLEN");
        open.arg(&key).arg("uei");
        let mut dropped = redis::cmd("HGET");
        dropped.arg(&key).arg("ued");
        let asked = async {
            match asks_dropped {
                true => self.command(link, dropped).await,
                false => Ok(Value::Nil),
            }
        };
        let (open, dropped) = try_join(self.command(link, open), asked).await?;
        if dropped != Value::Nil {
            self.events.note_dropped(place, read::number(&dropped)?);
        }
        Ok(reply::integer(&open)? > 0)
    }

    fn shard_of(&self, place: &Place) -> Of<'_, Shard> {
        self.shard_of_key(&key_of(place.as_ref()))
    }

    fn shard_of_key(&self, key: &str) -> Of<'_, Shard> {
        self.shards.of_slot(slot_of(key.as_bytes()))
    }
}

/// Where it is published where there are events.
pub(super) fn channel() -> String {
    format!("{PREFIX}events")
}

fn key_of(account: Option<&AccountId>) -> String {
    match account {
        Some(account) => {
            let [name, _] = account_keys(account);
            name
        }
        None => format!("{PREFIX}events"),
    }
}

/// Accounts that are looked at at once.
const AT_ONCE: usize = 500;
