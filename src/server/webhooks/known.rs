//! Since when this process tells each webhook: what happened later waits for it, also where nobody has begun to tell it.

use crate::config::Webhook;
use crate::ledger::admin::events::Event;
use crate::pure::time::Timestamp;

/// The webhooks that are configured, and since when each is known to be, by the ledger's time.
#[derive(Debug, Default)]
pub(crate) struct KnownWebhooks(Vec<(Webhook, Timestamp)>);

impl KnownWebhooks {
    /// These are configured now. One that is new, or was changed, is known from now on.
    pub(super) fn note(&mut self, webhooks: &[Webhook], now: Timestamp) {
        self.0.retain(|(known, _)| webhooks.contains(known));
        for webhook in webhooks {
            if !self.0.iter().any(|(known, _)| known == webhook) {
                self.0.push((webhook.clone(), now));
            }
        }
    }

    /// Whether the webhook at `url` was known when an event happened.
    pub(super) fn was_known_at(&self, url: &str, event: &Event) -> bool {
        let is_it = |(known, since): &(Webhook, Timestamp)| known.url == url && *since <= event.at;
        self.0.iter().any(is_it)
    }
}
