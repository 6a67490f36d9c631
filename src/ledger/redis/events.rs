//! Events for webhooks. Each is kept with the account that it is about, and written by the script that is its cause (`event.lua`); those about
//! none are in a hash of their own.
//!
//! Whoever raises one publishes where, and every gateway hears it: a claim then looks only there. What nobody heard is found by looking
//! through all accounts, at the first claim, when the subscription was away, and now and then.

mod read;

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::{join_all, try_join};
use redis::Value;

use super::account::account_keys;
use super::admission_breaker::millis;
use super::link::Link;
use super::open_places::Place;
use super::reply;
use super::script::{self, PREFIX};
use super::shared::Shared;
use crate::ledger::StoreError;
use crate::ledger::admin::events::{Delivery, Event, EventCount, EventOp, next_due};
use crate::ledger::admin::{AdminError, AdminReply};
use crate::ledger::events::{self, CLAIMED_MAX, REMEMBERED_MS};
use crate::pure::ids::AccountId;
use crate::pure::time::Timestamp;

impl Shared {
    pub(super) async fn event_op(&self, link: &Link, op: EventOp) -> Result<AdminReply, AdminError> {
        match op {
            EventOp::Raise(event) => {
                self.raise(link, &event).await?;
                Ok(AdminReply::Events { events: vec![event] })
            }
            EventOp::Claim { limit, lease_ms } => {
                let events = self.claim(link, limit.clamp(1, CLAIMED_MAX), lease_ms.max(0)).await?;
                Ok(AdminReply::Events { events })
            }
            EventOp::Settle {
                id,
                account,
                deliveries,
            } => {
                self.settle_event(link, &id, account, &deliveries).await?;
                Ok(AdminReply::Done)
            }
            EventOp::RaiseExpiring => {
                self.raise_expiring(link).await?;
                Ok(AdminReply::Done)
            }
            EventOp::Count => self.count_events(link).await.map(AdminReply::EventCount),
        }
    }

    async fn raise(&self, link: &Link, event: &Event) -> Result<(), AdminError> {
        let key = key_of(event.account.as_ref());
        let data = event.data.to_string();
        let (now, at, known) = (self.now_text(), event.at.0.to_string(), REMEMBERED_MS.to_string());
        let of_account = if event.account.is_some() { "1" } else { "" };
        let arguments = [
            now.as_str(),
            &event.id,
            event.kind.name(),
            &at,
            &data,
            &known,
            of_account,
        ];
        let raised = self.run_script(link, &script::EVENT_RAISE, &[&key], &arguments).await?;
        match (reply::text(&raised)?, &event.account) {
            ("none", Some(account)) => Err(AdminError::NoAccount(account.clone())),
            _ => Ok(()),
        }
    }

    async fn claim(&self, link: &Link, limit: u32, lease_ms: i64) -> Result<Vec<Event>, AdminError> {
        self.search(link).await?;
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut claimed = Vec::new();
        for place in self.events.due_at(self.redis_now()) {
            let left = limit.saturating_sub(claimed.len());
            if left == 0 {
                break;
            }
            self.claim_at(link, place, (left, lease_ms), &mut claimed).await?;
        }
        Ok(claimed)
    }

    async fn claim_at(
        &self,
        link: &Link,
        place: Place,
        (most, lease_ms): (usize, i64),
        claimed: &mut Vec<Event>,
    ) -> Result<(), AdminError> {
        let key = key_of(place.as_ref());
        // What is raised from here on is heard, and looked for again.
        self.events.lock().remove(&place);
        let (now, lease, most) = (self.now_text(), lease_ms.to_string(), most.to_string());
        let arguments = [now.as_str(), &lease, &most];
        let answered = self.run_script(link, &script::EVENT_CLAIM, &[&key], &arguments).await;
        let read = answered.and_then(|value| read::claimed(&value, place.as_ref(), claimed));
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
                return Err(error.into());
            }
        }
        Ok(())
    }

    async fn settle_event(
        &self,
        link: &Link,
        id: &str,
        account: Place,
        deliveries: &[Delivery],
    ) -> Result<(), AdminError> {
        let key = key_of(account.as_ref());
        let due = next_due(deliveries);
        let arguments = match due {
            None => [id.to_owned(), String::new(), String::new()],
            Some(due) => {
                let text = serde_json::to_string(deliveries).map_err(|error| StoreError::Corrupt(error.to_string()))?;
                [id.to_owned(), due.0.to_string(), text]
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

    /// One gateway of many looks at all keys.
    async fn raise_expiring(&self, link: &Link) -> Result<(), AdminError> {
        let mut turn = redis::cmd("SET");
        turn.arg(format!("{PREFIX}events:keys")).arg("1").arg("NX").arg("PX");
        turn.arg(millis(KEYS_EVERY));
        if self.command(link, turn).await? == Value::Nil {
            return Ok(());
        }
        let now = self.time(link).await?;
        for some in self.read_names(link).await?.chunks(AT_ONCE) {
            let looks = some.iter().map(async |account| {
                for key in self.keys_of(link, account).await? {
                    if let Some(event) = events::expiring(&key, now) {
                        self.raise(link, &event).await?;
                    }
                }
                Ok::<_, AdminError>(())
            });
            for looked in join_all(looks).await {
                match looked {
                    // A name that was taken, and whose account was never made.
                    Ok(()) | Err(AdminError::NoAccount(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    async fn count_events(&self, link: &Link) -> Result<EventCount, AdminError> {
        self.search(link).await?;
        let places: Vec<Place> = self.events.lock().keys().cloned().collect();
        let mut all = EventCount::default();
        for some in places.chunks(AT_ONCE) {
            let counts = some.iter().map(async |place| {
                let key = key_of(place.as_ref());
                let count = self.run_script(link, &script::EVENT_COUNT, &[&key], &[]).await?;
                let count = read::count(&count)?;
                self.events.note_dropped(place, count.dropped);
                Ok::<_, StoreError>(count)
            });
            for count in join_all(counts).await {
                let count = count?;
                all.open = all.open.saturating_add(count.open);
                all.oldest = [all.oldest, count.oldest].into_iter().flatten().min();
            }
        }
        all.dropped = self.events.dropped();
        Ok(all)
    }

    /// Looks through all accounts for open events, and for how many were dropped, if that was not done lately.
    async fn search(&self, link: &Link) -> Result<(), AdminError> {
        let now_ms = self.now_ms().max(1);
        let searched_ms = self.events.searched_ms.load(Ordering::Relaxed);
        if searched_ms != 0 && now_ms.saturating_sub(searched_ms) < self.events.search_every_ms() {
            return Ok(());
        }
        // First: what is doubted meanwhile is searched for again.
        self.events.searched_ms.store(now_ms, Ordering::Relaxed);
        let searched = self.search_all(link).await;
        if searched.is_err() {
            self.events.doubt();
        }
        Ok(searched?)
    }

    async fn search_all(&self, link: &Link) -> Result<(), StoreError> {
        let asks_dropped = self.events.asks_dropped(self.now_ms());
        let names = self.read_names(link).await?;
        let places: Vec<Place> = [None].into_iter().chain(names.into_iter().map(Some)).collect();
        for some in places.chunks(AT_ONCE) {
            let looks = some.iter().map(async |place| {
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
                let length = reply::integer(&open)?;
                Ok::<_, StoreError>((length > 0).then(|| place.clone()))
            });
            for place in join_all(looks).await {
                if let Some(place) = place? {
                    self.events.due(place, Timestamp(0));
                }
            }
        }
        Ok(())
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

/// How often one of all gateways looks at all keys: a little more often than each of them wants to.
const KEYS_EVERY: Duration = Duration::from_secs(3_500);
/// Accounts that are looked at at once.
const AT_ONCE: usize = 500;
