//! What the gateway raises by itself: providers that are down, and keys that expire within a week.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::clock::{Clock, monotonic};
use crate::gateway::snapshot::Snapshot;
use crate::ledger::Ledger;
use crate::ledger::admin::AdminOp;
use crate::ledger::admin::events::{Event, EventKind, EventOp};

/// What was seen so far.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Providers that are down, and told.
    down: BTreeSet<String>,
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
                log::warn!("keys that expire cannot be looked for: {error}");
            }
        }
    }

    /// A provider is down while all its targets are passed over, and up again when one of them has answered.
    async fn providers(&mut self, snapshot: &Snapshot, ledger: &Ledger, clock: &Clock) {
        let now_ms = clock.passed_ms();
        // By provider and upstream's name of the model: until when it is passed over; 0 once it has answered again.
        let mut targets: BTreeMap<&str, BTreeMap<&str, i64>> = BTreeMap::new();
        for candidate in snapshot.candidates.values().flat_map(|targets| targets.all()) {
            let of_provider = targets.entry(candidate.upstream.provider.name.as_str()).or_default();
            of_provider.insert(&candidate.model, candidate.breaker.open_until());
        }
        self.down.retain(|name| {
            let open = targets.get(name.as_str());
            open.is_some_and(|open| open.values().all(|until| *until != 0))
        });
        for (name, open) in targets {
            if self.down.contains(name) || !open.values().all(|until| *until > now_ms) {
                continue;
            }
            let data = json!({ "provider": name, "targets": open.keys().collect::<Vec<_>>() });
            let id = format!("evt_{}", crate::clock::unique().simple());
            let event = Event::new(id, EventKind::ProviderDown, clock.now(), None, data);
            match ledger.run(AdminOp::Event(EventOp::Raise(event))).await {
                Ok(_) => {
                    self.down.insert(name.to_owned());
                }
                // The next look tries again.
                Err(error) => log::debug!("an event cannot be raised: {error}"),
            }
        }
    }
}

/// How often keys are looked at.
const KEYS_EVERY: Duration = Duration::from_secs(3_600);
