//! What a new catalogue changes: for the operator to see before it is in force, and for the log after.

use std::fmt;

use serde::Serialize;

use super::{Catalogue, Model, Purpose};
use crate::pure::money::ListPrice;
use crate::pure::prices::{LongPromptRow, PriceRow};

/// The difference of two catalogues, by model, in the order of the new one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Changes {
    /// Models that are new.
    pub added: Vec<Added>,
    /// Models that are gone, by id.
    pub removed: Vec<String>,
    /// Models that are not as they were.
    pub changed: Vec<Changed>,
    /// Purposes whose default is another model.
    pub purposes: Vec<PurposeChange>,
}

/// A new model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Added {
    /// Its id.
    pub model: String,
    /// List price of a prompt token.
    pub prompt: String,
    /// List price of a completion token.
    pub completion: String,
    /// The lowest tier that may use it.
    pub tier: &'static str,
}

/// A model that is not as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Changed {
    /// Its id.
    pub model: String,
    /// What changed in it.
    pub fields: Vec<Field>,
}

/// A purpose whose default is another model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PurposeChange {
    /// Its name.
    pub purpose: &'static str,
    /// The id of the model that was its default; nothing when it had none.
    pub from: Option<String>,
    /// The id of the one that is; nothing when it has none.
    pub to: Option<String>,
}

/// A field that changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// What it was.
    pub from: String,
    /// What it is.
    pub to: String,
}

impl Changes {
    /// What `new` changes of `old`.
    pub fn between(old: &Catalogue, new: &Catalogue) -> Changes {
        let mut changes = Changes::default();
        for model in new.models() {
            match old.model(&model.id) {
                None => changes.added.push(Added {
                    model: model.id.to_string(),
                    prompt: model.pricing.prompt.to_string(),
                    completion: model.pricing.completion.to_string(),
                    tier: model.tier.name(),
                }),
                Some(before) => {
                    let fields = fields(before, model);
                    if !fields.is_empty() {
                        let model = model.id.to_string();
                        changes.changed.push(Changed { model, fields });
                    }
                }
            }
        }
        let gone = old.models().iter().filter(|model| new.model(&model.id).is_none());
        changes.removed = gone.map(|model| model.id.to_string()).collect();
        let default = |catalogue: &Catalogue, purpose| catalogue.default_for(purpose).map(|model| model.id.to_string());
        for purpose in Purpose::ALL {
            let (from, to) = (default(old, purpose), default(new, purpose));
            if from != to {
                let purpose = purpose.name();
                changes.purposes.push(PurposeChange { purpose, from, to });
            }
        }
        changes
    }

    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty() && self.purposes.is_empty()
    }

    /// `3 models added, 1 removed, 2 changed`, and how many purposes have another default, where any has.
    pub fn summary(&self) -> String {
        let (added, removed, changed) = (self.added.len(), self.removed.len(), self.changed.len());
        let purposes = match self.purposes.len() {
            0 => String::new(),
            1 => ", 1 purpose with another default".to_owned(),
            many => format!(", {many} purposes with another default"),
        };
        format!("{added} models added, {removed} removed, {changed} changed{purposes}")
    }
}

impl fmt::Display for Changes {
    /// A line for each purpose and each model: `+` is new, `-` is gone, `~` has changed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // These first: they are few, and a log takes the first lines only.
        for PurposeChange { purpose, from, to } in &self.purposes {
            let [from, to] = [from, to].map(|id| id.as_deref().unwrap_or("none"));
            writeln!(f, "~ purposes.{purpose}  {from} -> {to}")?;
        }
        for added in &self.added {
            let (prompt, completion) = (&added.prompt, &added.completion);
            writeln!(f, "+ {}  {prompt} / {completion}, tier {}", added.model, added.tier)?;
        }
        for model in &self.removed {
            writeln!(f, "- {model}")?;
        }
        for changed in &self.changed {
            let fields = changed.fields.iter();
            let fields: Vec<String> = fields
                .map(|field| format!("{} {} -> {}", field.name, field.from, field.to))
                .collect();
            writeln!(f, "~ {}  {}", changed.model, fields.join(", "))?;
        }
        Ok(())
    }
}

fn fields(old: &Model, new: &Model) -> Vec<Field> {
    let purposes = |model: &Model| {
        let names: Vec<&str> = model.purposes.iter().map(|purpose| purpose.name()).collect();
        names.join("+")
    };
    let targets = |model: &Model| {
        let targets = model.targets.iter();
        let targets: Vec<String> = targets
            .map(|target| {
                let weight = target
                    .weight
                    .map_or_else(String::new, |weight| format!(" weight {weight}"));
                format!("{}:{}{weight}", target.provider, target.model)
            })
            .collect();
        targets.join("+")
    };
    let all = [
        ("aliases", old.aliases.join("+"), new.aliases.join("+")),
        (
            "prompt price",
            old.pricing.prompt.to_string(),
            new.pricing.prompt.to_string(),
        ),
        (
            "completion price",
            old.pricing.completion.to_string(),
            new.pricing.completion.to_string(),
        ),
        ("tier", old.tier.name().to_owned(), new.tier.name().to_owned()),
        (
            "context_length",
            old.context_length.to_string(),
            new.context_length.to_string(),
        ),
        (
            "max_completion_tokens",
            old.max_completion_tokens.to_string(),
            new.max_completion_tokens.to_string(),
        ),
        ("modality", in_a_line(&old.modality), in_a_line(&new.modality)),
        ("name", in_a_line(&old.name), in_a_line(&new.name)),
        ("provider", in_a_line(&old.provider), in_a_line(&new.provider)),
        ("description", in_a_line(&old.description), in_a_line(&new.description)),
        ("purposes", purposes(old), purposes(new)),
        ("targets", targets(old), targets(new)),
    ];
    let text = |price: Option<ListPrice>| price.map_or_else(|| "none".to_owned(), |price| price.to_string());
    let before = old.prices.usual().kinds.named().into_iter();
    let kinds = before.zip(new.prices.usual().kinds.named());
    let kinds = kinds.map(|((name, from), (_, to))| (name, text(from), text(to)));
    let request = |model: &Model| text(model.prices.usual().kinds.request);
    let number = |number: Option<u64>| number.map_or_else(|| "none".to_owned(), |number| number.to_string());
    let speed = |model: &Model| number(model.tokens_per_second.map(u64::from));
    let rest = [
        (
            "image_tokens_max",
            number(old.image_tokens_max),
            number(new.image_tokens_max),
        ),
        (
            "audio_tokens_max",
            number(old.audio_tokens_max),
            number(new.audio_tokens_max),
        ),
        (
            "file_tokens_max",
            number(old.file_tokens_max),
            number(new.file_tokens_max),
        ),
        (
            "min_completion_tokens",
            old.min_completion_tokens.to_string(),
            new.min_completion_tokens.to_string(),
        ),
        ("reasoning", old.reasoning.to_string(), new.reasoning.to_string()),
        ("tokens_per_second", speed(old), speed(new)),
        ("request", request(old), request(new)),
        ("overrides", long_rows(old.prices.long()), long_rows(new.prices.long())),
        ("tiers", tiers(old), tiers(new)),
    ];
    let changed = all
        .into_iter()
        .chain(kinds)
        .chain(rest)
        .filter(|(_, from, to)| from != to);
    changed.map(|(name, from, to)| Field { name, from, to }).collect()
}

/// A text of several lines in one, without what a terminal obeys.
fn in_a_line(text: &str) -> String {
    text.replace(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'), " ")
}

/// The rows for long prompts as one text: `above 200000: 0.00000345 / 0.0000225`.
fn long_rows(long: &[LongPromptRow]) -> String {
    let rows = long.iter();
    joined(rows.map(|long| format!("above {}: {}", long.min_prompt_tokens, row_text(&long.row))))
}

/// The prices of tiers as one text.
fn tiers(model: &Model) -> String {
    joined(model.prices.tiers().map(|(name, rows)| {
        let long = match rows.long() {
            [] => String::new(),
            long => format!(", {}", long_rows(long)),
        };
        format!("{name}: {}{long}", row_text(rows.usual()))
    }))
}

fn row_text(row: &PriceRow) -> String {
    let PriceRow { pricing, kinds } = row;
    let named = kinds.named().into_iter().chain([("request", kinds.request)]);
    let kinds: String = named
        .filter_map(|(name, price)| Some(format!(" {name} {}", price?)))
        .collect();
    format!("{} / {}{kinds}", pricing.prompt, pricing.completion)
}

fn joined(texts: impl Iterator<Item = String>) -> String {
    let texts: Vec<String> = texts.collect();
    if texts.is_empty() {
        "none".to_owned()
    } else {
        texts.join("; ")
    }
}
