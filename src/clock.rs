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
            Clock::System => uuid::Uuid::now_v7(),
            Clock::Manual(_) => {
                let millis = u64::try_from(self.now().0).unwrap_or(0);
                let nanos = u32::try_from(millis % 1000).unwrap_or(0).saturating_mul(1_000_000);
                uuid::Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, millis / 1000, nanos))
            }
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
