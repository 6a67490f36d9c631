//! Money: credits, prices, the markup and the cost formula. The only file that rounds.
//!
//! A credit is one unit of the configured currency. [`Credits`] counts 10^-12 of it in an `i64`; prices are decimal text and
//! stay exact. The catalogue holds the provider's base price ([`ProviderPrice`]); only a [`ListPrice`], made by
//! [`ProviderPrice::with_markup`], can be multiplied by tokens, so the markup is neither forgotten nor applied twice.

mod error;
mod markup;
mod text;

use std::fmt;
use std::str::FromStr;

use rust_decimal::Decimal;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use self::error::MoneyError;
pub use self::markup::Markup;
pub(in crate::pure) use self::text::parse_decimal;
use self::text::{AmountText, deserialize_text};
use super::usage::Usage;

/// An amount of credit in units of 10^-12 credit, from about -9.2 to 9.2 million credits.
///
/// Arithmetic is checked: there is no `Add`, only [`Credits::checked_add`] and [`Credits::checked_sub`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Credits(i64);

impl Credits {
    /// How many decimals an amount has.
    const DECIMALS: u32 = 12;
    /// No credit.
    pub const ZERO: Credits = Credits(0);
    /// The largest amount.
    pub const MAX: Credits = Credits(i64::MAX);
    /// The smallest unit, 10^-12 credit.
    pub const PICO: Credits = Credits(1);

    /// An amount of `pico` times 10^-12 credit.
    pub const fn from_pico(pico: i64) -> Credits {
        Credits(pico)
    }

    /// The amount in 10^-12 credit.
    pub const fn pico(self) -> i64 {
        self.0
    }

    /// The sum, or nothing beyond the range.
    pub fn checked_add(self, other: Credits) -> Option<Credits> {
        self.0.checked_add(other.0).map(Credits)
    }

    /// The difference, or nothing beyond the range.
    pub fn checked_sub(self, other: Credits) -> Option<Credits> {
        self.0.checked_sub(other.0).map(Credits)
    }

    /// The difference, clamped to the range: for reports and comparisons, never for a balance.
    pub fn saturating_sub(self, other: Credits) -> Credits {
        Credits(self.0.saturating_sub(other.0))
    }

    /// Appends the amount's text, as it is displayed.
    pub fn write_to(self, out: &mut Vec<u8>) {
        out.extend_from_slice(AmountText::of(self.0).as_bytes());
    }

    /// The sum, clamped to the range: for reports and comparisons, never for a balance.
    pub fn saturating_add(self, other: Credits) -> Credits {
        Credits(self.0.saturating_add(other.0))
    }
}

impl FromStr for Credits {
    type Err = MoneyError;

    /// Reads plain decimal text of at most 12 decimals (`"10.50"`, `"-0.000000000001"`); no exponent, no blanks.
    fn from_str(text: &str) -> Result<Credits, MoneyError> {
        let decimal = parse_decimal(text)?;
        if decimal.scale() > 12 {
            return Err(MoneyError::TooPrecise {
                text: text.to_owned(),
                max: 12,
            });
        }
        let missing = 12u32.saturating_sub(decimal.scale());
        10i128
            .checked_pow(missing)
            .and_then(|power| decimal.mantissa().checked_mul(power))
            .and_then(|pico| i64::try_from(pico).ok())
            .map(Credits)
            .ok_or_else(|| MoneyError::OutOfRange(text.to_owned()))
    }
}

impl fmt::Display for Credits {
    /// Exact decimals without trailing zeros: `10.5`, `-0.000000000001`, `0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(AmountText::of(self.0).as_str())
    }
}

impl Serialize for Credits {
    /// A JSON number with the exact decimals, written from the integer and never through a float.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw = serde_json::value::RawValue::from_string(self.to_string()).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// The provider's base price of one token, before the markup: at least 0, below 1 credit, at most 18 decimals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProviderPrice(Decimal);

impl FromStr for ProviderPrice {
    type Err = MoneyError;

    fn from_str(text: &str) -> Result<ProviderPrice, MoneyError> {
        let decimal = parse_decimal(text)?;
        if decimal.is_sign_negative() && !decimal.is_zero() {
            return Err(MoneyError::Negative(text.to_owned()));
        }
        if decimal.scale() > 18 {
            return Err(MoneyError::TooPrecise {
                text: text.to_owned(),
                max: 18,
            });
        }
        if decimal >= Decimal::ONE {
            return Err(MoneyError::PriceTooHigh(text.to_owned()));
        }
        Ok(ProviderPrice(decimal))
    }
}

impl ProviderPrice {
    const DECIMALS: usize = 18;

    /// Reads a price of somebody else's list. It may have more decimals than a price holds: it is rounded up then, so that nothing is sold below
    /// what it costs.
    ///
    /// # Errors
    /// As where a price is read that was written for us.
    pub fn of_list(text: &str) -> Result<ProviderPrice, MoneyError> {
        let decimals = text.split_once('.').map_or("", |(_, decimals)| decimals);
        let beyond = decimals.get(ProviderPrice::DECIMALS..).unwrap_or_default();
        let is_plain = !text.starts_with('-') && beyond.bytes().all(|b| b.is_ascii_digit());
        let held = text.len().saturating_sub(beyond.len());
        match text.get(..held) {
            Some(held) if is_plain && !beyond.is_empty() => {
                let below: ProviderPrice = held.parse()?;
                let is_exact = beyond.bytes().all(|b| b == b'0');
                let more = if is_exact { Decimal::ZERO } else { Decimal::new(1, 18) };
                below.plus(ProviderPrice(more), text)
            }
            _ => text.parse(),
        }
    }

    /// What a token costs that costs both.
    ///
    /// # Errors
    /// When it is no price any more; `text` is what it was read from.
    pub fn plus(self, other: ProviderPrice, text: &str) -> Result<ProviderPrice, MoneyError> {
        let sum = self.0.checked_add(other.0).filter(|sum| *sum < Decimal::ONE);
        let price = sum.map(|sum| ProviderPrice(sum.normalize()));
        price.ok_or_else(|| MoneyError::PriceTooHigh(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for ProviderPrice {
    /// Text only: a number would have passed through a float before it came here, so it is refused.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_text(deserializer, "a price per token in quotes, such as \"0.00000015\"")
    }
}

impl ProviderPrice {
    /// The price as it was written, without trailing zeros.
    pub fn decimal(self) -> Decimal {
        self.0
    }

    /// The price that callers see and pay.
    pub fn with_markup(self, markup: Markup) -> ListPrice {
        // 18 + 6 decimals and values below 1 and 100: the product has at most 26 digits, which a Decimal holds exactly.
        let decimal = (self.0 * markup.0).normalize();
        let missing = ListPrice::DECIMALS.saturating_sub(decimal.scale());
        let units = decimal
            .mantissa()
            .unsigned_abs()
            .saturating_mul(10u128.saturating_pow(missing));
        ListPrice { decimal, units }
    }
}

impl<'de> Deserialize<'de> for Credits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_text(deserializer, "an amount in quotes, such as \"10.50\"")
    }
}

/// The price of one token with the markup in it, exact to 10^-24 credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListPrice {
    decimal: Decimal,
    units: u128,
}

impl ListPrice {
    const DECIMALS: u32 = 24;

    /// Whether a token costs nothing.
    pub fn is_zero(self) -> bool {
        self.units == 0
    }

    /// The price of a token in 10^-24 credit.
    pub fn units(self) -> u128 {
        self.units
    }

    /// The provider's price that the markup was put on, which divides it to its last digit.
    pub fn without_markup(self, markup: Markup) -> Decimal {
        (self.decimal / markup.0).normalize()
    }

    /// The contrary of [`ListPrice::units`]. None beyond what a price can be.
    pub fn from_units(units: u128) -> Option<ListPrice> {
        let mantissa = i128::try_from(units).ok()?;
        let decimal = Decimal::try_from_i128_with_scale(mantissa, ListPrice::DECIMALS).ok()?;
        Some(ListPrice {
            decimal: decimal.normalize(),
            units,
        })
    }
}

impl fmt::Display for ListPrice {
    /// Decimal text without trailing zeros, as the models listing shows it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.decimal)
    }
}

impl<'de> Deserialize<'de> for ListPrice {
    /// Reads what [`ListPrice`] writes.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let decimal = parse_decimal(&text).map_err(serde::de::Error::custom)?;
        let missing = ListPrice::DECIMALS.checked_sub(decimal.scale());
        let units = missing.and_then(|missing| {
            decimal
                .mantissa()
                .unsigned_abs()
                .checked_mul(10u128.checked_pow(missing)?)
        });
        let price = units.and_then(ListPrice::from_units);
        price.ok_or_else(|| serde::de::Error::custom(format!("{text} is no list price")))
    }
}

impl Serialize for ListPrice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Both list prices of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pricing {
    /// Per prompt token.
    pub prompt: ListPrice,
    /// Per completion token.
    pub completion: ListPrice,
}

impl Pricing {
    /// `prompt_tokens x prompt + completion_tokens x completion` (the interface's formula; the markup is in the list prices),
    /// rounded once, half to even, at 10^-12 credit. Errors beyond the range of [`Credits`]; never wraps or clips.
    pub fn cost(&self, usage: Usage) -> Result<Credits, MoneyError> {
        rounded(self.units(usage), usage)
    }

    /// The same and what the call costs `beside`, rounded up: what a hold must have so that it covers the exact cost.
    pub fn cost_at_most(&self, usage: Usage, beside: Option<ListPrice>) -> Result<Credits, MoneyError> {
        self.units(usage)
            .and_then(|units| units.checked_add(beside.map_or(0, ListPrice::units)))
            .and_then(|units| i64::try_from(units.div_ceil(UNITS_PER_PICO)).ok())
            .map(Credits)
            .ok_or_else(|| MoneyError::OutOfRange(format!("the cost of {usage:?}")))
    }

    /// How many completion tokens `amount` pays for beside `prompt` tokens and what the call costs `beside`. The cost of that many never
    /// exceeds `amount`. `u64::MAX` when completion tokens cost nothing; nothing when not even the rest is paid for.
    pub fn affordable_completion(
        &self,
        amount: Credits,
        prompt: super::usage::PromptTokens,
        beside: Option<ListPrice>,
    ) -> Option<u64> {
        affordable(amount, (prompt.0, self.prompt), beside, self.completion)
    }

    /// How many prompt tokens `amount` pays for beside `completion` tokens and what the call costs `beside`. `u64::MAX` when prompt tokens
    /// cost nothing; nothing when not even the rest is paid for.
    pub fn affordable_prompt(
        &self,
        amount: Credits,
        completion: super::usage::CompletionTokens,
        beside: Option<ListPrice>,
    ) -> Option<u64> {
        affordable(amount, (completion.0, self.completion), beside, self.prompt)
    }

    /// Both prices, prompt first, as integers of 10^-24 credit: how the journal keeps them.
    pub fn units_each(&self) -> [u128; 2] {
        [self.prompt.units, self.completion.units]
    }

    /// The contrary of [`Pricing::units_each`]. None when one is beyond what a price can be.
    pub fn from_units_each([prompt, completion]: [u128; 2]) -> Option<Pricing> {
        Some(Pricing {
            prompt: ListPrice::from_units(prompt)?,
            completion: ListPrice::from_units(completion)?,
        })
    }

    /// Whether both sides cost nothing.
    pub fn is_free(&self) -> bool {
        self.prompt.is_zero() && self.completion.is_zero()
    }

    fn units(&self, usage: Usage) -> Option<u128> {
        let prompt = u128::from(usage.prompt.0).checked_mul(self.prompt.units)?;
        let completion = u128::from(usage.completion.0).checked_mul(self.completion.units)?;
        prompt.checked_add(completion)
    }
}

/// How many tokens of a `price` an amount pays for beside other tokens and another price.
fn affordable(
    amount: Credits,
    (tokens, other): (u64, ListPrice),
    beside: Option<ListPrice>,
    price: ListPrice,
) -> Option<u64> {
    let amount = u128::try_from(amount.0).ok()?.checked_mul(UNITS_PER_PICO)?;
    let others = u128::from(tokens).checked_mul(other.units)?;
    let left = amount
        .checked_sub(others)?
        .checked_sub(beside.map_or(0, ListPrice::units))?;
    match left.checked_div(price.units) {
        None => Some(u64::MAX),
        Some(tokens) => Some(u64::try_from(tokens).unwrap_or(u64::MAX)),
    }
}

const UNITS_PER_PICO: u128 = 1_000_000_000_000;

/// So many units of 10^-24 credit as an amount, rounded half to even.
pub(super) fn rounded(units: Option<u128>, usage: Usage) -> Result<Credits, MoneyError> {
    units
        .and_then(|units| i64::try_from(divide_half_even(units, UNITS_PER_PICO)).ok())
        .map(Credits)
        .ok_or_else(|| MoneyError::OutOfRange(format!("the cost of {usage:?}")))
}

fn divide_half_even(value: u128, by: u128) -> u128 {
    let quotient = value / by;
    let twice_rest = (value % by).saturating_mul(2);
    let up = twice_rest > by || (twice_rest == by && quotient % 2 == 1);
    quotient.saturating_add(u128::from(up))
}

#[cfg(test)]
mod tests;
