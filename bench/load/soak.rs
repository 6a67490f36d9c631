//! The long run: many mixed requests, memory and open files over time, and the books checked at the end.

use std::time::{Duration, Instant};

use crate::{
    Result,
    drive::{self, Arrivals, Plan},
    fleet::{Fleet, Subject},
    measured::{LongRun, Sample},
    report::Report,
    request, say,
    steady::{files, memory},
};

/// Runs on a fresh process of each gateway, or on all that were named.
pub(crate) fn run(fleet: &Fleet, report: &mut Report) -> Result<()> {
    for variant in fleet.options.variants() {
        let is_gateway = matches!(variant, crate::Variant::Embedded | crate::Variant::Redis);
        if !is_gateway && fleet.options.subjects.is_empty() {
            continue;
        }
        let Some(subject) = crate::launch(fleet, variant, report) else {
            continue;
        };
        report.soak.push(one(fleet, &subject)?);
    }
    if let Some(url) = &fleet.options.against {
        report.soak.push(one(fleet, &fleet.deployed(url)?)?);
    }
    Ok(())
}

fn one(fleet: &Fleet, subject: &Subject) -> Result<LongRun> {
    let wanted = fleet.options.soak_requests();
    let plan = Plan {
        address: subject.address,
        shots: request::mixed(subject),
        arrivals: Arrivals::Closed,
        connections: fleet.options.connections,
        workers: fleet.cores.load_threads(),
        waiting: fleet.options.waiting(),
        spread: Duration::ZERO,
        warm_up: Duration::ZERO,
        length: TIME_MAX,
        requests_max: Some(wanted),
    };
    let begun = Instant::now();
    let (mut samples, mut told) = (Vec::new(), 0);
    let sample = |requests| Sample {
        seconds: begun.elapsed().as_secs_f64(),
        requests,
        memory_kib: memory(subject).unwrap_or_default(),
        open_files: files(subject).unwrap_or_default(),
    };
    let outcome = drive::run(
        plan,
        || (),
        |requests| {
            let step = wanted.div_ceil(SAMPLES);
            if samples.len() as u64 * step <= requests {
                samples.push(sample(requests));
            }
            if told * wanted.div_ceil(TOLD) <= requests {
                told += 1;
                let kib = memory(subject).unwrap_or_default();
                say(&format!(
                    "soak  {:<18} {requests} of {wanted} requests, {kib} KiB",
                    subject.name
                ));
            }
        },
    )?;
    samples.push(sample(outcome.requests));
    let audit = subject
        .audit
        .as_ref()
        .map(|audit| audit().map_err(|error| error.to_string()));
    Ok(LongRun {
        subject: subject.name.clone(),
        requests: outcome.requests,
        seconds: outcome.seconds,
        errors: outcome.tally.errors,
        memory_growth_percent: growth(&samples),
        samples,
        audit,
    })
}

fn growth(samples: &[Sample]) -> Option<f64> {
    let last = samples.last()?;
    let early = samples.iter().find(|sample| sample.requests >= last.requests / 10)?;
    (early.memory_kib > 0).then(|| (last.memory_kib as f64 / early.memory_kib as f64 - 1.0) * 100.0)
}

const SAMPLES: u64 = 200;
const TOLD: u64 = 20;
/// A soak ends after this, whatever it was asked for.
const TIME_MAX: Duration = Duration::from_secs(3600);
