//! Idempotency keys in the file: which writes count, and what is kept of answers.

use super::*;
use crate::clock::Clock;
use crate::config::Idempotency;
use crate::ledger::idempotency::call::{FreedKey, KeyEnd, KeyTimes, KeyWrite, KeyedCall};
use crate::ledger::known_time::KnownTime;
use crate::ledger::tests::rig::request_id;
use crate::pure::idempotency::{Answer, Fingerprint, KEPT_MS, KeyName, Owner, State};
use crate::pure::ids::KeyId;

fn call_of(key: &str, name: &str, n: u64) -> KeyedCall {
    let key: KeyId = key.to_owned().into();
    KeyedCall {
        name: KeyName::of(&key, name.as_bytes()).unwrap(),
        key,
        fingerprint: Fingerprint::from_bytes([1; 32]),
        request: request_id(n),
        limits: Idempotency {
            bytes_per_key_max: 10,
            bytes_max: 15,
            ..Idempotency::default()
        },
    }
}

fn call(name: &str, n: u64) -> KeyedCall {
    call_of("key_x", name, n)
}

fn billed(bytes: usize) -> KeyEnd {
    KeyEnd::Billed(Some(Answer {
        streamed: false,
        body: vec![b'x'; bytes].into(),
    }))
}

impl Rig {
    fn send(&mut self, call: &KeyedCall, now: Timestamp) -> bool {
        self.write(&[KeyWrite::Sent(call)], now)
    }

    fn end(&mut self, call: &KeyedCall, end: &KeyEnd) -> bool {
        self.write(&[KeyWrite::Ended(call, end)], NOW)
    }

    fn write(&mut self, writes: &[KeyWrite<'_>], now: Timestamp) -> bool {
        self.write_at(writes, now, now)
    }

    /// The clock says one time, and another one is known.
    fn write_at(&mut self, writes: &[KeyWrite<'_>], clock: Timestamp, known: Timestamp) -> bool {
        let written = self
            .database
            .write_keys(writes, KeyTimes { latest: clock, known })
            .unwrap();
        assert_eq!(written.len(), writes.len());
        written.into_iter().all(|written| written)
    }

    /// How many keys there are and what their answers have, which is what the file counts.
    fn known(&self) -> (i64, i64) {
        for sum in ["sum(known)", "sum(bytes)"] {
            let of_all = self.number(&format!(
                "SELECT coalesce({sum}, 0) FROM idempotency_sums WHERE key = ''"
            ));
            let of_keys = self.number(&format!(
                "SELECT coalesce({sum}, 0) FROM idempotency_sums WHERE key != ''"
            ));
            assert_eq!(of_all, of_keys);
        }
        let known = self.number("SELECT count(*) FROM idempotency");
        let bytes = self.number("SELECT coalesce(sum(bytes), 0) FROM idempotency");
        let sums = "FROM idempotency_sums WHERE key = ''";
        let counted = (
            self.number(&format!("SELECT coalesce(sum(known), 0) {sums}")),
            self.number(&format!("SELECT coalesce(sum(bytes), 0) {sums}")),
        );
        assert_eq!(counted, (known, bytes));
        counted
    }

    fn state(&self, call: &KeyedCall) -> Option<State> {
        self.database.key_record(call, NOW).unwrap().map(|record| record.state)
    }
}

#[test]
fn a_name_is_its_calls_until_that_frees_it() {
    let mut rig = Rig::new();
    let (own, other) = (call("a", 1), call("a", 2));
    assert!(!rig.end(&own, &KeyEnd::Freed));
    assert_eq!((rig.known(), rig.state(&own)), ((0, 0), None));
    for (end, expected) in [
        (KeyEnd::Freed, None),
        (KeyEnd::Unsent, None),
        (KeyEnd::Billed(None), Some(State::NotStored)),
    ] {
        assert!(rig.send(&own, NOW));
        assert!(!rig.send(&other, NOW));
        for of_other in [KeyEnd::Freed, KeyEnd::Unsent, KeyEnd::Billed(None), billed(3)] {
            assert!(!rig.end(&other, &of_other), "{of_other:?}");
            assert_eq!((rig.known(), rig.state(&own)), ((1, 0), Some(State::Sent(Owner::Gone))));
        }
        assert!(rig.end(&own, &end));
        let known = i64::from(expected.is_some());
        assert_eq!((rig.known(), rig.state(&own)), ((known, 0), expected), "{end:?}");
    }
    // It has been billed.
    assert!(!rig.end(&own, &KeyEnd::Freed));
    assert_eq!(rig.known(), (1, 0));
    assert_eq!(rig.database.keys_known(&own.key), Ok(1));
    assert_eq!(rig.database.keys_known(&"key_y".to_owned().into()), Ok(0));
}

#[test]
fn a_name_that_is_sent_again_when_it_has_expired_counts_once_and_so_does_its_answer() {
    let mut rig = Rig::new();
    for (round, bytes) in (0..3).zip([5, 1, 3]) {
        let now = NOW.plus_millis(round * KEPT_MS);
        let again = call("again", u64::try_from(round).unwrap());
        assert!(rig.send(&again, now));
        assert_eq!(rig.known(), (1, 0), "{round}");
        assert!(rig.end(&again, &billed(bytes)));
        assert_eq!(rig.known(), (1, i64::try_from(bytes).unwrap()), "{round}");
        assert!(
            !rig.send(&call("again", 99), now.plus_millis(KEPT_MS - 1)),
            "it is taken"
        );
    }
}

#[test]
fn the_oldest_answers_of_a_key_and_of_all_make_room() {
    let mut rig = Rig::new();
    let mut calls: Vec<KeyedCall> = Vec::new();
    for (n, (key, bytes, stored)) in (0..).zip([
        ("key_x", 11, vec![]),
        ("key_x", 6, vec![1]),
        // All that the key may have.
        ("key_x", 4, vec![1, 2]),
        ("key_x", 1, vec![2, 3]),
        // All that all may have.
        ("key_y", 10, vec![2, 3, 4]),
        ("key_y", 1, vec![2, 3, 5]),
        ("key_y", 9, vec![2, 3, 5, 6]),
        ("key_x", 5, vec![5, 6, 7]),
    ]) {
        let call = call_of(key, &n.to_string(), n);
        assert!(rig.send(&call, NOW));
        assert!(rig.end(&call, &billed(bytes)));
        calls.push(call);
        let is_stored = |call: &KeyedCall| matches!(rig.state(call), Some(State::Stored(_)));
        let found: Vec<usize> = (0..calls.len()).filter(|n| is_stored(calls.get(*n).unwrap())).collect();
        assert_eq!(found, stored, "after {n}");
        assert_eq!(rig.known().0, i64::try_from(calls.len()).unwrap());
    }
    assert_eq!(rig.known(), (8, 15));
}

#[test]
fn what_has_expired_is_deleted_and_it_is_said_whether_records_are_left() {
    let mut rig = Rig::new();
    let [first, second] = [call("a", 1), call("b", 2)];
    assert!(rig.send(&first, NOW));
    assert!(rig.end(&first, &billed(4)));
    assert!(rig.send(&second, NOW.plus_millis(1)));
    for (after, is_left, known) in [(0, true, (2, 4)), (KEPT_MS - 1, true, (2, 4)), (KEPT_MS, true, (1, 0))]
        .into_iter()
        .chain([(KEPT_MS + 1, false, (0, 0)), (KEPT_MS + 2, false, (0, 0))])
    {
        let left = rig.database.delete_expired_keys(NOW.plus_millis(after)).unwrap();
        assert_eq!((left, rig.known()), (is_left, known), "{after}");
    }
}

/// A call came while the clock was a year ahead: those that came behind it expire in their time all the same.
#[test]
fn a_record_of_a_clock_that_was_ahead_keeps_no_other_from_expiring() {
    const YEAR_MS: i64 = 365 * 86_400_000;
    let mut rig = Rig::new();
    let [ahead, second] = [call("a", 1), call("b", 2)];
    assert!(rig.send(&ahead, NOW.plus_millis(YEAR_MS)));
    assert!(rig.send(&second, NOW));
    for (after, known) in [(KEPT_MS - 1, 2), (KEPT_MS, 1), (YEAR_MS, 1), (YEAR_MS + KEPT_MS, 0)] {
        let left = rig.database.delete_expired_keys(NOW.plus_millis(after)).unwrap();
        assert_eq!((left, rig.known().0), (known > 0, known), "{after}");
    }
}

/// A clock that is ahead: what is sent then is known for longer, and nothing that was sent before is forgotten.
#[test]
fn what_has_expired_by_the_clock_alone_is_known() {
    let mut rig = Rig::new();
    let ahead = NOW.plus_millis(2 * KEPT_MS);
    let [before, again, then] = [call("a", 1), call("a", 2), call("b", 3)];
    assert!(rig.send(&before, NOW));
    assert!(!rig.write_at(&[KeyWrite::Sent(&again)], ahead, NOW), "it is taken");
    assert!(rig.write_at(&[KeyWrite::Sent(&then)], ahead, NOW));
    assert_eq!(rig.known().0, 2);
    assert_eq!(rig.number("SELECT max(expires) FROM idempotency"), ahead.0 + KEPT_MS);
    let known = NOW.plus_millis(KEPT_MS);
    assert!(rig.write_at(&[KeyWrite::Sent(&again)], ahead, known));
    assert_eq!(rig.known().0, 2);
}

#[test]
fn the_file_says_what_time_it_was_or_when_the_newest_key_was_sent() {
    let mut rig = Rig::new();
    assert_eq!(rig.database.known_time(), Ok(None));
    for (n, later) in [(1, 5), (2, 7), (3, 6)] {
        assert!(rig.send(&call(&n.to_string(), n), NOW.plus_millis(later)));
    }
    assert_eq!(rig.database.known_time(), Ok(Some(NOW.plus_millis(7))));
    for kept in [9, 8] {
        let kept = NOW.plus_millis(kept);
        rig.database.keep_known_time(kept).unwrap();
        assert_eq!(rig.database.known_time(), Ok(Some(kept)));
    }
}

/// What a process says of its calls that end once another has the file.
#[test]
fn a_key_that_another_process_frees_is_free_when_its_call_was_not_billed() {
    let mut rig = Rig::new();
    let [runs, over] = [call("a", 1), call("b", 2)];
    for call in [&runs, &over] {
        assert!(rig.send(call, NOW));
    }
    assert!(rig.end(&over, &KeyEnd::Billed(None)));
    let other = FreedKey::of(&call("a", 3));
    assert!(!rig.write(&[KeyWrite::Freed(&other)], NOW), "it is another call's");
    let [runs, over] = [runs, over].map(|call| FreedKey::of(&call));
    assert!(rig.write(&[KeyWrite::Freed(&runs)], NOW));
    assert!(!rig.write(&[KeyWrite::Freed(&runs)], NOW), "it was told before");
    assert!(!rig.write(&[KeyWrite::Freed(&over)], NOW));
    assert_eq!(rig.known().0, 1);
}

/// A machine boots with a clock that is behind, in 1970 where it has no battery, and it is set right once calls were made.
#[test]
fn a_clock_that_was_behind_forgets_no_key_once_it_is_set() {
    for behind_ms in [KEPT_MS + 6 * 3_600_000, NOW.0] {
        let mut rig = Rig::new();
        let clock = Clock::manual(NOW.plus_millis(-behind_ms));
        let mut time = KnownTime::new(&clock, Some(NOW));
        let made = call("a", 1);
        let written = rig.database.write_keys(&[KeyWrite::Sent(&made)], time.of_keys());
        assert_eq!(written, Ok(vec![true]));
        let mut is_known = |rig: &Rig| {
            let found = rig.database.key_record(&made, time.of_keys().known);
            found.unwrap().is_some()
        };
        assert!(is_known(&rig));
        clock.set_by(behind_ms);
        assert!(is_known(&rig), "{behind_ms}");
        clock.advance(KEPT_MS - 1);
        assert!(is_known(&rig), "{behind_ms}");
        clock.advance(1);
        assert!(!is_known(&rig), "{behind_ms}");
    }
}
