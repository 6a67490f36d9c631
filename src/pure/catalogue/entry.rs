//! One model as the catalogue's file has it, and what it means.

use serde::Deserialize;

use super::prices::RawPrices;
use super::{CatalogueError, Model, Purpose, Target};
use crate::pure::ids::Tier;
use crate::pure::money::Markup;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawModel {
    pub(super) id: String,
    #[serde(default)]
    aliases: Vec<String>,
    name: String,
    provider: String,
    #[serde(default)]
    description: String,
    context_length: u64,
    #[serde(default)]
    max_completion_tokens: Option<u64>,
    modality: String,
    pricing: RawPrices,
    tier: Tier,
    #[serde(default)]
    purposes: Vec<Purpose>,
    targets: Vec<Target>,
    #[serde(default)]
    image_tokens_max: Option<u64>,
    #[serde(default)]
    audio_tokens_max: Option<u64>,
    #[serde(default)]
    file_tokens_max: Option<u64>,
    #[serde(default)]
    min_completion_tokens: Option<u64>,
    #[serde(default)]
    reasoning: bool,
    #[serde(default)]
    tokens_per_second: Option<u32>,
}

/// Errors with the first thing that makes no sense.
pub(super) fn checked(raw: RawModel, markup: Markup) -> Result<Model, CatalogueError> {
    let fail = |problem: &str| {
        let (model, problem) = (raw.id.clone(), problem.to_owned());
        Err(CatalogueError::Model { model, problem })
    };
    if !is_model_id(&raw.id) {
        return fail("the id must have the form <provider>/<model> and no blanks");
    }
    if raw.aliases.len() > ALIASES_MAX {
        return fail("aliases has more than 32 names");
    }
    if let Some(alias) = raw.aliases.iter().find(|alias| alias.is_empty() || !is_graphic(alias)) {
        return Err(CatalogueError::Alias {
            model: raw.id.clone(),
            alias: alias.clone(),
            problem: "must have a name's form: no blanks, and no \" \\ ? # %".to_owned(),
        });
    }
    if !raw.modality.contains("->") {
        return fail("modality must have the form <inputs>-><outputs>, such as text+image->text");
    }
    if raw.context_length == 0 || raw.context_length > TOKENS_MAX {
        return fail("context_length must be from 1 to 1,000,000,000");
    }
    let embedding = raw.modality.ends_with("->embedding");
    // A model that answers with vectors has no completion: nothing is missing there. Of any other, missing is never zero.
    let max = match raw.max_completion_tokens {
        None if !embedding => {
            return fail("max_completion_tokens is missing: the most tokens that one answer can have");
        }
        max => max.unwrap_or(0),
    };
    if max > TOKENS_MAX || (max == 0 && !embedding) {
        return fail("max_completion_tokens must be from 1 to 1,000,000,000 (0 for embeddings)");
    }
    let prices = match raw.pricing.checked(embedding, markup) {
        Ok(prices) => prices,
        Err(problem) => return fail(&problem),
    };
    for (key, value) in [
        ("image_tokens_max", raw.image_tokens_max),
        ("audio_tokens_max", raw.audio_tokens_max),
        ("file_tokens_max", raw.file_tokens_max),
    ] {
        if value.is_some_and(|tokens| tokens > TOKENS_MAX) {
            return fail(&format!("{key} must be at most 1,000,000,000"));
        }
    }
    let min = raw.min_completion_tokens;
    if min.is_some_and(|min| min == 0 || (!embedding && min > max)) {
        return fail("min_completion_tokens must be from 1 to max_completion_tokens");
    }
    if raw
        .tokens_per_second
        .is_some_and(|rate| !(1..=TOKENS_PER_SECOND_MAX).contains(&rate))
    {
        return fail("tokens_per_second must be from 1 to 100,000");
    }
    if raw.targets.is_empty() {
        return fail("targets is empty: no provider is named");
    }
    if raw.targets.iter().any(|target| target.model.trim().is_empty()) {
        return fail("targets has one without a model: the name that its provider knows it by");
    }
    Ok(Model {
        pricing: prices.usual().pricing,
        prices,
        id: raw.id.into(),
        aliases: raw.aliases.into_iter().map(Into::into).collect(),
        name: raw.name,
        provider: raw.provider,
        description: raw.description,
        context_length: raw.context_length,
        max_completion_tokens: if embedding { 0 } else { max },
        modality: raw.modality,
        tier: raw.tier,
        purposes: raw.purposes,
        targets: raw.targets,
        image_tokens_max: raw.image_tokens_max,
        audio_tokens_max: raw.audio_tokens_max,
        file_tokens_max: raw.file_tokens_max,
        min_completion_tokens: raw.min_completion_tokens.unwrap_or(1),
        reasoning: raw.reasoning,
        tokens_per_second: raw
            .tokens_per_second
            .or(raw.reasoning.then_some(TOKENS_PER_SECOND_USUAL)),
    })
}

/// Whether a text can be a model's id: `<provider>/<model>`.
pub(in crate::pure) fn is_model_id(id: &str) -> bool {
    let (maker, rest) = id.split_once('/').unwrap_or_default();
    !maker.is_empty() && !rest.is_empty() && is_graphic(id) && maker != "purpose"
}

/// What an id or an alias may consist of: what needs no escape in JSON, nor in a path.
fn is_graphic(name: &str) -> bool {
    name.bytes()
        .all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\' | b'?' | b'#' | b'%'))
}

/// Aliases of one model, at most.
const ALIASES_MAX: usize = 32;
/// How fast a model with reasoning generates where the catalogue does not say: slower than most.
pub(super) const TOKENS_PER_SECOND_USUAL: u32 = 50;
/// More than any model generates in a second.
const TOKENS_PER_SECOND_MAX: u32 = 100_000;
/// Bounds every token count of the catalogue, so that worst-case costs stay far from overflow.
const TOKENS_MAX: u64 = 1_000_000_000;
