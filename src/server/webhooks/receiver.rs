//! One webhook: how many messages it gets at once, and how it rests when it does not take them. What is due to one that rests, or is busy,
//! goes back into the ledger, so that a dead one holds up nobody else.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::ledger_time::LedgerTime;
use super::message::Message;
use super::send::{SEND_MAX, Sender, Unsent};
use crate::config::Webhook;
use crate::ledger::admin::events::{Delivery, EventKind};
use crate::pure::time::Timestamp;
use crate::pure::webhook::pause_ms;
use crate::telemetry::Telemetry;
use crate::telemetry::deliveries::DeliveryOutcome;

/// A webhook, and how it does.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) webhook: Webhook,
    sender: Sender,
    turns: Semaphore,
    state: Mutex<State>,
    spread: RandomState,
}

#[derive(Debug, Default)]
struct State {
    /// Attempts in a row that failed.
    failed: u32,
    /// Why the last one did.
    why: String,
    /// Until when it gets nothing, once it has failed often, in milliseconds of [`LedgerTime::passed_ms`].
    rests_until: i64,
}

impl Receiver {
    pub(super) fn new(webhook: Webhook) -> Receiver {
        Receiver {
            sender: Sender::new(),
            webhook,
            turns: Semaphore::new(AT_ONCE),
            state: Mutex::default(),
            spread: RandomState::new(),
        }
    }

    /// Sends a message. What is left to do, if anything.
    pub(super) async fn tell(
        &self,
        delivery: &Delivery,
        message: &Message,
        time: &LedgerTime,
        telemetry: &Telemetry,
    ) -> Option<Delivery> {
        let later = |due: Timestamp| {
            let due = due.plus_millis(self.spread_of(delivery, message, DEFERRED_SPREAD_MS));
            Some(Delivery {
                due,
                ..delivery.clone()
            })
        };
        // Whoever sends a test wants to know now whether it is taken.
        let is_new_test = message.kind == EventKind::Test && delivery.failed == 0;
        if let Some(until) = self.rests(time).filter(|_| !is_new_test) {
            return later(until);
        }
        let Ok(Ok(_turn)) = tokio::time::timeout(TURN_WITHIN, self.turns.acquire()).await else {
            return later(time.now());
        };
        let sent = self.sender.send(&self.webhook, message, time.now()).await;
        let now = time.now();
        match sent {
            Ok(()) => {
                if self.answered() {
                    log::info!("{} takes events again", self.webhook.url);
                }
                telemetry.deliveries.count(DeliveryOutcome::Delivered);
                None
            }
            Err(Unsent::Gone) => {
                log::warn!(
                    "{} wants no more of {} ({}): 410",
                    self.webhook.url,
                    message.kind,
                    message.id
                );
                // It answers: what else is due to it waits no longer.
                self.answered();
                telemetry.deliveries.count(DeliveryOutcome::GivenUp);
                None
            }
            Err(Unsent::Failed(why)) => {
                self.failed(&why, time);
                telemetry.deliveries.count(DeliveryOutcome::Failed);
                let failed = delivery.failed.saturating_add(1);
                let spread = self.spread.hash_one((&message.id, failed));
                Some(Delivery {
                    failed,
                    due: now.plus_millis(pause_ms(failed, spread)),
                    ..delivery.clone()
                })
            }
        }
    }

    /// Until when it gets nothing, if it rests. One message after each rest finds out whether it is back.
    fn rests(&self, time: &LedgerTime) -> Option<Timestamp> {
        let mut state = self.lock();
        if state.failed < FAILED_MAX {
            return None;
        }
        let now_ms = time.passed_ms();
        if state.rests_until > now_ms {
            return Some(time.now().plus_millis(state.rests_until.saturating_sub(now_ms)));
        }
        state.rests_until = now_ms.saturating_add(REST_MS_MAX);
        None
    }

    /// It has taken an event, or wants no more of it: it rests no longer. Whether the attempts before failed.
    fn answered(&self) -> bool {
        std::mem::take(&mut *self.lock()).failed > 0
    }

    fn failed(&self, why: &str, time: &LedgerTime) {
        let mut state = self.lock();
        if state.why == why {
            log::debug!("{} does not take an event: {why}", self.webhook.url);
        } else {
            // The first, and one that has another cause: who looks for the reason finds the one that is.
            log::warn!("{} does not take events, they are sent again: {why}", self.webhook.url);
            why.clone_into(&mut state.why);
        }
        state.failed = state.failed.saturating_add(1);
        if let Some(over) = state.failed.checked_sub(FAILED_MAX) {
            let rest = pause_ms(over.saturating_add(1), 0).min(REST_MS_MAX);
            state.rests_until = time.passed_ms().saturating_add(rest);
        }
    }

    fn spread_of(&self, delivery: &Delivery, message: &Message, most_ms: u64) -> i64 {
        let spread = self.spread.hash_one((&message.id, delivery.due.0)) % most_ms;
        i64::try_from(spread).unwrap_or(0)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The longest that [`Receiver::tell`] takes.
pub(super) const TELL_MAX: Duration = TURN_WITHIN.saturating_add(SEND_MAX);
/// Messages that a webhook gets at once.
const AT_ONCE: usize = 8;
/// How long a message waits for its turn.
const TURN_WITHIN: Duration = Duration::from_secs(5);
/// Over how long messages spread that were put off together.
const DEFERRED_SPREAD_MS: u64 = 3_000;
/// Failures in a row after which a webhook rests.
const FAILED_MAX: u32 = 8;
const REST_MS_MAX: i64 = 30_000;
