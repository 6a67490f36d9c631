//! Tells webhooks of events, on a thread and a runtime of its own: no call ever waits for it, and what is raised waits in the ledger.
//!
//! Events that are due are claimed from the ledger for a while. Each is sent to its webhooks at once, again to one that did not take it while
//! another still has it, and what is left of it goes back into the ledger: who is still to be told, and when. A process that dies in between
//! has told nobody, or has told somebody who is told again.

mod known;
mod ledger_time;
mod message;
mod receiver;
mod send;
mod telling;
mod unclaimed;
mod watch;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::task::JoinSet;

use self::known::KnownWebhooks;
use self::ledger_time::LedgerTime;
use self::receiver::Receiver;
use self::telling::{LEASE_MS, Telling};
use self::unclaimed::Unclaimed;
use self::watch::Watch;
use crate::clock::{Clock, monotonic};
use crate::config::Webhook;
use crate::failpoints::point;
use crate::gateway::snapshot::Snapshot;
use crate::ledger::Ledger;
use crate::ledger::admin::events::{Delivery, Event, EventCount, EventKind, EventOp};
use crate::ledger::admin::{AdminError, AdminOp, AdminReply};
use crate::telemetry::Telemetry;
use crate::telemetry::deliveries::DeliveryOutcome;

/// The thread, for whoever stops the process.
#[derive(Debug)]
pub(crate) struct Webhooks {
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread works with.
pub(crate) struct Dispatcher {
    pub(crate) snapshot: Weak<ArcSwap<Snapshot>>,
    pub(crate) ledger: Ledger,
    pub(crate) clock: Clock,
    pub(crate) telemetry: Arc<Telemetry>,
    /// By their url; those that were once configured are kept, for there are few.
    pub(crate) receivers: HashMap<String, Arc<Receiver>>,
    /// Those that are configured.
    pub(crate) known: KnownWebhooks,
    /// Nothing more is claimed, nobody is told again, and a look at keys ends.
    pub(crate) stops: Arc<AtomicBool>,
    /// When it was said last that events cannot be claimed.
    pub(crate) unclaimed: Unclaimed,
}

impl Webhooks {
    /// Starts telling, until the snapshot is gone or [`Webhooks::stop`] is called. Webhooks are read anew from each snapshot.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn start(
        snapshot: &Arc<ArcSwap<Snapshot>>,
        ledger: &Ledger,
        clock: &Clock,
        telemetry: &Arc<Telemetry>,
    ) -> std::io::Result<Webhooks> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let stops = Arc::new(AtomicBool::new(false));
        let mut dispatcher = Dispatcher {
            snapshot: Arc::downgrade(snapshot),
            ledger: ledger.clone(),
            clock: clock.clone(),
            telemetry: Arc::clone(telemetry),
            receivers: HashMap::new(),
            known: KnownWebhooks::default(),
            stops: Arc::clone(&stops),
            unclaimed: Unclaimed::default(),
        };
        let work = move || {
            runtime.block_on(dispatcher.run());
            // A name that is still looked up is waited for no longer.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("webhooks".to_owned());
        Ok(Webhooks {
            stops,
            thread: Some(thread.spawn(work)?),
        })
    }

    /// Claims no more, and waits a moment for what is being sent and for a look at keys to end. Blocks; to be called before the ledger is closed.
    pub(crate) fn stop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the thread that tells webhooks panicked");
        }
    }
}

impl Drop for Webhooks {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
    }
}

impl Dispatcher {
    async fn run(&mut self) {
        let (mut telling, mut watch) = (JoinSet::new(), Watch::default());
        let mut looked: Option<std::time::Instant> = None;
        while !self.stops.load(Ordering::Relaxed) {
            let Some(snapshot) = self.snapshot.upgrade().map(|snapshot| snapshot.load_full()) else {
                return;
            };
            watch.look(&snapshot, (&self.ledger, &self.clock), &self.stops).await;
            self.known.note(&snapshot.config.webhooks, self.ledger.now());
            if snapshot.config.webhooks.is_empty() {
                // Since a reload: what was open then would go on ageing.
                if looked.take().is_some() {
                    self.telemetry.deliveries.nobody_is_told();
                }
            } else {
                if looked.is_none_or(|at| at.elapsed() >= COUNT_EVERY) {
                    looked = Some(monotonic());
                    self.count().await;
                }
                self.tell_due(&snapshot.config.webhooks, &mut telling).await;
            }
            drop(snapshot);
            tokio::time::sleep(LOOK_EVERY).await;
            while telling.try_join_next().is_some() {}
        }
        let all = async {
            while telling.join_next().await.is_some() {}
            // It has seen the stop too, and lets another gateway look.
            watch.end().await;
        };
        // What is not done by then is claimed again by the next process.
        drop(tokio::time::timeout(STOP_MAX, all).await);
    }

    /// Claims what is due, as far as there is room, and begins to tell it.
    async fn tell_due(&mut self, webhooks: &[Webhook], telling: &mut JoinSet<()>) {
        let room = TELLING_MAX.saturating_sub(telling.len());
        let Some(limit) = u32::try_from(room).ok().filter(|room| *room > 0) else {
            return;
        };
        let lease_ms = LEASE_MS;
        let events = match self.run_op(EventOp::Claim { limit, lease_ms }).await {
            Ok(AdminReply::Events { events, missed }) => {
                if let Some(why) = missed {
                    self.unclaimed.tell(monotonic(), "some", &why);
                }
                events
            }
            Ok(_) => return log::error!("a claim of events has an answer of another kind"),
            Err(error) => return self.unclaimed.tell(monotonic(), "all", &error),
        };
        point("webhook-claim", "after");
        for event in events {
            telling.spawn(self.telling(event, webhooks).run());
        }
    }

    /// An event that was claimed a moment ago, with whom it is to be told.
    fn telling(&mut self, event: Event, webhooks: &[Webhook]) -> Telling {
        let said = event.claimed.unwrap_or_else(|| self.ledger.now());
        let receivers = self.receivers_of(&event, webhooks);
        let mut urls = receivers.iter().map(|(delivery, _)| &delivery.url);
        Telling {
            was_awaited: urls.any(|url| self.known.was_known_at(url, &event)),
            receivers,
            event,
            ledger: self.ledger.clone(),
            time: LedgerTime::new(&self.clock, said),
            telemetry: Arc::clone(&self.telemetry),
            stops: Arc::clone(&self.stops),
        }
    }

    /// Whom an event is to be told: with when, and how often it was tried. One that was configured while the event waits for another is
    /// told of it too.
    fn receivers_of(&mut self, event: &Event, webhooks: &[Webhook]) -> Vec<(Delivery, Arc<Receiver>)> {
        let only = event
            .data
            .get("url")
            .and_then(|url| url.as_str())
            .filter(|_| event.kind == EventKind::Test);
        let is_meant = |webhook: &&Webhook| webhook.wants(event.kind) && only.is_none_or(|url| url == webhook.url);
        let wants = webhooks.iter().filter(is_meant);
        let mut all = Vec::new();
        for webhook in wants {
            let known = event.deliveries.iter().find(|delivery| delivery.url == webhook.url);
            let delivery = match known {
                Some(delivery) if delivery.done => continue,
                Some(delivery) => delivery.clone(),
                None => Delivery {
                    url: webhook.url.clone(),
                    failed: 0,
                    // By a clock that is behind it may have happened later than that says now.
                    due: event.claimed.map_or(event.at, |now| event.at.min(now)),
                    done: false,
                },
            };
            all.push((delivery, self.receiver(webhook)));
        }
        let is_gone = |delivery: &&Delivery| {
            let is_it = |webhook: &Webhook| webhook.url == delivery.url;
            !delivery.done && !webhooks.iter().any(is_it)
        };
        for delivery in event.deliveries.iter().filter(is_gone) {
            let Event { id, kind, .. } = event;
            log::warn!(
                "{} is configured no more, and was not told of {kind} ({id})",
                delivery.url
            );
            self.telemetry.deliveries.count(DeliveryOutcome::GivenUp);
        }
        all
    }

    fn receiver(&mut self, webhook: &Webhook) -> Arc<Receiver> {
        let known = self.receivers.get(&webhook.url);
        if let Some(known) = known.filter(|known| known.webhook == *webhook) {
            return Arc::clone(known);
        }
        let receiver = Arc::new(Receiver::new(webhook.clone()));
        self.receivers.insert(webhook.url.clone(), Arc::clone(&receiver));
        receiver
    }

    async fn count(&self) {
        match self.run_op(EventOp::Count).await {
            Ok(AdminReply::EventCount(count)) => {
                let EventCount {
                    open,
                    oldest,
                    dropped,
                    is_partial,
                } = count;
                let (deliveries, oldest) = (&self.telemetry.deliveries, oldest.map(|at| at.0));
                let dropped = match is_partial {
                    true => deliveries.looked_in_part(open, oldest, dropped),
                    false => deliveries.looked(open, oldest, dropped),
                };
                if dropped > 0 {
                    log::error!(
                        "{dropped} events were dropped before every webhook had them: too many were open, or they were too old"
                    );
                }
            }
            Ok(_) => log::error!("a count of events has an answer of another kind"),
            Err(error) => log::debug!("events cannot be counted: {error}"),
        }
    }

    async fn run_op(&self, op: EventOp) -> Result<AdminReply, AdminError> {
        self.ledger.run(AdminOp::Event(op)).await
    }
}

/// How often it is looked for what is due: a call of the ledger where there are webhooks, else nothing.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often open events are counted.
const COUNT_EVERY: Duration = Duration::from_secs(5);
/// Events that are told at once.
const TELLING_MAX: usize = 1_024;
/// How long a stop waits for what is being sent, and for a look at keys to end.
const STOP_MAX: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
