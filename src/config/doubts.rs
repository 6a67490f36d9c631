//! What is allowed in a configuration and its catalogue, and is more often a slip than a wish: for `tollgate check` to warn of.

use std::os::unix::fs::PermissionsExt;

use super::store::has_password;
use super::{Config, ConfigError, Store};
use crate::pure::catalogue::Catalogue;
use crate::pure::catalogue::doubts::PriceMax;
use crate::pure::money::{ListPrice, ProviderPrice};
use crate::pure::prices::{LongPromptRow, PriceRow, PriceTable};
use crate::pure::yaml_lines;

/// Doubts about the configuration.
pub fn of_config(config: &Config) -> Vec<ConfigError> {
    let text = super::read(&config.path).unwrap_or_default();
    let doubts = [("store", of_store(config)), ("currency", of_currency(&config.currency))];
    let told = doubts.into_iter().filter_map(|(key, problem)| {
        let line = yaml_lines::of_key(&text, &[key]);
        Some(ConfigError::new(&config.path, format!("{key}: {}", problem?)).at(line))
    });
    told.collect()
}

/// Doubts about a configuration's catalogue: prices that nobody asks for a token.
pub fn of_catalogue(config: &Config, catalogue: &Catalogue) -> Vec<ConfigError> {
    let Some(max) = price_max(config) else {
        return Vec::new();
    };
    let mut text = None;
    let mut doubts = Vec::new();
    for model in catalogue.models() {
        let rows = rows_of(&model.prices);
        let prices = rows.iter().flat_map(|row| row.own().map(move |price| (row, price)));
        for (row, (key, price)) in prices {
            if price.units() <= max.token.units() {
                continue;
            }
            let text = text.get_or_insert_with(|| super::read(&config.catalogue).unwrap_or_default());
            let line = yaml_lines::of_entry(text, &model.id, "pricing").map(|at| row.line_of(key, text, at));
            let problem = format!(
                "{}: pricing.{}{key} is more than {TOKEN_PRICE_MAX} for one token: is it the price of a million? Then divide it by 1000000: \
                 \"0.15\" per million is \"0.00000015\"",
                model.id, row.place
            );
            doubts.push(ConfigError::new(&config.catalogue, problem).at(line));
        }
    }
    doubts.truncate(DOUBTS_MAX);
    doubts
}

/// The list prices above which none is meant.
pub(super) fn price_max(config: &Config) -> Option<PriceMax> {
    let list = |max: &str| Some(max.parse::<ProviderPrice>().ok()?.with_markup(config.markup));
    Some(PriceMax {
        token: list(TOKEN_PRICE_MAX)?,
        call: list(CALL_PRICE_MAX)?,
    })
}

/// A row of a model's prices, and where it stands.
struct Placed<'p> {
    /// The keys on the way to it, each with a point behind it: `tiers.flex.overrides.`
    place: String,
    /// Of a row for long prompts.
    min_prompt_tokens: Option<u64>,
    row: &'p PriceRow,
    /// The row from which it has what it leaves out.
    base: Option<&'p PriceRow>,
}

impl Placed<'_> {
    /// The prices that are not those of the row from which it has what it leaves out: they are told there.
    fn own(&self) -> impl Iterator<Item = (&'static str, ListPrice)> {
        let base = self.base;
        let is_own =
            move |price: &(&'static str, ListPrice)| base.is_none_or(|base| named(base).all(|of| of != *price));
        named(self.row).filter(is_own)
    }

    /// The line of a key of it in a catalogue's text, where `pricing` of its model stands on the line `at`.
    fn line_of(&self, key: &str, text: &str, at: usize) -> usize {
        let keys = self.place.split_terminator('.');
        let at = keys.fold(at, |at, key| line_of_key(text, at, key));
        let at = self.min_prompt_tokens.map_or(at, |min| {
            yaml_lines::of_text(text, at, &format!("min_prompt_tokens: {min}"))
        });
        line_of_key(text, at, key)
    }
}

/// The first line from `at` on with this key; else with its text, else `at`.
fn line_of_key(text: &str, at: usize, key: &str) -> usize {
    // `prompt` stands in `min_prompt_tokens` too.
    match yaml_lines::of_text(text, at, &format!("{key}:")) {
        found if found > at => found,
        _ => yaml_lines::of_text(text, at, key),
    }
}

/// All rows of a model's prices.
fn rows_of(prices: &PriceTable) -> Vec<Placed<'_>> {
    let usual = prices.usual();
    let mut rows = vec![Placed {
        place: String::new(),
        min_prompt_tokens: None,
        row: usual,
        base: None,
    }];
    rows.extend(long_rows("", usual, prices.long()));
    for (name, tier) in prices.tiers() {
        let place = format!("tiers.{name}.");
        let long = long_rows(&place, tier.usual(), tier.long());
        rows.push(Placed {
            place,
            min_prompt_tokens: None,
            row: tier.usual(),
            base: Some(usual),
        });
        rows.extend(long);
    }
    rows
}

/// The rows for long prompts of the usual prices, or of a tier's.
fn long_rows<'p>(place: &str, usual: &'p PriceRow, long: &'p [LongPromptRow]) -> Vec<Placed<'p>> {
    let rows = long.iter().map(|long| Placed {
        place: format!("{place}overrides."),
        min_prompt_tokens: Some(long.min_prompt_tokens),
        row: &long.row,
        base: Some(usual),
    });
    rows.collect()
}

/// The prices of a row with their keys.
fn named(row: &PriceRow) -> impl Iterator<Item = (&'static str, ListPrice)> {
    let sides = [("prompt", row.pricing.prompt), ("completion", row.pricing.completion)];
    let kinds = row.kinds.named().into_iter();
    sides
        .into_iter()
        .chain(kinds.filter_map(|(key, price)| Some((key, price?))))
}

/// A password in a file that everybody on this machine may read.
fn of_store(config: &Config) -> Option<String> {
    let (Store::Redis(address), None) = (&config.store, &config.store_env) else {
        return None;
    };
    let mode = std::fs::metadata(&config.path).ok()?.permissions().mode();
    (has_password(address) && mode & READABLE_BY_OTHERS != 0).then(|| {
        format!(
            "its password can be read by everybody on this machine, for this file has the mode {:03o}: put the address into an \
             environment variable, and name that with store_env",
            mode & PERMISSIONS
        )
    })
}

/// A code of three capital letters passes, and a name of the operator's own (`credits`); not another spelling of a currency.
fn of_currency(currency: &str) -> Option<String> {
    let is_letters = !currency.is_empty() && currency.bytes().all(|b| b.is_ascii_alphabetic());
    let (lower, upper) = (currency.to_ascii_lowercase(), currency.to_ascii_uppercase());
    if is_letters && currency.len() == 3 {
        return (currency != upper).then(|| format!("codes of currencies have capital letters: {upper}?"));
    }
    if !is_letters || currency.len() > NAME_MAX {
        return Some(format!(
            "{currency:?} is neither a code of three capital letters, such as USD, nor a name of at most {NAME_MAX} letters, such as credits"
        ));
    }
    let singular = lower.strip_suffix('s').unwrap_or(&lower);
    let (_, code) = NAMES.iter().find(|(name, _)| *name == singular)?;
    Some(format!(
        "clients read it as the code of a currency, and {currency:?} is none: {code}?"
    ))
}

/// What no provider asks for one token: a hundred times what the dearest do.
const TOKEN_PRICE_MAX: &str = "0.01";
/// The most that a provider asks for one call, beside its tokens: OpenAI's models that search the web, at their most thorough.
const CALL_PRICE_MAX: &str = "0.05";
/// Names of currencies, and the codes that are probably meant.
const NAMES: [(&str, &str); 9] = [
    ("dollar", "USD"),
    ("euro", "EUR"),
    ("pound", "GBP"),
    ("yen", "JPY"),
    ("yuan", "CNY"),
    ("renminbi", "CNY"),
    ("rupee", "INR"),
    ("franc", "CHF"),
    ("real", "BRL"),
];
/// Longest name of a unit that is no currency.
const NAME_MAX: usize = 16;
/// Most prices that are told.
const DOUBTS_MAX: usize = 50;
/// The bits of a file's mode that say who may do what, and the one by which everybody may read it.
const PERMISSIONS: u32 = 0o777;
const READABLE_BY_OTHERS: u32 = 0o004;

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};

    use super::*;

    /// What is said of a configuration whose file has this mode.
    fn doubts(text: &str, mode: u32) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tollgate.yaml");
        write(&path, text).unwrap();
        set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let environment = |name: &str| (name == "SET").then(|| "redis://:hunter2@127.0.0.1".to_owned());
        let config = Config::parse(&path, text, &environment).unwrap();
        let place = folder.path().display().to_string();
        let told = of_config(&config).into_iter();
        told.map(|doubt| doubt.to_string().replace(&place, "")).collect()
    }

    #[test]
    fn a_password_of_redis_in_a_file_that_everybody_may_read_is_a_doubt() {
        let with = "threads: 2\nstore: \"redis://:hunter2@127.0.0.1\"\n";
        for (mode, shown) in [(0o644, "644"), (0o604, "604")] {
            let [told] = doubts(with, mode).try_into().unwrap();
            assert!(told.starts_with("/tollgate.yaml:2: store: its password "), "{told}");
            assert!(
                told.contains(&format!("the mode {shown}: ")) && !told.contains("hunter2"),
                "{told}"
            );
        }
        assert_eq!(doubts(with, 0o640), [""; 0], "others may not read it");
        for without in [
            "store: \"redis://127.0.0.1\"",
            "store_env: SET",
            "store: \"sqlite://a:b@c\"",
        ] {
            assert_eq!(doubts(without, 0o644), [""; 0], "{without}");
        }
        let both = format!("{with}currency: euro\n");
        assert_eq!(doubts(&both, 0o644).len(), 2, "each doubt is told");
    }

    /// Of whatever row it is, each where it stands; what a row leaves out is told once.
    #[test]
    fn a_price_of_a_million_is_told_in_every_row_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tollgate.yaml");
        let catalogue = folder.path().join("catalogue.yaml");
        let conf = format!(
            "catalogue: {}\nproviders: {{ p: {{ base_url: 'http://127.0.0.1:1/v1' }} }}\n",
            catalogue.display()
        );
        let config = Config::parse(&path, &conf, &|_| None).unwrap();
        let good = "\
models:
  - id: a/b
    name: B
    provider: P
    context_length: 9
    max_completion_tokens: 5
    modality: text->text
    pricing:
      prompt: \"0.000001\"
      completion: \"0.000002\"
      overrides:
        - min_prompt_tokens: 200
          prompt: \"0.000003\"
      tiers:
        flex: { prompt: \"0.000004\", overrides: [ { min_prompt_tokens: 300, prompt: \"0.000005\" } ] }
        priority:
          prompt: \"0.000006\"
          overrides:
            - min_prompt_tokens: 400
              prompt: \"0.000007\"
            - min_prompt_tokens: 500
              prompt: \"0.000008\"
              audio: \"0.000009\"
    tier: lite
    purposes: [chat]
    targets: [ { provider: p, model: m } ]
";
        let check = |slip: &str, expected: &[&str]| {
            let text = match slip {
                "" => good.to_owned(),
                price => good.replacen(price, "0.15", 1),
            };
            write(&catalogue, &text).unwrap();
            let told = of_catalogue(&config, &config.catalogue_of(&text).unwrap());
            let folder = format!("{}/catalogue.yaml:", folder.path().display());
            let told = told.iter().map(|doubt| {
                let told = doubt.to_string().replace(&folder, "");
                let (place, _) = told.split_once(" is more than 0.01 for one token").unwrap();
                place.to_owned()
            });
            assert_eq!(told.collect::<Vec<_>>(), expected, "{slip}");
        };
        check("", &[]);
        check("0.000001", &["9: a/b: pricing.prompt"]);
        check("0.000002", &["10: a/b: pricing.completion"]);
        check("0.000003", &["13: a/b: pricing.overrides.prompt"]);
        check("0.000004", &["15: a/b: pricing.tiers.flex.prompt"]);
        check("0.000005", &["15: a/b: pricing.tiers.flex.overrides.prompt"]);
        check("0.000006", &["17: a/b: pricing.tiers.priority.prompt"]);
        check("0.000007", &["20: a/b: pricing.tiers.priority.overrides.prompt"]);
        check("0.000008", &["22: a/b: pricing.tiers.priority.overrides.prompt"]);
        check("0.000009", &["23: a/b: pricing.tiers.priority.overrides.audio"]);
    }

    #[test]
    fn a_currency_is_a_code_or_a_name_of_its_own() {
        for good in ["USD", "EUR", "CHF", "credits", "Points"] {
            assert_eq!(of_currency(good), None, "{good}");
        }
        for (doubtful, says) in [
            ("dollars", "USD?"),
            ("Euro", "EUR?"),
            ("usd", "USD?"),
            ("", "neither"),
            ("$", "neither"),
            ("US dollars", "neither"),
            ("abcdefghijklmnopq", "neither"),
        ] {
            let told = of_currency(doubtful).expect(doubtful);
            assert!(told.contains(says), "{doubtful}: {told}");
        }
    }
}
