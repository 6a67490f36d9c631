//! The scenarios of a steady load: what is sent, how, and the rounds in which the subjects take turns.

use std::{thread, time::Duration};

use crate::{
    Result,
    cli::{Options, Scenario},
    client::Shot,
    drive::{self, Arrivals, Outcome, Plan, Tally},
    figures::{self, CpuTimes, Percentiles, Round, Unit},
    fleet::{Fleet, Subject},
    machine,
    process::{self, Ticks},
    report::Report,
    request::{self, KILOBYTE, Shape},
    say,
    upstream::Script,
};

/// One kind of load of a scenario.
struct Part {
    name: String,
    unit: Unit,
    arrivals: Arrivals,
    connections: usize,
    shots: Shots,
    /// What else is sent meanwhile, at its own rate; it is not measured.
    beside: Option<(u32, Shots)>,
}

/// What is sent to a subject; None where the part does not apply to it.
type Shots = Box<dyn Fn(&Subject) -> Option<Vec<Shot>>>;

/// Runs a scenario on all subjects: A B, B A, so that what the machine does meanwhile meets all of them.
pub(crate) fn run(scenario: Scenario, fleet: &Fleet, subjects: &[Subject], report: &mut Report) -> Result<()> {
    let scenario_name = scenario.name();
    for part in parts(scenario, &fleet.options) {
        for number in 1..=fleet.options.rounds() {
            let mut turns: Vec<&Subject> = subjects.iter().collect();
            if number % 2 == 0 {
                turns.reverse();
            }
            for subject in turns {
                let Some(shots) = (part.shots)(subject) else { continue };
                let place = (scenario_name.as_str(), part.name.as_str(), subject.name.as_str());
                let (round, tally) = measure(scenario, &part, number, fleet, subject, shots)?;
                progress(place, part.unit, &round, fleet.options.rounds());
                figures::add(&mut report.series, place, part.unit, round, &tally);
            }
        }
    }
    Ok(())
}

/// Some requests of all shapes, so that what is done once (buffers, tokenizers, connections) is done before anything is
/// measured.
pub(crate) fn break_in(fleet: &Fleet, subject: &Subject) -> Result<()> {
    let plan = Plan {
        address: subject.address,
        shots: request::mixed(subject),
        arrivals: Arrivals::Closed,
        connections: 16,
        workers: 1,
        waiting: fleet.options.waiting(),
        spread: Duration::ZERO,
        warm_up: Duration::ZERO,
        length: BREAK_IN_MAX,
        requests_max: Some(BREAK_IN_REQUESTS),
    };
    let outcome = drive::run(plan, || (), |_| ())?;
    match outcome.tally.errors.first_key_value() {
        None => Ok(()),
        Some((kind, n)) => Err(format!("{n} wrong answers: {kind}").into()),
    }
}

fn parts(scenario: Scenario, options: &Options) -> Vec<Part> {
    let saturated = |shape: Shape, connections| Part {
        name: "saturated".to_owned(),
        unit: Unit::Request,
        arrivals: Arrivals::Closed,
        connections,
        shots: Box::new(move |subject| Some(vec![shape.shot(subject)])),
        beside: None,
    };
    let streams = |script: Script, connections| Part {
        unit: Unit::Event,
        ..saturated(Shape::Stream(script), connections)
    };
    let connections = options.connections;
    match scenario {
        Scenario::Whole => {
            let whole = Shape::Whole { bytes: KILOBYTE };
            let rate = Part {
                name: format!("{}/s", options.rate),
                arrivals: Arrivals::Rate(options.rate),
                ..saturated(whole, connections)
            };
            vec![saturated(whole, connections), rate]
        }
        Scenario::Big => vec![saturated(
            Shape::Whole { bytes: 100 * KILOBYTE },
            connections.div_ceil(2),
        )],
        Scenario::Embeddings => vec![saturated(Shape::Embeddings, connections)],
        Scenario::StreamPaced => {
            vec![Part {
                name: "20 ms".to_owned(),
                ..streams(PACED, PACED_STREAMS)
            }]
        }
        Scenario::StreamBurst => vec![streams(
            Script {
                events: 100,
                pace_ms: 0,
            },
            connections.div_ceil(2),
        )],
        Scenario::Mixed => vec![Part {
            shots: Box::new(|subject| Some(request::mixed(subject))),
            ..saturated(Shape::Embeddings, connections)
        }],
        Scenario::Strangers => {
            let part = |name: &str, beside: Option<(u32, Shots)>| Part {
                name: name.to_owned(),
                arrivals: Arrivals::Rate(options.rate),
                shots: Box::new(gateways_only(Shape::Whole { bytes: KILOBYTE })),
                beside,
                ..saturated(Shape::Whole { bytes: KILOBYTE }, connections)
            };
            let wrong: Shots = Box::new(|subject| Some(request::wrong_keys(subject)));
            vec![
                part("without wrong keys", None),
                part("100,000 wrong keys a minute", Some((WRONG_KEYS_A_SECOND, wrong))),
            ]
        }
        Scenario::Denied => DENIED.iter().map(|name| denied(name, connections)).collect(),
        Scenario::Open | Scenario::Soak | Scenario::Syscalls | Scenario::Instructions => Vec::new(),
    }
}

/// Nothing for a subject that knows no keys.
fn gateways_only(shape: Shape) -> impl Fn(&Subject) -> Option<Vec<Shot>> {
    move |subject| (!subject.refused.is_empty()).then(|| vec![shape.shot(subject)])
}

/// A flood with a key that is refused.
fn denied(name: &'static str, connections: usize) -> Part {
    let shots = move |subject: &Subject| {
        let refused = subject.refused.iter().find(|refused| refused.name == name)?;
        Some(vec![Shape::Whole { bytes: KILOBYTE }.denied(
            subject,
            &refused.key,
            refused.statuses,
        )])
    };
    Part {
        name: name.to_owned(),
        unit: Unit::Request,
        arrivals: Arrivals::Closed,
        connections,
        shots: Box::new(shots),
        beside: None,
    }
}

/// What is read at the beginning and the end of a measure.
struct Mark {
    subject_ns: u64,
    subject_ticks: Ticks,
    upstream_ns: u64,
    load_ns: u64,
    store_ns: u64,
    busy_ns: u64,
}

impl Mark {
    fn read(fleet: &Fleet, subject: &Subject) -> Self {
        Self {
            subject_ns: machine::cpu_ns(&subject.pids),
            subject_ticks: machine::cpu_ticks(&subject.pids),
            upstream_ns: machine::cpu_ns(fleet.upstream_pids()),
            load_ns: process::cpu_ns(std::process::id()).unwrap_or_default(),
            store_ns: machine::cpu_ns(&subject.store_pids),
            busy_ns: machine::busy_ns(),
        }
    }
}

fn measure(
    scenario: Scenario,
    part: &Part,
    round: usize,
    fleet: &Fleet,
    subject: &Subject,
    shots: Vec<Shot>,
) -> Result<(Round, Tally)> {
    let is_paced = scenario == Scenario::StreamPaced && !fleet.options.quick;
    let spread = if is_paced { PACED_LENGTH } else { Duration::ZERO };
    let plan = Plan {
        address: subject.address,
        shots,
        arrivals: part.arrivals,
        connections: part.connections,
        workers: fleet.cores.load_threads(),
        waiting: fleet.options.waiting(),
        spread,
        warm_up: fleet.options.warm_up() + spread,
        length: fleet.options.length() * if spread.is_zero() { 1 } else { 3 },
        requests_max: None,
    };
    let beside = part.beside.as_ref().and_then(|(rate, shots)| {
        Some(Plan {
            address: subject.address,
            shots: shots(subject)?,
            arrivals: Arrivals::Rate(*rate),
            connections: BESIDE_CONNECTIONS,
            workers: 1,
            waiting: fleet.options.waiting(),
            spread: Duration::ZERO,
            warm_up: Duration::ZERO,
            length: plan.warm_up + plan.length,
            requests_max: None,
        })
    });
    let beside = beside.map(|plan| thread::spawn(move || drive::run(plan, || (), |_| ())));
    let outcome = drive::run(
        plan,
        || (Mark::read(fleet, subject), memory(subject), files(subject)),
        |_| {},
    )?;
    if let Some(beside) = beside {
        let beside = beside.join().map_err(|_| "the load beside panicked")??;
        if let Some((kind, n)) = beside.tally.errors.first_key_value() {
            return Err(format!("{n} wrong answers to what was sent beside: {kind}").into());
        }
    }
    Ok(figures(part, round, subject, outcome))
}

type Marks = (Mark, Option<u64>, Option<u64>);

fn figures(part: &Part, round: usize, subject: &Subject, outcome: Outcome<Marks>) -> (Round, Tally) {
    let (first, (last, memory_kib, open_files)) = (outcome.marks.0.0, outcome.marks.1);
    let units = if part.unit == Unit::Request {
        outcome.requests
    } else {
        outcome.events
    };
    let spent = |of: fn(&Mark) -> u64| of(&last).saturating_sub(of(&first));
    let a_unit = |ns: u64| {
        if units == 0 {
            f64::NAN
        } else {
            ns as f64 / 1000.0 / units as f64
        }
    };
    let ours = spent(|m| m.subject_ns) + spent(|m| m.upstream_ns) + spent(|m| m.load_ns) + spent(|m| m.store_ns);
    let others = spent(|m| m.busy_ns).saturating_sub(ours) as f64 / 1e9 / outcome.seconds;
    let kernel_share = last.subject_ticks.kernel_share_since(first.subject_ticks);
    let tally = outcome.tally;
    let round = Round {
        round,
        seconds: outcome.seconds,
        requests: outcome.requests,
        events: outcome.events,
        cpu_us: CpuTimes {
            subject: (!subject.pids.is_empty()).then(|| a_unit(spent(|m| m.subject_ns))),
            kernel: kernel_share.map(|share| a_unit(spent(|m| m.subject_ns)) * share),
            upstream: a_unit(spent(|m| m.upstream_ns)),
            load: a_unit(spent(|m| m.load_ns)),
            store: (!subject.store_pids.is_empty()).then(|| a_unit(spent(|m| m.store_ns))),
        },
        // That of a stream is its length, and no news.
        latency_us: Percentiles::of(&tally.latency).filter(|_| part.unit == Unit::Request),
        first_event_us: Percentiles::of(&tally.first_event),
        event_delay_us: Percentiles::of(&tally.event_delay),
        lag_us: Percentiles::of(&tally.lag).filter(|_| part.arrivals != Arrivals::Closed),
        memory_kib,
        open_files,
        others_busy: others,
        statuses: tally.statuses.clone(),
        errors: tally.errors.clone(),
        reconnects: tally.reconnects,
    };
    (round, tally)
}

/// Resident memory of a subject in KiB.
pub(crate) fn memory(subject: &Subject) -> Option<u64> {
    subject
        .pids
        .iter()
        .map(|pid| process::resident_kib(*pid))
        .sum::<Option<u64>>()
        .filter(|kib| *kib > 0)
}

/// Open files of a subject.
pub(crate) fn files(subject: &Subject) -> Option<u64> {
    subject
        .pids
        .iter()
        .map(|pid| process::open_files(*pid))
        .sum::<Option<u64>>()
        .filter(|files| *files > 0)
}

fn progress(place: (&str, &str, &str), unit: Unit, round: &Round, rounds: usize) {
    let (scenario, part, subject) = place;
    let cpu = round
        .cpu_us
        .subject
        .map_or_else(|| "-".to_owned(), |us| format!("{us:.2} us CPU each"));
    let latency = round
        .latency_us
        .map_or_else(String::new, |l| format!("p50 {:.0} us, p99 {:.0} us", l.p50, l.p99));
    let errors = match round.errors.first_key_value() {
        None => String::new(),
        Some((kind, _)) => format!("  {} ERRORS, such as: {kind}", round.errors()),
    };
    let (number, per_second, unit) = (round.round, unit.of(round) as f64 / round.seconds, unit.name());
    say(&format!(
        "{scenario} {part}  round {number}/{rounds}  {subject:<18} {per_second:>8.0} {unit}s/s  {cpu}  {latency}{errors}"
    ));
}

/// Keys that are refused, by the names that the gateway's set-up gives them.
const DENIED: [&str; 4] = ["garbage", "revoked", "broke", "limited"];
const BREAK_IN_REQUESTS: u64 = 1000;
const BREAK_IN_MAX: Duration = Duration::from_secs(10);
const PACED_STREAMS: usize = 50;
/// A stream that comes at the speed at which it is read.
pub(crate) const PACED: Script = Script {
    events: 100,
    pace_ms: 20,
};
/// From the first request of a paced stream's connection to its next one, and a step of the pace more: so each stream has a phase of its own.
pub(crate) const PACED_LENGTH: Duration = Duration::from_millis((PACED.events as u64 + 1) * PACED.pace_ms as u64);
/// 100,000 a minute.
const WRONG_KEYS_A_SECOND: u32 = 1667;
const BESIDE_CONNECTIONS: usize = 16;
