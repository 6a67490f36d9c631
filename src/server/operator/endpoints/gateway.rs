//! The gateway itself: settings that clients of this API need, models with their prices, providers, state, maintenance, webhooks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::config::Provider;
use crate::gateway::media_type::JSON;
use crate::ledger::admin::events::EventOp;
use crate::ledger::admin::{AdminOp, AdminReply};
use crate::ledger::events::test;
use crate::pure::catalogue::{Model, Target};
use crate::pure::error::ApiError;
use crate::pure::error::operator::OperatorError;
use crate::pure::ids::Tier;
use crate::pure::money::Markup;
use crate::pure::prices::PriceTable;
use crate::server::operator::answer::Answer;
use crate::server::operator::call::{Call, expect};
use crate::server::operator::shown::{Amount, Page};

#[derive(Serialize)]
struct Settings<'c> {
    version: &'static str,
    currency: &'c str,
    key_prefix: &'c str,
    base_path: &'c str,
    tiers: BTreeMap<&'static str, TierShown>,
}

#[derive(Serialize)]
struct TierShown {
    rpm: u64,
    tpm: u64,
    concurrency: u64,
    monthly_quota: Amount,
}

pub(in crate::server::operator) async fn settings(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let config = &call.snapshot.config;
    let tiers = Tier::ALL.map(|tier| {
        let rules = config.tier(tier);
        let shown = TierShown {
            rpm: rules.limits.rpm,
            tpm: rules.limits.tpm,
            concurrency: rules.limits.concurrency,
            monthly_quota: rules.monthly_quota.into(),
        };
        (tier.name(), shown)
    });
    Ok(Answer::json(&Settings {
        version: env!("CARGO_PKG_VERSION"),
        currency: &config.currency,
        key_prefix: &config.key_prefix,
        base_path: &config.base_path,
        tiers: BTreeMap::from(tiers),
    }))
}

#[derive(Serialize)]
struct ModelShown<'m> {
    id: &'m str,
    name: &'m str,
    provider: &'m str,
    tier: Tier,
    modality: &'m str,
    context_length: u64,
    max_completion_tokens: u64,
    purposes: Vec<&'m str>,
    aliases: Vec<&'m str>,
    /// What callers pay for a token.
    pricing: &'m PriceTable,
    /// What the provider charges for it: the usual prices, without the markup.
    provider_pricing: BTreeMap<&'static str, String>,
    targets: Vec<TargetShown<'m>>,
}

#[derive(Serialize)]
struct TargetShown<'m> {
    provider: &'m str,
    model: &'m str,
    weight: Option<u32>,
}

impl<'m> ModelShown<'m> {
    fn of(model: &'m Model, markup: Markup) -> ModelShown<'m> {
        let row = model.prices.usual();
        let sides = [("prompt", row.pricing.prompt), ("completion", row.pricing.completion)];
        let kinds = row.kinds.named().into_iter();
        let prices = sides
            .into_iter()
            .chain(kinds.filter_map(|(name, price)| Some((name, price?))))
            .chain(row.kinds.request.map(|price| ("request", price)));
        ModelShown {
            id: &model.id,
            name: &model.name,
            provider: &model.provider,
            tier: model.tier,
            modality: &model.modality,
            context_length: model.context_length,
            max_completion_tokens: model.max_completion_tokens,
            purposes: model.purposes.iter().map(|purpose| purpose.name()).collect(),
            aliases: model.aliases.iter().map(|alias| &**alias).collect(),
            pricing: &model.prices,
            provider_pricing: prices
                .map(|(name, price)| (name, price.without_markup(markup).to_string()))
                .collect(),
            targets: model.targets.iter().map(TargetShown::of).collect(),
        }
    }
}

impl<'m> TargetShown<'m> {
    fn of(target: &'m Target) -> TargetShown<'m> {
        TargetShown {
            provider: &target.provider,
            model: &target.model,
            weight: target.weight.map(std::num::NonZeroU32::get),
        }
    }
}

pub(in crate::server::operator) async fn models(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let (catalogue, markup) = (&call.snapshot.catalogue, call.snapshot.config.markup);
    let models = catalogue.models().iter().map(|model| ModelShown::of(model, markup));
    Ok(Answer::json(&Page {
        data: models.collect(),
        next: None,
    }))
}

#[derive(Serialize)]
struct ProviderShown<'p> {
    name: &'p str,
    address: &'p str,
    /// Whether its credential is there.
    on: bool,
    targets: Vec<TargetState>,
}

#[derive(Serialize)]
struct TargetState {
    model: String,
    /// Passed over since it failed.
    breaker_open: bool,
    /// Its last answer refused the gateway's own credential.
    credential_refused: bool,
}

pub(in crate::server::operator) async fn providers(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let gauges = call.api.admin.gauges();
    let shown = |provider: &'_ Provider| -> Vec<TargetState> {
        let own = gauges.breakers.iter().filter(|(name, _, _)| *name == provider.name);
        own.map(|(name, model, open)| TargetState {
            model: model.clone(),
            breaker_open: *open,
            credential_refused: gauges
                .credentials_refused
                .get(&(name.clone(), model.clone()))
                .copied()
                .unwrap_or_default(),
        })
        .collect()
    };
    let providers = call.snapshot.config.providers.values();
    let data = providers.map(|provider| ProviderShown {
        name: &provider.name,
        address: &provider.base_url.authority,
        on: provider.is_on(),
        targets: shown(provider),
    });
    Ok(Answer::json(&Page {
        data: data.collect(),
        next: None,
    }))
}

/// The state, as the status page of `admin_listen` reads it.
pub(in crate::server::operator) async fn status(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let status = call.api.admin.status().map_err(|error| {
        log::error!("the status cannot be written: {error}");
        OperatorError::Api(ApiError::Internal)
    })?;
    Ok(Answer::body(JSON, status))
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Maintenance {
    on: bool,
}

pub(in crate::server::operator) async fn maintenance(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let on = call.api.ledger().in_maintenance();
    Ok(Answer::json(&Maintenance { on }))
}

pub(in crate::server::operator) async fn set_maintenance(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let Maintenance { on } = call.json()?;
    let on = expect(call.run(AdminOp::Maintenance { on }).await?, |reply| match reply {
        AdminReply::Maintenance { on } => Some(on),
        _ => None,
    })?;
    Ok(Answer::json(&Maintenance { on }))
}

/// Webhooks, and what waits for them.
#[derive(Serialize)]
struct WebhooksShown<'c> {
    webhooks: Vec<WebhookShown<'c>>,
    events_open: u64,
    oldest_event_at: Option<String>,
    events_dropped: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    events_partial: bool,
}

#[derive(Serialize)]
struct WebhookShown<'c> {
    url: &'c str,
    events: Vec<&'static str>,
    secrets: usize,
    allow_private: bool,
}

pub(in crate::server::operator) async fn webhooks(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let count = expect(call.run(AdminOp::Event(EventOp::Count)).await?, |reply| match reply {
        AdminReply::EventCount(count) => Some(count),
        _ => None,
    })?;
    let configured = call.snapshot.config.webhooks.iter();
    let webhooks = configured.map(|webhook| WebhookShown {
        url: &webhook.url,
        events: webhook.events.iter().map(|kind| kind.name()).collect(),
        secrets: webhook.secrets.len(),
        allow_private: webhook.allow_private,
    });
    Ok(Answer::json(&WebhooksShown {
        webhooks: webhooks.collect(),
        events_open: count.open,
        oldest_event_at: count.oldest.map(|at| at.to_string()),
        events_dropped: count.dropped,
        events_partial: count.is_partial,
    }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tested {
    /// None: all of them.
    #[serde(default)]
    url: Option<String>,
}

#[derive(Serialize)]
struct Raised {
    id: String,
}

pub(in crate::server::operator) async fn test_webhook(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let Tested { url } = call.json()?;
    let op = webhook_test(call, url.as_deref())?;
    if call.snapshot.config.webhooks.is_empty() {
        return Err(OperatorError::not_found(
            "No webhooks are configured: see `webhooks:` in conf/tollgate.yaml.",
        ));
    }
    let events = expect(call.run(op).await?, |reply| match reply {
        AdminReply::Events { events, .. } => Some(events),
        _ => None,
    })?;
    let ids = events.into_iter().map(|event| event.id);
    Ok(Answer::json(&Raised { id: ids.collect() }))
}

/// The command that tries one webhook, or all: under an id of this gateway's and by its clock.
pub(super) fn webhook_test(call: &Call<'_>, url: Option<&str>) -> Result<AdminOp, OperatorError> {
    let op = AdminOp::Event(EventOp::Raise(test(call.api.clock(), url)));
    // Before whether there is one: who may not send one is told no more.
    call.allowed(&op)?;
    let mut webhooks = call.snapshot.config.webhooks.iter();
    match url {
        Some(url) if !webhooks.any(|webhook| webhook.url == url) => Err(no_webhook()),
        Some(_) | None => Ok(op),
    }
}

fn no_webhook() -> OperatorError {
    OperatorError::not_found("There is no such webhook: see GET /v1/webhooks.")
}
