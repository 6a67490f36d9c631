//! The gateway's own endpoints: balance, usage, listings, health.

use std::borrow::Cow;
use std::collections::BTreeMap;

use pingora::protocols::http::ServerSession;
use serde::Serialize;

use super::key;
use super::responses;
use super::router::Route;
use crate::clock::Clock;
use crate::gateway::access::admit;
use crate::gateway::access::authenticate::store_failed;
use crate::gateway::context::Ctx;
use crate::gateway::snapshot::{Listed, models_body, to_json};
use crate::gateway::state::Books;
use crate::ledger::{Caller, Figures};
use crate::pure::catalogue::{self, Purpose};
use crate::pure::error::ApiError;
use crate::pure::ids::KeyId;
use crate::pure::money::Credits;
use crate::pure::time::Period;

/// A refusal by the interface, or a failure to write the answer.
pub(in crate::gateway) enum Failed {
    Api(ApiError),
    Wire(Box<pingora::Error>),
}

impl From<ApiError> for Failed {
    fn from(error: ApiError) -> Failed {
        Failed::Api(error)
    }
}

impl From<Box<pingora::Error>> for Failed {
    fn from(error: Box<pingora::Error>) -> Failed {
        Failed::Wire(error)
    }
}

/// Answers the open paths.
pub(in crate::gateway) async fn public(session: &mut ServerSession, ctx: &Ctx, route: &Route) -> Result<(), Failed> {
    match route {
        Route::PublicModels => {
            let body = public_models(ctx, &query(session))?;
            Ok(responses::json(session, ctx, body).await?)
        }
        Route::Description => Ok(responses::document(session, ctx, &ctx.snapshot.listings.description).await?),
        _ => Ok(responses::json(session, ctx, "{\"status\":\"ok\"}".to_owned()).await?),
    }
}

/// Answers the paths that need a key.
pub(in crate::gateway) async fn for_caller(
    books: &Books,
    clock: &Clock,
    session: &mut ServerSession,
    ctx: &Ctx,
    route: &Route,
    caller: &Caller,
) -> Result<(), Failed> {
    let (listings, tier) = (&ctx.snapshot.listings, caller.tier());
    match route {
        Route::Balance => {
            let body = balance(books, clock, ctx, caller).await?;
            Ok(responses::json(session, ctx, body).await?)
        }
        Route::Key => {
            let body = key::body(books, clock, ctx, caller).await?;
            Ok(responses::json(session, ctx, body).await?)
        }
        Route::Usage => {
            let body = usage(books, caller, &query(session)).await?;
            Ok(responses::json(session, ctx, body).await?)
        }
        Route::Models => {
            let query = query(session);
            match models(ctx, caller, &query)? {
                Some(body) => Ok(responses::json(session, ctx, body).await?),
                None => {
                    let document = listings.by_tier.get(tier.index()).ok_or(ApiError::Internal)?;
                    Ok(responses::document(session, ctx, document).await?)
                }
            }
        }
        Route::Purposes => Ok(responses::document(session, ctx, &listings.purposes).await?),
        Route::OpenAiModels if !caller.key.settings.models.is_empty() => {
            let listed = listings.models.iter().filter(|listed| is_open(listed, caller));
            let items: Vec<&str> = listed.map(|listed| listed.openai.as_str()).collect();
            let body = format!("{{\"object\":\"list\",\"data\":[{}]}}", items.join(","));
            Ok(responses::json(session, ctx, body).await?)
        }
        Route::OpenAiModels => {
            let document = listings.openai.get(tier.index()).ok_or(ApiError::Internal)?;
            Ok(responses::document(session, ctx, document).await?)
        }
        Route::OpenAiModel(id) => {
            let model = ctx.snapshot.catalogue.named(id).filter(|model| model.tier <= tier);
            let model = model.filter(|model| caller.key.settings.allows_model(&model.id));
            let listed = model.and_then(|model| listings.models.iter().find(|listed| listed.model.id == model.id));
            let listed = listed.ok_or_else(|| ApiError::NotFound("There is no such model for this key.".to_owned()))?;
            Ok(responses::json(session, ctx, listed.openai.clone()).await?)
        }
        Route::PublicModels | Route::Health | Route::Description | Route::Model(_) => Err(ApiError::Internal.into()),
    }
}

#[derive(Serialize)]
struct Balance<'a> {
    balance: Credits,
    currency: &'a str,
    monthly_quota: Credits,
    monthly_used: Credits,
    tier: &'a str,
    held: Credits,
}

async fn balance(books: &Books, clock: &Clock, ctx: &Ctx, caller: &Caller) -> Result<String, ApiError> {
    let (figures, monthly_quota) = match own_key(caller) {
        None => {
            let figures = caller.figures().await.map_err(store_failed)?;
            (figures, admit::monthly_quota(&ctx.snapshot, caller))
        }
        Some(key) => {
            let month = clock.now().month();
            let rows = books.ledger.usage(&caller.account.id, Some(key), Period::All).await;
            let rows = rows.map_err(store_failed)?.into_iter();
            let of_month = rows.filter(|row| row.day.month() == month).map(|row| row.cost);
            let figures = Figures {
                monthly_used: sum(of_month)?,
                ..Figures::default()
            };
            (figures, ctx.snapshot.config.tier(caller.tier()).monthly_quota)
        }
    };
    Ok(to_json(&Balance {
        balance: figures.balance,
        currency: &ctx.snapshot.config.currency,
        monthly_quota,
        monthly_used: figures.monthly_used,
        tier: caller.tier().title(),
        held: figures.held,
    }))
}

/// The key whose own figures are told instead of its account's: one that is locked to domains, which every visitor of a page can read.
fn own_key(caller: &Caller) -> Option<&KeyId> {
    (!caller.key.domains.is_empty()).then_some(&caller.key.id)
}

pub(super) fn sum(mut costs: impl Iterator<Item = Credits>) -> Result<Credits, ApiError> {
    let sum = costs.try_fold(Credits::ZERO, Credits::checked_add);
    sum.ok_or(ApiError::Internal)
}

#[derive(Serialize)]
struct UsageSummary<'a> {
    period: &'a str,
    total_requests: u64,
    total_tokens: u64,
    total_cost: Credits,
    by_model: Vec<UsageByModel>,
}

#[derive(Default, Serialize)]
struct UsageByModel {
    model: String,
    requests: u64,
    tokens: u64,
    cost: Credits,
}

async fn usage(books: &Books, caller: &Caller, query: &[(String, String)]) -> Result<String, ApiError> {
    let period = match parameter(query, "period")? {
        None => Period::Today,
        Some(text) => Period::parse(text).ok_or_else(|| {
            let allowed: Vec<&str> = Period::ALL.iter().map(|period| period.name()).collect();
            ApiError::BadRequest(format!("period must be one of {}.", allowed.join(", ")))
        })?,
    };
    let rows = books
        .ledger
        .usage(&caller.account.id, own_key(caller), period)
        .await
        .map_err(store_failed)?;
    let mut by_model: BTreeMap<String, UsageByModel> = BTreeMap::new();
    for row in rows {
        let sum = by_model.entry(row.model.clone()).or_default();
        sum.model = row.model;
        sum.requests = sum.requests.saturating_add(row.requests);
        sum.tokens = sum
            .tokens
            .saturating_add(row.prompt_tokens)
            .saturating_add(row.completion_tokens);
        sum.cost = sum.cost.checked_add(row.cost).ok_or(ApiError::Internal)?;
    }
    let by_model: Vec<UsageByModel> = by_model.into_values().collect();
    let total_cost = sum(by_model.iter().map(|row| row.cost))?;
    Ok(to_json(&UsageSummary {
        period: period.name(),
        total_requests: by_model.iter().fold(0, |sum, row| sum.saturating_add(row.requests)),
        total_tokens: by_model.iter().fold(0, |sum, row| sum.saturating_add(row.tokens)),
        total_cost,
        by_model,
    }))
}

/// The filtered listing, or nothing when there is no filter: then the rendered one will do.
fn models(ctx: &Ctx, caller: &Caller, query: &[(String, String)]) -> Result<Option<String>, ApiError> {
    let purpose = match parameter(query, "purpose")? {
        None => None,
        Some(text) => Some(Purpose::parse(text).ok_or_else(|| {
            ApiError::BadRequest(format!("purpose must be one of {}.", catalogue::names().join(", ")))
        })?),
    };
    let search = parameter(query, "search")?
        .map(str::to_lowercase)
        .filter(|text| !text.is_empty());
    if purpose.is_none() && search.is_none() && caller.key.settings.models.is_empty() {
        return Ok(None);
    }
    let fits = |listed: &&Listed| {
        is_open(listed, caller)
            && purpose.is_none_or(|purpose| listed.model.purposes.contains(&purpose))
            && search
                .as_ref()
                .is_none_or(|search| listed.name_key.contains(search.as_str()))
    };
    Ok(Some(models_body(ctx.snapshot.listings.models.iter().filter(fits))))
}

/// Whether the key may use the model.
fn is_open(listed: &Listed, caller: &Caller) -> bool {
    listed.model.tier <= caller.tier() && caller.key.settings.allows_model(&listed.model.id)
}

fn public_models(ctx: &Ctx, query: &[(String, String)]) -> Result<String, ApiError> {
    let page = positive(query, "page", 1, u64::MAX)?;
    let per_page = positive(query, "per_page", 24, PER_PAGE_MAX)?;
    let search = parameter(query, "search")?
        .map(str::to_lowercase)
        .filter(|text| !text.is_empty());
    let found: Vec<&Listed> = ctx
        .snapshot
        .listings
        .models
        .iter()
        .filter(|listed| {
            search.as_ref().is_none_or(|search| {
                listed.name_key.contains(search.as_str()) || listed.provider_key.contains(search.as_str())
            })
        })
        .collect();
    let total = u64::try_from(found.len()).unwrap_or(u64::MAX);
    let skip = usize::try_from(page.saturating_sub(1).saturating_mul(per_page)).unwrap_or(usize::MAX);
    let take = usize::try_from(per_page).unwrap_or(usize::MAX);
    let items: Vec<&str> = found
        .iter()
        .skip(skip)
        .take(take)
        .map(|listed| listed.json.as_str())
        .collect();
    let pages = total.div_ceil(per_page);
    Ok(format!(
        "{{\"models\":[{}],\"total\":{total},\"page\":{page},\"per_page\":{per_page},\"total_pages\":{pages}}}",
        items.join(",")
    ))
}

fn positive(query: &[(String, String)], name: &str, default: u64, max: u64) -> Result<u64, ApiError> {
    let Some(text) = parameter(query, name)? else {
        return Ok(default);
    };
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let value = if digits { text.parse::<u64>().ok() } else { None };
    value.filter(|value| (1..=max).contains(value)).ok_or_else(|| {
        let range = if max == u64::MAX {
            "a positive integer".to_owned()
        } else {
            format!("an integer from 1 to {max}")
        };
        ApiError::BadRequest(format!("{name} must be {range}."))
    })
}

/// A parameter's value; one that stands twice is refused, for which one counts would be a guess.
fn parameter<'a>(query: &'a [(String, String)], name: &str) -> Result<Option<&'a str>, ApiError> {
    let mut values = query
        .iter()
        .filter(|(key, _)| key == name)
        .map(|(_, value)| value.as_str());
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        _ => Err(ApiError::BadRequest(format!(
            "{name} stands in the query more than once."
        ))),
    }
}

fn query(session: &ServerSession) -> Vec<(String, String)> {
    let text = session.req_header().uri.query().unwrap_or("");
    let owned = |text: Cow<'_, str>| text.into_owned();
    form_urlencoded::parse(text.as_bytes())
        .map(|(key, value)| (owned(key), owned(value)))
        .collect()
}

/// Most models on one page of the public listing.
const PER_PAGE_MAX: u64 = 500;
