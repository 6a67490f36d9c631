//! Shapes of fields and parameters, read once: lengths of time, rate limits, ids.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::pure::ids::KeyId;
use crate::pure::limits::LIMIT_MAX;
use crate::pure::operator::is_public_id;
use crate::pure::time::parse_span;

/// A length of time such as `30d`, `12h`, `90m`, `45s` or `0`, in milliseconds: at most 36500 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Lifetime(pub(super) i64);

/// A rate limit: from 1 to 2^53.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "u64")]
pub(super) struct RateLimit(pub(super) u64);

impl TryFrom<String> for Lifetime {
    type Error = String;

    fn try_from(text: String) -> Result<Lifetime, String> {
        if text == "0" {
            return Ok(Lifetime(0));
        }
        let shown = text.get(..text.floor_char_boundary(64)).unwrap_or_default();
        parse_span(&text)
            .map(Lifetime)
            .map_err(|_| format!("{shown:?} is not a length of time such as 30d, 12h, 90m or 45s, of at most 36500d"))
    }
}

impl Lifetime {
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
        match (1..=LIMIT_MAX).contains(&number) {
            true => Ok(RateLimit(number)),
            false => Err(format!("a limit is from 1 to {LIMIT_MAX}; to stop a key, revoke it")),
        }
    }
}

/// A key's id, as a parameter has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyName(pub(super) KeyId);

impl FromStr for KeyName {
    type Err = String;

    fn from_str(text: &str) -> Result<KeyName, String> {
        match is_public_id("key_", text) {
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

/// Names with their values, of which none may come twice: serde alone takes the last and says nothing.
#[derive(Debug, Default)]
pub(super) struct Named<T>(pub(super) BTreeMap<String, T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Named<T>, D::Error> {
        deserializer.deserialize_map(NamedVisitor(PhantomData))
    }
}

struct NamedVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for NamedVisitor<T> {
    type Value = Named<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Named<T>, A::Error> {
        let mut named = BTreeMap::new();
        while let Some((name, value)) = entries.next_entry::<String, T>()? {
            if named.contains_key(&name) {
                return Err(A::Error::custom(format_args!("duplicate field {name:?}")));
            }
            named.insert(name, value);
        }
        Ok(Named(named))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::time::SPAN_MS_MAX;

    #[test]
    fn no_name_comes_twice() {
        let read = |text: &str| serde_json::from_str::<Named<Option<String>>>(text);
        assert_eq!(read(r#"{"a":"1","b":null}"#).unwrap().0.len(), 2);
        let why = read(r#"{"a":"1","b":"2","\u0061":"3"}"#).unwrap_err().to_string();
        assert!(why.starts_with("duplicate field \"a\""), "{why}");
        assert!(read("[]").is_err());
    }

    #[test]
    fn lengths_of_time() {
        for (text, millis) in [
            ("30d", 2_592_000_000),
            ("24h", 86_400_000),
            ("0s", 0),
            ("0", 0),
            ("36500d", SPAN_MS_MAX),
        ] {
            assert_eq!(Lifetime::try_from(text.to_owned()), Ok(Lifetime(millis)), "{text}");
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
            assert!(Lifetime::try_from(text.to_owned()).is_err(), "{text}");
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
