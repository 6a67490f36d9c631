//! Decimal text, as configuration and catalogue have it: read without a float.

use std::fmt;
use std::str::FromStr;

use rust_decimal::Decimal;
use serde::Deserializer;

use super::error::MoneyError;

/// Plain decimals only: what `Decimal` reads beyond them (exponents, `_`, a leading `+` or dot) is refused.
pub(in crate::pure) fn parse_decimal(text: &str) -> Result<Decimal, MoneyError> {
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
    to: usize,
}

impl AmountText {
    pub(super) fn of(amount: i64) -> AmountText {
        let pico = amount.unsigned_abs();
        let (whole, decimals) = (pico / PICO_PER_CREDIT, pico % PICO_PER_CREDIT);
        let mut text = AmountText {
            bytes: [b'0'; AMOUNT_BYTES],
            from: POINT,
            to: POINT,
        };
        if decimals > 0 {
            text.put_decimals(decimals);
        }
        text.put_whole(whole);
        if amount < 0 {
            text.put(b'-');
        }
        text
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(self.from..self.to).unwrap_or_default()
    }

    pub(super) fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// Puts the point and what follows it, two digits at a time.
    fn put_decimals(&mut self, decimals: u64) {
        let (_, after) = self.bytes.split_at_mut(POINT);
        let Some((point, places)) = after.split_first_mut() else {
            return;
        };
        *point = b'.';
        // In halves that 32 bits hold.
        for (half, places) in [decimals / 1_000_000, decimals % 1_000_000]
            .into_iter()
            .zip(places.chunks_exact_mut(6))
        {
            let mut rest = u32::try_from(half).unwrap_or_default();
            for pair in places.rchunks_exact_mut(2) {
                pair.copy_from_slice(&two_digits(rest % 100));
                rest /= 100;
            }
        }
        let last = places.iter().rposition(|place| *place != b'0');
        self.to = last.map_or(POINT, |last| POINT.saturating_add(2).saturating_add(last));
    }

    fn put_whole(&mut self, whole: u64) {
        let mut rest = whole;
        self.put(digit(rest % 10));
        rest /= 10;
        while rest > 0 {
            self.put(digit(rest % 10));
            rest /= 10;
        }
    }

    /// Puts a byte before what stands there.
    fn put(&mut self, byte: u8) {
        self.from = self.from.saturating_sub(1);
        if let Some(place) = self.bytes.get_mut(self.from) {
            *place = byte;
        }
    }
}

fn two_digits(value: u32) -> [u8; 2] {
    [digit(u64::from(value / 10)), digit(u64::from(value % 10))]
}

fn digit(value: u64) -> u8 {
    let [low, ..] = value.to_le_bytes();
    b'0'.wrapping_add(low)
}

const PICO_PER_CREDIT: u64 = 1_000_000_000_000;
/// Where the point stands: behind a sign and the 7 digits of the largest amount.
const POINT: usize = 8;
/// All that, the point and 12 decimals.
const AMOUNT_BYTES: usize = 21;
