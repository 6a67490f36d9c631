//! A steady load: the rounds in which the subjects take turns, and what is measured in one.

use std::{cell::Cell, time::Duration};

use crate::{
    beside,
    children::Spent,
    cli::Scenario,
    client::Shot,
    common::{Result, say},
    disturbance::{self, Counted, Repeats, Turn},
    drive::{Arrivals, Outcome, Plan},
    figures::{self, CpuTimes, Place, Round, Unit},
    fleet::{Fleet, Subject},
    parts::Part,
    process::{self, Ticks},
    report::Report,
    statistics::Percentiles,
    tally::Tally,
};

/// Runs a scenario on all subjects: A B, B A, so that what the machine does meanwhile meets all of them. A round in which others disturbed
/// one of them is measured again, for all of them.
pub(crate) fn run(
    scenario: Scenario,
    parts: Vec<Part>,
    fleet: &Fleet,
    subjects: &[Subject],
    report: &mut Report,
) -> Result<()> {
    let scenario_name = scenario.name();
    let rounds = fleet.options.rounds();
    for part in parts {
        let mut repeats = Repeats::default();
        for number in 1..=rounds {
            let mut turns: Vec<&Subject> = subjects.iter().collect();
            if number % 2 == 0 {
                turns.reverse();
            }
            let mut attempts = 0;
            let measured = loop {
                attempts += 1;
                let (measured, disturbed) = round(&scenario_name, &part, number, fleet, &turns)?;
                // A quick run measures nothing that could be disturbed.
                if fleet.options.quick || !repeats.again(&disturbed, attempts, rounds) {
                    break measured;
                }
                say(&format!(
                    "{scenario_name} {}  round {number} again: {}",
                    part.name,
                    disturbance::told(&disturbed)
                ));
            };
            for (subject, round, tally) in measured {
                let place = Place {
                    scenario: &scenario_name,
                    part: &part.name,
                    subject: &subject.name,
                    unit: part.unit,
                    memory_at_start_kib: subject.memory_at_start_kib,
                };
                figures::add(&mut report.series, &place, round, &tally);
            }
        }
        if !fleet.options.quick {
            report.repeats.push((scenario_name.clone(), part.name, repeats));
        }
    }
    Ok(())
}

type Measured<'a> = Vec<(&'a Subject, Round, Tally)>;

/// A turn of each subject, and what disturbed it.
fn round<'a>(
    scenario: &str,
    part: &Part,
    number: usize,
    fleet: &Fleet,
    turns: &[&'a Subject],
) -> Result<(Measured<'a>, Vec<Turn>)> {
    let (mut all, mut disturbed) = (Vec::new(), Vec::new());
    for subject in turns {
        let Some(shots) = (part.shots)(subject) else { continue };
        let (round, tally) = measure(part, number, fleet, subject, shots)?;
        let reasons = round.disturbance.map(|it| it.reasons(own_tasks(fleet)));
        disturbed.push(Turn {
            subject: subject.name.clone(),
            reasons: reasons.unwrap_or_default(),
        });
        progress(
            (scenario, &part.name, &subject.name),
            part.unit,
            &round,
            fleet.options.rounds(),
        );
        all.push((*subject, round, tally));
    }
    Ok((all, disturbed))
}

/// Threads of the bench's own processes that may want to run at once: of the subject, load and upstream, the load beside, and the store.
fn own_tasks(fleet: &Fleet) -> usize {
    fleet.options.threads + 2 * fleet.cores.load_threads() + 2
}

/// What is read at the beginning and the end of a measure.
struct Mark {
    subject_ns: u64,
    subject_ticks: Ticks,
    upstream_ns: u64,
    load_ns: u64,
    store_ns: u64,
    around: Around,
}

impl Mark {
    /// What takes long to read is read outside of the measure: before the times where it begins, behind them where it ends.
    fn read(fleet: &Fleet, subject: &Subject, begins: bool) -> Self {
        let before = begins.then(|| Around::read(fleet, subject));
        Self {
            subject_ns: process::cpu_ns_of(&subject.pids),
            subject_ticks: process::cpu_ticks_of(&subject.pids),
            upstream_ns: process::cpu_ns_of(fleet.upstream_pids()),
            load_ns: process::cpu_ns(std::process::id()).unwrap_or_default(),
            store_ns: process::cpu_ns_of(&subject.store_pids),
            around: before.unwrap_or_else(|| Around::read(fleet, subject)),
        }
    }
}

/// What is read beside the times.
struct Around {
    counted: Option<Counted>,
    /// What the store's children used.
    store_children_ns: u64,
    memory_kib: Option<u64>,
    open_files: Option<u64>,
}

impl Around {
    fn read(fleet: &Fleet, subject: &Subject) -> Self {
        let load = [std::process::id()];
        let own = [&subject.pids[..], &subject.store_pids, fleet.upstream_pids(), &load].concat();
        let children = Spent::by_children_of(&subject.store_pids);
        Self {
            counted: Counted::read(&own, children),
            store_children_ns: children.ns,
            memory_kib: subject.memory_kib(),
            open_files: subject.open_files(),
        }
    }
}

fn measure(part: &Part, round: usize, fleet: &Fleet, subject: &Subject, shots: Vec<Shot>) -> Result<(Round, Tally)> {
    // The same times for each subject of a round.
    let seed = round as u64;
    let arrivals = |rate: Option<u32>, seed| rate.map_or(Arrivals::Closed, |rate| Arrivals::Poisson { rate, seed });
    let plan = Plan {
        address: subject.address,
        shots,
        arrivals: arrivals(part.rate, seed),
        connections: part.connections,
        workers: fleet.cores.load_threads(),
        waiting: fleet.options.waiting(),
        spread: part.spread,
        warm_up: fleet.options.warm_up() + part.spread,
        length: fleet.options.length() * part.longer,
        requests_max: None,
    };
    let beside = part.beside.as_ref().and_then(|beside| {
        let operators = subject.operator.as_ref().map(|operator| operator.address);
        Some(Plan {
            address: if beside.to_operators { operators? } else { plan.address },
            shots: (beside.shots)(subject)?,
            arrivals: arrivals(Some(beside.rate), seed + SEED_BESIDE),
            connections: BESIDE_CONNECTIONS,
            workers: 1,
            spread: Default::default(),
            warm_up: Default::default(),
            // It ends when the measure has.
            length: plan.warm_up + plan.length + BESIDE_LONGER,
            ..plan
        })
    });
    let (begins, mut runnable) = (Cell::new(true), Vec::new());
    let outcome = beside::run(
        plan,
        beside,
        || Mark::read(fleet, subject, begins.replace(false)),
        || runnable.extend(disturbance::runnable()),
    )?;
    Ok(figures(part, round, subject, outcome, &runnable))
}

fn figures(part: &Part, round: usize, subject: &Subject, outcome: Outcome<Mark>, runnable: &[u64]) -> (Round, Tally) {
    let (first, last) = outcome.marks;
    let units = if part.unit == Unit::Request {
        outcome.requests
    } else {
        outcome.events
    };
    let spent = |of: fn(&Mark) -> u64| of(&last).saturating_sub(of(&first));
    let of_store = |mark: &Mark| mark.store_ns + mark.around.store_children_ns;
    let a_unit = |ns: u64| {
        if units == 0 {
            f64::NAN
        } else {
            ns as f64 / 1000.0 / units as f64
        }
    };
    let kernel_share = last.subject_ticks.kernel_share_since(first.subject_ticks);
    let counted = first.around.counted.zip(last.around.counted);
    let mut tally = outcome.tally;
    if let Some(status) = part.status {
        tally.expect_status(status);
    }
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
            store: (!subject.store_pids.is_empty()).then(|| a_unit(spent(of_store))),
        },
        // That of a stream is its length, and no news.
        latency_us: Percentiles::of(&tally.latency).filter(|_| part.unit == Unit::Request),
        first_event_us: Percentiles::of(&tally.first_event),
        event_delay_us: Percentiles::of(&tally.event_delay),
        lag_us: Percentiles::of(&tally.lag).filter(|_| part.rate.is_some()),
        queued: if part.rate.is_some() { tally.queued } else { 0 },
        memory_kib: last.around.memory_kib,
        open_files: last.around.open_files,
        disturbance: counted.map(|(first, last)| first.until(last, outcome.seconds, runnable)),
        statuses: tally.statuses.clone(),
        errors: tally.errors.clone(),
        reconnects: tally.reconnects,
    };
    (round, tally)
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

/// Apart from those of all rounds.
const SEED_BESIDE: u64 = 1_000_000;
const BESIDE_CONNECTIONS: usize = 16;
/// Than the measure that it is beside, at most.
const BESIDE_LONGER: Duration = Duration::from_secs(60);
