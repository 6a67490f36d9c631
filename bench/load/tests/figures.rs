//! What is concluded from rounds.

use crate::{
    disturbance::Counted,
    figures::{self, CpuTimes, Place, Round, Series, Unit},
    statistics::Percentiles,
    tables,
    tally::Tally,
};

fn round(number: usize, subject_us: f64, store_us: Option<f64>, p50: f64, is_at_rate: bool) -> Round {
    let percentiles = |p50: f64| Percentiles {
        p50,
        p90: p50 * 2.0,
        p99: p50 * 3.0,
        p999: p50 * 4.0,
        max: p50 * 5.0,
    };
    Round {
        round: number,
        seconds: 2.0,
        requests: 20_000,
        events: 0,
        cpu_us: CpuTimes {
            subject: Some(subject_us),
            kernel: Some(subject_us / 4.0),
            upstream: 1.0,
            load: 1.0,
            store: store_us,
        },
        latency_us: Some(percentiles(p50)),
        first_event_us: None,
        event_delay_us: None,
        lag_us: is_at_rate.then(|| percentiles(5.0)),
        queued: 0,
        memory_kib: Some(2048),
        open_files: None,
        disturbance: Some(Counted::default().until(Counted::default(), 2.0, &[])),
        statuses: Default::default(),
        errors: Default::default(),
        reconnects: 0,
    }
}

/// Seven rounds of both baselines and of a gateway with a store. The machine becomes slower from round to round.
fn measured(is_at_rate: bool) -> Vec<Series> {
    let mut all = Vec::new();
    for number in 1..=7 {
        let slower = number as f64;
        for (subject, us, store, p50) in [
            ("baseline", 10.0, None, 100.0),
            ("baseline-jemalloc", 8.0, None, 100.0),
            ("redis", 12.0, Some(4.0), 130.0),
        ] {
            let place = Place {
                scenario: "whole",
                part: "saturated",
                subject,
                unit: Unit::Request,
                memory_at_start_kib: Some(1024),
            };
            let round = round(number, us * slower, store.map(|us| us * slower), p50, is_at_rate);
            figures::add(&mut all, &place, round, &Tally::new());
        }
    }
    figures::summarise(&mut all);
    all
}

#[test]
fn ratios_are_taken_within_a_round_and_with_the_store() {
    let all = measured(true);
    let redis = all[2].summary.as_ref().unwrap();
    // The median round is the fourth.
    assert_eq!(redis.cpu_us.unwrap().median, 48.0);
    assert_eq!(redis.store_us.unwrap().median, 16.0);
    assert_eq!(redis.both_us.unwrap().median, 64.0);
    let ratios = |both: f64, alone: f64| (Some(both), Some(alone));
    let of = |at: usize| {
        (
            redis.beside[at].both.map(|e| e.median),
            redis.beside[at].alone.map(|e| e.median),
        )
    };
    assert_eq!(of(0), ratios(1.6, 1.2));
    assert_eq!(of(1), ratios(2.0, 1.5));
    // All rounds agree on the ratio, though not on the time.
    assert_eq!(redis.beside[0].both.unwrap().interval, Some([1.6, 1.6]));
    assert_eq!(redis.cores, Some(0.48));
    let [p50, p99] = redis.beside[0].latency_us.unwrap();
    assert_eq!((p50.median, p99.median.round()), (30.0, 90.0));
    assert_eq!(redis.memory_at_start_kib, Some(1024));
}

#[test]
fn a_baseline_is_compared_with_those_before_it() {
    let all = measured(true);
    assert!(all[0].summary.as_ref().unwrap().beside.is_empty());
    let jemalloc = all[1].summary.as_ref().unwrap();
    assert_eq!(jemalloc.beside.len(), 1);
    assert_eq!(jemalloc.beside[0].both.unwrap().median, 0.8);
    assert!(jemalloc.beside[0].alone.is_none());
}

/// A round of a gateway, and of one with something more, which needs half as much again of everything.
fn pair(gateway: &str, store_us: Option<f64>) -> Vec<Series> {
    let mut all = Vec::new();
    let other = format!("{gateway} with 7 accounts");
    for (subject, more, p50) in [(gateway, 1.0, 200.0), (other.as_str(), 1.5, 210.0)] {
        let place = Place {
            scenario: "operators",
            part: "1000 a second",
            subject,
            unit: Unit::Request,
            memory_at_start_kib: None,
        };
        let round = round(1, 20.0 * more, store_us.map(|us| us * more), p50, true);
        figures::add(&mut all, &place, round, &Tally::new());
    }
    figures::summarise(&mut all);
    all
}

#[test]
fn one_of_a_pair_is_compared_with_the_other() {
    let all = pair("embedded", None);
    assert!(all[0].summary.as_ref().unwrap().beside.is_empty());
    let other = &all[1].summary.as_ref().unwrap().beside[0];
    assert_eq!((other.baseline.as_str(), other.both.unwrap().median), ("embedded", 1.5));
    assert_eq!(other.latency_us.unwrap()[0].median, 10.0);
    assert!(tables::cpu(&all).contains("both x embedded"));
}

#[test]
fn one_of_a_pair_without_its_store_is_compared_with_the_other_without_its_own() {
    let all = pair("redis", Some(20.0));
    let other = &all[1].summary.as_ref().unwrap().beside[0];
    assert_eq!((other.both.unwrap().median, other.alone.unwrap().median), (1.5, 1.5));
}

#[test]
fn latency_of_a_closed_loop_is_not_added_to() {
    let all = measured(false);
    assert!(all[2].summary.as_ref().unwrap().beside[0].latency_us.is_none());
}

#[test]
fn a_table_shows_medians_with_their_intervals() {
    let table = tables::cpu(&measured(true));
    let row = table.lines().find(|line| line.starts_with("| redis")).unwrap();
    for cell in [
        " 48.00 (24.00..72.00) ",
        " 64.00 (32.00..96.00) ",
        " 1.60 (1.60..1.60) ",
        " 2.00 (2.00..2.00) ",
        " 1.0 ",
        " 2.0 ",
    ] {
        assert!(row.contains(cell), "{cell} in {row}");
    }
    let widths: Vec<usize> = table.lines().map(|line| line.chars().count()).collect();
    assert!(widths.iter().all(|width| *width == widths[0]), "{table}");
    assert!(tables::delays(&measured(true)).unwrap().contains("+30 (+30..+30)"));
}
