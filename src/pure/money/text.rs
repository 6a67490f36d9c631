//! Decimal text, as configuration and catalogue have it: read without a float.

use std::fmt;
use std::str::FromStr;

use rust_decimal::Decimal;
use serde::Deserializer;

use super::MoneyError;

/// Plain decimals only: what `Decimal` reads beyond them (exponents, `_`, a leading `+` or dot) is refused.
pub(super) fn parse_decimal(text: &str) -> Result<Decimal, MoneyError> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = digits.bytes().all(|b| b.is_ascii_digit() || b == b'.')
        && digits.starts_with(|c: char| c.is_ascii_digit())
        && digits.ends_with(|c: char| c.is_ascii_digit());
    if !plain || text.len() > 40 {
        return Err(MoneyError::NotDecimal(text.to_owned()));
    }
    Decimal::from_str_exact(text)
        .map(|d| d.normalize())
        .map_err(|_| MoneyError::NotDecimal(text.to_owned()))
}

pub(super) fn deserialize_text<'de, D, T>(deserializer: D, expected: &'static str) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err = MoneyError>,
{
    struct Text<T>(&'static str, std::marker::PhantomData<T>);
    impl<T: FromStr<Err = MoneyError>> serde::de::Visitor<'_> for Text<T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }
    }
    deserializer.deserialize_any(Text(expected, std::marker::PhantomData))
}
