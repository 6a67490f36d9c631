//! What is sent beside a measure.

use std::{fs, time::Duration};

use super::simulated::{answering, plan, provider, subject};
use crate::{
    answers::Answers,
    beside,
    drive::{Arrivals, Plan},
    request::{KILOBYTE, Shape},
    script::Script,
};

/// Threads of the load beside that live.
fn threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::io::Result<fs::DirEntry>| fs::read_to_string(task.ok()?.path().join("comm")).ok();
    tasks
        .filter_map(name)
        .filter(|name| name.trim_end() == beside::NAME)
        .count()
}

/// A load and one beside it, on the same place and on another one.
fn plans(elsewhere: Option<std::net::SocketAddr>) -> [Plan; 2] {
    let subject = subject(provider(), 4);
    let shots = || Shape::Whole { bytes: KILOBYTE }.shots(&subject);
    let plan = |address, length| Plan {
        warm_up: Duration::from_millis(100),
        length: Duration::from_millis(length),
        requests_max: None,
        ..plan(address, shots(), 0)
    };
    let beside = Plan {
        arrivals: Arrivals::Poisson { rate: 50, seed: 2 },
        ..plan(elsewhere.unwrap_or(subject.address), 60_000)
    };
    [plan(subject.address, 200), beside]
}

/// Threads that have ended have taken their counts with them. (One test: it is the only one that has such threads.)
#[test]
fn the_load_beside_runs_until_the_last_mark_has_been_read_and_its_wrong_answers_count() {
    let [plan, beside] = plans(None);
    let outcome = beside::run(plan, Some(beside), threads, || ()).unwrap();
    // One that drives, and one that sends.
    assert_eq!(outcome.marks.1, 2);
    assert!(outcome.seconds < 30.0, "{}", outcome.seconds);
    assert!(outcome.tally.errors.is_empty(), "{:?}", outcome.tally.errors);

    let mut another = Vec::new();
    Answers::new().whole.push(&mut another, Script::whole());
    let [plan, beside] = plans(Some(answering(another, Duration::ZERO)));
    let told = beside::run(plan, Some(beside), || (), || ()).err().unwrap().to_string();
    assert!(told.ends_with("an answer to another request"), "{told}");
}
