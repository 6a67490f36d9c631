//! What the gateway raises by itself: providers that are down, and keys that expire within a week.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::json;

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
    /// When keys were looked at last.
    keys_at: Option<Instant>,
}

impl Watch {
    /// Looks, and raises what is new.
    pub(super) async fn look(&mut self, snapshot: &Snapshot, ledger: &Ledger, clock: &Clock) {
        if snapshot.config.webhooks.is_empty() {
            return;
        }
        self.providers(snapshot, ledger, clock).await;
        if self.keys_at.is_none_or(|at| at.elapsed() >= KEYS_EVERY) {
            self.keys_at = Some(monotonic());
            if let Err(error) = ledger.run(AdminOp::Event(EventOp::RaiseExpiring)).await {
                log::warn!("keys that expire cannot be looked for, or not all of them: {error}");
            }
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
        self.down.retain(|name, told_at| {
            let targets = providers.get(name.as_str());
            targets.is_some_and(|targets| !targets.values().any(|target| target.has_answered_since(*told_at)))
        });
        for (name, targets) in providers {
            if self.down.contains_key(name) || !is_provider_down(targets.values().copied(), clock) {
                continue;
            }
            let open = targets.iter().filter(|(_, target)| target.open_until() != 0);
            let open: Vec<&str> = open.map(|(model, _)| *model).collect();
            let data = json!({ "provider": name, "targets": open });
            let id = format!("evt_{}", crate::clock::unique().simple());
            let event = Event::new(id, EventKind::ProviderDown, clock.now(), None, data);
            match ledger.run(AdminOp::Event(EventOp::Raise(event))).await {
                Ok(_) => {
                    self.down.insert(name.to_owned(), now_ms);
                }
                // The next look tries again.
                Err(error) => log::debug!("an event cannot be raised: {error}"),
            }
        }
    }
}

/// How often keys are looked at.
const KEYS_EVERY: Duration = Duration::from_secs(3_600);
