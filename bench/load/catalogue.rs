//! The catalogue that the measured gateways sell from: the one in conf/, whose providers are all the simulated upstream.

use std::{collections::BTreeSet, fmt::Write};

use serde::Deserialize;

use crate::{common::Result, prices::Price};

/// What the bench needs to know of it.
pub(crate) struct Catalogue {
    pub(crate) chat: Vec<Model>,
    pub(crate) embedding: Vec<Model>,
    providers: BTreeSet<String>,
}

/// A model and what it costs.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) id: String,
    pub(crate) price: Price,
}

#[derive(Deserialize)]
struct File {
    models: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    id: String,
    modality: String,
    pricing: Pricing,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Pricing {
    prompt: String,
    #[serde(default)]
    completion: Option<String>,
    #[serde(default)]
    request: Option<String>,
}

#[derive(Deserialize)]
struct Target {
    provider: String,
}

impl Catalogue {
    /// Reads it.
    pub(crate) fn read() -> Result<Self> {
        let file: File = serde_yaml_ng::from_str(TEXT)?;
        let providers = file.models.iter().flat_map(|model| &model.targets);
        let providers = providers.map(|target| target.provider.clone()).collect();
        let (mut chat, mut embedding) = (Vec::new(), Vec::new());
        for entry in file.models {
            let or_nothing = |price: Option<String>| price.unwrap_or_else(|| "0".to_owned());
            let (completion, request) = (or_nothing(entry.pricing.completion), or_nothing(entry.pricing.request));
            let price = Price::of(&entry.pricing.prompt, &completion, &request, MARKUP);
            let model = Model {
                price: price.ok_or_else(|| format!("the prices of {} cannot be read", entry.id))?,
                id: entry.id,
            };
            let is_embedding = entry.modality.ends_with("->embedding");
            if is_embedding { &mut embedding } else { &mut chat }.push(model);
        }
        if chat.is_empty() || embedding.is_empty() {
            return Err("a catalogue without chat or without embeddings".into());
        }
        Ok(Self {
            chat,
            embedding,
            providers,
        })
    }

    /// Lines of a configuration that make `upstream` each of its providers.
    pub(crate) fn providers(&self, upstream: std::net::SocketAddr) -> Result<String> {
        let mut lines = String::new();
        for name in &self.providers {
            writeln!(
                lines,
                "  {name}: {{ base_url: \"http://{upstream}/v1\", on_disconnect: cancel }}"
            )?;
        }
        Ok(lines)
    }
}

/// The catalogue in conf/, but for hidden reasoning: the simulated upstream has none, and the gateway would read on for what it reports when
/// a client leaves.
pub(crate) fn sold() -> String {
    TEXT.replace(REASONS, "")
}

const TEXT: &str = include_str!("../../conf/catalogue.yaml");
const REASONS: &str = "    reasoning: true\n";
/// By which each price is multiplied.
pub(crate) const MARKUP: &str = "1.15";
