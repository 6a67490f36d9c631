//! Sums of amounts for reports: what an account or a key has used in all its life may be more than one amount can be.

use std::fmt;
use std::iter::Sum;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::pure::money::{Credits, MoneyError, parse_decimal};

/// A sum of amounts in units of 10^-12 credit, exact where it leaves the range of [`Credits`]. For reports, never for a balance or a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CreditSum(i128);

impl CreditSum {
    /// Nothing.
    pub const ZERO: CreditSum = CreditSum(0);

    /// A sum of `pico` times 10^-12 credit.
    pub const fn from_pico(pico: i128) -> CreditSum {
        CreditSum(pico)
    }

    /// The sum in 10^-12 credit.
    pub const fn pico(self) -> i128 {
        self.0
    }

    /// Adds an amount. So many that this leaves its range there are not.
    pub fn add(&mut self, amount: Credits) {
        self.0 = self.0.saturating_add(i128::from(amount.pico()));
    }
}

impl From<Credits> for CreditSum {
    fn from(amount: Credits) -> CreditSum {
        CreditSum(i128::from(amount.pico()))
    }
}

impl Sum<Credits> for CreditSum {
    fn sum<I: Iterator<Item = Credits>>(amounts: I) -> CreditSum {
        let mut sum = CreditSum::ZERO;
        amounts.for_each(|amount| sum.add(amount));
        sum
    }
}

impl FromStr for CreditSum {
    type Err = MoneyError;

    /// Reads what is displayed: plain decimal text of at most 12 decimals.
    fn from_str(text: &str) -> Result<CreditSum, MoneyError> {
        let decimal = parse_decimal(text)?;
        let power = 12u32
            .checked_sub(decimal.scale())
            .and_then(|missing| 10i128.checked_pow(missing));
        let pico = power.and_then(|power| decimal.mantissa().checked_mul(power));
        pico.map(CreditSum)
            .ok_or_else(|| MoneyError::OutOfRange(text.to_owned()))
    }
}

impl fmt::Display for CreditSum {
    /// As [`Credits`] are displayed: exact decimals without trailing zeros.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let pico = self.0.unsigned_abs();
        let (whole, rest) = (pico / PICO_PER_CREDIT, pico % PICO_PER_CREDIT);
        if rest == 0 {
            return write!(f, "{sign}{whole}");
        }
        let decimals = format!("{rest:012}");
        write!(f, "{sign}{whole}.{}", decimals.trim_end_matches('0'))
    }
}

impl Serialize for CreditSum {
    /// A JSON number with the exact decimals, as of [`Credits`].
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw = serde_json::value::RawValue::from_string(self.to_string()).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

const PICO_PER_CREDIT: u128 = 1_000_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_exact_beyond_the_largest_amount() {
        for text in [
            "0",
            "10.5",
            "-0.000000000001",
            "9223372.036854775807",
            "-9223372.036854775808",
            "0.1",
        ] {
            let amount: Credits = text.parse().unwrap();
            assert_eq!(CreditSum::from(amount).to_string(), text);
            assert_eq!(text.parse(), Ok(CreditSum::from(amount)));
        }
        let sum: CreditSum = [Credits::MAX, Credits::PICO, Credits::MAX].into_iter().sum();
        assert_eq!(sum.to_string(), "18446744.073709551615");
        assert_eq!(serde_json::to_string(&sum).unwrap(), "18446744.073709551615");
        assert_eq!(sum.pico(), 18_446_744_073_709_551_615);
        assert_eq!("18446744.073709551615".parse(), Ok(sum));
        assert!("0.0000000000001".parse::<CreditSum>().is_err());
        assert_eq!(
            CreditSum::from_pico(-30_000_000_000_000_000_000).to_string(),
            "-30000000"
        );
    }
}
