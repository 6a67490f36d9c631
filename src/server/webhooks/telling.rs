//! One event that is being told: to all of its webhooks at once.

use std::sync::Arc;

use futures::future::join_all;

use super::ledger_time::LedgerTime;
use super::message::Message;
use super::receiver::Receiver;
use crate::failpoints::point;
use crate::ledger::Ledger;
use crate::ledger::admin::AdminOp;
use crate::ledger::admin::events::{Delivery, Event, EventOp};
use crate::ledger::events::DUE_WITHIN_MS;
use crate::telemetry::Telemetry;
use crate::telemetry::deliveries::DeliveryOutcome;

/// One event that is being told.
pub(super) struct Telling {
    pub(super) event: Event,
    pub(super) receivers: Vec<(Delivery, Arc<Receiver>)>,
    pub(super) ledger: Ledger,
    pub(super) time: LedgerTime,
    pub(super) telemetry: Arc<Telemetry>,
}

impl Telling {
    pub(super) async fn run(self) {
        let message = Message::of(&self.event);
        let tries = self
            .receivers
            .iter()
            .map(|(delivery, receiver)| self.tell(delivery, receiver, &message));
        let left = join_all(tries).await;
        let now = self.receivers.iter().zip(left).map(|((delivery, _), left)| {
            left.unwrap_or_else(|| Delivery {
                done: true,
                ..delivery.clone()
            })
        });
        let before = self.event.deliveries.iter().filter(|delivery| delivery.done);
        let deliveries: Vec<Delivery> = before.cloned().chain(now).collect();
        point("webhook-settle", "before");
        let settle = EventOp::Settle {
            id: self.event.id.clone(),
            account: self.event.account.clone(),
            deliveries,
        };
        if let Err(error) = self.ledger.run(AdminOp::Event(settle)).await {
            log::debug!(
                "what became of the event {} cannot be kept, it is told again: {error}",
                self.event.id
            );
        }
        point("webhook-settle", "after");
    }

    /// Tells one webhook. What is left to do, if anything.
    pub(super) async fn tell(&self, delivery: &Delivery, receiver: &Receiver, message: &Message) -> Option<Delivery> {
        let Event {
            id, kind, is_too_old, ..
        } = &self.event;
        if *is_too_old {
            log::error!(
                "{} was not told of {kind} ({id}) for three days, and is not any more",
                delivery.url
            );
            self.telemetry.deliveries.count(DeliveryOutcome::GivenUp);
            return None;
        }
        // One that is due still later was put off by a clock that was ahead.
        if (1..=DUE_WITHIN_MS).contains(&delivery.due.since(self.time.now())) {
            return Some(delivery.clone());
        }
        receiver.tell(delivery, message, &self.time, &self.telemetry).await
    }
}

/// For how long an event is claimed: longer than it waits for its turn and is sent.
pub(super) const LEASE_MS: i64 = 20_000;
