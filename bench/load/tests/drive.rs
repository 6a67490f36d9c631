//! What of a load is recorded.

use std::{ops::ControlFlow, time::Duration};

use super::simulated::{answering, plan, subject};
use crate::{
    answers::Answers,
    client::{Expect, Shot},
    drive::{self, Arrivals, Plan},
    request::{KILOBYTE, Shape},
    script::{Form, Script},
    tag::Tag,
};

/// Requests at random times over these connections, for a part of a second.
fn at_rate(plan: Plan, connections: usize) -> Plan {
    Plan {
        arrivals: Arrivals::Poisson { rate: 200, seed: 1 },
        connections,
        length: Duration::from_millis(300),
        requests_max: None,
        ..plan
    }
}

fn whole() -> Vec<u8> {
    let mut answer = Vec::new();
    Answers::new().whole.push(&mut answer, Script::whole());
    answer
}

fn stream() -> Vec<u8> {
    let answers = Answers::new();
    let (mut answer, parts) = (answers.stream_head.clone(), answers.stream(Form::Plain).unwrap());
    (0..3).for_each(|number| parts.push(&mut answer, number, Tag::of(0)));
    answer.extend_from_slice(&answers.done);
    answer
}

fn shots(shape: Shape, expect: Expect) -> Vec<Shot> {
    let shots = shape.shots(&subject(([127, 0, 0, 1], 1).into(), 1));
    let untagged = |shot: Shot| Shot {
        expect: expect.clone(),
        tag: None,
        ..shot
    };
    shots.into_iter().map(untagged).collect()
}

#[test]
fn each_request_was_sent_late_or_waited_for_a_connection() {
    let address = answering(whole(), Duration::from_millis(10));
    let shots = shots(Shape::Whole { bytes: KILOBYTE }, Expect::Json);
    // Of 200 a second one connection can answer 100.
    let plan = at_rate(plan(address, shots, 0), 1);
    let tally = drive::run(plan, || (), drive::to_the_end).unwrap().tally;
    assert!(tally.errors.is_empty(), "{:?}", tally.errors);
    assert!(tally.queued > 0);
    assert_eq!(tally.queued + tally.lag.len(), tally.latency.len());
}

#[test]
fn a_first_event_counts_also_where_it_comes_after_the_end() {
    let address = answering(stream(), Duration::from_millis(600));
    let shots = shots(Shape::Stream(Script::stream(3)), Expect::Stream { events: None });
    let plan = at_rate(plan(address, shots, 0), 100);
    let tally = drive::run(plan, || (), drive::to_the_end).unwrap().tally;
    assert!(tally.errors.is_empty(), "{:?}", tally.errors);
    assert!(!tally.first_event.is_empty());
    assert_eq!(tally.first_event.len(), tally.queued + tally.lag.len());
    assert!(tally.first_event.min() >= 590_000_000, "{}", tally.first_event.min());
}

#[test]
fn a_measure_ends_when_it_is_told_to() {
    let address = answering(whole(), Duration::ZERO);
    let shots = shots(Shape::Whole { bytes: KILOBYTE }, Expect::Json);
    let plan = Plan {
        length: Duration::from_secs(600),
        requests_max: None,
        ..plan(address, shots, 0)
    };
    let outcome = drive::run(plan, || (), || ControlFlow::Break(())).unwrap();
    assert!(outcome.seconds < 60.0, "{}", outcome.seconds);
}
