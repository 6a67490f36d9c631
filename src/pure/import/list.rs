//! OpenRouter's public list of models: the answer of `GET https://openrouter.ai/api/v1/models`, as its documentation describes it
//! (openrouter.ai/docs, "Models": an object `data` of models with `id`, `name`, `context_length`, `architecture`, `pricing` as decimal
//! text per token, `top_provider.max_completion_tokens`). Fields that are not read here may come and go.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// Why a list is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct ImportError {
    /// The line of the list, from 1; 0 where it is not known.
    pub line: usize,
    /// What is wrong.
    pub problem: String,
}

/// The list.
#[derive(Debug, Deserialize)]
pub(super) struct List {
    pub(super) data: Vec<Listed>,
}

/// A model of the list.
#[derive(Debug, Deserialize)]
pub(super) struct Listed {
    pub(super) id: String,
    pub(super) name: String,
    #[serde(default)]
    pub(super) description: String,
    pub(super) context_length: Option<u64>,
    pub(super) architecture: Architecture,
    /// By what is priced: `prompt`, `completion`, `request`, `image`, … as decimal text. `-1` means that it depends. Under `overrides` stand rows
    /// for long prompts or for certain hours; newer entries hold other things under keys that are not read.
    pricing: BTreeMap<String, Value>,
    #[serde(default)]
    pub(super) top_provider: TopProvider,
}

/// What goes in and comes out, as two lists or as one text.
#[derive(Debug, Deserialize)]
pub(super) struct Architecture {
    modality: Option<String>,
    input_modalities: Option<Vec<String>>,
    output_modalities: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct TopProvider {
    pub(super) max_completion_tokens: Option<u64>,
}

/// Prices that hold above a number of prompt tokens (strictly), or between two hours.
#[derive(Debug, Deserialize)]
pub(super) struct ListedOverride {
    pub(super) min_prompt_tokens: Option<u64>,
    utc_start: Option<serde::de::IgnoredAny>,
    utc_end: Option<serde::de::IgnoredAny>,
    #[serde(flatten)]
    prices: BTreeMap<String, Value>,
}

impl ListedOverride {
    /// A price as it stands there. None where there is none, or null.
    pub(super) fn price(&self, key: &str) -> Option<&Value> {
        self.prices.get(key).filter(|price| !price.is_null())
    }

    /// Whether it holds at certain hours only.
    pub(super) fn is_of_hours(&self) -> bool {
        self.utc_start.is_some() || self.utc_end.is_some()
    }
}

impl List {
    /// # Errors
    /// When it is no such list; the line is serde's.
    pub(super) fn read(json: &str) -> Result<List, ImportError> {
        serde_json::from_str(json).map_err(|error| ImportError {
            line: error.line(),
            problem: without_place(&error.to_string()),
        })
    }
}

impl Listed {
    /// A price as it stands there. None where there is none, or null.
    pub(super) fn price(&self, key: &str) -> Option<&Value> {
        self.pricing.get(key).filter(|price| !price.is_null())
    }

    /// The rows for long prompts or certain hours. None when there are some that cannot be read.
    pub(super) fn overrides(&self) -> Option<Vec<ListedOverride>> {
        match self.price("overrides") {
            Some(rows) => Vec::deserialize(rows).ok(),
            None => Some(Vec::new()),
        }
    }
}

impl Architecture {
    /// Inputs and outputs.
    pub(super) fn sides(&self) -> (Vec<String>, Vec<String>) {
        let (inputs, outputs) = self
            .modality
            .as_deref()
            .unwrap_or("")
            .split_once("->")
            .unwrap_or_default();
        let split = |side: &str| {
            side.split('+')
                .filter(|word| !word.is_empty())
                .map(str::to_owned)
                .collect()
        };
        let inputs = self.input_modalities.clone().unwrap_or_else(|| split(inputs));
        let outputs = self.output_modalities.clone().unwrap_or_else(|| split(outputs));
        (inputs, outputs)
    }
}

/// serde's message without the place that stands before it already.
fn without_place(message: &str) -> String {
    message
        .rsplit_once(" at line ")
        .map_or(message, |(problem, _)| problem)
        .to_owned()
}
