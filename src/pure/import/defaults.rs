//! The default models of purposes that an import chose for a catalogue that had none. They stand between marks of their own, and each import
//! chooses them again: one that is gone must not hold up the prices of all others. What stands outside the marks is the operator's.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;

use super::rules::Rules;
use super::text::{line_of_mark, quoted};
use crate::pure::catalogue::Purpose;

/// What of a catalogue decides its defaults.
#[derive(Deserialize)]
struct Chosen {
    models: Option<Vec<Entry>>,
    purposes: Option<HashMap<String, String>>,
}

#[derive(Deserialize)]
struct Entry {
    id: String,
    #[serde(default)]
    purposes: Vec<Purpose>,
    #[serde(default)]
    modality: String,
}

impl Entry {
    fn serves(&self, purpose: Purpose) -> bool {
        let is_embedding = self.modality.ends_with("->embedding");
        self.purposes.contains(&purpose) && (purpose == Purpose::Embedding) == is_embedding
    }
}

/// The part of a new catalogue that says which models its purposes have.
pub(super) fn none_yet(provider: &str) -> String {
    let (begin, end) = marks(provider);
    format!("purposes:\n{begin}{end}")
}

/// The catalogue with its defaults chosen again, where an import chose them: those that the rules name, else those that it has, else the first
/// models that serve; one of `unseen` only where no other serves. `notes` gets those that are not what was meant.
///
/// # Errors
/// When the marks are no pair, or the text is no catalogue.
pub(super) fn renewed(
    text: &str,
    rules: &Rules,
    unseen: &HashSet<String>,
    notes: &mut Vec<String>,
) -> Result<String, String> {
    let (begin, end) = marks(&rules.provider);
    let (from, to) = match (line_of_mark(text, &begin), line_of_mark(text, &end)) {
        (None, None) => return Ok(text.to_owned()),
        (Some(from), Some(to)) => (from, to),
        _ => return Err(NO_PAIR.to_owned()),
    };
    let parts = (text.get(..from.start), text.get(from.end..to.start), text.get(to.end..));
    let (Some(before), Some(old), Some(after)) = parts else {
        return Err(NO_PAIR.to_owned());
    };
    let catalogue: Chosen = read(&format!("{before}{after}"))?;
    let old: HashMap<String, String> = match old.trim() {
        "" => HashMap::new(),
        _ => read(old)?,
    };
    let (models, own) = (
        catalogue.models.unwrap_or_default(),
        catalogue.purposes.unwrap_or_default(),
    );
    let mut lines = String::new();
    for purpose in Purpose::ALL {
        let name = purpose.name();
        if own.contains_key(name) {
            continue;
        }
        let serving = models.iter().filter(|model| model.serves(purpose));
        let serving: Vec<&String> = serving.map(|model| &model.id).collect();
        let meant: Vec<&String> = [rules.defaults.get(name), old.get(name)]
            .into_iter()
            .flatten()
            .collect();
        let kept = meant.iter().filter(|id| serving.contains(*id));
        let able: Vec<&String> = kept.chain(&serving).copied().collect();
        let seen = able.iter().copied().find(|id| !unseen.contains(*id));
        let default = seen.or_else(|| able.first().copied());
        if let Some(other) = meant.first().copied().filter(|id| default != Some(*id)) {
            let why = match serving.contains(&other) {
                true => "is new and waits for the next import",
                false => "is no longer sold for it",
            };
            let now = match default {
                Some(id) => format!("{id} takes its place"),
                None => "no other model serves it".to_owned(),
            };
            notes.push(format!("purposes.{name}: its default {other} {why}, and {now}"));
        }
        if let Some(id) = default {
            lines.push_str(&format!("  {name}: {}\n", quoted(id)));
        }
    }
    Ok(format!("{before}{begin}{lines}{end}{after}"))
}

fn read<'de, T: Deserialize<'de>>(yaml: &'de str) -> Result<T, String> {
    serde_yaml_ng::from_str(yaml).map_err(|error| format!("the catalogue cannot be read: {error}"))
}

/// The marks around the defaults, each a whole line.
fn marks(provider: &str) -> (String, String) {
    (
        format!(
            "  # --- Chosen from {provider} by `tollgate catalogue import`: what stands here is chosen again by the next import. ---\n"
        ),
        format!("  # --- End of what was chosen from {provider}. ---\n"),
    )
}

const NO_PAIR: &str = "the marks of the defaults that were chosen do not stand in the catalogue as a pair";
