//! The gateway's own endpoints: balance, usage, receipts, listings, health.

pub(crate) mod generations;
mod listings;
mod parameters;
pub(crate) mod usage;

use pingora::protocols::http::ServerSession;
use serde::Serialize;

use self::listings::{is_open, models, public_models};
use self::parameters::{known_query, query};
use super::key;
use super::responses;
use super::router::Route;
use crate::gateway::access::admit;
use crate::gateway::access::authenticate::store_failed;
use crate::gateway::context::Ctx;
use crate::gateway::snapshot::{openai_models_body, purposes_body, to_json};
use crate::gateway::state::Books;
use crate::ledger::{Caller, Figures};
use crate::pure::credit_sum::CreditSum;
use crate::pure::error::ApiError;
use crate::pure::ids::KeyId;
use crate::pure::money::Credits;
use crate::pure::time::Days;

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
        Route::Page(page) => {
            let (document, media_type) = ctx.snapshot.pages.get(*page).ok_or(ApiError::Internal)?;
            Ok(responses::page(session, ctx, document, media_type).await?)
        }
        Route::Moved(path) => Ok(responses::moved(session, ctx, path).await?),
        _ => Ok(responses::json(session, ctx, "{\"status\":\"ok\"}".to_owned()).await?),
    }
}

/// Answers the paths that need a key.
pub(in crate::gateway) async fn for_caller(
    books: &Books,
    session: &mut ServerSession,
    ctx: &Ctx,
    route: &Route,
    caller: &Caller,
) -> Result<(), Failed> {
    let (listings, tier) = (&ctx.snapshot.listings, caller.tier());
    match route {
        Route::Balance => {
            let body = balance(books, ctx, caller).await?;
            Ok(responses::json(session, ctx, body).await?)
        }
        Route::Key => {
            let body = key::body(&books.ledger, ctx, caller).await?;
            Ok(responses::json(session, ctx, body).await?)
        }
        Route::Usage => {
            let body = usage::usage(&books.ledger, caller, &known_query(session, &USAGE)?).await?;
            Ok(responses::json(session, ctx, body).await?)
        }
        Route::Generation => {
            let body = generations::one(books, caller, &known_query(session, &["id"])?).await?;
            Ok(responses::json(session, ctx, body).await?)
        }
        Route::Generations => {
            let body = generations::page(books, caller, &known_query(session, &GENERATIONS)?).await?;
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
        Route::Purposes if !caller.key.settings.models.is_empty() => {
            let body = purposes_body(&ctx.snapshot.catalogue, |id| caller.key.settings.allows_model(id));
            Ok(responses::json(session, ctx, body).await?)
        }
        Route::Purposes => Ok(responses::document(session, ctx, &listings.purposes).await?),
        Route::OpenAiModels if !caller.key.settings.models.is_empty() => {
            let listed = listings.models.iter().filter(|listed| is_open(listed, caller));
            Ok(responses::json(session, ctx, openai_models_body(listed)).await?)
        }
        Route::OpenAiModels => {
            let document = listings.openai.get(tier.index()).ok_or(ApiError::Internal)?;
            Ok(responses::document(session, ctx, document).await?)
        }
        Route::OpenAiModel(id) => {
            let model = ctx.snapshot.catalogue.named(id).filter(|model| model.tier <= tier);
            let model = model.filter(|model| caller.key.settings.allows_model(&model.id));
            let listed = model.and_then(|model| listings.models.iter().find(|listed| listed.model.id == model.id));
            let unknown = || ApiError::NotFound(format!("There is no model {} for this key.", admit::shown(id)));
            let listed = listed.ok_or_else(unknown)?;
            Ok(responses::json(session, ctx, listed.openai.clone()).await?)
        }
        Route::PublicModels
        | Route::Health
        | Route::Description
        | Route::Page(_)
        | Route::Moved(_)
        | Route::Model(_) => Err(ApiError::Internal.into()),
    }
}

#[derive(Serialize)]
struct Balance<'a> {
    balance: Credits,
    currency: &'a str,
    monthly_quota: Credits,
    monthly_used: CreditSum,
    tier: &'a str,
    held: Credits,
}

async fn balance(books: &Books, ctx: &Ctx, caller: &Caller) -> Result<String, ApiError> {
    let (figures, monthly_used, monthly_quota) = match own_key(caller) {
        None => {
            let figures = caller.figures().await.map_err(store_failed)?;
            let monthly_used = CreditSum::from(figures.monthly_used);
            (figures, monthly_used, admit::monthly_quota(&ctx.snapshot, caller))
        }
        Some(key) => {
            let month = Days::of_month(books.ledger.now().day());
            let rows = books.ledger.usage(&caller.account.id, Some(key), month).await;
            let rows = rows.map_err(store_failed)?;
            let monthly_used: CreditSum = rows.iter().map(|row| row.cost).sum();
            let monthly_quota = ctx.snapshot.config.tier(caller.tier()).monthly_quota;
            (Figures::default(), monthly_used, monthly_quota)
        }
    };
    Ok(to_json(&Balance {
        balance: figures.balance,
        currency: &ctx.snapshot.config.currency,
        monthly_quota,
        monthly_used,
        tier: caller.tier().title(),
        held: figures.held,
    }))
}

/// The key whose own figures are told instead of its account's: one that is locked to domains, which every visitor of a page can read.
fn own_key(caller: &Caller) -> Option<&KeyId> {
    (!caller.key.domains.is_empty()).then_some(&caller.key.id)
}

/// The parameters of `GET /llm/usage`.
const USAGE: [&str; 4] = ["period", "from", "to", "group_by"];
/// The parameters of `GET /llm/generations`.
const GENERATIONS: [&str; 3] = ["limit", "before", "model"];
