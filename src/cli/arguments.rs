//! The shapes of arguments, read once: durations, amounts, quotas, limits.

use std::net::SocketAddr;
use std::str::FromStr;

use crate::pure::ids::KeyId;
use crate::pure::limits::LIMIT_MAX;
use crate::pure::money::Credits;
use crate::pure::operator::is_public_id;
use crate::pure::time::{Day, Period, SpanError, parse_span};

/// A length of time from now, in milliseconds; above 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lifetime {
    pub(super) millis: i64,
}

/// An account's quota: its own, or that of its tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quota {
    Own(Credits),
    OfTier,
}

/// From where on an account's balance is low.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LowBalance {
    Below(Credits),
    None,
}

impl FromStr for Lifetime {
    type Err = String;

    fn from_str(text: &str) -> Result<Lifetime, String> {
        match parse_span(text) {
            Ok(0) => Err("the time must be above 0".to_owned()),
            Ok(millis) => Ok(Lifetime { millis }),
            Err(SpanError::Malformed) => Err(format!("{text:?} is not a time such as 30d, 12h, 90m or 45s")),
            Err(SpanError::TooLong) => {
                Err("the time is longer than 36500d; leave it out for what does not expire".to_owned())
            }
        }
    }
}

impl FromStr for LowBalance {
    type Err = String;

    fn from_str(text: &str) -> Result<LowBalance, String> {
        if text == "none" {
            return Ok(LowBalance::None);
        }
        quota(text).map(LowBalance::Below)
    }
}

impl FromStr for Quota {
    type Err = String;

    fn from_str(text: &str) -> Result<Quota, String> {
        if text == "default" {
            return Ok(Quota::OfTier);
        }
        quota(text).map(Quota::Own)
    }
}

/// An amount of 0 or more.
pub(super) fn quota(text: &str) -> Result<Credits, String> {
    let amount: Credits = text.parse().map_err(|error| format!("{error}"))?;
    if amount < Credits::ZERO {
        return Err("the amount cannot be negative".to_owned());
    }
    Ok(amount)
}

/// An amount above 0.
pub(super) fn amount(text: &str) -> Result<Credits, String> {
    let amount: Credits = text.parse().map_err(|error| format!("{error}"))?;
    if amount <= Credits::ZERO {
        return Err("the amount must be above 0".to_owned());
    }
    Ok(amount)
}

/// An amount above or below 0.
pub(super) fn change(text: &str) -> Result<Credits, String> {
    let amount: Credits = text.parse().map_err(|error| format!("{error}"))?;
    if amount == Credits::ZERO {
        return Err("the amount must not be 0".to_owned());
    }
    Ok(amount)
}

/// What a credit entry is known by. The ledger checks the rest of it.
pub(super) fn reference(text: &str) -> Result<String, String> {
    match text.is_empty() {
        true => Err("the reference must not be empty".to_owned()),
        false => Ok(text.to_owned()),
    }
}

/// A name and its value for an account's metadata; an empty value takes the name away.
pub(super) fn metadata(text: &str) -> Result<(String, Option<String>), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), (!value.is_empty()).then(|| value.to_owned()))),
        _ => Err(format!("{text:?} is not NAME=VALUE")),
    }
}

/// A rate limit: at least 1, and small enough for every store to count exactly.
pub(super) fn limit(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(0) => Err("a limit must be at least 1; to stop a key, revoke it".to_owned()),
        Ok(limit) if limit <= LIMIT_MAX => Ok(limit),
        _ => Err(format!("{text:?} is not a whole number from 1 to {LIMIT_MAX}")),
    }
}

/// A period by its name.
pub(super) fn period(text: &str) -> Result<Period, String> {
    Period::parse(text).ok_or_else(|| {
        let names: Vec<&str> = Period::ALL.into_iter().map(Period::name).collect();
        format!("{text:?} is not one of {}", names.join(", "))
    })
}

/// An address to listen on.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is not an address such as 127.0.0.1:8080"))
}

/// A key's id.
pub(super) fn key_id(text: &str) -> Result<KeyId, String> {
    let id = text.to_ascii_lowercase();
    if is_public_id("key_", &id) {
        return Ok(KeyId::from(id));
    }
    Err("that is not the id of a key: key_ and 16 hexadecimal digits".to_owned())
}

/// A UTC day.
pub(super) fn day(text: &str) -> Result<Day, String> {
    Day::parse(text).ok_or_else(|| format!("{text:?} is not a day such as 2026-11-20"))
}

/// Where help lists what goes with every command.
pub(super) const EVERYWHERE: &str = "With every command";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::time::SPAN_MS_MAX;

    #[test]
    fn lifetimes() {
        let good = [
            ("30d", 2_592_000_000),
            ("12h", 43_200_000),
            ("90m", 5_400_000),
            ("45s", 45_000),
            ("036500d", SPAN_MS_MAX),
        ];
        for (text, millis) in good {
            assert_eq!(text.parse(), Ok(Lifetime { millis }), "{text}");
        }
        for bad in [
            "",
            "d",
            "30",
            "0s",
            "-1d",
            "+1d",
            "1.5h",
            "1w",
            "30D",
            " 1d",
            "1d ",
            "1h30m",
            "36501d",
            "99999999999999999999d",
            "1é",
        ] {
            assert!(bad.parse::<Lifetime>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn amounts_and_quotas() {
        assert_eq!(amount("10.50").unwrap().pico(), 10_500_000_000_000);
        assert_eq!(amount("0.000000000001").unwrap(), Credits::PICO);
        for bad in ["0", "0.0", "-1", "", "1,5", "1e3", "1.0000000000001", "10000000", "NaN"] {
            assert!(amount(bad).is_err(), "{bad:?}");
        }
        assert_eq!("default".parse(), Ok(Quota::OfTier));
        assert_eq!("0".parse(), Ok(Quota::Own(Credits::ZERO)));
        assert_eq!("none".parse(), Ok(LowBalance::None));
        for told in [
            "-1".parse::<LowBalance>().err(),
            "-1".parse::<Quota>().err(),
            quota("-1").err(),
        ] {
            assert_eq!(told.as_deref(), Some("the amount cannot be negative"));
        }
        assert_eq!(change("-2.5").unwrap().pico(), -2_500_000_000_000);
        assert!(change("0").is_err() && change("x").is_err());
        assert_eq!(metadata("a=b=c"), Ok(("a".to_owned(), Some("b=c".to_owned()))));
        assert_eq!(metadata("a="), Ok(("a".to_owned(), None)));
        assert!(metadata("=b").is_err() && metadata("a").is_err());
        assert!("Default".parse::<Quota>().is_err());
    }

    #[test]
    fn limits_periods_and_days() {
        assert_eq!(limit("1"), Ok(1));
        for bad in ["0", "-1", "1.5", "", "9007199254740993"] {
            assert!(limit(bad).is_err(), "{bad:?}");
        }
        assert_eq!(period("7d"), Ok(Period::Week));
        assert_eq!(day("2026-11-20").unwrap().to_string(), "2026-11-20");
        assert!(day("20.11.2026").unwrap_err().contains("such as 2026-11-20"));
        assert!(period("week").unwrap_err().contains("today, 7d, 30d, all"));
    }
}
