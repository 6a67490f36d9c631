//! What is allowed in a configuration and its catalogue, and is more often a slip than a wish: for `tollgate check` to warn of.

use std::os::unix::fs::PermissionsExt;

use super::store::has_password;
use super::{Config, ConfigError, Store};
use crate::pure::catalogue::Catalogue;
use crate::pure::money::{ListPrice, ProviderPrice};
use crate::pure::prices::PriceRow;
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
    let Some(usual) = token_price_max(config) else {
        return Vec::new();
    };
    let mut text = None;
    let mut doubts = Vec::new();
    for model in catalogue.models() {
        let long = model.prices.long().iter().map(|long| &long.row);
        let tiers = model.prices.tiers().map(|(_, rows)| rows.usual());
        let rows = std::iter::once(model.prices.usual()).chain(long).chain(tiers);
        let prices = rows.flat_map(named);
        for (key, price) in prices {
            if price.units() <= usual.units() {
                continue;
            }
            let text = text.get_or_insert_with(|| super::read(&config.catalogue).unwrap_or_default());
            let line = yaml_lines::of_entry(text, &model.id, "pricing").map(|at| yaml_lines::of_text(text, at, key));
            let problem = format!(
                "{}: pricing.{key} is more than {TOKEN_PRICE_MAX} for one token: is it the price of a million? Then divide it by 1000000: \
                 \"0.15\" per million is \"0.00000015\"",
                model.id
            );
            doubts.push(ConfigError::new(&config.catalogue, problem).at(line));
        }
    }
    doubts.truncate(DOUBTS_MAX);
    doubts
}

/// The list price of a token above which none is meant.
pub(super) fn token_price_max(config: &Config) -> Option<ListPrice> {
    let max = TOKEN_PRICE_MAX.parse::<ProviderPrice>().ok()?;
    Some(max.with_markup(config.markup))
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
