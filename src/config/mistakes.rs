//! All mistakes of a configuration and its catalogue, for `tollgate check`: what is read to be used stops at the first.

use std::collections::HashMap;
use std::path::Path;

use serde_yaml_ng::{Mapping, Value};

use super::error::{entry_of, key_of, line_of, line_of_path, nearest, said};
use super::raw::Raw;
use super::shape::{Mended, Step, steps};
use super::unstated::Unstated;
use super::{Config, ConfigError, without_mark};
use crate::pure::catalogue::{Catalogue, CatalogueError};
use crate::pure::yaml_lines;

/// All that is wrong with a configuration: first what has the wrong shape, then what makes no sense.
pub fn of_config(path: &Path, text: &str, environment: &dyn Fn(&str) -> Option<String>) -> Vec<ConfigError> {
    let text = without_mark(text);
    let first = match Config::parse(path, text, environment) {
        Ok(_) => return Vec::new(),
        Err(error) => vec![error],
    };
    // Without the shape of YAML there is nothing to go on with.
    let Ok(value @ Value::Mapping(_)) = serde_yaml_ng::from_str(text) else {
        return first;
    };
    let mended = Mended::of(value, &|text| shape_of::<Raw>(text));
    let mistakes = mended.mistakes.iter().take(MISTAKES_MAX);
    let mut found: Vec<ConfigError> = mistakes
        .map(|mistake| ConfigError::new(path, &mistake.problem).at(line_of_path(text, &parts(&mistake.path))))
        .collect();
    if let Ok(sound) = serde_yaml_ng::to_string(&mended.value) {
        found.extend(senseless(path, &sound, text, &mended, environment));
    }
    found.sort_by_key(|error| error.line.unwrap_or(usize::MAX));
    if found.is_empty() { first } else { found }
}

/// What a command about the ledger needs of a configuration, when its mistakes lie elsewhere. None when one does not, or may not: a key at
/// the top that is not known may be meant to be any other. None of a text that says nothing, too: it has no mistake elsewhere, and to take it
/// for the defaults would name another ledger than the one that was meant.
pub fn sound_for_ledger(path: &Path, text: &str, environment: &dyn Fn(&str) -> Option<String>) -> Option<Config> {
    let mut whole: Mapping = serde_yaml_ng::from_str(without_mark(text)).ok()?;
    if whole.is_empty() {
        return None;
    }
    for key in NOT_OF_LEDGER {
        whole.remove(key);
    }
    let sound = serde_yaml_ng::to_string(&whole).ok()?;
    Config::parse(path, &sound, environment).ok()
}

/// What the catalogue of a configuration with mistakes can be read with: its path, the markup and the providers' names. None where the
/// configuration does not say them.
pub fn sound_for_catalogue(path: &Path, text: &str) -> Option<Config> {
    let whole: Mapping = serde_yaml_ng::from_str(without_mark(text)).ok()?;
    let catalogue = whole.get("catalogue")?.clone();
    let names = whole.get("providers")?.as_mapping()?.keys();
    let provider = Mapping::from_iter([(Value::from("base_url"), Value::from("http://127.0.0.1"))]);
    let providers: Mapping = names
        .map(|name| (name.clone(), Value::Mapping(provider.clone())))
        .collect();
    let sound = Mapping::from_iter([
        (Value::from("catalogue"), catalogue),
        (Value::from("providers"), Value::Mapping(providers)),
    ]);
    let mut with_markup = sound.clone();
    if let Some(markup) = whole.get("markup") {
        with_markup.insert(Value::from("markup"), markup.clone());
    }
    [with_markup, sound].iter().find_map(|sound| {
        let sound = serde_yaml_ng::to_string(sound).ok()?;
        Config::parse(path, &sound, &|_| None).ok()
    })
}

/// What makes no sense in a configuration of the right shape. Each mistake is taken out of the copy, which is then read again for the next.
fn senseless(
    path: &Path,
    sound: &str,
    text: &str,
    mended: &Mended,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Vec<ConfigError> {
    let (mut found, mut left) = (Vec::new(), sound.to_owned());
    for _ in 0..MISTAKES_MAX {
        let Err(error) = Config::parse(path, &left, environment) else {
            break;
        };
        let Some(key) = key_of(&error.problem) else {
            found.push(error);
            break;
        };
        let steps: Vec<Step> = key.iter().flat_map(|part| steps(part)).collect();
        if !mended.is_filled(&steps) {
            // The lines of a copy are not those of the file.
            let line = line_of(text, &format!("{}: ", key.join(".")));
            found.push(ConfigError { line, ..error });
        }
        match without(&left, &key) {
            Some(rest) => left = rest,
            None => break,
        }
    }
    found
}

/// All that is wrong with the catalogue of a configuration.
pub fn of_catalogue(config: &Config) -> Vec<ConfigError> {
    match super::read(&config.catalogue) {
        Ok(text) => of_catalogue_text(config, &text),
        Err(error) => vec![error],
    }
}

fn of_catalogue_text(config: &Config, text: &str) -> Vec<ConfigError> {
    let (catalogue, found) = config.read_catalogue(text, text);
    let whole = match (catalogue, serde_yaml_ng::from_str(text)) {
        (None, Ok(Value::Mapping(whole))) => whole,
        _ => return found,
    };
    let mut shapes = CatalogueShapes {
        config,
        text,
        found: Vec::new(),
        wrong: Vec::new(),
    };
    shapes.see_keys(&whole);
    let models = shapes.sound_models(&whole);
    let purposes = shapes.sound_purposes(&whole);
    let sound: Mapping = [("models", models), ("purposes", purposes)]
        .into_iter()
        .map(|(key, value)| (Value::from(key), value))
        .collect();
    let CatalogueShapes {
        found: mut all, wrong, ..
    } = shapes;
    if let Ok(sound) = serde_yaml_ng::to_string(&sound) {
        let (_, rest) = config.read_catalogue(&sound, text);
        let is_told = !all.is_empty();
        // What follows from a mistake that is told already is none.
        all.extend(rest.into_iter().filter(|error| {
            let follows = wrong.iter().any(|wrong| error.problem.contains(wrong));
            // Those that are told were left out of the copy, which may have none then.
            let is_left_out = is_told && error.problem == CatalogueError::Empty.to_string();
            !follows && !is_left_out
        }));
    }
    all.sort_by_key(|error| error.line.unwrap_or(usize::MAX));
    all.truncate(MISTAKES_MAX);
    if all.is_empty() { found } else { all }
}

/// The mistakes in a catalogue's shape.
struct CatalogueShapes<'a> {
    config: &'a Config,
    text: &'a str,
    found: Vec<ConfigError>,
    /// Ids of models, and names of purposes with a point in front and a colon behind, that have one.
    wrong: Vec<String>,
}

impl CatalogueShapes<'_> {
    fn tell(&mut self, line: Option<usize>, problem: String) {
        self.found
            .push(ConfigError::new(&self.config.catalogue, problem).at(line));
    }

    /// The keys at the top.
    fn see_keys(&mut self, whole: &Mapping) {
        for key in whole
            .keys()
            .filter_map(Value::as_str)
            .filter(|key| !PARTS.contains(key))
        {
            let near = nearest(key, PARTS.into_iter());
            self.tell(
                yaml_lines::of_key(self.text, &[key]),
                format!("unknown key {key}{near}"),
            );
        }
        if !whole.contains_key("models") {
            self.tell(None, "missing field `models`".to_owned());
        }
    }

    /// The models whose entries have the right shape.
    fn sound_models(&mut self, whole: &Mapping) -> Value {
        let mut sound = Vec::new();
        let models = match whole.get("models") {
            Some(Value::Sequence(models)) => models.as_slice(),
            None => &[],
            Some(_) => {
                self.tell(
                    yaml_lines::of_key(self.text, &["models"]),
                    "models: it is not a list".to_owned(),
                );
                &[]
            }
        };
        for (number, model) in models.iter().enumerate() {
            let unstated = Unstated::of_model(number, model);
            for key in &unstated {
                self.tell(key.line(self.text), key.problem());
            }
            let mended = Mended::of(model.clone(), &|text| {
                Catalogue::entry_shape(text).map_err(|error| said(&error))
            });
            let is_told = |path: &[Step]| unstated.iter().any(|key| key.path == path);
            for mistake in mended.mistakes.iter().filter(|mistake| !is_told(&mistake.path)) {
                let dot = match mistake.problem.split_once(": ") {
                    Some((head, _)) if !head.contains(' ') => ".",
                    _ => ": ",
                };
                let problem = format!("models[{number}]{dot}{}", mistake.problem);
                self.tell(
                    yaml_lines::in_item(self.text, "models", number, &keys(&mistake.path)),
                    problem,
                );
            }
            match mended.mistakes.is_empty() && unstated.is_empty() {
                true => sound.push(model.clone()),
                false => self
                    .wrong
                    .extend(model.get("id").and_then(Value::as_str).map(str::to_owned)),
            }
        }
        Value::Sequence(sound)
    }

    /// The purposes whose defaults have the right shape.
    fn sound_purposes(&mut self, whole: &Mapping) -> Value {
        // Without a value it has none, as where it is left out.
        let Some(purposes) = whole.get("purposes").filter(|purposes| !purposes.is_null()) else {
            return Value::Mapping(Mapping::new());
        };
        let mended = Mended::of(purposes.clone(), &|text| shape_of::<HashMap<String, String>>(text));
        for mistake in &mended.mistakes {
            let path: Vec<&str> = std::iter::once("purposes").chain(keys(&mistake.path)).collect();
            self.tell(
                yaml_lines::of_key(self.text, &path),
                format!("purposes.{}", mistake.problem),
            );
            self.wrong
                .extend(keys(&mistake.path).last().map(|name| format!(".{name}:")));
        }
        match mended.value {
            value @ Value::Mapping(_) => value,
            _ => Value::Mapping(Mapping::new()),
        }
    }
}

/// What the reader says of the first mistake in a text that is to be a `T`.
fn shape_of<T: serde::de::DeserializeOwned>(text: &str) -> Result<(), String> {
    serde_yaml_ng::from_str::<T>(text)
        .map(drop)
        .map_err(|error| said(&error))
}

/// The keys of a path.
fn keys(path: &[Step]) -> Vec<&str> {
    path.iter()
        .filter_map(|step| match step {
            Step::Key(key) => Some(key.as_str()),
            Step::Item(_) => None,
        })
        .collect()
}

/// The same with the entries of lists, as a message has them: `webhooks[1]`.
fn parts(path: &[Step]) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for step in path {
        match (step, parts.last_mut()) {
            (Step::Key(key), _) => parts.push(key.clone()),
            (Step::Item(number), Some(list)) => list.push_str(&format!("[{number}]")),
            (Step::Item(_), None) => {}
        }
    }
    parts
}

/// The text without the deepest part of a path that it has.
fn without(text: &str, path: &[String]) -> Option<String> {
    // Of these a part is not enough: what is left without it would be a mistake of its own.
    let whole_at = match path.first().map(String::as_str) {
        Some("providers") => 2,
        Some("tls" | "operator_tls" | "catalogue_refresh" | "traces" | "stripe") => 1,
        _ => path.len(),
    };
    // An entry of a list is taken with all others: without it they would have other numbers.
    let list = path.first().and_then(|first| entry_of(first));
    let list = list.map(|(list, _)| [list.to_owned()]);
    let path = match &list {
        Some(list) => list,
        None => path.get(..whole_at).unwrap_or(path),
    };
    let mut whole: Value = serde_yaml_ng::from_str(text).ok()?;
    let depth = (1..=path.len()).rev().find(|depth| {
        let found = path.get(..*depth).and_then(|path| path.split_last());
        found.is_some_and(|(key, parents)| {
            mapping(&mut whole, parents).is_some_and(|mapping| mapping.contains_key(key.as_str()))
        })
    })?;
    let (key, parents) = path.get(..depth)?.split_last()?;
    mapping(&mut whole, parents)?.remove(key.as_str());
    serde_yaml_ng::to_string(&whole).ok()
}

fn mapping<'a>(value: &'a mut Value, path: &[String]) -> Option<&'a mut Mapping> {
    path.iter()
        .try_fold(value, |value, key| value.as_mapping_mut()?.get_mut(key.as_str()))?
        .as_mapping_mut()
}

/// Most mistakes that are told of one file.
const MISTAKES_MAX: usize = 50;
/// The keys that say nothing of where the ledger is, who owns it, and how its keys and figures are written.
const NOT_OF_LEDGER: [&str; 32] = [
    "admin_hosts",
    "operator_listen",
    "operator_tls",
    "operator_hosts",
    "base_path",
    "threads",
    "catalogue",
    "markup",
    "providers",
    "timeouts",
    "body_bytes_max",
    "whole_answer_bytes_max",
    "gathered_bytes_max",
    "body_memory_bytes_max",
    "body_memory_bytes_per_key_max",
    "body_memory_bytes_per_address_max",
    "tls",
    "drain_seconds",
    "suspended_streams",
    "trusted_proxies",
    "auth_failures_per_minute",
    "connections_max",
    "connections_per_address_max",
    "unready_seconds",
    "access_log",
    "idempotency",
    "audit_seconds",
    "catalogue_refresh",
    "traces",
    "stripe",
    "wallet",
    "webhooks",
];
/// The parts of a catalogue.
const PARTS: [&str; 2] = ["models", "purposes"];
