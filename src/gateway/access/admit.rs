//! May this call run: tier and domain, limits, credit. The only place that asks the ledger for a hold.

use std::net::IpAddr;
use std::num::NonZeroU64;
use std::sync::Arc;

use super::authenticate::store_failed;
use super::refusal::refused;
use super::worst_case::{countable, counted, hold_prices, prompt_bounds, worst_case};
use crate::clock::Clock;
use crate::config::SuspendedStreams;
use crate::gateway::admission::{Admission, Priced};
use crate::gateway::snapshot::Snapshot;
use crate::ledger::Caller;
use crate::ledger::journal::{Intent, Journal};
use crate::pure::account::{Denial, ReserveRequest, Scope};
use crate::pure::bill::prompt_limits;
use crate::pure::catalogue::{Model, ModelKind, PURPOSE_PREFIX, Purpose};
use crate::pure::charge::Ceiling;
use crate::pure::error::ApiError;
use crate::pure::estimate::{Bound, WorstCase};
use crate::pure::ids::RequestId;
use crate::pure::limits::{Limits, RateView};
use crate::pure::money::Credits;
use crate::pure::policy::{self, Permit, Provenance, Refusal};
use crate::pure::prices::HoldPrices;
use crate::pure::request_body::{Endpoint, RequestBody, ResponseMode};
use crate::pure::spend::{EndUserId, SpendLimits};
use crate::telemetry::recorder::Recorder;

/// Everything that admission looks at.
pub(in crate::gateway) struct LedgerAccess<'a> {
    pub(in crate::gateway) journal: &'a Journal,
    pub(in crate::gateway) clock: &'a Clock,
    pub(in crate::gateway) snapshot: &'a Snapshot,
    pub(in crate::gateway) id: RequestId,
}

/// A refusal, with the caller's limits where they were looked at.
pub(in crate::gateway) struct Refused {
    pub(in crate::gateway) error: ApiError,
    pub(in crate::gateway) rate: Option<RateView>,
}

impl From<ApiError> for Refused {
    fn from(error: ApiError) -> Refused {
        Refused { error, rate: None }
    }
}

/// The limits and the scope that count for a caller.
pub(in crate::gateway) fn limits(snapshot: &Snapshot, caller: &Caller) -> (Scope, Limits) {
    let tier = snapshot.config.tier(caller.tier());
    (
        Scope::of(&caller.key.id, &caller.key.limits),
        caller.key.limits.over(tier.limits),
    )
}

/// The account's quota of a month: its own or its tier's.
pub(in crate::gateway) fn monthly_quota(snapshot: &Snapshot, caller: &Caller) -> Credits {
    caller
        .account
        .monthly_quota
        .unwrap_or(snapshot.config.tier(caller.account.tier).monthly_quota)
}

/// Checks model, tier and domain lock (in this order, before any money).
pub(in crate::gateway) fn permit(
    snapshot: &Snapshot,
    caller: &Caller,
    body: &RequestBody,
    endpoint: Endpoint,
    from: Provenance<'_>,
) -> Result<Permit, ApiError> {
    let name = body.model();
    let model = snapshot
        .catalogue
        .resolve(name)
        .ok_or_else(|| ApiError::NotFound(no_model(name)))?;
    key_allows(caller, &model.id)?;
    let permit = policy::permit(model, caller.tier(), &caller.key.domains, from).map_err(|refusal| match refusal {
        Refusal::Tier { needed, has } => {
            let (id, needed, has) = (&model.id, needed.title(), has.title());
            ApiError::Forbidden(format!("{id} needs the tier {needed}; this key has {has}."))
        }
        Refusal::Domain => ApiError::Forbidden(DOMAIN_REFUSED.to_owned()),
    })?;
    match (endpoint, model.kind()) {
        (Endpoint::Embeddings, ModelKind::Chat) => Err(ApiError::BadRequest(format!(
            "{} makes no embeddings; it is a chat model.",
            model.id
        ))),
        (Endpoint::Chat | Endpoint::ChatStream, ModelKind::Embedding) => Err(ApiError::BadRequest(format!(
            "{} does not chat; it makes embeddings.",
            model.id
        ))),
        _ => Ok(permit),
    }
}

/// Whether the key's list of models, where it has one, names the model.
///
/// # Errors
/// 403.
pub(in crate::gateway) fn key_allows(caller: &Caller, model: &str) -> Result<(), ApiError> {
    if caller.key.settings.allows_model(model) {
        return Ok(());
    }
    Err(ApiError::Forbidden(format!("This key may not use {model}.")))
}

/// Whether the key's list of addresses, where it has one, has the client's.
///
/// # Errors
/// 403.
pub(in crate::gateway) fn address_allows(caller: &Caller, client: Option<IpAddr>) -> Result<(), ApiError> {
    if caller.key.settings.allows_address(client) {
        return Ok(());
    }
    Err(ApiError::Forbidden(
        "This key may not be used from this address.".to_owned(),
    ))
}

/// The hard limits that a call counts under. All calls that name no end user are one end user's.
fn spend_limits(caller: &Caller, body: &RequestBody) -> Result<Option<Arc<SpendLimits>>, ApiError> {
    let settings = &caller.key.settings;
    if !settings.has_limits() {
        return Ok(None);
    }
    let mut end_user = None;
    if settings.end_user_limit.is_some() {
        let name = body
            .end_user()
            .map_err(|error| ApiError::BadRequest(error.to_string()))?;
        end_user = Some(EndUserId::of(name.as_deref().unwrap_or_default()));
    }
    Ok(settings.spend(&caller.key.id, end_user))
}

/// Holds the worst case's cost, or as much of it as there is when the gateway may lower the maximum.
pub(in crate::gateway) async fn admit(
    access: &LedgerAccess<'_>,
    caller: Caller,
    permit: Permit,
    body: &RequestBody,
) -> Result<Box<Admission>, Refused> {
    let model = Arc::clone(permit.model());
    let spend = match spend_limits(&caller, body) {
        Ok(spend) => spend,
        Err(error) => return Err(Box::pin(unasked(access, &caller, error.into())).await),
    };
    let bounds = prompt_bounds(access.snapshot, &model);
    let cheap = worst_case(&model, body, body.prompt_tokens_bound(&bounds));
    let mut worst = cheap;
    let reserved = match try_reserve(access, &caller, (&model, body), &worst, (spend.as_ref(), false)).await {
        Ok(reserved) => reserved,
        Err(refused) => return Err(Box::pin(unasked(access, &caller, refused)).await),
    };
    let (mut reply, mut wanted) = reserved;
    if let Some(spendable) = spendable(&reply, monthly_quota(access.snapshot, &caller), spend.as_deref()) {
        if let Some(limit) = countable(&model, body, &cheap, spendable) {
            worst = counted(&model, body, &bounds, &cheap, limit).await.unwrap_or(cheap);
        }
        // The refusal that this follows counts as a request, and no event has told of it. A call without credit or quota is tried again
        // whatever the count came to, for only the refusal of a last try is told.
        if worst != cheap || !matches!(reply, Err(Denial::Spent { .. })) {
            (reply, wanted) = try_reserve(access, &caller, (&model, body), &worst, (spend.as_ref(), true)).await?;
        }
    }
    let hold = match reply {
        Ok(hold) => hold,
        Err(denial) => {
            let prices = hold_prices(&worst, &model, body);
            return Err(call_refused(
                access,
                &caller,
                (&worst, &prices),
                (spend.as_deref(), denial),
            ));
        }
    };
    if worst == cheap && hold.amount() < wanted {
        // Less than the worst case is there. Now the prompt is worth counting: every token that it is shorter than its
        // bound is one more that the answer may have.
        worst = counted(&model, body, &bounds, &cheap, u64::MAX).await.unwrap_or(cheap);
        wanted = cost_of(&worst, &model, body)?;
    }
    let cap = if hold.amount() >= wanted {
        None
    } else {
        let each = worst
            .affordable_each(hold.amount(), &hold_prices(&worst, &model, body))
            .and_then(NonZeroU64::new);
        if each.is_none() {
            // Not reached: what is granted covers the prompt and a token a choice. An answer without a limit would not be covered.
            hold.release();
            return Err(ApiError::Internal.into());
        }
        each
    };
    Ok(Box::new(Admission {
        quota: monthly_quota(access.snapshot, &caller),
        permit,
        caller,
        hold,
        cap,
        ceiling: Ceiling::of(&worst, cap.map(NonZeroU64::get)),
        counted_prompt: None,
        recorder: Recorder::spent(),
        priced: (!model.prices.is_simple()).then(|| Box::new(Priced::held_by(hold_prices(&worst, &model, body)))),
        details: None,
    }))
}

/// What a call that was refused could spend if none of the account's other calls ran. None where the refusal is the call's last, since
/// counting the prompt could not turn it: there is nothing to spend, or it was for another reason.
fn spendable(
    reply: &Result<crate::ledger::Hold, Denial>,
    quota: Credits,
    spend: Option<&SpendLimits>,
) -> Option<Credits> {
    match reply {
        // What open calls hold may be back when the caller comes again: whether it is told to is decided by the counted prompt.
        Err(Denial::Credit { available, held, .. }) => {
            Some(available.saturating_add(*held)).filter(|left| *left > Credits::ZERO)
        }
        Err(denial) if denial.leaves_nothing(quota) => None,
        Err(Denial::Quota { used, .. }) => Some(quota.saturating_sub(*used)),
        Err(Denial::Spent { spender, spent, .. }) => {
            let limit = spend.and_then(|limits| limits.of(*spender))?;
            Some(limit.amount.saturating_sub(*spent)).filter(|left| *left > Credits::ZERO)
        }
        Ok(_)
        | Err(
            Denial::Requests(_) | Denial::Tokens(_) | Denial::Concurrency(_) | Denial::EndUsers(_) | Denial::Stopped(_),
        ) => None,
    }
}

/// A call that is refused before the ledger was asked: where that is its own fault it counts for the limit of requests, for all that comes before was
/// done for it. Beyond that limit it is told so, as any other.
#[cold]
async fn unasked(access: &LedgerAccess<'_>, caller: &Caller, unasked: Refused) -> Refused {
    if !matches!(unasked.error, ApiError::BadRequest(_)) {
        return unasked;
    }
    let (scope, limits) = limits(access.snapshot, caller);
    match caller.count_repeated(access.id, scope, limits).await {
        Ok(Ok(rate)) => Refused {
            rate: Some(rate),
            ..unasked
        },
        Ok(Err(rate)) => {
            let asked = (access.snapshot, caller, access.id);
            refused(asked, None, (Denial::Requests(rate), None), |_| None)
        }
        // Its fault is known without the store.
        Err(_) => unasked,
    }
}

/// Asks the ledger to hold the worst case's cost, which is told with its answer. `is_last`: it follows a try that was refused, and no other
/// follows.
async fn try_reserve(
    access: &LedgerAccess<'_>,
    caller: &Caller,
    (model, body): (&Model, &RequestBody),
    worst: &WorstCase,
    (spend, is_last): (Option<&Arc<SpendLimits>>, bool),
) -> Result<(Result<crate::ledger::Hold, Denial>, Credits), Refused> {
    let range = worst
        .hold(&hold_prices(worst, model, body))
        .map_err(|_| too_dear(worst))?;
    let (scope, limits) = limits(access.snapshot, caller);
    let request = ReserveRequest {
        id: access.id,
        scope,
        limits,
        quota: monthly_quota(access.snapshot, caller),
        wanted: range.wanted,
        at_least: range.at_least,
        // A token is about four bytes of text; the window is corrected when the real number is known.
        tokens: worst.estimated_tokens(body.prompt_bytes().div_ceil(4)),
        expires: caller.hold_expiry(access.clock.now()),
        is_counted: is_last,
        is_last,
        spend: spend.cloned(),
    };
    let intent = Intent {
        id: access.id,
        account: &caller.account.id,
        key: &caller.key.id,
        model: &model.id,
        pricing: model.pricing,
        limits: prompt_limits(model),
        text_bytes: body.prompt_bytes(),
        endpoint: body.endpoint(),
        end_user: spend.and_then(|limits| limits.end_user()),
    };
    let entry = access.journal.begin(&intent, body.bytes()).map_err(store_failed)?;
    let on_stop = match body.mode() {
        ResponseMode::Stream => access.snapshot.config.suspended_streams,
        ResponseMode::Whole => SuspendedStreams::Finish,
    };
    let reply = caller
        .reserve_until(&request, entry, on_stop)
        .await
        .map_err(store_failed)?;
    Ok((reply, range.wanted))
}

/// What the worst case costs.
///
/// # Errors
/// 400 where that is more than any account can hold.
fn cost_of(worst: &WorstCase, model: &Model, body: &RequestBody) -> Result<Credits, Refused> {
    worst
        .hold(&hold_prices(worst, model, body))
        .map(|range| range.wanted)
        .map_err(|_| too_dear(worst))
}

fn too_dear(worst: &WorstCase) -> Refused {
    let completion = worst.completion_each.saturating_mul(worst.choices);
    ApiError::BadRequest(format!(
        "This call could cost more than any account can hold: with {} prompt tokens and {completion} completion tokens.",
        worst.prompt.0
    ))
    .into()
}

fn call_refused(
    access: &LedgerAccess<'_>,
    caller: &Caller,
    (worst, prices): (&WorstCase, &HoldPrices),
    (spend, denial): (Option<&SpendLimits>, Denial),
) -> Refused {
    let needed = worst.hold(prices).map(|range| range.at_least).unwrap_or(Credits::MAX);
    let asked = (access.snapshot, caller, access.id);
    refused(asked, Some(needed), (denial, spend), |available| {
        let affordable = worst.affordable_each(available, prices).unwrap_or(0);
        (worst.bound == Bound::Client && worst.completion_each > 0).then_some(affordable)
    })
}

/// What a caller is told who asks for what the catalogue does not have.
fn no_model(name: &str) -> String {
    match name.strip_prefix(PURPOSE_PREFIX).and_then(Purpose::parse) {
        Some(purpose) => format!("There is no model for the purpose {}.", purpose.name()),
        None => format!("There is no model {}.", shown(name)),
    }
}

/// A name of the caller's for a message: shortened, so that a megabyte does not come back.
pub(in crate::gateway) fn shown(name: &str) -> String {
    let short: String = name.chars().take(100).collect();
    format!("{short:?}")
}

/// What a key is told that is locked to other domains.
pub(in crate::gateway) const DOMAIN_REFUSED: &str = "This key may not be used from this domain.";
