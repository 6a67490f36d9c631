//! The listings of models that are put together for a request.

use super::parameters::{parameter, positive};
use crate::gateway::context::Ctx;
use crate::gateway::snapshot::{Listed, models_body};
use crate::ledger::Caller;
use crate::pure::catalogue::{self, Purpose};
use crate::pure::error::ApiError;

/// The filtered listing, or nothing when there is no filter: then the rendered one will do.
pub(super) fn models(ctx: &Ctx, caller: &Caller, query: &[(String, String)]) -> Result<Option<String>, ApiError> {
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
pub(super) fn is_open(listed: &Listed, caller: &Caller) -> bool {
    listed.model.tier <= caller.tier() && caller.key.settings.allows_model(&listed.model.id)
}

/// A page of the public listing.
pub(super) fn public_models(ctx: &Ctx, query: &[(String, String)]) -> Result<String, ApiError> {
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

/// Most models on one page of the public listing.
const PER_PAGE_MAX: u64 = 500;
