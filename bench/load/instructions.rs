//! Instructions a request and an event, as callgrind counts them, and in which part of the program they are. They are those outside the
//! kernel. A counted process is some fifty times slower, so only the counts mean anything; they hardly depend on what else the machine does.
//!
//! Valgrind reads options from VALGRIND_OPTS: with `--cache-sim=yes` there what misses the simulated caches is told as well.

use std::{collections::HashMap, fs, process::Command, time::Duration};

use crate::{
    cli::Variant,
    common::{Result, say},
    drive::{self, Arrivals, Plan},
    figures::Unit,
    fleet::{Fleet, Subject},
    machine,
    measured::{Instructions, Misses},
    parts::{BURST, PACED, PACED_LENGTH},
    process,
    report::Report,
    request::{KILOBYTE, Shape},
    subjects,
};

/// What callgrind has counted.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) instructions: u64,
    pub(crate) code_misses: u64,
    pub(crate) data_misses: u64,
    pub(crate) last_misses: u64,
}

impl Counts {
    /// Adds a line of costs, in the columns that these events have.
    fn add(&mut self, events: &[&str], costs: &str) {
        let costs = costs.split(' ').map(|cost| cost.parse::<u64>().unwrap_or(0));
        for (event, cost) in events.iter().zip(costs) {
            let count = match *event {
                "Ir" => &mut self.instructions,
                "I1mr" => &mut self.code_misses,
                "D1mr" | "D1mw" => &mut self.data_misses,
                "ILmr" | "DLmr" | "DLmw" => &mut self.last_misses,
                _ => continue,
            };
            *count += cost;
        }
    }
}

/// Counts for each subject that is a process of ours: whole answers and a burst, saturated, and a few streams at the pace of a reader.
pub(crate) fn run(fleet: &Fleet, report: &mut Report) -> Result<()> {
    if !machine::is_installed(VALGRIND) {
        report.not_tried(fleet.options.quick, "instructions", VALGRIND);
        return Ok(());
    }
    let parts = [
        ("whole", Unit::Request, Shape::Whole { bytes: KILOBYTE }),
        ("stream-burst", Unit::Event, Shape::Stream(BURST)),
        ("stream-paced", Unit::Event, Shape::Stream(PACED)),
    ];
    let ours = |variant: &Variant| !matches!(variant, Variant::Direct | Variant::Nginx | Variant::Haproxy);
    for variant in fleet.options.variants().into_iter().filter(ours) {
        for (name, unit, shape) in parts {
            // A fresh process each: what was counted before is in the next count too.
            fleet.count_instructions(true);
            let counted = subjects::start(fleet, variant).and_then(|subject| count(fleet, &subject, unit, shape));
            fleet.count_instructions(false);
            match counted {
                Ok((units, by_part)) => {
                    let mut counts: Vec<(&str, Counts)> = by_part.into_iter().collect();
                    counts.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.instructions));
                    let each = |count: u64| count as f64 / units as f64;
                    let by_part: Vec<(String, f64)> = counts
                        .iter()
                        .map(|(part, counts)| ((*part).to_owned(), each(counts.instructions)))
                        .collect();
                    let is_simulated = counts.iter().any(|(_, counts)| counts.data_misses > 0);
                    let misses = |(part, counts): &(&str, Counts)| {
                        let misses = Misses {
                            code: each(counts.code_misses),
                            data: each(counts.data_misses),
                            last: each(counts.last_misses),
                        };
                        ((*part).to_owned(), misses)
                    };
                    let misses_by_part = counts.iter().filter(|_| is_simulated).map(misses).collect();
                    let a_unit = by_part.iter().map(|(_, instructions)| instructions).sum();
                    let subject = variant.name();
                    say(&format!(
                        "instructions {name}  {subject:<18} {a_unit:.0} each {}",
                        unit.name()
                    ));
                    report.instructions.push(Instructions {
                        subject,
                        part: name.to_owned(),
                        unit,
                        units,
                        a_unit,
                        by_part,
                        misses_by_part,
                    });
                }
                Err(error) => {
                    let subject = variant.name();
                    report.fail(format!("instructions of {name} of {subject} not counted: {error}"));
                }
            }
        }
    }
    Ok(())
}

/// Requests or events, and instructions by part.
fn count(fleet: &Fleet, subject: &Subject, unit: Unit, shape: Shape) -> Result<(u64, HashMap<&'static str, Counts>)> {
    let pid = subject.pids.first().ok_or("no process")?;
    let is_paced = matches!(shape, Shape::Stream(script) if script.pace_ms > 0);
    let load = |length| Plan {
        address: subject.address,
        shots: shape.shots(subject),
        arrivals: Arrivals::Closed,
        connections: if is_paced {
            PACED_STREAMS
        } else {
            fleet.options.connections
        },
        workers: fleet.cores.load_threads(),
        waiting: fleet.options.waiting(),
        spread: if is_paced { PACED_LENGTH } else { Duration::ZERO },
        warm_up: Duration::ZERO,
        length,
        requests_max: None,
    };
    // Connections, caches and the allocator's stock are made before the count begins.
    drive::run(load(WARM_UP), || (), drive::to_the_end)?;
    let control = |what: &[&str]| {
        let mut command = Command::new("callgrind_control");
        command.args(what).arg(pid.to_string());
        process::run(command)
    };
    control(&["-i", "on"])?;
    let outcome = drive::run(load(LENGTH), || (), drive::to_the_end)?;
    control(&["-i", "off"])?;
    control(&["-d"])?;
    if let Some((kind, n)) = outcome.tally.errors.first_key_value() {
        return Err(format!("{n} wrong answers: {kind}").into());
    }
    let dump = fleet.path().join(format!("callgrind.{pid}.1"));
    let (requests, by_part) = read(&fs::read_to_string(&dump).map_err(|e| format!("{}: {e}", dump.display()))?);
    // The load's end cuts the streams that still run, so it is their events that are counted.
    let units = if unit == Unit::Event { outcome.events } else { requests };
    if units == 0 {
        return Err("no request was counted".into());
    }
    Ok((units, by_part))
}

/// Reads a dump of callgrind (its manual, "Callgrind Format Specification"): how often a request's head was parsed, and what was counted
/// in each part.
pub(crate) fn read(dump: &str) -> (u64, HashMap<&'static str, Counts>) {
    let mut names: HashMap<&str, &str> = HashMap::new();
    let (mut requests, mut by_part) = (0, HashMap::<_, Counts>::new());
    let mut events = Vec::new();
    let (mut part, mut callee, mut is_call) = (OTHERS, "", false);
    for line in dump.lines() {
        if let Some(text) = line.strip_prefix("events: ") {
            events = text.split(' ').collect();
        } else if let Some(text) = line.strip_prefix("fn=") {
            part = part_of(name(&mut names, text));
        } else if let Some(text) = line.strip_prefix("cfn=") {
            callee = name(&mut names, text);
        } else if let Some(text) = line.strip_prefix("calls=") {
            is_call = true;
            if callee.contains(REQUEST_PARSED) {
                requests += text.split(' ').next().and_then(|calls| calls.parse().ok()).unwrap_or(0);
            }
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            // The line after a call tells its inclusive cost, which is its callee's own.
            if !std::mem::take(&mut is_call)
                && let Some((_, costs)) = line.split_once(' ')
            {
                by_part.entry(part).or_default().add(&events, costs);
            }
        }
    }
    (requests, by_part)
}

/// The name that `(id) name` gives, or `(id)` repeats.
fn name<'a>(names: &mut HashMap<&'a str, &'a str>, text: &'a str) -> &'a str {
    match text.split_once(' ') {
        Some((id, name)) => {
            names.insert(id, name);
            name
        }
        None => names.get(text).copied().unwrap_or_default(),
    }
}

/// The part of the program that a function belongs to: the first whose mark its name has.
fn part_of(function: &str) -> &'static str {
    let has = |(marks, _): &&(&[&str], &str)| marks.iter().any(|mark| function.contains(mark));
    PARTS.iter().find(has).map_or(OTHERS, |(_, part)| part)
}

const PARTS: [(&[&str], &str); 13] = [
    (
        &[
            "tollgate::gateway::transport",
            "tollgate::net::connection_pool",
            "tollgate::net::bounded_stream",
            "tollgate::net::head_limit",
            "tollgate::net::upstream_io",
            "tollgate::net::write_buffer",
        ],
        "transport",
    ),
    (&["tollgate::pure"], "parsing, limits and meter"),
    (&["tollgate::ledger"], "ledger and journal"),
    (&["tollgate::telemetry"], "metrics and log"),
    (&["tollgate::"], "gateway's hooks"),
    (&["sha2::"], "the key's digest"),
    (&["redis::", "combine::"], "Redis client"),
    (&["sqlite", "walC", "walF"], "SQLite"),
    (&["pingora"], "Pingora"),
    (&["tokio", "futures", "mio::"], "tokio"),
    (&["httparse", "http::"], "heads"),
    (
        &["_rjem", "malloc", "_int_free", "cfree", "free", "alloc::"],
        "allocator",
    ),
    (&["memcpy", "memmove", "memset", "memcmp"], "copies"),
];
const OTHERS: &str = "others";
const VALGRIND: &str = "valgrind";
/// Called once for each request.
const REQUEST_PARSED: &str = "httparse::Request::parse_with_config";
/// So few that callgrind keeps pace with them.
const PACED_STREAMS: usize = 16;
const WARM_UP: Duration = Duration::from_secs(2);
const LENGTH: Duration = Duration::from_secs(6);
