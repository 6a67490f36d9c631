//! Keys of a catalogue's rows of prices that stand there without a value: taken as left out, `prompt:` in a row for long prompts would sell these
//! at the usual price. Everywhere else such a key is as one that is left out, as lists of providers and programs write it.

use serde_yaml_ng::Value;

use super::shape::Step;
use crate::pure::yaml_lines;

/// Such a key, or such an entry of a list.
pub(super) struct Unstated {
    /// Which model of the list, from 0.
    model: usize,
    /// The way to it within the model.
    pub(super) path: Vec<Step>,
}

impl Unstated {
    /// All of a catalogue's text.
    pub(super) fn of_catalogue(text: &str) -> Vec<Unstated> {
        let whole = serde_yaml_ng::from_str::<Value>(text).unwrap_or_default();
        let models = whole.get("models").and_then(Value::as_sequence).into_iter().flatten();
        let models = models.enumerate();
        models
            .flat_map(|(number, model)| Unstated::of_model(number, model))
            .collect()
    }

    /// Those of the model of this number in the list, from 0.
    pub(super) fn of_model(model: usize, entry: &Value) -> Vec<Unstated> {
        let mut paths = Vec::new();
        for rows in ["overrides", "tiers"] {
            let pricing = || Step::Key("pricing".to_owned());
            if let Some(prices) = entry.get("pricing").and_then(|pricing| pricing.get(rows)) {
                find(prices, &mut vec![pricing(), Step::Key(rows.to_owned())], &mut paths);
            }
        }
        paths.into_iter().map(|path| Unstated { model, path }).collect()
    }

    /// What is said of it.
    pub(super) fn problem(&self) -> String {
        let mut at = format!("models[{}]", self.model);
        for step in &self.path {
            match step {
                Step::Key(key) => at.push_str(&format!(".{key}")),
                Step::Item(number) => at.push_str(&format!("[{number}]")),
            }
        }
        format!("{at}: it has no value: leave the key out, or give it one")
    }

    /// Its line, from 1, in the catalogue's text; that of its model where it is not found.
    pub(super) fn line(&self, text: &str) -> Option<usize> {
        let keys = self.path.iter().filter_map(|step| match step {
            Step::Key(key) => Some(key.as_str()),
            Step::Item(_) => None,
        });
        let keys: Vec<&str> = keys.collect();
        let alone = keys
            .last()
            .and_then(|key| yaml_lines::unstated_in_item(text, "models", self.model, key));
        alone.or_else(|| yaml_lines::in_item(text, "models", self.model, &keys))
    }
}

fn find(value: &Value, way: &mut Vec<Step>, found: &mut Vec<Vec<Step>>) {
    match value {
        Value::Null => found.push(way.clone()),
        Value::Mapping(mapping) => {
            for (key, value) in mapping {
                // What is no text is no key of a catalogue.
                let Some(key) = key.as_str() else { continue };
                way.push(Step::Key(key.to_owned()));
                find(value, way, found);
                way.pop();
            }
        }
        Value::Sequence(items) => {
            for (number, value) in items.iter().enumerate() {
                way.push(Step::Item(number));
                find(value, way, found);
                way.pop();
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::{Config, mistakes};

    fn catalogue(model: &str) -> String {
        format!(
            "models:\n  - id: a/m\n    name: M\n    provider: A\n    context_length: 900\n    max_completion_tokens: 9\n    \
             modality: text->text\n    tier: free\n    targets: [ {{ provider: p, model: m }} ]\n{model}purposes:\n"
        )
    }

    fn config(folder: &Path) -> Config {
        let text = format!(
            "catalogue: {}\nproviders: {{ p: {{ base_url: \"http://p\" }} }}\n",
            folder.join("catalogue.yaml").display()
        );
        Config::parse(Path::new("t.yaml"), &text, &|_| None).unwrap()
    }

    /// Long prompts, and what a faster tier served, were sold at the usual price.
    #[test]
    fn a_key_of_a_model_without_a_value_is_a_mistake_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path());
        let usual = "    pricing:\n      prompt: \"0.1\"\n      completion: \"0.1\"\n";
        let none = "      input_cache_read: null\n    description:\n    aliases:\n    image_tokens_max: # none\n";
        assert_eq!(
            config
                .catalogue_of(&catalogue(&format!("{usual}{none}")))
                .err()
                .map(|error| error.to_string()),
            None
        );
        for value in ["", " null", " ~"] {
            for (more, line, key) in [
                (format!("      overrides:{value}\n"), 13, "pricing.overrides"),
                (
                    format!("      overrides:\n        - min_prompt_tokens: 9\n          prompt:{value}\n"),
                    15,
                    "pricing.overrides[0].prompt",
                ),
                (
                    format!("      tiers: {{ priority:{value} }}\n"),
                    13,
                    "pricing.tiers.priority",
                ),
                (
                    format!("      tiers: {{ priority: {{ prompt:{value} }} }}\n"),
                    13,
                    "pricing.tiers.priority.prompt",
                ),
            ] {
                let text = catalogue(&format!("{usual}{more}"));
                let says = format!(
                    "catalogue.yaml:{line}: models[0].{key}: it has no value: leave the key out, or give it one"
                );
                let error = config.catalogue_of(&text).expect_err(&text).to_string();
                assert!(error.ends_with(&says), "{text}: {error}");
                std::fs::write(&config.catalogue, &text).unwrap();
                let all = mistakes::of_catalogue(&config);
                let [one] = &all[..] else { panic!("{text}: {all:?}") };
                assert!(one.to_string().ends_with(&says), "{text}: {one}");
            }
        }
    }

    /// What is wrong with others of the list is told beside it, and what is missing for want of the value is not.
    #[test]
    fn a_key_without_a_value_hides_no_other_mistake() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path());
        let other = "  - { id: a/n, name: N, provider: A, context_length: 0, max_completion_tokens: 9, modality: text->text, \
                     pricing: { prompt: \"0.1\", completion: \"0.1\" }, tier: free, targets: [ { provider: p, model: n } ] }\n";
        let text = catalogue(&format!(
            "    pricing: {{ prompt: \"0.1\", completion: \"0.1\", tiers: {{ flex: }} }}\n{other}"
        ));
        std::fs::write(&config.catalogue, &text).unwrap();
        let all = mistakes::of_catalogue(&config);
        let all: Vec<String> = all
            .iter()
            .map(|error| format!("{:?} {}", error.line, error.problem))
            .collect();
        let expected = [
            "Some(10) models[0].pricing.tiers.flex: it has no value: leave the key out, or give it one",
            "Some(11) a/n: context_length must be from 1 to 1,000,000,000",
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn a_target_names_a_model() {
        let folder = tempfile::tempdir().unwrap();
        let model = "    pricing: { prompt: \"0.1\", completion: \"0.1\" }\n";
        for name in ["\"\"", "\" \""] {
            let text = catalogue(model).replace("model: m }", &format!("model: {name} }}"));
            let error = config(folder.path()).catalogue_of(&text).unwrap_err().to_string();
            let says = "catalogue.yaml:9: a/m: targets has one without a model: the name that its provider knows it by";
            assert!(error.ends_with(says), "{error}");
        }
    }
}
