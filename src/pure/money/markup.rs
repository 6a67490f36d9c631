//! What a provider's prices are multiplied with.

use std::str::FromStr;

use rust_decimal::Decimal;
use serde::{Deserialize, Deserializer};

use super::error::MoneyError;
use super::text::{deserialize_text, parse_decimal};
use super::{Credits, divide_half_even};

/// What the provider's price is multiplied with: at least 1 and below 100, at most 6 decimals. The interface says 1.15.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Markup(pub(super) Decimal);

impl Default for Markup {
    fn default() -> Markup {
        Markup(Decimal::new(115, 2))
    }
}

impl FromStr for Markup {
    type Err = MoneyError;

    fn from_str(text: &str) -> Result<Markup, MoneyError> {
        let decimal = parse_decimal(text)?;
        if decimal.scale() > 6 {
            return Err(MoneyError::TooPrecise {
                text: text.to_owned(),
                max: 6,
            });
        }
        if decimal < Decimal::ONE || decimal >= Decimal::ONE_HUNDRED {
            return Err(MoneyError::NoMarkup(text.to_owned()));
        }
        Ok(Markup(decimal))
    }
}

impl<'de> Deserialize<'de> for Markup {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_text(deserializer, "a factor in quotes, such as \"1.15\"")
    }
}

impl Markup {
    /// The factor as it was written.
    pub fn decimal(self) -> Decimal {
        self.0
    }

    /// What callers pay for a call that costs so much at the provider, 0 or more: rounded once, half to even, at 10^-12 credit.
    ///
    /// # Errors
    /// Beyond the range of [`Credits`].
    pub fn on(self, cost: Decimal) -> Result<Credits, MoneyError> {
        let beyond = || MoneyError::OutOfRange(format!("a cost of {cost}"));
        // At most 29 and 8 digits: their product is within the range.
        let product = cost
            .mantissa()
            .checked_mul(self.0.mantissa())
            .and_then(|units| u128::try_from(units).ok());
        let scale = cost.scale().saturating_add(self.0.scale());
        let pico = product.and_then(|units| match scale.checked_sub(Credits::DECIMALS) {
            Some(more) => Some(match 10u128.checked_pow(more) {
                Some(by) => divide_half_even(units, by),
                None => 0,
            }),
            None => units.checked_mul(10u128.checked_pow(Credits::DECIMALS.saturating_sub(scale))?),
        });
        pico.and_then(|pico| i64::try_from(pico).ok())
            .map(Credits)
            .ok_or_else(beyond)
    }
}
