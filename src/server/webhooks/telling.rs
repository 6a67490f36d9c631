//! One event that is being told: to all of its webhooks at once, and again to one that did not take it when that is due, for as long as it is
//! still being sent to another. So no webhook waits for another. Once it is sent to nobody, what is left of it goes back into the ledger.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::watch;

use super::ledger_time::LedgerTime;
use super::message::Message;
use super::receiver::{Receiver, TELL_MAX};
use crate::failpoints::point;
use crate::ledger::Ledger;
use crate::ledger::admin::events::{Delivery, Event, EventKind, EventOp};
use crate::ledger::admin::{AdminError, AdminOp, AdminReply};
use crate::ledger::events::DUE_WITHIN_MS;
use crate::pure::time::Timestamp;
use crate::telemetry::Telemetry;
use crate::telemetry::deliveries::DeliveryOutcome;

/// One event that is being told, and was claimed a moment ago.
pub(super) struct Telling {
    pub(super) event: Event,
    pub(super) receivers: Vec<(Delivery, Arc<Receiver>)>,
    /// This process knew of one of these when the event happened.
    pub(super) was_awaited: bool,
    pub(super) ledger: Ledger,
    pub(super) time: LedgerTime,
    pub(super) telemetry: Arc<Telemetry>,
    /// The gateway stops: nobody is told again.
    pub(super) stops: Arc<AtomicBool>,
}

/// How far an event is told.
pub(super) struct Progress {
    pub(super) all: Vec<Told>,
    /// To how many webhooks it is being sent. Once it is none it stays so.
    pub(super) sending: watch::Sender<usize>,
    began: Timestamp,
    /// Until when nobody else claims it, by the ledger's time.
    claimed_until: AtomicI64,
}

/// One webhook, and what is left to do for it.
pub(super) struct Told {
    delivery: Mutex<Delivery>,
    receiver: Arc<Receiver>,
    /// It was due when the event was claimed.
    is_due: bool,
}

impl Telling {
    pub(super) async fn run(self) {
        let message = Message::of(&self.event);
        let progress = self.progress();
        let tries = progress
            .all
            .iter()
            .map(|told| self.keep_telling(told, &progress, &message));
        join_all(tries).await;
        point("webhook-settle", "before");
        if let Err(error) = self.settle(self.deliveries(&progress), self.is_dropped()).await {
            log::debug!(
                "what became of the event {} cannot be kept, it is told again: {error}",
                self.event.id
            );
        }
        point("webhook-settle", "after");
    }

    /// How it stands before anybody is told. Those that are due count as being sent to from here on.
    pub(super) fn progress(&self) -> Progress {
        let told = self.receivers.iter().map(|(delivery, receiver)| Told {
            delivery: Mutex::new(delivery.clone()),
            receiver: Arc::clone(receiver),
            is_due: !self.is_later(delivery),
        });
        let all: Vec<Told> = told.collect();
        let began = self.time.now();
        Progress {
            sending: watch::Sender::new(all.iter().filter(|told| told.is_due).count()),
            all,
            began,
            claimed_until: AtomicI64::new(began.plus_millis(LEASE_MS).0),
        }
    }

    /// Tells one webhook whenever that is due, until it has the event or it is sent to nobody any more.
    async fn keep_telling(&self, told: &Told, progress: &Progress, message: &Message) {
        if told.is_due {
            told.set(self.tell(&told.delivery(), &told.receiver, message).await);
            progress.ends();
        }
        while self.comes_due(told, progress).await {
            progress.begins();
            let is_ours = self.keep(progress).await;
            if is_ours {
                told.set(self.tell(&told.delivery(), &told.receiver, message).await);
            }
            progress.ends();
            if !is_ours {
                return;
            }
        }
    }

    /// Waits until a webhook is to be told again. False where that is not to be waited for: it has the event, or the event is sent to nobody
    /// any more, and goes back into the ledger.
    pub(super) async fn comes_due(&self, told: &Told, progress: &Progress) -> bool {
        let delivery = told.delivery();
        if delivery.done || delivery.due.since(progress.began) > AGAIN_WITHIN_MS {
            return false;
        }
        let pause_ms = delivery.due.since(self.time.now()).max(0);
        let pause = Duration::from_millis(u64::try_from(pause_ms).unwrap_or(0));
        let waited = tokio::time::timeout(pause, progress.is_sent_to_nobody()).await;
        // Both may have come.
        let is_sent = *progress.sending.borrow() > 0;
        waited.is_err() && is_sent && !self.stops.load(Ordering::Relaxed)
    }

    /// Writes how it stands, and has the event claimed for another while: whoever takes it up after a death knows what was tried. False where
    /// that fails, somebody else may have claimed it since, or the claim may end while the event is sent.
    pub(super) async fn keep(&self, progress: &Progress) -> bool {
        let now = self.time.now();
        if !progress.is_claimed(now) {
            return false;
        }
        let until = now.plus_millis(LEASE_MS);
        let mut deliveries = self.deliveries(progress);
        for open in deliveries.iter_mut().filter(|delivery| !delivery.done) {
            open.due = until;
        }
        if let Err(error) = self.settle(deliveries, false).await {
            log::debug!("the event {} cannot be claimed for longer: {error}", self.event.id);
            return false;
        }
        // That may have taken long.
        let now = self.time.now();
        if !progress.is_claimed(now) {
            return false;
        }
        progress.claimed_until.fetch_max(until.0, Ordering::Relaxed);
        point("webhook-keep", "after");
        let left_ms = u64::try_from(until.since(now)).unwrap_or(0);
        Duration::from_millis(left_ms) >= TELL_MAX
    }

    /// Who has the event, and what is left to do for the others.
    fn deliveries(&self, progress: &Progress) -> Vec<Delivery> {
        let before = self.event.deliveries.iter().filter(|delivery| delivery.done);
        before.cloned().chain(progress.all.iter().map(Told::delivery)).collect()
    }

    /// Whether it goes before every webhook has it that waits for it: somebody began to tell that one, or it is known to have been configured when
    /// the event happened. One that was configured since is told what is left of the last three days, and loses nothing of before; nor is anything
    /// lost with the operator's test.
    fn is_dropped(&self) -> bool {
        let Event {
            kind,
            deliveries,
            is_too_old,
            ..
        } = &self.event;
        let waits = |url: &str| deliveries.iter().any(|known| !known.done && known.url == url);
        let is_awaited = || self.was_awaited || self.receivers.iter().any(|(delivery, _)| waits(&delivery.url));
        *is_too_old && *kind != EventKind::Test && is_awaited()
    }

    async fn settle(&self, deliveries: Vec<Delivery>, is_dropped: bool) -> Result<AdminReply, AdminError> {
        let op = EventOp::Settle {
            id: self.event.id.clone(),
            account: self.event.account.clone(),
            deliveries,
            is_dropped,
        };
        self.ledger.run(AdminOp::Event(op)).await
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
        if self.is_later(delivery) {
            return Some(delivery.clone());
        }
        receiver.tell(delivery, message, &self.time, &self.telemetry).await
    }

    /// Whether a webhook is told later only. One that is due still later was put off by a clock that was ahead; nobody is waited for with an
    /// event that is too old.
    fn is_later(&self, delivery: &Delivery) -> bool {
        !self.event.is_too_old && (1..=DUE_WITHIN_MS).contains(&delivery.due.since(self.time.now()))
    }
}

impl Progress {
    /// Whether nobody else can have claimed it by then.
    fn is_claimed(&self, now: Timestamp) -> bool {
        self.claimed_until.load(Ordering::Relaxed) > now.0
    }

    fn begins(&self) {
        self.sending.send_modify(|sending| *sending = sending.saturating_add(1));
    }

    fn ends(&self) {
        self.sending.send_modify(|sending| *sending = sending.saturating_sub(1));
    }

    async fn is_sent_to_nobody(&self) {
        let mut sending = self.sending.subscribe();
        // It fails only where the sender is gone, which is here.
        drop(sending.wait_for(|sending| *sending == 0).await);
    }
}

impl Told {
    fn delivery(&self) -> Delivery {
        self.lock().clone()
    }

    pub(super) fn set(&self, left: Option<Delivery>) {
        let mut delivery = self.lock();
        match left {
            Some(left) => *delivery = left,
            None => delivery.done = true,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Delivery> {
        self.delivery.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For how long an event is claimed: longer than [`TELL_MAX`].
pub(super) const LEASE_MS: i64 = 20_000;
/// So long after it was claimed nobody is told again before it is claimed anew, which sees webhooks as they are configured by then.
pub(super) const AGAIN_WITHIN_MS: i64 = 30_000;
