//! Points in time as values. The clock itself is outside; here a time only comes in as an argument.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Milliseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

/// A UTC day, as days since 1970-01-01.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Day(pub i64);

/// A UTC month as the number `yyyymm`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Month(pub i64);

/// Which days a usage summary covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Period {
    /// The current UTC day.
    #[serde(rename = "today")]
    Today,
    /// The current UTC day and the six before it.
    #[serde(rename = "7d")]
    Week,
    /// The current UTC day and the 29 before it.
    #[serde(rename = "30d")]
    Month,
    /// Everything there is.
    #[serde(rename = "all")]
    All,
}

/// The UTC days that a report is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Days {
    /// Those of a period that ends now.
    Period(Period),
    /// From a day to a day, both included; none when the second is before the first.
    Span {
        /// The first.
        from: Day,
        /// The last.
        to: Day,
    },
}

/// Why a text is no length of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanError {
    /// Not digits and one of `d`, `h`, `m` and `s`.
    Malformed,
    /// Longer than [`SPAN_MS_MAX`].
    TooLong,
}

/// The longest length of time that anybody may ask for, in milliseconds: 36,500 days.
pub const SPAN_MS_MAX: i64 = 36_500 * MILLIS_PER_DAY;

/// A length of time such as `30d`, `12h`, `90m` or `45s`, in milliseconds: from 0 to [`SPAN_MS_MAX`].
///
/// # Errors
/// For any other text.
pub fn parse_span(text: &str) -> Result<i64, SpanError> {
    let unit = text.chars().next_back().ok_or(SpanError::Malformed)?;
    let digits = text.strip_suffix(unit).unwrap_or_default();
    let unit_millis: i64 = match unit {
        'd' => MILLIS_PER_DAY,
        'h' => 3_600_000,
        'm' => 60_000,
        's' => 1_000,
        _ => return Err(SpanError::Malformed),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(SpanError::Malformed);
    }
    let count: Option<i64> = digits.parse().ok();
    let millis = count.and_then(|count| count.checked_mul(unit_millis));
    millis.filter(|millis| *millis <= SPAN_MS_MAX).ok_or(SpanError::TooLong)
}

impl Timestamp {
    /// The UTC day.
    pub fn day(self) -> Day {
        Day(self.0.div_euclid(MILLIS_PER_DAY))
    }

    /// The UTC month.
    pub fn month(self) -> Month {
        self.day().month()
    }

    /// This much later (or earlier), clamped to the range.
    pub fn plus_millis(self, millis: i64) -> Timestamp {
        Timestamp(self.0.saturating_add(millis))
    }

    /// Whole milliseconds from `earlier` to `self`; negative when the clock stepped back.
    pub fn since(self, earlier: Timestamp) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Timestamp {
    /// `2026-11-20T10:15:00Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secs = self.0.div_euclid(1000).rem_euclid(86_400);
        write!(
            f,
            "{}T{:02}:{:02}:{:02}Z",
            self.day(),
            secs / 3600,
            secs / 60 % 60,
            secs % 60
        )
    }
}

impl Day {
    /// The first day of its month.
    pub fn first_of_month(self) -> Day {
        let days_before = i64::from(self.date().day()).saturating_sub(1);
        Day(self.0.saturating_sub(days_before))
    }

    /// The month the day lies in.
    pub fn month(self) -> Month {
        let date = self.date();
        Month(
            i64::from(date.year())
                .saturating_mul(100)
                .saturating_add(i64::from(u8::from(date.month()))),
        )
    }

    fn date(self) -> time::Date {
        i32::try_from(self.0.saturating_add(JULIAN_DAY_OF_1970))
            .ok()
            .and_then(|julian| time::Date::from_julian_day(julian).ok())
            .unwrap_or(time::Date::MAX)
    }
}

impl Day {
    /// Its first moment.
    pub fn start(self) -> Timestamp {
        Timestamp(self.0.saturating_mul(MILLIS_PER_DAY))
    }

    /// The day after it.
    pub fn next(self) -> Day {
        Day(self.0.saturating_add(1))
    }

    /// Reads `2026-11-20`.
    pub fn parse(text: &str) -> Option<Day> {
        let number = |part: &str, digits: usize| {
            let is_number = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| part.parse::<u16>().ok()).flatten()
        };
        let mut parts = text.split('-');
        let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() {
            return None;
        }
        let month = time::Month::try_from(u8::try_from(number(month, 2)?).ok()?).ok()?;
        let day = u8::try_from(number(day, 2)?).ok()?;
        let date = time::Date::from_calendar_date(number(year, 4)?.into(), month, day).ok()?;
        Some(Day(i64::from(date.to_julian_day()).saturating_sub(JULIAN_DAY_OF_1970)))
    }
}

impl fmt::Display for Day {
    /// `2026-11-20`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let date = self.date();
        write!(f, "{:04}-{:02}-{:02}", date.year(), u8::from(date.month()), date.day())
    }
}

impl Period {
    /// All periods, as the interface lists them.
    pub const ALL: [Period; 4] = [Period::Today, Period::Week, Period::Month, Period::All];

    /// As the interface writes it.
    pub fn name(self) -> &'static str {
        match self {
            Period::Today => "today",
            Period::Week => "7d",
            Period::Month => "30d",
            Period::All => "all",
        }
    }

    /// Reads the interface's spelling.
    pub fn parse(text: &str) -> Option<Period> {
        Period::ALL.into_iter().find(|period| period.name() == text)
    }

    /// The first day that counts, seen from `today`.
    pub fn first_day(self, today: Day) -> Day {
        match self {
            Period::Today => today,
            Period::Week => Day(today.0.saturating_sub(6)),
            Period::Month => Day(today.0.saturating_sub(29)),
            Period::All => Day(i64::MIN),
        }
    }
}

impl From<Period> for Days {
    fn from(period: Period) -> Days {
        Days::Period(period)
    }
}

impl Days {
    /// From `from`, or else from the first day that there can be usage of, to `to`, or else `today`. `None` when `from` is after that: a
    /// `to` of long ago alone is a span without usage.
    pub fn between(from: Option<Day>, to: Option<Day>, today: Day) -> Option<Days> {
        let to = to.unwrap_or(today);
        let from = from.unwrap_or_else(|| Day::default().min(to));
        (from <= to).then_some(Days::Span { from, to })
    }

    /// The days of `last`'s month, up to it.
    pub fn of_month(last: Day) -> Days {
        let first = last.first_of_month();
        Days::Span { from: first, to: last }
    }

    /// The same, seen from `today` also where it is asked for on a later day, as by the second of two reads: a period's first day stands, and
    /// it still has no last one.
    pub fn fixed(self, today: Day) -> Days {
        match self {
            Days::Period(Period::Today | Period::Week | Period::Month) => {
                let (from, to) = self.bounds(today);
                Days::Span { from, to }
            }
            Days::Period(Period::All) | Days::Span { .. } => self,
        }
    }

    /// The first and the last of them, seen from `today`. A period has no last day: what a clock that was ahead has counted is in it.
    pub fn bounds(self, today: Day) -> (Day, Day) {
        match self {
            Days::Period(period) => (period.first_day(today), Day(i64::MAX)),
            Days::Span { from, to } => (from, to),
        }
    }
}

const MILLIS_PER_DAY: i64 = 86_400_000;
const JULIAN_DAY_OF_1970: i64 = 2_440_588;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_whose_first_day_is_not_given_is_never_turned() {
        let (long_ago, before, today) = (Day(-600_000), Day(20_000), Day(20_700));
        let span = |from, to| Some(Days::Span { from, to });
        for (from, to, days) in [
            (None, None, span(Day(0), today)),
            (None, Some(before), span(Day(0), before)),
            (None, Some(long_ago), span(long_ago, long_ago)),
            (Some(before), None, span(before, today)),
            (Some(today), None, span(today, today)),
            (Some(Day(20_701)), None, None),
            (Some(today), Some(before), None),
            (Some(Day(20_701)), Some(Day(20_702)), span(Day(20_701), Day(20_702))),
        ] {
            assert_eq!(Days::between(from, to, today), days, "{from:?} {to:?}");
        }
    }

    #[test]
    fn a_span_has_digits_and_one_unit_and_ends_at_36500_days() {
        for (text, millis) in [
            ("0s", 0),
            ("45s", 45_000),
            ("90m", 5_400_000),
            ("12h", 43_200_000),
            ("30d", 2_592_000_000),
            ("007d", 604_800_000),
            ("36500d", 3_153_600_000_000),
            ("876000h", 3_153_600_000_000),
        ] {
            assert_eq!(parse_span(text), Ok(millis), "{text}");
        }
        for text in [
            "", "d", "30", "30w", "30D", "-1d", "+1d", "1.5d", "1 d", " 1d", "1dd", "3ÿ", "ÿd",
        ] {
            assert_eq!(parse_span(text), Err(SpanError::Malformed), "{text}");
        }
        for text in [
            "36501d",
            "876001h",
            "3153600001s",
            "9223372036854775807d",
            "99999999999999999999s",
        ] {
            assert_eq!(parse_span(text), Err(SpanError::TooLong), "{text}");
        }
    }

    #[test]
    fn days_and_months_are_utc() {
        let t = Timestamp(1_795_132_800_000);
        assert_eq!(t.to_string(), "2026-11-20T00:00:00Z");
        assert_eq!(t.day().to_string(), "2026-11-20");
        assert_eq!(t.month(), Month(202_611));
        assert_eq!(t.plus_millis(-1).day().to_string(), "2026-11-19");
        assert_eq!(Timestamp(-1).day().to_string(), "1969-12-31");
        assert_eq!(Timestamp(951_782_400_000).day().to_string(), "2000-02-29");
    }

    #[test]
    fn a_day_is_read_as_it_is_written() {
        for text in ["2026-11-20", "2024-02-29", "1970-01-01", "1969-12-31", "9999-12-31"] {
            let day = Day::parse(text).unwrap();
            assert_eq!((day.to_string().as_str(), day.start().day()), (text, day));
        }
        let day = Day::parse("2026-11-20").unwrap();
        assert_eq!(day.start(), Timestamp(1_795_132_800_000));
        assert_eq!(day.next().to_string(), "2026-11-21");
        for bad in [
            "",
            "2026-11",
            "2026-13-01",
            "2026-02-29",
            "2026-00-01",
            "26-11-20",
            "2026-1-2",
            "2026-11-20-",
            "+026-11-20",
            "2026-11-20T00:00:00Z",
        ] {
            assert_eq!(Day::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_month_begins_with_its_first_day() {
        for (today, first) in [
            ("2026-11-20", "2026-11-01"),
            ("2026-11-01", "2026-11-01"),
            ("2026-12-31", "2026-12-01"),
            ("2024-02-29", "2024-02-01"),
        ] {
            let (today, first) = (Day::parse(today).unwrap(), Day::parse(first).unwrap());
            assert_eq!(Days::of_month(today).bounds(today), (first, today));
        }
        let (from, to) = Days::from(Period::Week).bounds(Day(10));
        assert_eq!((from, to), (Day(4), Day(i64::MAX)));
    }

    #[test]
    fn a_period_that_is_fixed_begins_on_the_same_day_tomorrow_and_has_no_last_one() {
        let (today, tomorrow) = (Day(10), Day(11));
        for period in Period::ALL {
            let fixed = Days::from(period).fixed(today);
            assert_eq!(fixed.bounds(tomorrow), Days::from(period).bounds(today), "{period:?}");
        }
        assert_eq!(Days::from(Period::All).fixed(today), Period::All.into());
        let span = Days::Span {
            from: Day(3),
            to: Day(4),
        };
        assert_eq!(span.fixed(today), span);
    }

    #[test]
    fn a_week_has_seven_days() {
        assert_eq!(Period::Week.first_day(Day(10)), Day(4));
        assert_eq!(Period::parse("7d"), Some(Period::Week));
        assert_eq!(Period::parse("1d"), None);
    }
}
