//! All mistakes of a configuration and its catalogue, for `tollgate check`: what is read to be used stops at the first.

use std::path::Path;

use serde_yaml_ng::{Mapping, Value};

use super::{Config, ConfigError, line_of};

/// All that is wrong with a configuration. Each mistake is taken out of a copy, which is then read again for the next.
pub fn of_config(path: &Path, text: &str, environment: &dyn Fn(&str) -> Option<String>) -> Vec<ConfigError> {
    let mut found: Vec<ConfigError> = Vec::new();
    let mut left = text.to_owned();
    while found.len() < MISTAKES_MAX {
        let Err(error) = Config::parse(path, &left, environment) else {
            break;
        };
        let first = found.is_empty();
        let Some(key) = key_of(&error.problem) else {
            found.extend(first.then_some(error));
            break;
        };
        // The lines of a copy are not those of the file.
        let line = if first { error.line } else { None };
        let named = format!("{}: ", key.join("."));
        found.push(ConfigError {
            line: line.or_else(|| line_of(text, &named)),
            ..error
        });
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
        Ok(text) => config.catalogue_mistakes(&text),
        Err(error) => vec![error],
    }
}

/// The key that a problem begins with, or that it says is unknown, as a path.
pub(super) fn key_of(problem: &str) -> Option<Vec<String>> {
    let mut path: Vec<String> = Vec::new();
    let mut rest = problem;
    while let Some((head, tail)) = rest.split_once(": ") {
        if head.is_empty() || head.contains(' ') {
            break;
        }
        path.extend(head.split('.').map(str::to_owned));
        rest = tail;
    }
    if let Some(unknown) = rest.strip_prefix("unknown key ") {
        path.push(unknown.split(' ').next()?.to_owned());
    }
    (!path.is_empty()).then_some(path)
}

/// The text without the deepest part of a path that it has.
fn without(text: &str, path: &[String]) -> Option<String> {
    // Of these a part is not enough: what is left without it would be a mistake of its own.
    let whole_at = match path.first().map(String::as_str) {
        Some("providers") => 2,
        Some("tls" | "catalogue_refresh" | "traces") => 1,
        _ => path.len(),
    };
    let path = path.get(..whole_at).unwrap_or(path);
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
