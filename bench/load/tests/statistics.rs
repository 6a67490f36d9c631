//! Random numbers, medians, intervals.

use hdrhistogram::Histogram;

use crate::{
    random::Random,
    statistics::{Estimate, Percentiles, ROUNDS_MIN, median},
};

#[test]
fn the_generator_gives_the_published_numbers() {
    let mut random = Random::new(1_234_567);
    let numbers: Vec<u64> = (0..5).map(|_| random.number()).collect();
    assert_eq!(
        numbers,
        [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821
        ]
    );
}

#[test]
fn numbers_below_a_bound_are_equally_frequent() {
    let (mut random, mut seen) = (Random::new(7), [0_u32; 6]);
    for _ in 0..60_000 {
        seen[usize::try_from(random.below(6)).unwrap()] += 1;
    }
    assert!(seen.iter().all(|n| (9_600..10_400).contains(n)), "{seen:?}");
    assert_eq!(random.below(0), 0);
}

#[test]
fn gaps_are_those_of_a_poisson_process() {
    let mut random = Random::new(11);
    let gaps: Vec<f64> = (0..100_000).map(|_| random.gap()).collect();
    let mean = gaps.iter().sum::<f64>() / 1e5;
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / 1e5;
    // Both are 1, and a share of e^-2 is longer than two means.
    assert!((mean - 1.0).abs() < 0.015, "{mean}");
    assert!((variance - 1.0).abs() < 0.03, "{variance}");
    let long = gaps.iter().filter(|gap| **gap > 2.0).count() as f64 / 1e5;
    assert!((long - (-2_f64).exp()).abs() < 0.005, "{long}");
    assert!(gaps.iter().all(|gap| gap.is_finite() && *gap >= 0.0));
}

#[test]
fn the_median_is_the_middle() {
    for (values, expected) in [
        (&[][..], None),
        (&[3.0], Some(3.0)),
        (&[4.0, 1.0], Some(2.5)),
        (&[9.0, 1.0, 5.0], Some(5.0)),
        (&[9.0, 1.0, 5.0, 7.0], Some(6.0)),
        (&[2.0, 2.0, 2.0, 8.0, 2.0], Some(2.0)),
    ] {
        assert_eq!(median(&mut values.to_vec()), expected, "{values:?}");
    }
}

/// Of an odd number of values the bootstrap's distribution is known: the chance that the median of a draw is at most the k-th of n is that
/// of at least (n + 1) / 2 of n draws among the first k.
#[test]
fn the_interval_is_that_of_the_exact_bootstrap() {
    for (values, low, high) in [(7, 2.0, 6.0), (11, 3.0, 9.0), (31, 11.0, 21.0)] {
        let estimate = Estimate::of((1..=values).map(f64::from)).unwrap();
        assert_eq!(estimate.median, f64::from(values + 1) / 2.0);
        assert_eq!(estimate.interval, Some([low, high]), "{values} values");
    }
}

#[test]
fn the_interval_holds_the_median_of_what_was_drawn_from_19_times_of_20() {
    let (mut random, mut held) = (Random::new(3), 0);
    let runs = 60;
    for _ in 0..runs {
        let [low, high] = Estimate::of((0..30).map(|_| random.gap())).unwrap().interval.unwrap();
        held += u32::from((low..=high).contains(&2_f64.ln()));
    }
    // Of 60 runs 57 on average; the deviation is 1.7.
    assert!((52..=60).contains(&held), "{held} of {runs}");
}

#[test]
fn few_rounds_have_a_median_and_no_interval() {
    let few = Estimate::of((1..ROUNDS_MIN).map(|n| n as f64)).unwrap();
    assert_eq!((few.median, few.interval), (3.0, None));
    assert!(
        Estimate::of((1..=ROUNDS_MIN).map(|n| n as f64))
            .unwrap()
            .interval
            .is_some()
    );
    assert_eq!(Estimate::of([]), None);
    assert_eq!(Estimate::of([f64::NAN, f64::INFINITY]), None);
    assert_eq!(Estimate::of([f64::NAN, 4.0]).unwrap().median, 4.0);
}

#[test]
fn the_same_rounds_have_the_same_interval() {
    let rounds = [1.0, 5.0, 2.0, 8.0, 3.0, 9.0, 4.0];
    assert_eq!(Estimate::of(rounds), Estimate::of(rounds));
}

#[test]
fn percentiles_are_in_microseconds() {
    let mut histogram = Histogram::<u64>::new_with_max(1_000_000_000, 3).unwrap();
    assert!(Percentiles::of(&histogram).is_none());
    (1..=1000).for_each(|us| histogram.record(us * 1000).unwrap());
    let percentiles = Percentiles::of(&histogram).unwrap();
    for (is, expected) in [
        (percentiles.p50, 500.0),
        (percentiles.p90, 900.0),
        (percentiles.p99, 990.0),
        (percentiles.p999, 999.0),
        (percentiles.max, 1000.0),
    ] {
        assert!((is / expected - 1.0_f64).abs() < 0.002, "{is} for {expected}");
    }
}
