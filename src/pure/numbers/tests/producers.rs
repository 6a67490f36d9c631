//! Producers: when they were born, how long they give numbers, and the edges of the rules.

use super::*;

const DAY_SECONDS: u32 = 86_400;

#[test]
fn a_producer_says_when_it_was_born() {
    for (millis, seconds) in [
        (-5, 1),
        (0, 1),
        (999, 1),
        (1_999, 1),
        (2_000, 2),
        (1_795_132_800_999, 1_795_132_800),
        (i64::MAX, u32::MAX),
    ] {
        assert_eq!(Birth::at(Timestamp(millis)), Birth(seconds), "{millis}");
    }
    for (birth, random) in [(0, 0), (1, u32::MAX), (1_795_132_800, 7), (u32::MAX, 0)] {
        let producer = ProducerId::new(Birth(birth), random);
        assert_eq!(producer.born(), Birth(birth));
        assert_eq!(producer.0 & u64::from(u32::MAX), u64::from(random));
        let number = CallNumber::new(producer, 9);
        assert_eq!(
            (number.producer, number.born, number.number),
            (producer, Birth(birth), 9)
        );
    }
}

#[test]
fn a_producer_gives_numbers_for_a_week() {
    let born = 1_795_132_800;
    let producer = ProducerId::new(Birth(born), 1);
    for (seconds, is_old) in [
        (0, false),
        (DAY_SECONDS, false),
        (7 * DAY_SECONDS, false),
        (7 * DAY_SECONDS + 1, true),
    ] {
        let now = Timestamp(i64::from(born + seconds) * 1_000);
        assert_eq!(producer.is_old(now), is_old, "{seconds}");
    }
    // A clock that was set back makes nothing old.
    assert!(!producer.is_old(Timestamp(0)));
}

#[test]
fn numbers_begin_anew_with_each_producer() {
    let (first, second) = (ProducerId::new(Birth(5), 1), ProducerId::new(Birth(6), 1));
    let mut numbering = Numbering::default();
    let given: Vec<u64> = [first, first, second, second, first]
        .map(|producer| numbering.next(producer).number)
        .to_vec();
    assert_eq!(given, [1, 2, 1, 2, 1]);
}

#[test]
fn the_rules_hold_to_the_last_day_and_the_last_second() {
    assert!(!(RULES.may_forget)(SILENT_DAYS_MAX) && (RULES.may_forget)(SILENT_DAYS_MAX + 1));
    assert!((RULES.may_renumber)(0) && (RULES.may_renumber)(1) && !(RULES.may_renumber)(2));
    assert!(!(RULES.is_stale)(Birth(5), None) && !(RULES.is_stale)(Birth(6), Some(Birth(5))));
    assert!((RULES.is_stale)(Birth(5), Some(Birth(5))));
    assert_eq!((RULES.forget)(None, Birth(5)), Some(Birth(5)));
    assert_eq!((RULES.forget)(Some(Birth(9)), Birth(5)), Some(Birth(9)));
    assert_eq!((RULES.born)(Birth(5), None), Birth(5));
    assert_eq!((RULES.born)(Birth(5), Some(Birth(5))), Birth(6));
    assert_eq!((RULES.born)(Birth(9), Some(Birth(5))), Birth(9));
}
