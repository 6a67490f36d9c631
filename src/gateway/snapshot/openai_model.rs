//! A model as `GET {base}/models` lists it: in OpenAI's shape, with what OpenRouter's clients need beside it, as far as the catalogue knows it.

use serde::Serialize;
use serde_json::Value;

use crate::pure::catalogue::{Model, ModelKind};

/// A model with its list prices. What this gateway has not is null.
#[derive(Serialize)]
pub(super) struct OpenAiModel<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    owned_by: &'a str,
    canonical_slug: &'a str,
    name: &'a str,
    description: &'a str,
    context_length: u64,
    pricing: Value,
    architecture: Architecture<'a>,
    top_provider: TopProvider,
    supported_parameters: &'static [&'static str],
    per_request_limits: (),
    default_parameters: (),
    supported_voices: (),
    links: Links,
}

#[derive(Serialize)]
struct Architecture<'a> {
    modality: &'a str,
    input_modalities: Vec<&'a str>,
    output_modalities: Vec<&'a str>,
}

/// The gateway itself, which is who answers.
#[derive(Serialize)]
struct TopProvider {
    context_length: u64,
    max_completion_tokens: Option<u64>,
    is_moderated: bool,
}

#[derive(Serialize)]
struct Links {
    details: String,
}

impl<'a> OpenAiModel<'a> {
    /// The model, in a gateway whose interface begins with `base_path`.
    pub(super) fn of(model: &'a Model, base_path: &str) -> OpenAiModel<'a> {
        OpenAiModel {
            id: &model.id,
            object: "model",
            created: 0,
            owned_by: &model.provider,
            canonical_slug: &model.id,
            name: &model.name,
            description: &model.description,
            context_length: model.context_length,
            pricing: pricing(model),
            architecture: Architecture::of(&model.modality),
            top_provider: TopProvider {
                context_length: model.context_length,
                max_completion_tokens: Some(model.max_completion_tokens).filter(|tokens| *tokens > 0),
                is_moderated: false,
            },
            supported_parameters: match model.kind() {
                ModelKind::Chat => &CHAT_PARAMETERS,
                ModelKind::Embedding => &[],
            },
            per_request_limits: (),
            default_parameters: (),
            supported_voices: (),
            links: Links {
                // An id needs no escape in a path.
                details: format!("{base_path}/models/{}", model.id),
            },
        }
    }
}

impl<'a> Architecture<'a> {
    fn of(modality: &'a str) -> Architecture<'a> {
        let (inputs, outputs) = modality.split_once("->").unwrap_or((modality, ""));
        let kinds = |text: &'a str| text.split('+').filter(|kind| !kind.is_empty());
        // OpenRouter's word for the same.
        let output = |kind: &'a str| if kind == "embedding" { "embeddings" } else { kind };
        Architecture {
            modality,
            input_modalities: kinds(inputs).collect(),
            output_modalities: kinds(outputs).map(output).collect(),
        }
    }
}

/// The prices under OpenRouter's names, where it means the same by them. Those of tiers it has not.
fn pricing(model: &Model) -> Value {
    let mut prices = serde_json::to_value(&model.prices).unwrap_or_default();
    name_as_openrouter(&mut prices);
    let rows = prices.get_mut("overrides").and_then(Value::as_array_mut);
    rows.into_iter().flatten().for_each(name_as_openrouter);
    if let Some(prices) = prices.as_object_mut() {
        prices.remove("tiers");
    }
    prices
}

/// OpenRouter's `image` and `image_output` are prices of whole images; the catalogue has those of their tokens.
fn name_as_openrouter(row: &mut Value) {
    let Some(row) = row.as_object_mut() else { return };
    row.remove("image_output");
    if let Some(price) = row.remove("image") {
        row.insert("image_token".to_owned(), price);
    }
}

/// Parameters of a chat that the gateway sees to itself, whatever the provider: the others are the provider's business, and the catalogue does
/// not know which it takes.
const CHAT_PARAMETERS: [&str; 2] = ["max_tokens", "max_completion_tokens"];
