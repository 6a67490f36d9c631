//! What time it is by Redis, whose clock counts: asked for, or as far as it is known here from what Redis said last.

use std::sync::atomic::Ordering;

use redis::Value;

use super::link::Link;
use super::reply;
use super::shared::Shared;
use crate::clock::Clock;
use crate::ledger::StoreError;
use crate::pure::time::Timestamp;

/// Redis has not said yet what time it is.
pub(super) const NOT_HEARD: i64 = i64::MIN;

impl Shared {
    /// The clock that scripts go by: a test's, or else Redis' own.
    pub(super) fn redis_clock(&self) -> &Clock {
        self.options.redis_clock.as_ref().unwrap_or(&self.options.clock)
    }

    /// The time that a script is to take: empty for Redis' own.
    pub(super) fn now_text(&self) -> String {
        match self.redis_clock() {
            Clock::System => String::new(),
            manual @ Clock::Manual(_) => manual.now().0.to_string(),
        }
    }

    /// Redis' time, as far as it is known here: what it said last, and what has passed since, whatever the clock of this machine was set to
    /// meanwhile. Asks nobody.
    pub(super) fn redis_now(&self) -> Timestamp {
        if let (None, manual @ Clock::Manual(_)) = (&self.options.redis_clock, &self.options.clock) {
            return manual.now();
        }
        match self.began_ms.load(Ordering::Relaxed) {
            NOT_HEARD => self.options.clock.now(),
            began => Timestamp(began).plus_millis(self.options.clock.passed_ms()),
        }
    }

    /// Redis has just said what time it is.
    pub(super) fn heard_time(&self, now: Timestamp) {
        let began = now.plus_millis(self.options.clock.passed_ms().saturating_neg());
        self.began_ms.store(began.0, Ordering::Relaxed);
    }

    /// A server has just said of itself what time it is, if it did. Of a test's clock it knows nothing.
    pub(super) fn server_said(&self, time: Option<Timestamp>) {
        let now = match (&self.options.redis_clock, &self.options.clock) {
            (Some(manual @ Clock::Manual(_)), _) => Some(manual.now()),
            // It is Redis' clock as well, and may be moved between two looks at it.
            (None, Clock::Manual(_)) => None,
            (Some(Clock::System), _) | (None, Clock::System) => time,
        };
        if let Some(now) = now {
            self.heard_time(now);
        }
        // Only here: before Redis has said it, it is the time of this machine.
        self.producer.renew_when_old(self.redis_now());
    }

    /// Redis' time: asks for it.
    pub(super) async fn time(&self, link: &Link) -> Result<Timestamp, StoreError> {
        if let manual @ Clock::Manual(_) = self.redis_clock() {
            return Ok(manual.now());
        }
        let time = self.command(link, redis::cmd("TIME")).await?;
        let [seconds, micros]: &[Value] = reply::list(&time)? else {
            return Err(reply::corrupt("a time has two parts"));
        };
        let millis = reply::integer(seconds)?.saturating_mul(1000);
        Ok(Timestamp(millis.saturating_add(reply::integer(micros)? / 1000)))
    }
}
