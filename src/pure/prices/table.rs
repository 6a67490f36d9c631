//! All prices of a model: its usual rows, and those of the tiers that its provider may serve a call by.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::asks::Asks;
use super::hold::HoldPrices;
use super::kinds::KindPrices;
use super::rows::{LongPromptRow, PriceRow, PriceRows};
use crate::pure::money::{Credits, MoneyError};
use crate::pure::usage::{PromptTokens, TokenKinds, Usage};

/// A model's prices as its listing shows them, and what is held for them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PriceTable {
    #[serde(flatten)]
    usual: PriceRows,
    /// By the name that requests and answers have for it.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "by_name")]
    tiers: Vec<(Box<str>, PriceRows)>,
    /// What is held where nothing else has a price than the two sides.
    #[serde(skip)]
    simple: Option<HoldPrices>,
}

/// How a provider served a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served<'p> {
    /// By these prices.
    By(&'p PriceRows),
    /// By a tier that the catalogue has no prices for.
    Unknown,
}

impl PriceTable {
    /// The prices of a model without tiers. None when the rows for long prompts are not in the order of their prompts.
    pub fn new(usual: PriceRow, long: Vec<LongPromptRow>) -> Option<PriceTable> {
        PriceRows::new(usual, long).map(|rows| PriceTable::of(rows, Vec::new()))
    }

    /// The prices of a model: its usual ones, and those of the tiers by their names.
    pub fn of(usual: PriceRows, tiers: Vec<(Box<str>, PriceRows)>) -> PriceTable {
        let row = *usual.usual();
        let is_simple = tiers.is_empty() && usual.long().is_empty() && row.kinds == KindPrices::default();
        PriceTable {
            usual,
            tiers,
            simple: is_simple.then(|| HoldPrices::from(row.pricing)),
        }
    }

    /// The row of a prompt of so many tokens in the tier of this name, or in the usual prices where that has none here. What a call is billed
    /// by is its [`PriceTable::billed_row`].
    pub fn row(&self, prompt: PromptTokens, tier: Option<&str>) -> &PriceRow {
        match self.served(tier) {
            Served::By(rows) => rows.row(prompt),
            Served::Unknown => self.usual.row(prompt),
        }
    }

    /// The row that a call is billed by which was served by this tier, as its provider says: that of its prompt. By a tier that has no prices
    /// here it is the one of all by which this call costs the most.
    pub fn billed_row(&self, usage: Usage, kinds: TokenKinds, tier: Option<&str>) -> &PriceRow {
        match self.served(tier) {
            Served::By(rows) => rows.row(usage.prompt),
            Served::Unknown => self.dearest_row(usage, kinds),
        }
    }

    /// The row of all but long prompts, and but tiers.
    pub fn usual(&self) -> &PriceRow {
        self.usual.usual()
    }

    /// The rows for long prompts, shortest first.
    pub fn long(&self) -> &[LongPromptRow] {
        self.usual.long()
    }

    /// The prices of tiers by their names.
    pub fn tiers(&self) -> impl Iterator<Item = (&str, &PriceRows)> {
        self.tiers.iter().map(|(name, rows)| (&**name, rows))
    }

    /// Whether there are prices for a tier that a request asks for.
    pub fn has_tier(&self, name: &str) -> bool {
        self.tier(name).is_some()
    }

    /// The dearest that a call can come to that asks so, and whose prompt has at most so many tokens: what its hold is made of. A tier that
    /// is asked for may be served or not.
    pub fn hold(&self, prompt_bound: PromptTokens, asks: &Asks<'_>) -> HoldPrices {
        if let Some(simple) = self.simple {
            return simple;
        }
        let usual = self.usual.hold(prompt_bound, asks);
        match asks.tier.and_then(|name| self.tier(name)) {
            Some(rows) => usual.dearer(&rows.hold(prompt_bound, asks)),
            None => usual,
        }
    }

    /// What a call costs that was served by this tier, as its provider says: by its [`PriceTable::billed_row`].
    ///
    /// # Errors
    /// As [`crate::pure::money::Pricing::cost_by_kind`].
    pub fn cost(&self, usage: Usage, kinds: TokenKinds, tier: Option<&str>) -> Result<Credits, MoneyError> {
        if self.is_simple() {
            return self.usual().pricing.cost(usage);
        }
        self.billed_row(usage, kinds, tier).cost(usage, kinds)
    }

    /// By which prices a call was served. A model without prices of tiers has the usual ones, whatever its provider says.
    pub fn served(&self, tier: Option<&str>) -> Served<'_> {
        let Some(name) = tier.filter(|_| !self.tiers.is_empty()) else {
            return Served::By(&self.usual);
        };
        match self.tier(name) {
            Some(rows) => Served::By(rows),
            None if is_usual_tier(name) => Served::By(&self.usual),
            None => Served::Unknown,
        }
    }

    /// Whether all that decides a call's price is how many tokens each of its sides has.
    pub fn is_simple(&self) -> bool {
        self.simple.is_some()
    }

    /// Whether a kind of token has a price of its own, in any row, or a tier has.
    pub fn has_kinds(&self) -> bool {
        let is_kind = |row: &PriceRow| row.kinds != KindPrices::default();
        self.usual.all().any(is_kind) || !self.tiers.is_empty()
    }

    /// Whether no call costs anything.
    pub fn is_free(&self) -> bool {
        let all = self.tiers.iter().map(|(_, rows)| rows).chain([&self.usual]);
        let mut rows = all.flat_map(PriceRows::all);
        rows.all(|row| {
            let kinds = row.kinds.named().into_iter().filter_map(|(_, price)| price);
            row.pricing.is_free() && kinds.chain(row.kinds.request).all(|price| price.is_zero())
        })
    }

    /// The row by which a call costs the most, of the usual prices and those of all tiers.
    fn dearest_row(&self, usage: Usage, kinds: TokenKinds) -> &PriceRow {
        // A cost beyond the range of amounts is above all others.
        let cost = |row: &PriceRow| row.cost(usage, kinds).unwrap_or(Credits::MAX);
        let tiers = self.tiers.iter().map(|(_, rows)| rows.row(usage.prompt));
        tiers.fold(self.usual.row(usage.prompt), |dearest, row| {
            if cost(row) > cost(dearest) { row } else { dearest }
        })
    }

    fn tier(&self, name: &str) -> Option<&PriceRows> {
        self.tiers().find(|(tier, _)| *tier == name).map(|(_, rows)| rows)
    }
}

/// Whether it is a provider's name for what is no tier of its own.
pub fn is_usual_tier(name: &str) -> bool {
    USUAL_TIERS.contains(&name)
}

const USUAL_TIERS: [&str; 4] = ["default", "standard", "auto", "on_demand"];

fn by_name<S: Serializer>(tiers: &[(Box<str>, PriceRows)], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(tiers.len()))?;
    for (name, rows) in tiers {
        map.serialize_entry(&**name, rows)?;
    }
    map.end()
}

#[cfg(test)]
mod tests;
