//! What the gateway raises by itself: providers that are down, and keys that expire within a week.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinSet;

use crate::clock::{Clock, monotonic};
use crate::gateway::snapshot::Snapshot;
use crate::gateway::upstream::circuit_breaker::{Breaker, is_provider_down};
use crate::ledger::Ledger;
use crate::ledger::admin::AdminOp;
use crate::ledger::admin::events::{Event, EventKind, EventOp};

/// What was seen so far.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Providers that are down, and told: since when, in milliseconds of [`Clock::passed_ms`].
    down: BTreeMap<String, i64>,
    /// What is to be told of providers that are down, where the ledger has not said yet that it has it, and since when they are, in the same.
    /// It may have it all the same: the same event, by its id, is one however often it is raised.
    pub(super) raising: BTreeMap<String, (Event, i64)>,
    /// When keys are looked at next; none: now.
    pub(super) keys_due: Option<Instant>,
    /// A look at them, while it runs, which says whether it was whole: all keys of a ledger take their time, and no event waits for them.
    look_at_keys: JoinSet<bool>,
}

impl Watch {
    /// Looks, and raises what is new. Keys are looked at beside, until that is done or `stops` is set.
    pub(super) async fn look(
        &mut self,
        snapshot: &Snapshot,
        (ledger, clock): (&Ledger, &Clock),
        stops: &Arc<AtomicBool>,
    ) {
        while let Some(looked) = self.look_at_keys.try_join_next() {
            self.looked_at_keys(looked.unwrap_or(false));
        }
        if snapshot.config.webhooks.is_empty() {
            return;
        }
        self.providers(snapshot, ledger, clock).await;
        let now = monotonic();
        if self.keys_due.is_none_or(|due| due <= now) && self.look_at_keys.is_empty() {
            self.keys_due = Some(now + KEYS_EVERY);
            self.look_at_keys.spawn(look_at_keys(ledger.clone(), Arc::clone(stops)));
        }
    }

    /// Waits until keys are looked at no more.
    pub(super) async fn end(&mut self) {
        while let Some(looked) = self.look_at_keys.join_next().await {
            self.looked_at_keys(looked.unwrap_or(false));
        }
    }

    fn looked_at_keys(&mut self, is_whole: bool) {
        if !is_whole {
            self.keys_due = Some(monotonic() + KEYS_AGAIN);
        }
    }

    /// Whether a provider is down is for [`is_provider_down`] to say; it is up again when one of its targets has answered.
    async fn providers(&mut self, snapshot: &Snapshot, ledger: &Ledger, clock: &Clock) {
        let now_ms = clock.passed_ms();
        // By provider and upstream's name of the model.
        let mut providers: BTreeMap<&str, BTreeMap<&str, &Breaker>> = BTreeMap::new();
        for candidate in snapshot.candidates.values().flat_map(|targets| targets.all()) {
            let of_provider = providers.entry(candidate.upstream.provider.name.as_str()).or_default();
            of_provider.insert(&candidate.model, &candidate.breaker);
        }
        let is_over = |name: &str, since_ms: i64| {
            let targets = providers.get(name);
            targets.is_none_or(|targets| targets.values().any(|target| target.has_answered_since(since_ms)))
        };
        self.down.retain(|name, since_ms| !is_over(name, *since_ms));
        for (name, targets) in providers {
            let is_known = self.down.contains_key(name) || self.raising.contains_key(name);
            if is_known || !is_provider_down(targets.values().copied(), clock) {
                continue;
            }
            let open = targets.iter().filter(|(_, target)| target.open_until() != 0);
            let open: Vec<&str> = open.map(|(model, _)| *model).collect();
            let data = json!({ "provider": name, "targets": open });
            let id = format!("evt_{}", crate::clock::unique().simple());
            let event = Event::new(id, EventKind::ProviderDown, clock.now(), None, data);
            self.raising.insert(name.to_owned(), (event, now_ms));
        }
        for (name, (event, since_ms)) in std::mem::take(&mut self.raising) {
            match ledger.run(AdminOp::Event(EventOp::Raise(event.clone()))).await {
                Ok(_) => {
                    self.down.insert(name, since_ms);
                }
                // The next look tries again, though the provider may be up by then.
                Err(error) => {
                    log::debug!("an event cannot be raised: {error}");
                    self.raising.insert(name, (event, since_ms));
                }
            }
        }
    }
}

/// Whether all keys were looked at.
async fn look_at_keys(ledger: Ledger, stops: Arc<AtomicBool>) -> bool {
    match ledger.raise_expiring(&stops).await {
        Ok(is_whole) => is_whole,
        Err(error) => {
            log::warn!("keys that expire cannot be looked for, or not all of them: {error}");
            false
        }
    }
}

/// How often keys are looked at.
const KEYS_EVERY: Duration = Duration::from_secs(3_600);
/// After how long again, where not all of them were looked at, or another gateway does that, which may not come to its end.
const KEYS_AGAIN: Duration = Duration::from_secs(300);
