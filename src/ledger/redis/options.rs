//! What may be chosen of a ledger in Redis.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::clock::Clock;
use crate::ledger::StoreError;

/// What an operator, or a test, may choose.
#[derive(Clone, Debug)]
pub struct Options {
    /// The longest that a call waits for Redis.
    pub timeout: Duration,
    /// How many calls may wait for Redis at once.
    pub waiting_max: usize,
    /// How many settlements may wait before no more calls are admitted.
    pub unsettled_max: usize,
    /// How long a settlement may wait before no more calls are admitted.
    pub unsettled_age_max: Duration,
    /// The life of a hold, from each renewal on: how long the credit of a call is held after its node has died. A call whose hold could
    /// not be renewed for two thirds of it is ended, so that its debit comes while it is held.
    pub hold_ttl: Duration,
    /// How long acknowledged settlements are kept, to be sent again after Redis has lost its last moments.
    pub replay: Duration,
    /// How long [`RedisLedger::close`](super::RedisLedger::close) tries to send what is left.
    pub close_within: Duration,
    /// The most receipts that an account has; the oldest are dropped. None: no receipts are kept.
    pub receipts_per_account_max: Option<NonZeroU32>,
    /// PEM text of the authorities that are trusted over TLS, in place of the system's.
    pub ca: Option<Vec<u8>>,
    /// This machine's clock.
    pub clock: Clock,
    /// The clock that decides: `System` is Redis' own; a test's is passed to the scripts in its place. None: as `clock`.
    pub redis_clock: Option<Clock>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            timeout: Duration::from_millis(500),
            waiting_max: 2048,
            unsettled_max: 100_000,
            unsettled_age_max: Duration::from_secs(10),
            hold_ttl: Duration::from_secs(90),
            replay: Duration::from_secs(60),
            close_within: Duration::from_secs(5),
            receipts_per_account_max: None,
            ca: None,
            clock: Clock::System,
            redis_clock: None,
        }
    }
}

pub(super) fn unavailable(what: &str) -> StoreError {
    StoreError::Unavailable(what.to_owned())
}
