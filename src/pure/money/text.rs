//! Decimal text, as configuration and catalogue have it: read without a float.

use std::fmt;
use std::str::FromStr;

use rust_decimal::Decimal;
use serde::Deserializer;

use super::error::MoneyError;

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

/// The text of an amount in 10^-12 credit: exact decimals without trailing zeros. It allocates nothing.
pub(super) struct AmountText {
    bytes: [u8; AMOUNT_BYTES],
    from: usize,
}

impl AmountText {
    pub(super) fn of(amount: i64) -> AmountText {
        let mut text = AmountText {
            bytes: [b'0'; AMOUNT_BYTES],
            from: AMOUNT_BYTES,
        };
        let pico = amount.unsigned_abs();
        let (mut whole, mut decimals) = (pico / PICO_PER_CREDIT, pico % PICO_PER_CREDIT);
        if decimals > 0 {
            let mut places = DECIMALS;
            while decimals % 10 == 0 {
                decimals /= 10;
                places = places.saturating_sub(1);
            }
            (0..places).for_each(|_| text.put_digit(&mut decimals));
            text.put(b'.');
        }
        text.put_digit(&mut whole);
        while whole > 0 {
            text.put_digit(&mut whole);
        }
        if amount < 0 {
            text.put(b'-');
        }
        text
    }

    pub(super) fn as_str(&self) -> &str {
        let text = self.bytes.get(self.from..);
        text.and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default()
    }

    /// Puts the last digit of `rest` before what stands there.
    fn put_digit(&mut self, rest: &mut u64) {
        self.put(b'0'.saturating_add(u8::try_from(*rest % 10).unwrap_or_default()));
        *rest /= 10;
    }

    fn put(&mut self, byte: u8) {
        self.from = self.from.saturating_sub(1);
        if let Some(place) = self.bytes.get_mut(self.from) {
            *place = byte;
        }
    }
}

const DECIMALS: u32 = 12;
const PICO_PER_CREDIT: u64 = 1_000_000_000_000;
/// A sign, the 19 digits of the largest amount and its point.
const AMOUNT_BYTES: usize = 21;
