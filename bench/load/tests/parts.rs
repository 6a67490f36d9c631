//! The parts of a scenario, and what each of them takes for a right answer.

use std::collections::BTreeMap;

use clap::Parser;

use super::simulated::subject;
use crate::{
    cli::{Options, Scenario},
    client::Expect,
    gateway,
    parts::{self, Part},
    tally::Tally,
};

fn parts_of(scenario: Scenario) -> Vec<Part> {
    parts::of(scenario, &Options::try_parse_from(["load"]).unwrap())
}

/// The statuses that a part of refusals takes.
fn taken(part: &Part) -> &'static [u16] {
    let shots = (part.shots)(&subject(([127, 0, 0, 1], 1).into(), 2)).unwrap();
    match shots[0].expect {
        Expect::Denied(statuses) => statuses,
        _ => panic!("{} is no part of refusals", part.name),
    }
}

#[test]
fn a_refusal_is_of_one_kind() {
    let denied = parts_of(Scenario::Denied);
    let kinds: Vec<(&str, &[u16], Option<u16>)> = denied
        .iter()
        .map(|part| (part.name.as_str(), taken(part), part.status))
        .collect();
    assert_eq!(
        kinds,
        [
            ("broke", &[402][..], Some(402)),
            // The first call of a minute is none too many.
            ("limited", &[429, 200], Some(429)),
            ("revoked", &[401], Some(401)),
            ("garbage", &[401], Some(401)),
        ]
    );
}

#[test]
fn the_limit_by_address_is_a_part_of_its_own() {
    let strangers = parts_of(Scenario::Strangers);
    let statuses: Vec<Option<u16>> = strangers.iter().map(|part| part.status).collect();
    assert_eq!(statuses, [None, None, Some(429)]);
    let last = strangers.last().unwrap();
    assert!(last.name.contains("limited by address"), "{}", last.name);
    assert!(taken(last).contains(&429));
}

#[test]
fn where_401_is_measured_the_gateway_forgives_all_wrong_keys() {
    let line = gateway::wrong_keys(Some(gateway::ALL_FORGIVEN));
    assert_eq!(line, "auth_failures_per_minute: 1000000000\n");
    let (key, _) = line.split_once(' ').unwrap();
    assert!(include_str!("../../../conf/tollgate.yaml").contains(key));
    assert_eq!(gateway::wrong_keys(None), "");
}

#[test]
fn many_answers_of_another_status_are_errors() {
    let mut tally = Tally::new();
    tally.expect_status(429);
    tally.statuses = BTreeMap::from([(429, 90), (401, 10)]);
    tally.expect_status(429);
    assert!(tally.errors.is_empty(), "{:?}", tally.errors);
    tally.expect_status(401);
    let errors: Vec<(&str, u64)> = tally.errors.iter().map(|(kind, n)| (kind.as_str(), *n)).collect();
    assert_eq!(errors, [("an answer of another status than 401", 90)]);
}
