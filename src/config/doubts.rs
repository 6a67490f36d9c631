//! What is allowed in a configuration and its catalogue, and is more often a slip than a wish: for `tollgate check` to warn of.

use std::os::unix::fs::PermissionsExt;

use rust_decimal::Decimal;

use super::import::read_rules;
use super::store::has_password;
use super::{Config, ConfigError, Network, Refresh, Store};
use crate::pure::catalogue::doubts::{OF_COMPLETION, PriceMax};
use crate::pure::catalogue::{Catalogue, Model, ModelKind};
use crate::pure::money::{ListPrice, Markup, ProviderPrice};
use crate::pure::prices::{LongPromptRow, PriceRow, PriceTable};
use crate::pure::yaml_lines;

/// Doubts about the configuration.
pub fn of_config(config: &Config) -> Vec<ConfigError> {
    let text = super::read(&config.path).unwrap_or_default();
    let doubts = [
        ("store", of_store(config)),
        ("markup", of_markup(config.markup)),
        ("currency", of_currency(&config.currency)),
        ("trusted_proxies", of_proxies(&config.trusted_proxies)),
        ("catalogue_refresh", of_refresh(config.catalogue_refresh.as_ref())),
    ];
    let told = doubts.into_iter().filter_map(|(key, problem)| {
        let line = yaml_lines::of_key(&text, &[key]);
        Some(ConfigError::new(&config.path, format!("{key}: {}", problem?)).at(line))
    });
    told.collect()
}

/// Doubts about a configuration's catalogue: prices that nobody asks for a token, and figures of a model that do not fit together.
pub fn of_catalogue(config: &Config, catalogue: &Catalogue) -> Vec<ConfigError> {
    let Some(max) = price_max(config) else {
        return Vec::new();
    };
    let mut text = None;
    let (mut doubts, mut unused) = (Vec::new(), Vec::new());
    for model in catalogue.models() {
        for (entry, key, problem) in of_model(model) {
            let text = text.get_or_insert_with(|| super::read(&config.catalogue).unwrap_or_default());
            let line = yaml_lines::of_entry(text, &model.id, entry).map(|at| line_of_key(text, at, key));
            let problem = format!("{}: {problem}", model.id);
            doubts.push(ConfigError::new(&config.catalogue, problem).at(line));
        }
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
        for row in &rows {
            for (key, price, side, of_side) in row.below_side() {
                let text = text.get_or_insert_with(|| super::read(&config.catalogue).unwrap_or_default());
                let line = yaml_lines::of_entry(text, &model.id, "pricing").map(|at| row.line_of(side, text, at));
                let problem = format!(
                    "{}: pricing.{}{key} is the {price} of other calls, for it is left out, and {side} {of_side}: say what it costs there",
                    model.id, row.place
                );
                unused.push(ConfigError::new(&config.catalogue, problem).at(line));
            }
            let (Some(min), context) = (row.min_prompt_tokens, model.context_length) else {
                continue;
            };
            if min < context {
                continue;
            }
            let text = text.get_or_insert_with(|| super::read(&config.catalogue).unwrap_or_default());
            let line =
                yaml_lines::of_entry(text, &model.id, "pricing").map(|at| row.line_of("min_prompt_tokens", text, at));
            let problem = format!(
                "{}: pricing.{}min_prompt_tokens is {min}, and context_length {context}: no prompt counts as more, so longer ones are sold \
                 at the price of shorter ones",
                model.id, row.place
            );
            unused.push(ConfigError::new(&config.catalogue, problem).at(line));
        }
    }
    // Behind those of prices, which cost more.
    doubts.append(&mut unused);
    doubts.truncate(DOUBTS_MAX);
    doubts
}

/// Figures of a model that do not fit together: each time the keys on the way to where that stands, and what is doubtful.
fn of_model(model: &Model) -> Vec<(&'static str, &'static str, String)> {
    let mut doubts = Vec::new();
    let (max, context) = (model.max_completion_tokens, model.context_length);
    if max > context {
        let key = "max_completion_tokens";
        doubts.push((
            key,
            key,
            format!("{key} is {max}, and context_length {context}: no answer is longer than the context"),
        ));
    }
    let pricing = &model.pricing;
    if model.kind() == ModelKind::Chat && pricing.completion.is_zero() && !pricing.prompt.is_zero() {
        doubts.push((
            "pricing",
            "completion",
            "pricing.completion is 0, and pricing.prompt is not: nobody pays for what the model answers".to_owned(),
        ));
    }
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

    /// The kinds that cost as much as their side or more in the row from which it has what it leaves out, and less than their side here: each
    /// with its price, its side, and what that costs. Reads from a cache are not told: they cost less anywhere.
    fn below_side(&self) -> Vec<(&'static str, ListPrice, &'static str, ListPrice)> {
        let Some(base) = self.base else { return Vec::new() };
        let sides = |row: &PriceRow, key: &str| match OF_COMPLETION.contains(&key) {
            true => ("completion", row.pricing.completion),
            false => ("prompt", row.pricing.prompt),
        };
        let pairs = base.kinds.named().into_iter().zip(self.row.kinds.named());
        let below = pairs.filter_map(|((key, usual), (_, own))| {
            let (usual, own) = (usual?, own?);
            let ((_, before), (side, now)) = (sides(base, key), sides(self.row, key));
            let is_told = usual == own && usual.units() >= before.units() && own.units() < now.units();
            is_told.then_some((key, own, side, now))
        });
        below.collect()
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

/// A network of all addresses.
fn of_proxies(proxies: &[Network]) -> Option<String> {
    let mut proxies = proxies.iter().map(ToString::to_string);
    let all = proxies.find(|network| ["0.0.0.0/0", "::/0"].contains(&network.as_str()))?;
    Some(format!(
        "by {all} X-Forwarded-For is believed from everybody, so that a client chooses the address that its limits are counted by: name the \
         proxies' own"
    ))
}

/// A list of one provider for the models of another. Rules that cannot be read are an error elsewhere.
fn of_refresh(refresh: Option<&Refresh>) -> Option<String> {
    let refresh = refresh?;
    let rules = read_rules(&refresh.rules).ok()?;
    (rules.provider != refresh.provider).then(|| {
        format!(
            "the list is that of {}, and by {} its models are those of {}, sold at that list's prices",
            refresh.provider,
            refresh.rules.display(),
            rules.provider
        )
    })
}

/// A factor that was probably meant as a percentage.
fn of_markup(markup: Markup) -> Option<String> {
    let factor = markup.decimal();
    if factor < Decimal::TWO {
        return None;
    }
    let percent = factor.checked_mul(Decimal::new(1, 2))?.checked_add(Decimal::ONE)?;
    Some(format!(
        "customers pay {} times the provider's price; {} % is \"{}\"",
        factor.normalize(),
        factor.normalize(),
        percent.normalize()
    ))
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
mod tests;
