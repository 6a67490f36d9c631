//! The rules of an import: which models are sold, to whom, and for what.

use std::collections::BTreeMap;

use rust_decimal::Decimal;
use serde::Deserialize;
use serde_yaml_ng::Value;

use crate::pure::catalogue::Purpose;
use crate::pure::ids::Tier;
use crate::pure::money::ProviderPrice;
use crate::pure::yaml_lines;

/// The rules, as their file has them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// The provider of the configuration that serves the models.
    pub provider: String,
    /// Models that are not sold.
    #[serde(default)]
    pub skip: Vec<Pattern>,
    /// The first that fits gives the lowest tier that may use the model; the last one must fit everything.
    tiers: Vec<TierRule>,
    /// Each that fits adds its purposes.
    #[serde(default)]
    purposes: Vec<PurposeRule>,
    /// Models that reason where nobody sees it, which the list does not say.
    #[serde(default)]
    reasoning: Vec<Pattern>,
    /// The default model of each purpose, for a catalogue that has none yet.
    #[serde(default)]
    pub defaults: BTreeMap<String, String>,
    /// Longer descriptions are cut.
    #[serde(default = "description_chars_max")]
    pub description_chars_max: usize,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TierRule {
    tier: Tier,
    id: Option<Pattern>,
    prompt_max: Option<ProviderPrice>,
    completion_max: Option<ProviderPrice>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PurposeRule {
    purposes: Vec<Purpose>,
    id: Option<Pattern>,
    input: Option<String>,
    output: Option<String>,
    context_min: Option<u64>,
    prompt_max: Option<ProviderPrice>,
    completion_max: Option<ProviderPrice>,
}

/// A text with `*` for anything; several, with `|` between them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Pattern(String);

/// What rules look at.
pub(super) struct Subject<'a> {
    pub(super) id: &'a str,
    pub(super) inputs: &'a [String],
    pub(super) output: &'a str,
    pub(super) context_length: u64,
    pub(super) prompt: Decimal,
    pub(super) completion: Decimal,
    /// Whether a call costs something beside its tokens.
    pub(super) is_call_priced: bool,
}

impl Subject<'_> {
    /// Whether its prices are at most these: nothing at most is asked of what costs nothing at all.
    fn costs_at_most(&self, prompt_max: Option<&ProviderPrice>, completion_max: Option<&ProviderPrice>) -> bool {
        let is_nothing = |max: Option<&ProviderPrice>| max.is_some_and(|max| max.decimal().is_zero());
        at_most(self.prompt, prompt_max)
            && at_most(self.completion, completion_max)
            && !(self.is_call_priced && (is_nothing(prompt_max) || is_nothing(completion_max)))
    }
}

impl Rules {
    /// Reads and checks the rules.
    ///
    /// # Errors
    /// With serde's words and line, or with what is missing or makes no sense.
    pub fn parse(yaml: &str) -> Result<Rules, String> {
        if let Some(problem) = unstated(yaml) {
            return Err(problem);
        }
        let rules: Rules = serde_yaml_ng::from_str(yaml).map_err(|error| error.to_string())?;
        let fits_all =
            |rule: &TierRule| rule.id.is_none() && rule.prompt_max.is_none() && rule.completion_max.is_none();
        match rules.tiers.iter().position(fits_all) {
            None => {
                return Err("tiers: the last rule must have no condition, so that every model has a tier".to_owned());
            }
            Some(first) if first.saturating_add(1) < rules.tiers.len() => {
                return Err(format!(
                    "tiers[{first}]: it has no condition, so that no rule behind it counts: only the last may have none"
                ));
            }
            Some(_) => {}
        }
        if let Some(unknown) = rules.defaults.keys().find(|name| Purpose::parse(name).is_none()) {
            return Err(format!("defaults.{unknown}: no such purpose"));
        }
        Ok(rules)
    }

    pub(super) fn skips(&self, id: &str) -> bool {
        self.skip.iter().any(|pattern| pattern.fits(id))
    }

    /// Whether a model that answers with `output` reasons where nobody sees it.
    pub(super) fn reasons(&self, id: &str, output: &str) -> bool {
        output == "text" && self.reasoning.iter().any(|pattern| pattern.fits(id))
    }

    /// The tier of the first rule that fits.
    pub(super) fn tier(&self, subject: &Subject<'_>) -> Tier {
        let fits = |rule: &&TierRule| {
            rule.id.as_ref().is_none_or(|pattern| pattern.fits(subject.id))
                && subject.costs_at_most(rule.prompt_max.as_ref(), rule.completion_max.as_ref())
        };
        self.tiers.iter().find(fits).map_or(Tier::Enterprise, |rule| rule.tier)
    }

    /// The purposes of all rules that fit, each once, in the interface's order.
    pub(super) fn purposes(&self, subject: &Subject<'_>) -> Vec<Purpose> {
        let fits = |rule: &&PurposeRule| {
            rule.id.as_ref().is_none_or(|pattern| pattern.fits(subject.id))
                && rule.input.as_ref().is_none_or(|input| subject.inputs.contains(input))
                && rule.output.as_ref().is_none_or(|output| subject.output == output)
                && rule.context_min.is_none_or(|least| subject.context_length >= least)
                && subject.costs_at_most(rule.prompt_max.as_ref(), rule.completion_max.as_ref())
        };
        let mut purposes: Vec<Purpose> = self
            .purposes
            .iter()
            .filter(fits)
            .flat_map(|rule| rule.purposes.clone())
            .collect();
        purposes.sort();
        purposes.dedup();
        purposes
    }
}

impl Pattern {
    /// Whether the whole text is meant.
    pub fn fits(&self, text: &str) -> bool {
        self.0.split('|').any(|pattern| one_fits(pattern.trim(), text))
    }
}

/// What is said of the first key of a rule that stands there without a value: read as left out, a condition would hold for every model.
fn unstated(yaml: &str) -> Option<String> {
    let whole: Value = serde_yaml_ng::from_str(yaml).ok()?;
    ["tiers", "purposes"].into_iter().find_map(|list| {
        let rules = whole.get(list)?.as_sequence()?.iter().enumerate();
        let mut unstated = rules.filter_map(|(number, rule)| {
            let mut keys = rule.as_mapping()?.iter();
            let (key, _) = keys.find(|(_, value)| value.is_null())?;
            Some((number, key.as_str()?))
        });
        let (number, key) = unstated.next()?;
        let line = yaml_lines::unstated_in_item(yaml, list, number, key);
        let at = line.map(|line| format!(" at line {line}")).unwrap_or_default();
        Some(format!(
            "{list}[{number}].{key}: it has no value: leave the key out, or give it one{at}"
        ))
    })
}

fn one_fits(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = rest.get(at.saturating_add(part.len())..).unwrap_or_default(),
            None => return false,
        }
    }
    true
}

fn at_most(price: Decimal, max: Option<&ProviderPrice>) -> bool {
    max.is_none_or(|max| price <= max.decimal())
}

fn description_chars_max() -> usize {
    300
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let fits = |pattern: &str, text: &str| Pattern(pattern.to_owned()).fits(text);
        for (pattern, text) in [
            ("a/b", "a/b"),
            ("*", ""),
            ("*:free", "a/b:free"),
            ("a/*", "a/"),
            ("*code*|*dev*", "x/devstral"),
            ("a*b*c", "aXXbYYbc"),
            ("x | a/b", "a/b"),
        ] {
            assert!(fits(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("a/b", "a/bc"),
            ("*:free", "a/b"),
            ("a*b*c", "acb"),
            ("a*a", "a"),
            ("", "a"),
        ] {
            assert!(!fits(pattern, text), "{pattern} {text}");
        }
    }

    fn subject(prompt: &str, completion: &str) -> Subject<'static> {
        Subject {
            id: "acme/code",
            inputs: &[],
            output: "text",
            context_length: 1_000,
            prompt: prompt.parse().unwrap(),
            completion: completion.parse().unwrap(),
            is_call_priced: false,
        }
    }

    #[test]
    fn a_model_has_the_tier_of_the_first_rule_that_fits() {
        let rules = "provider: x\nskip: ['*:free']\ntiers:
            - { tier: pro, id: 'other/*' }
            - { tier: free, id: 'acme/*', prompt_max: '0.1', completion_max: '0.2' }
            - { tier: enterprise }";
        let rules = Rules::parse(rules).unwrap();
        for (prompt, completion, tier) in [
            ("0.1", "0.2", Tier::Free),
            ("0.11", "0.2", Tier::Enterprise),
            ("0.1", "0.21", Tier::Enterprise),
        ] {
            assert_eq!(rules.tier(&subject(prompt, completion)), tier, "{prompt} {completion}");
        }
        assert!(rules.skips("acme/code:free") && !rules.skips("acme/code"));
        assert_eq!(rules.description_chars_max, 300);
    }

    #[test]
    fn a_model_has_the_purposes_of_all_rules_that_fit() {
        let has = |condition: &str, subject: &Subject<'_>| {
            let rules =
                format!("provider: x\ntiers: [ {{ tier: free }} ]\npurposes: [ {{ purposes: [chat], {condition} }} ]");
            Rules::parse(&rules).unwrap().purposes(subject) == [Purpose::Chat]
        };
        let inputs = ["text".to_owned(), "image".to_owned()];
        let subject = Subject {
            inputs: &inputs,
            ..subject("0.1", "0.2")
        };
        for (condition, fits) in [
            ("id: 'acme/*'", true),
            ("id: 'other/*'", false),
            ("input: image", true),
            ("input: audio", false),
            ("output: text", true),
            ("output: embedding", false),
            ("context_min: 1000", true),
            ("context_min: 1001", false),
            ("prompt_max: '0.1'", true),
            ("prompt_max: '0.09'", false),
            ("completion_max: '0.2'", true),
            ("completion_max: '0.19'", false),
        ] {
            assert_eq!(has(condition, &subject), fits, "{condition}");
            // The other conditions of a rule do not make up for one that does not fit.
            let other = if condition.starts_with("id") {
                "output: text"
            } else {
                "id: 'acme/*'"
            };
            assert_eq!(has(&format!("{condition}, {other}"), &subject), fits, "{condition}");
        }
    }

    /// A model that searches may have tokens that cost nothing, and a price for each call: it was listed for the purpose `free`.
    #[test]
    fn nothing_fits_a_maximum_of_nothing_whose_calls_have_a_price() {
        let rules = "provider: x\ntiers: [ { tier: lite, prompt_max: '0' }, { tier: enterprise } ]
            \npurposes: [ { purposes: [free], prompt_max: '0', completion_max: '0' }, { purposes: [chat], prompt_max: '0.1' } ]";
        let rules = Rules::parse(rules).unwrap();
        for (is_call_priced, tier, purposes) in [
            (false, Tier::Lite, &[Purpose::Chat, Purpose::Free][..]),
            (true, Tier::Enterprise, &[Purpose::Chat]),
        ] {
            let subject = Subject {
                is_call_priced,
                ..subject("0", "0")
            };
            assert_eq!(rules.tier(&subject), tier);
            assert_eq!(rules.purposes(&subject), purposes);
        }
    }

    #[test]
    fn rules_that_leave_a_model_without_a_tier_are_refused() {
        assert!(Rules::parse("provider: x\ntiers: []").is_err());
        let error = Rules::parse("provider: x\ntiers: [ { tier: free, id: 'a/*' } ]").unwrap_err();
        assert!(error.contains("no condition"), "{error}");
        assert!(Rules::parse("provider: x\ntiers: [ { tier: free } ]\ndefaults: { talk: a/b }").is_err());
        assert!(Rules::parse("provider: x\ntiers: [ { tier: free } ]\npurpose: []").is_err());
    }

    /// A template whose variable was empty sold every model to the first tier, and listed it for each purpose.
    #[test]
    fn a_condition_without_a_value_is_a_mistake() {
        for value in ["", " null", " ~"] {
            for (list, key, rules) in [
                (
                    "tiers[0]",
                    "prompt_max",
                    format!("tiers:\n  - tier: free\n    prompt_max:{value}\n  - tier: pro\n"),
                ),
                (
                    "purposes[0]",
                    "output",
                    format!("tiers: [ {{ tier: pro }} ]\npurposes:\n  - {{ purposes: [chat], output:{value} }}\n"),
                ),
            ] {
                let error = Rules::parse(&format!("provider: x\n{rules}")).expect_err(&rules);
                let says = format!("{list}.{key}: it has no value: leave the key out, or give it one at line 4");
                assert_eq!(error, says, "{rules}");
            }
        }
    }

    #[test]
    fn a_rule_without_a_condition_is_the_last_of_the_tiers() {
        let error = Rules::parse("provider: x\ntiers: [ { tier: free }, { tier: pro, id: 'a/*' }, { tier: pro } ]")
            .unwrap_err();
        assert!(error.starts_with("tiers[0]: it has no condition"), "{error}");
    }
}
