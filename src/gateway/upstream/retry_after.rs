//! How long an upstream asks to be left alone, by the head of its answer: in each of the forms that providers use.

use http::header::{self, HeaderMap};

use super::circuit_breaker::RETRY_AFTER_SECS_MAX;
use crate::clock::timestamp;
use crate::pure::error::DEFAULT_RETRY_AFTER_SECS;
use crate::pure::time::Timestamp;

/// How long the upstream asks to be left alone, in seconds that are rounded up, at most as long as a target is passed over for that. None where
/// it does not ask. Milliseconds of 0 and a date that has passed, such as one by another clock, say no more than a form that is not known.
pub(super) fn retry_after_secs(headers: &HeaderMap, now: Timestamp) -> Option<u64> {
    // As OpenAI's clients do: the more precise one first, unless it is no number.
    let millis = headers
        .get(RETRY_AFTER_MS)
        .and_then(|value| rounded_up(value.to_str().ok()?.trim()))
        .filter(|millis| *millis > 0);
    let secs = match millis {
        Some(millis) => millis.div_ceil(1000),
        None => {
            let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
            let secs = rounded_up(text).or_else(|| secs_until(text, now).filter(|secs| *secs > 0));
            // It asks, in no form that is known.
            secs.unwrap_or(DEFAULT_RETRY_AFTER_SECS)
        }
    };
    Some(secs.min(RETRY_AFTER_SECS_MAX))
}

/// A number without a sign, which may have a fraction: the next whole one. The largest there is in the place of one that is larger.
fn rounded_up(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let whole: u64 = whole.parse().unwrap_or(u64::MAX);
    let has_fraction = fraction.bytes().any(|digit| digit != b'0');
    Some(whole.saturating_add(u64::from(has_fraction)))
}

/// Seconds until an HTTP date; 0 where it has passed.
fn secs_until(date: &str, now: Timestamp) -> Option<u64> {
    let at = timestamp(httpdate::parse_http_date(date).ok()?);
    Some(u64::try_from(at.since(now)).unwrap_or(0).div_ceil(1000))
}

/// What OpenAI and Azure send beside `Retry-After`: milliseconds.
const RETRY_AFTER_MS: &str = "retry-after-ms";

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    /// 2026-11-20T10:00:00.250Z.
    const NOW: Timestamp = Timestamp(1_795_168_800_250);

    fn secs(fields: &[(&'static str, &'static str)]) -> Option<u64> {
        let fields = fields.iter().map(|&(name, value)| {
            let name = HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        });
        let headers: HeaderMap = fields.collect();
        retry_after_secs(&headers, NOW)
    }

    #[test]
    fn each_form_is_read_and_rounded_up() {
        for (said, expected) in [
            ("17", 17),
            (" 17 ", 17),
            ("0", 0),
            ("0.0", 0),
            ("1.0", 1),
            ("1.5", 2),
            ("0.001", 1),
            ("119.1", 120),
            ("121", 120),
            ("99999999999999999999999", 120),
            ("Fri, 20 Nov 2026 10:00:17 GMT", 17),
            ("Friday, 20-Nov-26 10:00:17 GMT", 17),
            ("Fri Nov 20 10:00:17 2026", 17),
            ("Fri, 20 Nov 2026 10:00:01 GMT", 1),
            ("Fri, 20 Nov 2026 10:00:00 GMT", 5),
            ("Thu, 01 Jan 1970 00:00:00 GMT", 5),
            ("Sat, 21 Nov 2026 10:00:00 GMT", 120),
            ("Fri, 31 Dec 9999 23:59:59 GMT", 120),
            // No form that is known.
            ("", 5),
            (".", 5),
            ("1.", 5),
            ("1.5.1", 5),
            ("-1", 5),
            ("soon", 5),
            ("Mon, 20 Nov 2026 10:00:17 GMT", 5),
        ] {
            assert_eq!(secs(&[("retry-after", said)]), Some(expected), "{said:?}");
        }
    }

    #[test]
    fn milliseconds_win_where_they_are_a_number() {
        for (millis, expected) in [
            ("1", 1),
            ("0", 30),
            ("2000", 2),
            ("2000.5", 3),
            ("2001", 3),
            ("86400000", 120),
            ("-1", 30),
            ("soon", 30),
            ("", 30),
        ] {
            let both = secs(&[("retry-after-ms", millis), ("retry-after", "30")]);
            assert_eq!(both, Some(expected), "{millis:?}");
        }
        assert_eq!(secs(&[("retry-after-ms", "2500")]), Some(3));
        assert_eq!(secs(&[("retry-after-ms", "soon")]), None);
        assert_eq!(secs(&[]), None);
    }
}
