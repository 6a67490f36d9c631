//! What time it is, as far as that is known: by this an idempotency key has expired, and an event or a file of receipts is too old, and not
//! by the clock alone.
//!
//! A machine may boot with a clock that is days ahead, or have it set ahead, until somebody sets it right. By such a clock all keys would be
//! forgotten, and a client's next try be made and billed as another call; and so would events that no webhook has yet, and receipts that
//! nobody has shipped yet. So the time goes on from where it was when the file was last written only as fast as time passes in this process,
//! and is never later than what the clock says.

use crate::clock::Clock;
use crate::ledger::events::KEEP_MS;
use crate::ledger::idempotency::call::KeyTimes;
use crate::pure::idempotency::KEPT_MS;
use crate::pure::time::Timestamp;

/// What this process knows of the time.
#[derive(Debug)]
pub(super) struct KnownTime {
    clock: Clock,
    /// What the clock said when this process began, and how much time had passed by then.
    began: (Timestamp, i64),
    /// What time it was when the file was last written.
    before: Timestamp,
    /// By how many milliseconds the time was ahead of what had passed in this process when that was last believed, and how much had.
    believed: (i64, i64),
    /// The most that it was ahead by since then, while it was less.
    most_since: i64,
}

impl KnownTime {
    /// Goes on from what time it was `before`, as the file says; without that from now.
    pub(super) fn new(clock: &Clock, before: Option<Timestamp>) -> KnownTime {
        let (now, at) = (clock.now(), clock.passed_ms());
        KnownTime {
            clock: clock.clone(),
            began: (now, at),
            before: before.unwrap_or(now),
            // A clock's first word is believed by none: it may be ahead, and what is written by it would stay for as long.
            believed: (before.map_or(i64::MIN, |before| before.0.saturating_sub(at)), at),
            most_since: i64::MIN,
        }
    }

    /// By which keys are written and forgotten. Once this process runs for as long as a key is known, none is left that was there when it
    /// began, and what the clock said then harms none.
    pub(super) fn of_keys(&mut self) -> KeyTimes {
        KeyTimes {
            latest: self.latest(),
            known: self.after(KEPT_MS),
        }
    }

    /// The latest that it can be. By a clock that falls behind, keys and events are written as if it had not: set right, it would forget them at
    /// once. It is taken for the right one when it stays behind for a day.
    pub(super) fn latest(&mut self) -> Timestamp {
        let passed = self.clock.passed_ms();
        let lead = self.after(SET_WITHIN_MS).0.saturating_sub(passed);
        let ((believed, since), (_, began)) = (self.believed, self.began);
        let is_set = passed.saturating_sub(began) >= SET_WITHIN_MS;
        // By however little: one that goes too slowly falls behind by a moment each time.
        let is_behind = lead < believed;
        self.most_since = match is_behind {
            true => self.most_since.max(lead),
            false => lead,
        };
        if is_set && (!is_behind || passed.saturating_sub(since) >= KEPT_MS) {
            // Not what it says just now: it may have fallen once more.
            self.believed = (self.most_since, passed);
            self.most_since = i64::MIN;
        }
        self.clock.now().max(Timestamp(self.believed.0).plus_millis(passed))
    }

    /// By which events are too old. As with keys: once this process runs for as long as events are kept, none is left that was there when
    /// it began.
    pub(super) fn of_events(&self) -> Timestamp {
        self.after(KEEP_MS)
    }

    /// By which files of receipts are too old. None in this process' first hour: the newest file may be of a clock that was ahead as well.
    pub(super) fn of_files(&self) -> Option<Timestamp> {
        let (_, at) = self.began;
        let passed = self.clock.passed_ms().saturating_sub(at);
        (passed >= SET_WITHIN_MS).then(|| self.after(SET_WITHIN_MS))
    }

    /// What the file keeps for the next start. A clock that was wrong when this process began has been set by now where it is ever set. Later
    /// than that would not do: of a machine that is off each night the time would fall behind by each of them, and receipts be kept for longer
    /// and longer.
    pub(super) fn to_keep(&self) -> Timestamp {
        self.after(SET_WITHIN_MS)
    }

    /// The time that is known when the clock's first word is believed after so many milliseconds.
    fn after(&self, millis: i64) -> Timestamp {
        let (began, at) = self.began;
        let passed = self.clock.passed_ms().saturating_sub(at);
        let from = match passed < millis {
            true => self.before,
            false => self.before.max(began),
        };
        self.clock.now().min(from.plus_millis(passed))
    }
}

/// How long a clock may be wrong behind a boot, in milliseconds.
const SET_WITHIN_MS: i64 = 3_600_000;

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: Timestamp = Timestamp(1_795_132_800_000);
    const DAY_MS: i64 = 86_400_000;

    /// How much later than [`BEFORE`] it is.
    fn later(time: Timestamp) -> i64 {
        time.since(BEFORE)
    }

    #[test]
    fn the_time_passes_as_fast_as_it_does_whatever_the_clock_says() {
        let clock = Clock::manual(BEFORE.plus_millis(5));
        let mut time = KnownTime::new(&clock, Some(BEFORE));
        let mut known = || {
            (
                later(time.of_keys().known),
                later(time.of_keys().latest),
                later(time.to_keep()),
            )
        };
        assert_eq!(known(), (0, 5, 0));
        clock.advance(10);
        assert_eq!(known(), (10, 15, 10));
        clock.set_by(2 * DAY_MS);
        assert_eq!(known(), (10, 2 * DAY_MS + 15, 10));
        clock.advance(20);
        assert_eq!(known(), (30, 2 * DAY_MS + 35, 30));
        // Back, behind what it was.
        clock.set_by(-3 * DAY_MS);
        let now = 35 - DAY_MS;
        assert_eq!(known(), (now, 30, now));
    }

    /// It was off for two days, or its clock is ahead: which it was, nobody knows.
    #[test]
    fn what_the_clock_said_at_the_start_counts_once_the_process_has_run_for_long() {
        let clock = Clock::manual(BEFORE.plus_millis(2 * DAY_MS));
        let mut time = KnownTime::new(&clock, Some(BEFORE));
        let known = |time: &mut KnownTime| (later(time.of_keys().known), later(time.to_keep()));
        clock.advance(SET_WITHIN_MS - 1);
        assert_eq!(known(&mut time), (SET_WITHIN_MS - 1, SET_WITHIN_MS - 1));
        clock.advance(1);
        assert_eq!(known(&mut time), (SET_WITHIN_MS, 2 * DAY_MS + SET_WITHIN_MS));
        clock.advance(KEPT_MS - SET_WITHIN_MS - 1);
        assert_eq!(later(time.of_keys().known), KEPT_MS - 1);
        clock.advance(1);
        assert_eq!(known(&mut time), (2 * DAY_MS + KEPT_MS, 2 * DAY_MS + KEPT_MS));
        clock.advance(KEEP_MS - KEPT_MS - 1);
        assert_eq!(later(time.of_events()), KEEP_MS - 1);
        clock.advance(1);
        assert_eq!(later(time.of_events()), 2 * DAY_MS + KEEP_MS);
    }

    /// It began behind by each night, and what is forgotten by age was kept for longer and longer.
    #[test]
    fn a_machine_that_is_off_each_night_is_not_behind_by_all_nights() {
        const OFF_MS: i64 = 8 * 3_600_000;
        let clock = Clock::manual(BEFORE);
        let mut time = KnownTime::new(&clock, Some(BEFORE));
        for _ in 0..10 {
            clock.advance(DAY_MS - OFF_MS);
            let kept = time.to_keep();
            clock.advance(OFF_MS);
            time = KnownTime::new(&clock, Some(kept));
        }
        assert_eq!(clock.now().since(time.of_events()), OFF_MS);
    }

    /// Else no key that is written from then on would be forgotten.
    #[test]
    fn a_clock_that_was_ahead_at_the_start_writes_no_key_for_longer_once_a_day_has_passed() {
        for before in [Some(BEFORE), None] {
            let clock = Clock::manual(BEFORE.plus_millis(400 * DAY_MS));
            let mut time = KnownTime::new(&clock, before);
            clock.advance(60_000);
            clock.set_by(-400 * DAY_MS);
            assert_eq!(time.of_keys().latest, clock.now(), "{before:?}");
            clock.advance(KEPT_MS);
            assert_eq!(time.of_keys().latest, clock.now(), "{before:?}");
        }
    }

    /// A key that is written while it is behind is known for 24 hours once it is set right.
    #[test]
    fn a_clock_that_falls_behind_is_not_believed_for_a_day() {
        const BACK_MS: i64 = 2 * DAY_MS;
        // The process runs for days; or for less than one, behind a time for which it was off.
        for (off, runs) in [(0, 3 * DAY_MS), (BACK_MS, 23 * 3_600_000)] {
            let clock = Clock::manual(BEFORE.plus_millis(off));
            let mut time = KnownTime::new(&clock, Some(BEFORE));
            clock.advance(runs);
            assert_eq!(later(time.of_keys().latest), off + runs);
            clock.set_by(-BACK_MS);
            clock.advance(600_000);
            assert_eq!(later(time.of_keys().latest), off + runs + 600_000);
            clock.advance(KEPT_MS - 600_001);
            assert_eq!(later(time.of_keys().latest), off + runs + KEPT_MS - 1);
            clock.advance(1);
            assert_eq!(time.of_keys().latest, clock.now(), "it stays behind");
        }
    }

    /// Each is set a little now and then, or by some minutes where nobody did for long.
    #[test]
    fn a_clock_that_was_set_back_by_a_moment_before_is_not_believed_earlier() {
        const STEPS: i64 = 24;
        const PASSED_MS: i64 = 3_590_000;
        for back_ms in [5, 60_000, 600_000] {
            let clock = Clock::manual(BEFORE);
            let mut time = KnownTime::new(&clock, Some(BEFORE));
            clock.advance(2 * DAY_MS);
            let right = time.of_keys().latest;
            clock.set_by(-back_ms);
            for _ in 0..STEPS {
                clock.advance(PASSED_MS);
                time.of_keys();
            }
            clock.set_by(-2 * DAY_MS);
            clock.advance(600_000);
            let later = time.of_keys().latest.since(right);
            assert_eq!(later, STEPS * PASSED_MS + 600_000 - back_ms, "{back_ms}");
        }
    }

    /// It would be believed a little less each time.
    #[test]
    fn a_clock_that_goes_at_half_speed_is_not_believed_for_a_day() {
        let clock = Clock::manual(BEFORE);
        let mut time = KnownTime::new(&clock, Some(BEFORE));
        clock.advance(2 * DAY_MS);
        let right = time.of_keys().latest;
        for turn in 1..=8 * 60 {
            clock.advance(60_000);
            clock.set_by(-30_000);
            assert_eq!(time.of_keys().latest, right.plus_millis(turn * 60_000));
        }
    }

    /// A machine without a battery begins in 1970.
    #[test]
    fn a_clock_that_is_behind_at_the_start_holds_nothing_up_once_it_is_set() {
        let clock = Clock::manual(Timestamp(0));
        let mut time = KnownTime::new(&clock, Some(BEFORE));
        assert_eq!(time.of_keys().known, Timestamp(0));
        clock.advance(7);
        clock.set_by(BEFORE.0);
        assert_eq!(later(time.of_keys().known), 7);
        clock.advance(KEPT_MS);
        assert_eq!(later(time.of_keys().known), KEPT_MS + 7);
    }

    #[test]
    fn in_a_new_file_the_time_begins_with_the_clock() {
        let clock = Clock::manual(BEFORE);
        let mut time = KnownTime::new(&clock, None);
        clock.advance(3);
        assert_eq!((later(time.of_keys().known), later(time.to_keep())), (3, 3));
    }
}
