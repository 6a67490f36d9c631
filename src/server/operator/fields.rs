//! Shapes of fields and parameters, read once: lengths of time, rate limits, ids.

use std::str::FromStr;

use serde::{Deserialize, Deserializer};

use crate::pure::ids::KeyId;

/// A length of time such as `30d`, `12h`, `90m`, `45s` or `0`, in milliseconds: at most 36500 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Lasting(pub(super) i64);

/// A rate limit: from 1 to 2^53.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "u64")]
pub(super) struct RateLimit(pub(super) u64);

impl TryFrom<String> for Lasting {
    type Error = String;

    fn try_from(text: String) -> Result<Lasting, String> {
        if text == "0" {
            return Ok(Lasting(0));
        }
        let shown = text.get(..text.floor_char_boundary(64)).unwrap_or_default();
        let bad = || format!("{shown:?} is not a length of time such as 30d, 12h, 90m or 45s, of at most 36500d");
        let unit = text.chars().next_back().ok_or_else(bad)?;
        let digits = text.strip_suffix(unit).unwrap_or_default();
        let millis: i64 = match unit {
            'd' => 86_400_000,
            'h' => 3_600_000,
            'm' => 60_000,
            's' => 1_000,
            _ => return Err(bad()),
        };
        let is_number = (1..=DIGITS_MAX).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
        let count: Option<i64> = if is_number { digits.parse().ok() } else { None };
        let lasting = count.and_then(|count| count.checked_mul(millis));
        let lasting = lasting.filter(|lasting| *lasting <= LASTING_MAX);
        lasting.map(Lasting).ok_or_else(bad)
    }
}

impl Lasting {
    /// One that is not over at once.
    ///
    /// # Errors
    /// When it is 0.
    pub(super) fn above_zero(self) -> Result<i64, String> {
        match self.0 {
            0 => Err("the time must be above 0".to_owned()),
            millis => Ok(millis),
        }
    }
}

impl TryFrom<u64> for RateLimit {
    type Error = String;

    fn try_from(number: u64) -> Result<RateLimit, String> {
        match (1..=RATE_MAX).contains(&number) {
            true => Ok(RateLimit(number)),
            false => Err(format!("a limit is from 1 to {RATE_MAX}; to stop a key, revoke it")),
        }
    }
}

/// A key's id, as a parameter has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyName(pub(super) KeyId);

impl FromStr for KeyName {
    type Err = String;

    fn from_str(text: &str) -> Result<KeyName, String> {
        let digits = text.strip_prefix("key_").unwrap_or_default();
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        match digits.len() == 16 && digits.bytes().all(is_digit) {
            true => Ok(KeyName(KeyId::from(text.to_owned()))),
            false => Err("that is not the id of a key: key_ and 16 hexadecimal digits".to_owned()),
        }
    }
}

/// A field that may be left out, and is not null when it is there.
pub(super) fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// A field that is there, even as null: serde alone reads null as a field that is missing.
pub(super) fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

const LASTING_MAX: i64 = 36_500 * 86_400_000;
const DIGITS_MAX: usize = 12;
const RATE_MAX: u64 = 1 << 53;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time() {
        for (text, millis) in [
            ("30d", 2_592_000_000),
            ("24h", 86_400_000),
            ("0s", 0),
            ("0", 0),
            ("36500d", LASTING_MAX),
        ] {
            assert_eq!(Lasting::try_from(text.to_owned()), Ok(Lasting(millis)), "{text}");
        }
        for text in [
            "",
            "d",
            "1",
            "-1d",
            "1.5h",
            "36501d",
            "9999999999999s",
            "1w",
            "1 d",
            "+1d",
            "1é",
        ] {
            assert!(Lasting::try_from(text.to_owned()).is_err(), "{text}");
        }
    }

    #[test]
    fn names_of_keys() {
        assert!("key_0123456789abcdef".parse::<KeyName>().is_ok());
        for text in [
            "",
            "key_",
            "key_0123456789ABCDEF",
            "key_0123456789abcde",
            "0123456789abcdef0123",
        ] {
            assert!(text.parse::<KeyName>().is_err(), "{text}");
        }
    }
}
