//! Starts what is measured, and gives each its first requests.

use std::time::Duration;

use crate::{
    cli::Variant,
    common::{Result, say},
    drive::{self, Arrivals, Plan},
    fleet::{Fleet, Subject},
    gateway::{self, Setup},
    peers,
    report::Report,
    request,
};

/// Starts all variants that can be; says which cannot. A gateway lets an address present so many wrong keys in a minute, or the usual number.
pub(crate) fn launch_all(fleet: &Fleet, wrong_keys_max: Option<u32>, report: &mut Report) -> Result<Vec<Subject>> {
    let mut subjects = Vec::new();
    for variant in fleet.options.variants() {
        let setup = Setup {
            wrong_keys_max,
            ..Setup::usual(fleet, variant)
        };
        subjects.extend(launch_as(fleet, variant, &setup, report));
    }
    if let Some(url) = &fleet.options.against {
        subjects.push(fleet.deployed(url)?);
    }
    if subjects.is_empty() {
        Err("nothing to put under load".into())
    } else {
        Ok(subjects)
    }
}

/// Starts a variant and breaks it in. None, and a line in the report, when it cannot be; then it is not tried again.
pub(crate) fn launch(fleet: &Fleet, variant: Variant, report: &mut Report) -> Option<Subject> {
    launch_as(fleet, variant, &Setup::usual(fleet, variant), report)
}

/// The same, where a gateway has a setup of its own.
pub(crate) fn launch_as(fleet: &Fleet, variant: Variant, setup: &Setup, report: &mut Report) -> Option<Subject> {
    let begins = format!("{} left out: ", variant.name());
    if report.left_out.iter().any(|line| line.starts_with(&begins)) {
        return None;
    }
    let ready = start_as(fleet, variant, setup).and_then(|subject| break_in(fleet, &subject).map(|()| subject));
    match ready {
        Ok(subject) => Some(subject),
        Err(error) => {
            let line = begins + &error.to_string();
            say(&line);
            report.left_out.push(line);
            None
        }
    }
}

/// Starts a variant. Errors say what is missing.
pub(crate) fn start(fleet: &Fleet, variant: Variant) -> Result<Subject> {
    start_as(fleet, variant, &Setup::usual(fleet, variant))
}

fn start_as(fleet: &Fleet, variant: Variant, setup: &Setup) -> Result<Subject> {
    match variant {
        Variant::Direct => Ok(fleet.pass_through(&variant.name(), fleet.upstream, Vec::new())),
        Variant::Baseline | Variant::BaselineJemalloc => fleet.baseline(variant),
        Variant::Embedded | Variant::Redis => gateway::launch(fleet, variant, setup),
        Variant::Nginx => peers::nginx(fleet),
        Variant::Haproxy => peers::haproxy(fleet),
    }
}

/// Some requests of all shapes, so that what is done once (buffers, tokenizers, connections) is done before anything is measured.
fn break_in(fleet: &Fleet, subject: &Subject) -> Result<()> {
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
        // Enough for each account to call: a key that never has would be refused after a flood of wrong ones.
        requests_max: Some(BREAK_IN_REQUESTS.max(2 * subject.callers.len() as u64)),
    };
    let outcome = drive::run(plan, || (), drive::to_the_end)?;
    match outcome.tally.errors.first_key_value() {
        None => Ok(()),
        Some((kind, n)) => Err(format!("{n} wrong answers: {kind}").into()),
    }
}

const BREAK_IN_REQUESTS: u64 = 1000;
const BREAK_IN_MAX: Duration = Duration::from_secs(10);
