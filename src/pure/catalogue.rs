//! The catalogue: models, prices, tiers, purposes and targets, read from YAML and checked as a whole.
//!
//! A catalogue that was made is consistent: ids and aliases are unique, every price is exact decimal text, the default of a purpose
//! exists and carries it. It knows nothing of providers' addresses or credentials.

mod aliases;
pub mod changes;
pub mod doubts;
mod entry;
mod prices;
mod purpose;

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use serde::Deserialize;

use self::aliases::Aliases;
use self::entry::{RawModel, TOKENS_PER_SECOND_USUAL, checked};
use super::hash_map::FastMap;
use super::ids::Tier;
use super::money::{Markup, Pricing};
use super::prices::PriceTable;
use super::yaml_lines;

pub(super) use self::entry::is_model_id;
pub(super) use self::prices::OVERRIDES_MAX;
pub use self::purpose::{PURPOSE_PREFIX, Purpose};

/// Where a model runs: a provider of the configuration and the name it has there.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Key of `providers` in the configuration.
    pub provider: String,
    /// The upstream's name of the model.
    pub model: String,
    /// Its share of the calls among the model's weighted targets; those without one are asked when these have failed, in their order.
    #[serde(default)]
    pub weight: Option<NonZeroU32>,
}

/// What a model does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelKind {
    /// Chat completions.
    Chat,
    /// Vectors: modality `…->embedding`.
    Embedding,
}

/// A model with its list prices.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// `<provider>/<model>`, perhaps with a variant after a colon.
    pub id: Arc<str>,
    /// Other names by which requests may ask for it. They stand nowhere else: what is billed, logged or sent on has the id or a target's name.
    pub aliases: Vec<Arc<str>>,
    /// Display name.
    pub name: String,
    /// The provider's display name.
    pub provider: String,
    /// Free text.
    pub description: String,
    /// Context window in tokens.
    pub context_length: u64,
    /// The most completion tokens of one choice.
    pub max_completion_tokens: u64,
    /// `<inputs>-><outputs>`.
    pub modality: String,
    /// What callers pay per token, unless a row of [`Model::prices`] says otherwise.
    pub pricing: Pricing,
    /// All that they may pay.
    pub prices: PriceTable,
    /// The lowest tier that may use it.
    pub tier: Tier,
    /// What it is good for.
    pub purposes: Vec<Purpose>,
    /// Where it runs, in order of preference.
    pub targets: Vec<Target>,
    /// Upper bound of the prompt tokens of one image; none: it may fill the context.
    pub image_tokens_max: Option<u64>,
    /// The same of one sound.
    pub audio_tokens_max: Option<u64>,
    /// The same of one file.
    pub file_tokens_max: Option<u64>,
    /// The fewest completion tokens with which the provider takes a request; at least 1.
    pub min_completion_tokens: u64,
    /// It reasons where nobody sees it: its calls are worked on to their end whoever listens.
    pub reasoning: bool,
    /// How fast it generates: what an answer is billed by whose hidden part was waited for and did not end. Always there with `reasoning`.
    pub tokens_per_second: Option<u32>,
}

impl Model {
    /// Chat or embedding, by the modality.
    pub fn kind(&self) -> ModelKind {
        if self.modality.ends_with("->embedding") {
            ModelKind::Embedding
        } else {
            ModelKind::Chat
        }
    }

    /// How fast it is taken to reason where nobody sees it, in tokens: also one that does so only where a request asks for it.
    pub fn unseen_tokens_per_second(&self) -> u32 {
        self.tokens_per_second.unwrap_or(TOKENS_PER_SECOND_USUAL)
    }
}

/// The whole list.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    models: Vec<Arc<Model>>,
    by_id: FastMap<Arc<str>, Arc<Model>>,
    aliases: Aliases,
    purposes: HashMap<&'static str, Arc<Model>>,
}

/// What is wrong with a catalogue. The text names the line where the reader knows it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogueError {
    /// Not YAML of the right shape.
    #[error("{0}")]
    Format(String),
    /// Right in shape, wrong in content.
    #[error("{model}: {problem}")]
    Model {
        /// The model's id.
        model: String,
        /// What is wrong with it.
        problem: String,
    },
    /// An alias that cannot stand for its model.
    #[error("{model}: aliases: {alias} {problem}")]
    Alias {
        /// The model's id.
        model: String,
        /// The alias.
        alias: String,
        /// What is wrong with it, with the other that it collides with.
        problem: String,
    },
    /// The list of models has none: more likely a mistake than a wish.
    #[error("models: the list is empty")]
    Empty,
    /// A purpose with a default that does not fit, or that does not exist.
    #[error("purposes.{purpose}: {problem}")]
    Purpose {
        /// The purpose.
        purpose: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl CatalogueError {
    /// The line, from 1, of a mistake in what the catalogue says; none where its text does not show it.
    pub fn line(&self, yaml: &str) -> Option<usize> {
        match self {
            CatalogueError::Format(_) => None,
            CatalogueError::Empty => yaml_lines::of_key(yaml, &["models"]),
            CatalogueError::Alias { model, alias, .. } => {
                yaml_lines::of_entry(yaml, model, "aliases").map(|at| yaml_lines::of_value(yaml, at, alias))
            }
            CatalogueError::Model { model, problem } if problem == TWICE => {
                yaml_lines::of_entries(yaml, model).last().copied()
            }
            CatalogueError::Model { model, problem } => {
                let key = problem.split(' ').next().unwrap_or_default();
                yaml_lines::of_entry(yaml, model, key)
            }
            CatalogueError::Purpose { purpose, .. } => yaml_lines::of_key(yaml, &["purposes", purpose]),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCatalogue {
    models: Vec<RawModel>,
    #[serde(default)]
    purposes: HashMap<String, String>,
}

impl Catalogue {
    /// Reads and checks a catalogue; `markup` turns the file's base prices into list prices.
    ///
    /// # Errors
    /// Anything missing, unknown, a price that is not quoted decimal text, a duplicate id or alias, a purpose whose default does not fit.
    pub fn parse(yaml: &str, markup: Markup) -> Result<Catalogue, CatalogueError> {
        let (catalogue, mistakes) = Catalogue::read(yaml, markup)?;
        match mistakes.into_iter().next() {
            None => Ok(catalogue),
            Some(first) => Err(first),
        }
    }

    /// What can be read of a catalogue, and all that is wrong with it; what is wrong is left out. Not to be served from unless nothing is.
    ///
    /// # Errors
    /// When it has not the shape of a catalogue.
    pub fn read(yaml: &str, markup: Markup) -> Result<(Catalogue, Vec<CatalogueError>), CatalogueError> {
        let raw: RawCatalogue = serde_yaml_ng::from_str(yaml).map_err(|e| CatalogueError::Format(e.to_string()))?;
        let (mut catalogue, mut mistakes) = (Catalogue::default(), Vec::new());
        let mut wrong: Vec<String> = Vec::new();
        if raw.models.is_empty() {
            mistakes.push(CatalogueError::Empty);
        }
        for model in raw.models {
            let id = model.id.clone();
            let model = match checked(model, markup) {
                Ok(model) => Arc::new(model),
                Err(mistake) => {
                    wrong.push(id);
                    mistakes.push(mistake);
                    continue;
                }
            };
            if catalogue
                .by_id
                .insert(Arc::clone(&model.id), Arc::clone(&model))
                .is_some()
            {
                let problem = TWICE.to_owned();
                mistakes.push(CatalogueError::Model {
                    model: model.id.to_string(),
                    problem,
                });
                continue;
            }
            catalogue.models.push(model);
        }
        for model in &catalogue.models {
            for alias in &model.aliases {
                let is_id = |name: &str| catalogue.by_id.contains_key(name);
                if let Err(problem) = catalogue.aliases.add(alias, &model.id, is_id) {
                    mistakes.push(CatalogueError::Alias {
                        model: model.id.to_string(),
                        alias: alias.to_string(),
                        problem,
                    });
                }
            }
        }
        catalogue.purposes = defaults(&raw.purposes, &catalogue, &wrong, &mut mistakes);
        Ok((catalogue, mistakes))
    }

    /// Whether a text has the shape of one entry of the list of models.
    ///
    /// # Errors
    /// The first thing that is missing, unknown or of the wrong kind.
    pub fn entry_shape(yaml: &str) -> Result<(), CatalogueError> {
        let entry = serde_yaml_ng::from_str::<RawModel>(yaml);
        entry.map(drop).map_err(|e| CatalogueError::Format(e.to_string()))
    }

    /// The part of the catalogue whose models have a target that `usable` accepts, with only those targets. A purpose whose
    /// default is gone takes the first model left that carries it.
    pub fn restricted_to(&self, usable: impl Fn(&Target) -> bool) -> Catalogue {
        let mut left = Catalogue {
            // Of a model that is gone an alias leads to nothing.
            aliases: self.aliases.clone(),
            ..Catalogue::default()
        };
        for model in &self.models {
            let targets: Vec<Target> = model.targets.iter().filter(|t| usable(t)).cloned().collect();
            if targets.is_empty() {
                continue;
            }
            let model = Arc::new(Model {
                targets,
                ..Model::clone(model)
            });
            left.by_id.insert(Arc::clone(&model.id), Arc::clone(&model));
            left.models.push(model);
        }
        for purpose in Purpose::ALL {
            let default = self
                .purposes
                .get(purpose.name())
                .and_then(|model| left.by_id.get(&model.id));
            if let Some(model) = default.or_else(|| left.first_for(purpose)) {
                left.purposes.insert(purpose.name(), Arc::clone(model));
            }
        }
        left
    }

    /// The model of this id.
    pub fn model(&self, id: &str) -> Option<&Arc<Model>> {
        self.by_id.get(id)
    }

    /// The model of this id or alias.
    pub fn named(&self, name: &str) -> Option<&Arc<Model>> {
        self.model(name).or_else(|| self.model(self.aliases.id(name)?))
    }

    /// The purpose's default model; nothing when no model can serve it.
    pub fn default_for(&self, purpose: Purpose) -> Option<&Arc<Model>> {
        self.purposes.get(purpose.name())
    }

    /// What an operator should know of the purposes that no model lists, if there are any.
    pub fn unserved_warning(&self) -> Option<String> {
        let unserved = Purpose::ALL.into_iter().filter(|p| self.default_for(*p).is_none());
        let unserved: Vec<&str> = unserved.map(Purpose::name).collect();
        let names = unserved.join(", ");
        (!unserved.is_empty())
            .then(|| format!("no model lists these purposes, and a request for one gets 404: {names}"))
    }

    /// What a request's `model` means: an id, an alias, or `purpose/<name>` for that purpose's default.
    pub fn resolve(&self, name: &str) -> Option<&Arc<Model>> {
        match name.strip_prefix(PURPOSE_PREFIX) {
            Some(purpose) => self.default_for(Purpose::parse(purpose)?),
            None => self.named(name),
        }
    }

    /// All models in the file's order.
    pub fn models(&self) -> &[Arc<Model>] {
        &self.models
    }

    /// The first model that lists the purpose and is of its kind: the default of a purpose that has no other.
    fn first_for(&self, purpose: Purpose) -> Option<&Arc<Model>> {
        let mut models = self.models.iter();
        models.find(|model| model.purposes.contains(&purpose) && fits(purpose, model))
    }
}

/// Whether a model is of the kind that the purpose asks for.
fn fits(purpose: Purpose, model: &Model) -> bool {
    (purpose == Purpose::Embedding) == (model.kind() == ModelKind::Embedding)
}

/// The purposes' defaults: those that are named, then the first models that list the others. A default that is `wrong` itself has been told already.
fn defaults(
    raw: &HashMap<String, String>,
    catalogue: &Catalogue,
    wrong: &[String],
    mistakes: &mut Vec<CatalogueError>,
) -> HashMap<&'static str, Arc<Model>> {
    let mut fail = |purpose: &str, problem: String| {
        mistakes.push(CatalogueError::Purpose {
            purpose: purpose.to_owned(),
            problem,
        });
    };
    let mut unknown: Vec<&String> = raw.keys().filter(|name| Purpose::parse(name).is_none()).collect();
    unknown.sort();
    for name in unknown {
        fail(name, format!("no such purpose; there are {}", names().join(", ")));
    }
    let mut defaults = HashMap::new();
    for purpose in Purpose::ALL {
        let name = purpose.name();
        let Some(id) = raw.get(name) else {
            if let Some(first) = catalogue.first_for(purpose) {
                defaults.insert(name, Arc::clone(first));
            }
            continue;
        };
        let Some(model) = catalogue.model(id) else {
            if !wrong.contains(id) {
                fail(name, format!("its default {id} is not among the models"));
            }
            continue;
        };
        if !model.purposes.contains(&purpose) {
            fail(name, format!("its default {id} does not list this purpose"));
        } else if !fits(purpose, model) {
            fail(name, format!("its default {id} has the modality {}", model.modality));
        } else {
            defaults.insert(name, Arc::clone(model));
        }
    }
    defaults
}

/// The names of all purposes, for messages.
pub fn names() -> Vec<&'static str> {
    Purpose::ALL.iter().map(|p| p.name()).collect()
}

const TWICE: &str = "this id stands in the file twice";

#[cfg(test)]
mod tests;
