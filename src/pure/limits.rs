//! Rate limits: requests a minute, tokens a minute, calls at once. Exact counts in a window that starts with its first request.

use serde::{Deserialize, Serialize};

use super::time::Timestamp;

/// What applies to a caller: its tier's limits with its key's own in their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Requests in one window.
    pub rpm: u64,
    /// Tokens in one window.
    pub tpm: u64,
    /// Calls at once.
    pub concurrency: u64,
}

/// The highest limit: what every store counts exactly, and JSON's readers too.
pub const LIMIT_MAX: u64 = 1 << 53;

/// Limits of a key's own; what it leaves out is its tier's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitOverrides {
    /// Requests a minute.
    pub rpm: Option<u64>,
    /// Tokens a minute.
    pub tpm: Option<u64>,
    /// Calls at once.
    pub concurrency: Option<u64>,
}

impl LimitOverrides {
    /// Whether nothing is overridden: then the key counts with its account's other keys.
    pub fn is_empty(&self) -> bool {
        *self == LimitOverrides::default()
    }

    /// `tier` with what is set here in its place.
    pub fn over(&self, tier: Limits) -> Limits {
        Limits {
            rpm: self.rpm.unwrap_or(tier.rpm),
            tpm: self.tpm.unwrap_or(tier.tpm),
            concurrency: self.concurrency.unwrap_or(tier.concurrency),
        }
    }
}

/// Counts of one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    started: Timestamp,
    requests: u64,
    tokens: u64,
}

/// What the rate-limit headers say after a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateView {
    /// The limits that were applied.
    pub limits: Limits,
    /// Requests left in this window.
    pub remaining_requests: u64,
    /// Tokens left in this window.
    pub remaining_tokens: u64,
    /// Milliseconds until the window ends; 0 when none is open.
    pub reset_ms: u64,
}

impl Window {
    /// Length in milliseconds.
    pub const MILLIS: i64 = 60_000;

    /// A window as a store kept it.
    pub fn restored(started: Timestamp, requests: u64, tokens: u64) -> Window {
        Window {
            started,
            requests,
            tokens,
        }
    }

    /// The window at `now`: itself, or a fresh one when it has ended or the clock stepped back before its start.
    #[must_use]
    pub fn at(self, now: Timestamp) -> Window {
        let age = now.since(self.started);
        if (0..Window::MILLIS).contains(&age) {
            self
        } else {
            Window {
                started: now,
                requests: 0,
                tokens: 0,
            }
        }
    }

    /// The window with so many more requests in it.
    #[must_use]
    pub fn with_requests(self, requests: u64) -> Window {
        Window {
            requests: self.requests.saturating_add(requests),
            ..self
        }
    }

    /// The window with so many more tokens in it. Tokens beyond the limit are counted as the limit, so that one large request passes
    /// through an empty window and no window is ever overdrawn by an estimate.
    #[must_use]
    pub fn with_tokens(self, tokens: u64) -> Window {
        Window {
            tokens: self.tokens.saturating_add(tokens),
            ..self
        }
    }

    /// The window after a call's `estimated` tokens turned out to be `actual`. Nothing when the call was admitted in another.
    #[must_use]
    pub fn corrected(self, admitted: Timestamp, estimated: u64, actual: u64) -> Window {
        if admitted < self.started || admitted.since(self.started) >= Window::MILLIS {
            return self;
        }
        Window {
            tokens: self.tokens.saturating_sub(estimated).saturating_add(actual),
            ..self
        }
    }

    /// Requests counted.
    pub fn requests(self) -> u64 {
        self.requests
    }

    /// Tokens counted.
    pub fn tokens(self) -> u64 {
        self.tokens
    }

    /// Milliseconds until the window ends; 0 when nothing counts in it. The second try of a call, whose request counted in the window before,
    /// may open one with its tokens alone.
    pub fn reset_ms(self, now: Timestamp) -> u64 {
        if self.requests == 0 && self.tokens == 0 {
            return 0;
        }
        u64::try_from(Window::MILLIS.saturating_sub(now.since(self.started))).unwrap_or(0)
    }

    /// What the headers say.
    pub fn view(self, limits: Limits, now: Timestamp) -> RateView {
        RateView {
            limits,
            remaining_requests: limits.rpm.saturating_sub(self.requests),
            remaining_tokens: limits.tpm.saturating_sub(self.tokens),
            reset_ms: self.reset_ms(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_limit_is_the_last_integer_before_which_a_double_knows_each() {
        assert_eq!(LIMIT_MAX, 9_007_199_254_740_992);
    }

    #[test]
    fn a_window_starts_with_its_first_request_and_lasts_a_minute() {
        let window = Window::default().at(Timestamp(1_000_000)).with_requests(1);
        assert_eq!(window.at(Timestamp(1_059_999)).requests(), 1);
        assert_eq!(window.at(Timestamp(1_060_000)).requests(), 0);
        assert_eq!(
            window.at(Timestamp(999_999)).requests(),
            0,
            "a clock that stepped back opens a fresh window"
        );
        assert_eq!(window.reset_ms(Timestamp(1_010_000)), 50_000);
    }

    #[test]
    fn a_window_of_tokens_alone_ends_after_a_minute_and_an_empty_one_is_not_open() {
        let window = Window::default().at(Timestamp(1_000_000));
        assert_eq!(window.reset_ms(Timestamp(1_010_000)), 0);
        assert_eq!(window.with_tokens(7).reset_ms(Timestamp(1_010_000)), 50_000);
    }

    #[test]
    fn a_correction_belongs_to_the_window_it_was_admitted_in() {
        let window = Window::default().at(Timestamp(1_000_000)).with_tokens(50);
        assert_eq!(window.corrected(Timestamp(1_000_000), 50, 70).tokens(), 70);
        assert_eq!(window.corrected(Timestamp(900_000), 50, 70).tokens(), 50);
    }

    #[test]
    fn a_window_that_was_kept_is_the_same() {
        let window = Window::restored(Timestamp(1_000_000), 3, 7);
        assert_eq!((window.requests(), window.tokens()), (3, 7));
        assert_eq!(window.reset_ms(Timestamp(1_010_000)), 50_000);
    }
}
