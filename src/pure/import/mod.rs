//! From a provider's list of models to the catalogue: `tollgate catalogue import`, as a function of texts.
//!
//! The list is taken whole or not at all. What was imported stands between two marks in the catalogue's text; everything outside them
//! is the operator's own, is left as it is, and wins where both name a model.

mod defaults;
mod list;
mod prices;
mod rules;
mod text;

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use serde::Deserialize;

pub use self::list::ImportError;
use self::list::{List, Listed};
use self::prices::{ListedPrices, Refusal};
use self::rules::Subject;
pub use self::rules::{Pattern, Rules};
use self::text::{LIST_INDENT, line_of_mark, list_indent, marks, quoted, top_level};
use super::catalogue::{Catalogue, Purpose, is_model_id};
use super::ids::Tier;

/// What a list gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The models to be sold, in the list's order.
    pub models: Vec<ImportedModel>,
    /// Those that are not, and why.
    pub skipped: Vec<Skipped>,
    /// What else an operator should know.
    pub notes: Vec<String>,
    /// Those of the models that the catalogue had not, and that nobody has looked at.
    unseen: HashSet<String>,
}

/// A model of the list that is not sold.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Skipped {
    /// Its id.
    pub model: String,
    /// Why.
    pub reason: String,
}

/// A model to be sold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedModel {
    id: String,
    name: String,
    provider: String,
    description: String,
    context_length: u64,
    max_completion_tokens: u64,
    modality: String,
    reasoning: bool,
    /// As they stand in the catalogue.
    prices: String,
    /// One of its sides costs nothing.
    is_free: bool,
    /// What a search of the web costs, which nobody is charged.
    web_search: Option<String>,
    tier: Tier,
    purposes: Vec<Purpose>,
}

impl Imported {
    /// Reads a list by the rules.
    ///
    /// # Errors
    /// When it is not in OpenRouter's format, a price is no decimal text, or an id stands in it twice.
    pub fn read(json: &str, rules: &Rules) -> Result<Imported, ImportError> {
        let list = List::read(json)?;
        let (mut models, mut skipped) = (Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        for listed in &list.data {
            let fail = |problem: String| ImportError {
                line: line_of_id(json, &listed.id),
                problem: format!("{}: {problem}", listed.id.escape_debug()),
            };
            if !seen.insert(listed.id.as_str()) {
                return Err(fail("this id stands in the list twice".to_owned()));
            }
            match taken(listed, rules).map_err(fail)? {
                Ok(model) => models.push(model),
                Err(reason) => skipped.push(Skipped {
                    model: match is_model_id(&listed.id) {
                        true => listed.id.clone(),
                        // It may have line ends, or what a terminal obeys.
                        false => listed.id.escape_debug().to_string(),
                    },
                    reason,
                }),
            }
        }
        if models.is_empty() {
            let problem = format!("none of the {} models of the list can be sold", list.data.len());
            return Err(ImportError { line: 0, problem });
        }
        Ok(Imported {
            models,
            skipped,
            notes: Vec::new(),
            unseen: HashSet::new(),
        })
    }

    /// Takes care of models that `old` has not, for nobody has looked whether they are a mistake: those that cost nothing are left out, and
    /// of the others none becomes a purpose's default while another model can be it.
    pub fn distrust_new(&mut self, old: &Catalogue) {
        self.leave_out(NEW_AND_FREE, |model| model.is_free && old.model(&model.id).is_none());
        let new = self.models.iter().filter(|model| old.model(&model.id).is_none());
        self.unseen = new.map(|model| model.id.clone()).collect();
    }

    /// Puts the models into a catalogue's text, in the place of what was imported from the same provider before. Models that the text
    /// names itself are skipped. An empty text becomes a catalogue with the rules' default models; those are chosen again each time.
    ///
    /// # Errors
    /// When the text has no place for them.
    pub fn into_catalogue(&mut self, text: &str, rules: &Rules) -> Result<String, ImportError> {
        let placed = match text.trim() {
            "" => format!(
                "models:\n\n{}\n{}",
                self.block(rules, LIST_INDENT),
                defaults::none_yet(&rules.provider)
            ),
            _ => self.placed(text, rules)?,
        };
        self.note_searches();
        defaults::renewed(&placed, rules, &self.unseen, &mut self.notes)
            .map_err(|problem| ImportError { line: 0, problem })
    }

    /// The text with the models in it, and the rest as it was.
    fn placed(&mut self, text: &str, rules: &Rules) -> Result<String, ImportError> {
        let fail = |problem: &str| ImportError {
            line: 0,
            problem: problem.to_owned(),
        };
        let (begin, end) = marks(&rules.provider);
        let found = (line_of_mark(text, &begin), line_of_mark(text, &end));
        let is_first = found.0.is_none();
        let own = match found {
            (None, None) => {
                let at = top_level(text, "purposes:").ok_or_else(|| {
                    fail("the catalogue has no line `purposes:`; write `purposes: {}` at its end, where the list is to go")
                })?;
                if top_level(text, "models:").is_none_or(|models| models > at) {
                    return Err(fail("the catalogue's list `models:` must stand before its `purposes:`"));
                }
                (text.get(..at), text.get(at..))
            }
            (Some(from), Some(to)) if from.start < to.start => (text.get(..from.start), text.get(to.end..)),
            _ => {
                return Err(fail(
                    "the marks of the last import do not stand in the catalogue as a pair",
                ));
            }
        };
        let (Some(before), Some(after)) = own else {
            return Err(fail("the marks of the last import are cut"));
        };
        let named = own_ids(&format!("{before}{after}")).map_err(|problem| fail(&problem))?;
        self.leave_out("the catalogue has an entry of its own", |model| {
            named.contains(&model.id)
        });
        let block = self.block(rules, list_indent(before));
        if !is_first {
            return Ok(format!("{before}{block}{after}"));
        }
        let gap = if before.ends_with("\n\n") { "" } else { "\n" };
        Ok(format!("{before}{gap}{block}\n{after}"))
    }

    fn leave_out(&mut self, reason: &str, is_out: impl Fn(&ImportedModel) -> bool) {
        let all = std::mem::take(&mut self.models).into_iter();
        let (out, kept): (Vec<_>, Vec<_>) = all.partition(is_out);
        self.models = kept;
        self.skipped.extend(out.into_iter().map(|model| Skipped {
            model: model.id,
            reason: reason.to_owned(),
        }));
    }

    /// Notes the models whose searches of the web have a price: no such price is charged.
    fn note_searches(&mut self) {
        let searches = self.models.iter().filter_map(|model| {
            let price = model.web_search.as_deref()?;
            Some(format!("{} {}", model.id, price.escape_debug()))
        });
        let searches: Vec<String> = searches.collect();
        if !searches.is_empty() {
            self.notes.push(format!(
                "web_search has a price that nobody is charged: calls that ask for a search are refused; a model that searches unasked is \
                 better left out by `skip`. {}",
                searches.join(", ")
            ));
        }
    }

    /// The models between their marks, as entries of a list that is indented so far.
    fn block(&self, rules: &Rules, indent: usize) -> String {
        let dash = " ".repeat(indent);
        let (begin, end) = marks(&rules.provider);
        let mut text = begin;
        for model in &self.models {
            let reasoning = match model.reasoning {
                true => format!("{dash}  reasoning: true\n"),
                false => String::new(),
            };
            let names: Vec<&str> = model.purposes.iter().map(|purpose| purpose.name()).collect();
            // Writing to a string does not fail.
            let _written = write!(
                text,
                "{dash}- id: {}\n{dash}  name: {}\n{dash}  provider: {}\n{dash}  description: {}\n\
                 {dash}  context_length: {}\n{dash}  max_completion_tokens: {}\n{dash}  modality: {}\n\
                 {reasoning}{dash}  pricing: {{ {} }}\n{dash}  tier: {}\n\
                 {dash}  purposes: [{}]\n{dash}  targets: [ {{ provider: {}, model: {} }} ]\n",
                quoted(&model.id),
                quoted(&model.name),
                quoted(&model.provider),
                quoted(&model.description),
                model.context_length,
                model.max_completion_tokens,
                quoted(&model.modality),
                model.prices,
                model.tier.name(),
                names.join(", "),
                quoted(&rules.provider),
                quoted(&model.id),
            );
        }
        text.push_str(&end);
        text
    }
}

/// A model of the list as one of the catalogue, or the reason why it is not sold.
fn taken(listed: &Listed, rules: &Rules) -> Result<Result<ImportedModel, String>, String> {
    let no = |reason: &str| Ok(Err(reason.to_owned()));
    if !is_model_id(&listed.id) {
        return no(
            "its id has not the form <provider>/<model>, or has a blank, a letter beyond ASCII or one of \" \\ ? # %",
        );
    }
    if rules.skips(&listed.id) {
        return no("a rule leaves it out");
    }
    let (inputs, outputs) = listed.architecture.sides();
    let output = match outputs.iter().map(String::as_str).collect::<Vec<&str>>()[..] {
        ["text"] => "text",
        ["embedding" | "embeddings"] => "embedding",
        [] => return no("the list does not say what it answers with"),
        _ => {
            return Ok(Err(format!(
                "it answers with {}, which no token price covers",
                outputs.join("+").escape_debug()
            )));
        }
    };
    let inputs = if inputs.is_empty() {
        vec!["text".to_owned()]
    } else {
        inputs
    };
    let prices = match ListedPrices::of(listed, output) {
        Ok(prices) => prices,
        Err(Refusal::Model(reason)) => return Ok(Err(reason)),
        Err(Refusal::List(problem)) => return Err(problem),
    };
    let Some(context_length) = listed.context_length.filter(|tokens| *tokens > 0) else {
        return no("the list does not say how long its context is");
    };
    let (provider, name) = match listed.name.split_once(": ") {
        Some((provider, name)) => (provider, name),
        None => (listed.id.split('/').next().unwrap_or_default(), listed.name.as_str()),
    };
    let subject = Subject {
        id: &listed.id,
        inputs: &inputs,
        output,
        context_length,
        prompt: prices.prompt.decimal(),
        completion: prices.completion.decimal(),
        is_call_priced: prices.is_call_priced(),
    };
    // What is held when a client sets no maximum: without the provider's word only the context bounds an answer.
    let max = listed.top_provider.max_completion_tokens.filter(|max| *max > 0);
    Ok(Ok(ImportedModel {
        id: listed.id.clone(),
        name: name.to_owned(),
        provider: provider.to_owned(),
        description: shortened(&listed.description, rules.description_chars_max),
        context_length,
        max_completion_tokens: if output == "embedding" {
            0
        } else {
            max.unwrap_or(context_length)
        },
        modality: format!("{}->{output}", inputs.join("+")),
        reasoning: rules.reasons(&listed.id, output),
        prices: prices.text(),
        is_free: prices.prompt.decimal().is_zero() || (output == "text" && prices.completion.decimal().is_zero()),
        web_search: prices.web_search,
        tier: rules.tier(&subject),
        purposes: rules.purposes(&subject),
    }))
}

/// The first of the lines, up to so many characters.
fn shortened(text: &str, chars_max: usize) -> String {
    let line = text
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .unwrap_or_default();
    if line.chars().count() <= chars_max {
        return line.to_owned();
    }
    let mut short: String = line.chars().take(chars_max).collect();
    short.push('…');
    short
}

/// The ids and aliases in the operator's own part of a catalogue.
fn own_ids(text: &str) -> Result<HashSet<String>, String> {
    #[derive(Deserialize)]
    struct Own {
        models: Option<Vec<HashMap<String, serde_yaml_ng::Value>>>,
    }
    let own: Own = serde_yaml_ng::from_str(text).map_err(|error| format!("the catalogue cannot be read: {error}"))?;
    let models = own.models.unwrap_or_default();
    Ok(models
        .iter()
        .flat_map(|model| {
            let aliases = model.get("aliases").and_then(|aliases| aliases.as_sequence());
            model.get("id").into_iter().chain(aliases.into_iter().flatten())
        })
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect())
}

/// The line, from 1, on which a list names this id; the last of them for one that stands twice.
fn line_of_id(json: &str, id: &str) -> usize {
    let id = serde_json::Value::from(id).to_string();
    let lines = json.lines().enumerate();
    let named = lines.filter(|(_, line)| line.contains("\"id\"") && line.contains(&id));
    named.last().map_or(0, |(at, _)| at.saturating_add(1))
}

/// Why [`Imported::distrust_new`] leaves a model out.
pub(crate) const NEW_AND_FREE: &str = "it is new and costs nothing: import it by hand if that is right";

#[cfg(test)]
mod tests;
