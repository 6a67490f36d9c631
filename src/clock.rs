//! The clock: the only file that reads it. Tests put a clock in their own hands.
#![expect(clippy::disallowed_methods, reason = "this is the clock")]

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::pure::ids::RequestId;
use crate::pure::time::Timestamp;

/// Where the time comes from.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The machine's.
    #[default]
    System,
    /// A test's, which only moves when told.
    Manual(Arc<ManualTime>),
}

/// The time of a clock that is in a test's hands, in milliseconds.
#[derive(Debug, Default)]
pub struct ManualTime {
    /// Since 1970.
    wall: AtomicI64,
    /// That have passed.
    passed: AtomicI64,
}

impl Clock {
    /// A clock that stands at `now` until it is moved.
    pub fn manual(now: Timestamp) -> Clock {
        Clock::Manual(Arc::new(ManualTime {
            wall: AtomicI64::new(now.0),
            passed: AtomicI64::new(0),
        }))
    }

    /// The wall clock's time.
    pub fn now(&self) -> Timestamp {
        match self {
            Clock::System => timestamp(SystemTime::now()),
            Clock::Manual(time) => Timestamp(time.wall.load(Ordering::SeqCst)),
        }
    }

    /// Milliseconds that have passed since a moment of this process' life, whatever the wall clock was set to meanwhile.
    pub fn passed_ms(&self) -> i64 {
        match self {
            Clock::System => {
                let since = FIRST_ASKED.get_or_init(Instant::now);
                i64::try_from(since.elapsed().as_millis()).unwrap_or(i64::MAX)
            }
            Clock::Manual(time) => time.passed.load(Ordering::SeqCst),
        }
    }

    /// The id of a request that comes now.
    pub fn request_id(&self) -> RequestId {
        let id = match self {
            Clock::System => not_ahead(uuid::Uuid::now_v7(), self.now()),
            Clock::Manual(_) => id_at(self.now()),
        };
        RequestId::from_bytes(*id.as_bytes())
    }

    /// Moves a manual clock; a system clock moves by itself. Time passes with it, unless it moves back.
    pub fn advance(&self, millis: i64) {
        self.set_by(millis);
        if let Clock::Manual(time) = self {
            time.passed.fetch_add(millis.max(0), Ordering::SeqCst);
        }
    }

    /// Sets a manual clock ahead or back, as somebody sets a machine's: no time passes.
    pub fn set_by(&self, millis: i64) {
        if let Clock::Manual(time) = self {
            time.wall.fetch_add(millis, Ordering::SeqCst);
        }
    }
}

/// The id, or one of `now` where it is later by more than [`AHEAD_MS_MAX`]: each id of a process sorts behind those before it, so after a clock
/// that was ahead is set right they would stay ahead, and their calls count in a period that has not begun.
fn not_ahead(id: uuid::Uuid, now: Timestamp) -> uuid::Uuid {
    let at = id.get_timestamp().map_or(now, |time| {
        let (secs, nanos) = time.to_unix();
        let millis = secs.saturating_mul(1000).saturating_add(u64::from(nanos / 1_000_000));
        Timestamp(i64::try_from(millis).unwrap_or(i64::MAX))
    });
    match at.0.saturating_sub(now.0) > AHEAD_MS_MAX {
        true => id_at(now),
        false => id,
    }
}

/// An id of this time, which sorts as it comes among others of it.
fn id_at(time: Timestamp) -> uuid::Uuid {
    let millis = u64::try_from(time.0).unwrap_or(0);
    let nanos = u32::try_from(millis % 1000).unwrap_or(0).saturating_mul(1_000_000);
    uuid::Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, millis / 1000, nanos))
}

/// By so much ids may be ahead of the clock, to stay in their order when it is set back a little, as by a time server.
const AHEAD_MS_MAX: i64 = 1_000;

/// When the time that passes was first asked for.
static FIRST_ASKED: OnceLock<Instant> = OnceLock::new();

/// A time of the system, such as a file's, as a timestamp.
pub fn timestamp(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX)),
        Err(before) => Timestamp(-i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX)),
    }
}

/// A name that nothing else has, and that sorts by the time at which it was given.
pub fn unique() -> uuid::Uuid {
    uuid::Uuid::now_v7()
}

/// The wall clock's time, as precise as the machine has it: for traces.
pub fn wall() -> SystemTime {
    SystemTime::now()
}

/// A point of the monotonic clock, for durations.
pub fn monotonic() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time_of(id: uuid::Uuid) -> i64 {
        let id = RequestId::from_bytes(*id.as_bytes());
        id.time().0
    }

    /// A key's limit counted in a day to come, until the next start.
    #[test]
    fn ids_are_no_later_than_a_clock_that_was_set_back() {
        let (now, day) = (Timestamp(1_795_132_800_123), 86_400_000);
        for (ahead, expected) in [(day, 0), (1_001, 0), (1_000, 1_000), (1, 1), (0, 0), (-5, -5)] {
            let made = id_at(now.plus_millis(ahead));
            let id = not_ahead(made, now);
            assert_eq!(time_of(id), now.0 + expected, "{ahead}");
            assert_eq!(id == made, expected == ahead, "{ahead}");
        }
        let (one, other) = (id_at(now.plus_millis(day)), id_at(now.plus_millis(day)));
        assert_ne!(not_ahead(one, now), not_ahead(other, now));
        let before = Clock::System.now().0;
        assert!((before..before + 60_000).contains(&time_of(not_ahead(uuid::Uuid::now_v7(), Clock::System.now()))));
    }
}
