//! What is wrong with a file, and where: the reader's words in the terms of the file, the line, the nearest known key.

use std::path::{Path, PathBuf};

use crate::pure::yaml_lines;

/// What is wrong with a configuration or catalogue file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {problem}", path.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct ConfigError {
    /// The file.
    pub path: PathBuf,
    /// The line, from 1, where it is known.
    pub line: Option<usize>,
    /// What is wrong, with the key where there is one.
    pub problem: String,
}

impl ConfigError {
    /// A mistake somewhere in the file.
    pub fn new(path: &Path, problem: impl Into<String>) -> ConfigError {
        ConfigError {
            path: path.to_owned(),
            line: None,
            problem: problem.into(),
        }
    }

    /// The same on this line.
    pub fn at(self, line: Option<usize>) -> ConfigError {
        ConfigError { line, ..self }
    }

    pub(super) fn of_yaml(path: &Path, text: &str, error: &serde_yaml_ng::Error) -> ConfigError {
        let (problem, line) = placed(&explain(&error.to_string()));
        // The reader does not tell the line of a key at the top that it does not know, and of what misses a key that of its content.
        // Of a mapping or a list that should be something else it tells the line of what is in it.
        let line = line.filter(|_| !problem.contains("missing field"));
        let is_of_content = ["invalid type: map", "invalid type: sequence"].map(|words| problem.contains(words));
        let line = match is_of_content.contains(&true) {
            true => line_of(text, &problem).or(line),
            false => line.or_else(|| line_of(text, &problem)),
        };
        ConfigError::new(path, problem).at(line)
    }
}

/// A key that stands twice in one mapping of a text: the reader would take the last of some, and say nothing.
pub(super) fn repeated(path: &Path, text: &str) -> Option<ConfigError> {
    let error = serde_yaml_ng::from_str::<serde_yaml_ng::Value>(text).err()?;
    let message = error.to_string();
    let (before, rest) = message.split_once("duplicate entry with key ")?;
    let key = rest.split(" at line ").next()?.trim_matches('"');
    let place = error.location();
    let (line, column) = place.map_or((1, 1), |place| (place.line(), place.column()));
    let line = yaml_lines::of_repeated(text, line, column, key);
    Some(ConfigError::new(path, format!("{before}the key {key} stands there twice")).at(Some(line)))
}

/// Puts the nearest known key behind serde's message about an unknown one, in place of the whole list.
pub(crate) fn explain(message: &str) -> String {
    let Some((before, rest)) = message.split_once("unknown field `") else {
        return in_words(message);
    };
    let Some((unknown, rest)) = rest.split_once('`') else {
        return message.to_owned();
    };
    let known = rest.split('`').skip(1).step_by(2);
    let place = rest
        .rsplit_once(" at line")
        .map(|(_, place)| format!(" at line{place}"))
        .unwrap_or_default();
    format!("{before}unknown key {unknown}{}{place}", nearest(unknown, known))
}

/// The kind of value that serde expects, as somebody would say it who does not write Rust.
fn in_words(message: &str) -> String {
    let Some((before, rest)) = message.rsplit_once(", expected ") else {
        return message.to_owned();
    };
    let (kind, place) = rest.split_at(rest.find(" at line ").unwrap_or(rest.len()));
    let kind = match kind {
        "a sequence" => "a list",
        "usize" | "u64" | "u32" | "a nonzero u32" => "a whole number",
        kind if kind.starts_with("struct ") => "keys with values",
        kind => kind,
    };
    // Where keys are expected, a text may be a secret that was pasted there.
    let text = before.split_once("invalid type: string ");
    match text.filter(|_| ["a list", "a map", "keys with values"].contains(&kind)) {
        Some((path, _)) => format!("{path}invalid type: a text, which is not shown, expected {kind}{place}"),
        None => format!("{before}, expected {kind}{place}"),
    }
}

/// A message of the YAML reader without the place at its end, and the line.
pub(super) fn placed(message: &str) -> (String, Option<usize>) {
    let Some((problem, place)) = message.rsplit_once(" at line ") else {
        return (message.to_owned(), None);
    };
    match place.split(' ').next().map(str::parse) {
        Some(Ok(line)) => (problem.to_owned(), Some(line)),
        _ => (message.to_owned(), None),
    }
}

/// What the YAML reader says, in the words of this file, without its place.
pub(super) fn said(error: &impl std::fmt::Display) -> String {
    placed(&explain(&error.to_string())).0
}

/// The line of the key that a problem begins with, such as `providers.openai: api_key_env: …`.
pub(super) fn line_of(text: &str, problem: &str) -> Option<usize> {
    line_of_path(text, &key_of(problem)?)
}

/// The line of the key at the end of a path, whose first part may be an entry of a list, such as `webhooks[1]`.
pub(super) fn line_of_path(text: &str, path: &[String]) -> Option<usize> {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    match path.split_first() {
        Some((first, rest)) if let Some((list, number)) = entry_of(first) => {
            yaml_lines::in_item(text, list, number, rest).or_else(|| yaml_lines::of_key(text, &[list]))
        }
        _ => yaml_lines::of_key(text, &path),
    }
}

/// The list and the number of an entry, counted from 0.
pub(super) fn entry_of(part: &str) -> Option<(&str, usize)> {
    let (list, number) = part.strip_suffix(']')?.split_once('[')?;
    Some((list, number.parse().ok()?))
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

pub(crate) fn nearest<'a>(unknown: &str, known: impl Iterator<Item = &'a str>) -> String {
    known
        .map(|name| (strsim::damerau_levenshtein(unknown, name), name))
        .min()
        .filter(|(distance, name)| *distance <= name.len().max(3) / 2)
        .map(|(_, name)| format!(" (did you mean {name}?)"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::raw::Raw;

    /// Somebody may have pasted it there.
    #[test]
    fn a_text_in_the_place_of_keys_or_of_a_list_is_not_shown() {
        for text in [
            "providers: { openai: \"sk-proj-1, expected 2\" }",
            "stripe: sk-proj-1",
            "webhooks: [ sk-proj-1 ]",
            "webhooks: sk-proj-1",
        ] {
            let error = serde_yaml_ng::from_str::<Raw>(text).err().unwrap();
            let told = explain(&error.to_string());
            assert!(told.contains("a text, which is not shown, expected "), "{told}");
            assert!(!told.contains("sk-proj"), "{told}");
        }
        let error = serde_yaml_ng::from_str::<Raw>("threads: many").err().unwrap();
        assert!(explain(&error.to_string()).contains("\"many\""));
    }
}
