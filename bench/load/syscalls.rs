//! System calls a request and an event, as strace counts them. A traced process is several times slower, so only the counts mean
//! anything here, and those under saturation are a little low: a slow process finds more work at each wake-up.

use std::{
    cell::RefCell,
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{
    common::{Result, say},
    drive::{self, Arrivals, Plan},
    figures::Unit,
    fleet::{Fleet, Subject},
    machine,
    measured::SystemCalls,
    parts::BURST,
    report::Report,
    request::{KILOBYTE, Shape},
};

/// What is sent while system calls are counted.
struct Part {
    name: String,
    unit: Unit,
    shape: Shape,
    arrivals: Arrivals,
}

/// Counts for each subject: whole answers saturated and at half the fixed rate (the process is slowed), and a burst.
pub(crate) fn run(fleet: &Fleet, subjects: &[Subject], report: &mut Report) -> Result<()> {
    if !machine::is_installed(STRACE) {
        report.not_tried(fleet.options.quick, "system calls", STRACE);
        return Ok(());
    }
    let rate = (fleet.options.rate / 2).max(1);
    let whole = |name: &str, arrivals| {
        let shape = Shape::Whole { bytes: KILOBYTE };
        Part {
            name: name.to_owned(),
            unit: Unit::Request,
            shape,
            arrivals,
        }
    };
    let burst = Shape::Stream(BURST);
    let parts = [
        whole("saturated", Arrivals::Closed),
        whole(&format!("{rate} a second"), Arrivals::Poisson { rate, seed: SEED }),
        Part {
            name: "stream-burst".to_owned(),
            unit: Unit::Event,
            shape: burst,
            arrivals: Arrivals::Closed,
        },
    ];
    for part in parts {
        for subject in subjects.iter().filter(|subject| !subject.pids.is_empty()) {
            let (name, unit) = (&part.name, part.unit.name());
            match count(fleet, subject, &part) {
                Ok(calls) => {
                    say(&format!(
                        "syscalls {name}  {:<18} {:.2} each {unit}",
                        subject.name, calls.a_unit
                    ));
                    report.syscalls.push(calls);
                }
                Err(error) => report.fail(format!("syscalls {name} of {} not counted: {error}", subject.name)),
            }
        }
    }
    Ok(())
}

fn count(fleet: &Fleet, subject: &Subject, part: &Part) -> Result<SystemCalls> {
    let plan = Plan {
        address: subject.address,
        shots: part.shape.shots(subject),
        arrivals: part.arrivals,
        connections: fleet.options.connections,
        workers: fleet.cores.load_threads(),
        waiting: fleet.options.waiting(),
        spread: Duration::ZERO,
        warm_up: fleet.options.warm_up().max(LENGTH_MIN),
        length: fleet.options.length().max(LENGTH_MIN),
        requests_max: None,
    };
    let out = fleet.path().join("strace.out");
    let tracer = RefCell::new(None);
    // The first mark attaches, the second detaches.
    let mark = || match tracer.take() {
        None => {
            tracer.replace(Some(Tracer::attach(subject, out.clone())));
            Ok(None)
        }
        Some(Ok(tracer)) => tracer.detach().map(Some),
        Some(Err(error)) => Err(error),
    };
    let outcome = drive::run(plan, mark, drive::to_the_end)?;
    let calls = outcome.marks.1?.unwrap_or_default();
    if let Some((kind, n)) = outcome.tally.errors.first_key_value() {
        return Err(format!("{n} wrong answers: {kind}").into());
    }
    let units = if part.unit == Unit::Request {
        outcome.requests
    } else {
        outcome.events
    };
    if units == 0 || calls.is_empty() {
        return Err("nothing was counted".into());
    }
    let mut by_name: Vec<(String, f64)> = calls
        .into_iter()
        .map(|(name, calls)| (name, calls as f64 / units as f64))
        .collect();
    by_name.sort_by(|a, b| b.1.total_cmp(&a.1));
    Ok(SystemCalls {
        subject: subject.name.clone(),
        part: part.name.clone(),
        unit: part.unit,
        units,
        a_unit: by_name.iter().map(|(_, calls)| calls).sum(),
        by_name,
    })
}

/// A running strace; it detaches when this is dropped.
struct Tracer {
    child: Child,
    out: PathBuf,
}

impl Tracer {
    /// Attaches to all threads of the subject, and returns when it has.
    fn attach(subject: &Subject, out: PathBuf) -> Result<Self> {
        let mut command = Command::new(STRACE);
        command.args(["-f", "-c", "-o"]).arg(&out);
        for pid in &subject.pids {
            command.args(["-p", &pid.to_string()]);
        }
        let errors = out.with_extension("err");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&errors)?);
        let child = command.spawn().map_err(|e| format!("cannot start strace: {e}"))?;
        let mut tracer = Self { child, out };
        let begun = Instant::now();
        while begun.elapsed() < ATTACH_TIMEOUT {
            let said = fs::read_to_string(&errors).unwrap_or_default();
            if said.contains("attached") {
                return Ok(tracer);
            }
            if tracer.child.try_wait()?.is_some() {
                return Err(said.trim().to_owned().into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Err("strace does not attach".into())
    }

    /// Ends it and returns its counts.
    fn detach(mut self) -> Result<Vec<(String, u64)>> {
        self.stop();
        Ok(parse(&fs::read_to_string(&self.out)?))
    }

    fn stop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // SAFETY: the child has not been waited for, so its id is still its own.
            unsafe { libc::kill(self.child.id().cast_signed(), libc::SIGINT) };
            self.child.wait().ok();
        }
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Reads strace's summary: per cent, seconds, microseconds a call, calls, errors if any, name.
pub(crate) fn parse(summary: &str) -> Vec<(String, u64)> {
    let row = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let name = *fields.last()?;
        let calls = fields.get(3)?.parse().ok()?;
        (name != "total").then(|| (name.to_owned(), calls))
    };
    summary.lines().filter_map(row).collect()
}

const STRACE: &str = "strace";
const SEED: u64 = 1;
/// A traced process is slow, and its connections shall be made before the count begins.
const LENGTH_MIN: Duration = Duration::from_millis(500);
const ATTACH_TIMEOUT: Duration = Duration::from_secs(5);
