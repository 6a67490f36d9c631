//! Hard limits of what a key, and each end user of a key, may spend: in a UTC day, week or month, or in all.
//!
//! What a call costs counts in the period in which the call came, whenever it ends: its id says when that was, so everybody who has to know
//! does, also whoever finds the call in the journal of a dead process.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::ids::{KeyId, RequestId, hex, unhex};
use super::money::Credits;
use super::time::{Day, Month, Timestamp};

/// When what was spent under a limit begins at 0 again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reset {
    /// Never.
    #[default]
    None,
    /// Each UTC day.
    Daily,
    /// Each Monday.
    Weekly,
    /// On the first of each month.
    Monthly,
}

/// One period of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SpendPeriod {
    /// All time.
    Life,
    /// A UTC day.
    Day(Day),
    /// The week that begins with this Monday.
    Week(Day),
    /// A UTC month.
    Month(Month),
}

/// A text that is none of the words that are expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct SpendTextError {
    text: String,
    expected: &'static str,
}

/// How much may be spent in each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpendLimit {
    /// At least 0; stored in 10^-12 credit.
    #[serde(with = "pico")]
    pub amount: Credits,
    /// Which periods.
    pub reset: Reset,
}

/// An end user of a key: the first 88 bits of the SHA-256 of its name, for the name itself is nobody's to keep.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EndUserId([u8; 11]);

/// Under whose limit a call counts beside its key's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndUser {
    /// Who.
    pub id: EndUserId,
    /// Of its limit.
    pub reset: Reset,
}

/// Whose limit refuses a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spender {
    /// The key's.
    Key,
    /// That of an end user of the key.
    EndUser,
}

/// The limits that a call counts under beside its account's balance and quota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpendLimits {
    /// The key.
    pub key: KeyId,
    /// The key's own limit.
    pub own: Option<SpendLimit>,
    /// Its end user with the limit that each end user of the key has.
    pub end_user: Option<(EndUserId, SpendLimit)>,
}

impl Reset {
    /// All of them.
    pub const ALL: [Reset; 4] = [Reset::None, Reset::Daily, Reset::Weekly, Reset::Monthly];

    /// As commands and the interface write it.
    pub fn name(self) -> &'static str {
        match self {
            Reset::None => "none",
            Reset::Daily => "daily",
            Reset::Weekly => "weekly",
            Reset::Monthly => "monthly",
        }
    }

    /// The period that a day lies in.
    pub fn period(self, day: Day) -> SpendPeriod {
        match self {
            Reset::None => SpendPeriod::Life,
            Reset::Daily => SpendPeriod::Day(day),
            // 1970-01-01 was a Thursday.
            Reset::Weekly => SpendPeriod::Week(Day(day.0.saturating_sub(day.0.saturating_add(3).rem_euclid(7)))),
            Reset::Monthly => SpendPeriod::Month(day.month()),
        }
    }

    /// When the period that `day` lies in is over. None where none ends.
    pub fn next(self, day: Day) -> Option<Timestamp> {
        let next = match self.period(day) {
            SpendPeriod::Life => return None,
            SpendPeriod::Day(day) => day.next(),
            SpendPeriod::Week(monday) => Day(monday.0.saturating_add(7)),
            SpendPeriod::Month(month) => (1..=31)
                .map(|days| Day(day.0.saturating_add(days)))
                .find(|day| day.month() != month)?,
        };
        Some(next.start())
    }
}

impl FromStr for Reset {
    type Err = SpendTextError;

    fn from_str(text: &str) -> Result<Reset, SpendTextError> {
        let found = Reset::ALL.into_iter().find(|reset| reset.name() == text);
        found.ok_or_else(|| SpendTextError {
            text: text.to_owned(),
            expected: "daily, weekly, monthly or none",
        })
    }
}

impl SpendPeriod {
    /// The periods that a day lies in, one of each kind.
    pub fn all_of(day: Day) -> [SpendPeriod; 4] {
        [Reset::Daily, Reset::Weekly, Reset::Monthly, Reset::None].map(|reset| reset.period(day))
    }

    /// Whether it was over before `day` began.
    pub fn is_before(self, day: Day) -> bool {
        match self {
            SpendPeriod::Life => false,
            SpendPeriod::Day(own) => own < day,
            SpendPeriod::Week(monday) => monday.0.saturating_add(7) <= day.0,
            SpendPeriod::Month(month) => month < day.month(),
        }
    }
}

impl fmt::Display for SpendPeriod {
    /// As stores write it: `d` or `w` and the days since 1970, `m` and `yyyymm`, or `t`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpendPeriod::Life => f.write_str("t"),
            SpendPeriod::Day(Day(day)) => write!(f, "d{day}"),
            SpendPeriod::Week(Day(monday)) => write!(f, "w{monday}"),
            SpendPeriod::Month(Month(month)) => write!(f, "m{month}"),
        }
    }
}

impl FromStr for SpendPeriod {
    type Err = SpendTextError;

    fn from_str(text: &str) -> Result<SpendPeriod, SpendTextError> {
        let number = |rest: &str| rest.parse::<i64>().ok();
        let period = match text.split_at_checked(1) {
            Some(("t", "")) => Some(SpendPeriod::Life),
            Some(("d", rest)) => number(rest).map(|day| SpendPeriod::Day(Day(day))),
            Some(("w", rest)) => number(rest).map(|day| SpendPeriod::Week(Day(day))),
            Some(("m", rest)) => number(rest).map(|month| SpendPeriod::Month(Month(month))),
            _ => None,
        };
        period.ok_or_else(|| SpendTextError {
            text: text.to_owned(),
            expected: "a period",
        })
    }
}

impl SpendLimits {
    /// The limit of the key, or that of its end user.
    pub fn of(&self, spender: Spender) -> Option<SpendLimit> {
        match spender {
            Spender::Key => self.own,
            Spender::EndUser => self.end_user.map(|(_, limit)| limit),
        }
    }

    /// Whose end user's a call is.
    pub fn end_user(&self) -> Option<EndUser> {
        self.end_user.map(|(id, limit)| EndUser { id, reset: limit.reset })
    }
}

impl EndUser {
    /// In which of its periods a request counts.
    pub fn period(&self, request: RequestId) -> SpendPeriod {
        self.reset.period(request.time().day())
    }
}

impl EndUserId {
    /// The end user of this name. Calls that name none are one end user's, whose name is empty.
    pub fn of(name: &str) -> EndUserId {
        let digest: [u8; 32] = Sha256::digest(name.as_bytes()).into();
        let mut id = [0; 11];
        id.iter_mut().zip(digest).for_each(|(place, byte)| *place = byte);
        EndUserId(id)
    }

    /// The end user with these bytes.
    pub fn from_bytes(bytes: [u8; 11]) -> EndUserId {
        EndUserId(bytes)
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; 11] {
        &self.0
    }
}

impl fmt::Display for EndUserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for EndUserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl TryFrom<String> for EndUserId {
    type Error = SpendTextError;

    fn try_from(text: String) -> Result<EndUserId, SpendTextError> {
        let bytes = unhex(&text);
        bytes.map(EndUserId).ok_or(SpendTextError {
            text,
            expected: "the id of an end user (22 hexadecimal digits)",
        })
    }
}

impl From<EndUserId> for String {
    fn from(id: EndUserId) -> String {
        id.to_string()
    }
}

/// An amount as its integer of 10^-12, as stores and the control socket have it.
mod pico {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::pure::money::Credits;

    pub(super) fn serialize<S: Serializer>(credits: &Credits, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(credits.pico())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Credits, D::Error> {
        i64::deserialize(deserializer).map(Credits::from_pico)
    }
}

/// The longest name of an end user, in bytes.
pub const END_USER_BYTES_MAX: usize = 256;
/// How many end users of a key may spend in one period. What comes beyond is refused, for their counts are kept.
pub const END_USERS_MAX: u32 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn day(text: &str) -> Day {
        Day::parse(text).unwrap()
    }

    #[test]
    fn weeks_begin_on_monday_and_periods_end_at_midnight() {
        // 2026-11-23 is a Monday.
        for (of, monday) in [
            ("2026-11-22", "2026-11-16"),
            ("2026-11-23", "2026-11-23"),
            ("2026-11-29", "2026-11-23"),
            ("1969-12-31", "1969-12-29"),
        ] {
            assert_eq!(Reset::Weekly.period(day(of)), SpendPeriod::Week(day(monday)), "{of}");
        }
        let next = |reset: Reset, of| reset.next(day(of)).map(|at| at.to_string());
        assert_eq!(
            next(Reset::Daily, "2026-12-31").as_deref(),
            Some("2027-01-01T00:00:00Z")
        );
        assert_eq!(
            next(Reset::Weekly, "2026-11-29").as_deref(),
            Some("2026-11-30T00:00:00Z")
        );
        assert_eq!(
            next(Reset::Monthly, "2024-02-29").as_deref(),
            Some("2024-03-01T00:00:00Z")
        );
        assert_eq!(
            next(Reset::Monthly, "2026-01-01").as_deref(),
            Some("2026-02-01T00:00:00Z")
        );
        assert_eq!(next(Reset::None, "2026-11-29"), None);
    }

    #[test]
    fn what_is_over_is_before() {
        let today = day("2026-11-23");
        for (of, is_before) in [
            ("2026-11-22", [true, true, false]),
            ("2026-10-31", [true; 3]),
            ("2026-11-23", [false; 3]),
        ] {
            let periods = [Reset::Daily, Reset::Weekly, Reset::Monthly].map(|reset| reset.period(day(of)));
            assert_eq!(periods.map(|period| period.is_before(today)), is_before, "{of}");
        }
        assert!(!SpendPeriod::Life.is_before(today));
    }

    #[test]
    fn texts_are_read_as_they_are_written() {
        for period in SpendPeriod::all_of(day("2026-11-23"))
            .into_iter()
            .chain(SpendPeriod::all_of(Day(-4)))
        {
            assert_eq!(period.to_string().parse(), Ok(period));
        }
        for reset in Reset::ALL {
            assert_eq!(reset.name().parse(), Ok(reset));
        }
        for bad in ["", "t1", "d", "dx", "x1", "é"] {
            assert!(bad.parse::<SpendPeriod>().is_err(), "{bad:?}");
        }
        assert!("Daily".parse::<Reset>().is_err());
        let id = EndUserId::of("anna");
        assert_eq!(EndUserId::try_from(id.to_string()), Ok(id));
        assert_ne!(id, EndUserId::of(""));
    }

    #[test]
    fn limits_are_kept_as_they_are_and_found_by_whose_they_are() {
        let limit = |pico, reset| SpendLimit {
            amount: Credits::from_pico(pico),
            reset,
        };
        let (own, each) = (limit(7, Reset::Daily), limit(5, Reset::None));
        let id = EndUserId::from_bytes([3; 11]);
        let limits = SpendLimits {
            key: "key_0123456789abcdef".to_owned().into(),
            own: Some(own),
            end_user: Some((id, each)),
        };
        assert_eq!(limits.of(Spender::Key), Some(own));
        assert_eq!(limits.of(Spender::EndUser), Some(each));
        let text = serde_json::to_string(&limits).unwrap();
        assert!(text.contains(&"03".repeat(11)), "{text}");
        assert_eq!(serde_json::from_str::<SpendLimits>(&text).unwrap(), limits);
        assert_eq!(id.as_bytes(), &[3; 11]);
    }
}
