//! The program: its roles, and the scenarios of a run one after the other.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use crate::{
    baseline,
    cli::{Options, Role, Scenario},
    common::{Result, say},
    fleet::{Fleet, Subject},
    idle, instructions,
    machine::{self, Cores, Machine, Nice},
    pairs, parts, plot, process,
    report::Report,
    soak, steady, subjects, syscalls, upstream,
};

pub(crate) fn main() -> ExitCode {
    let options = Options::read();
    let result = match (options.role, options.listen, options.upstream) {
        (None, ..) => run(options),
        (Some(Role::Upstream), Some(listen), _) => upstream::serve(listen, options.threads, options.waiting()),
        (Some(Role::Baseline), Some(listen), Some(upstream)) => baseline::serve(listen, upstream, options.threads),
        (Some(_), ..) => Err("a role needs its addresses".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn run(options: Options) -> Result<()> {
    options.check()?;
    let cores = Cores::split(options.threads);
    let _nice = options.nice.map(Nice::set).transpose()?;
    let files = machine::raise_open_files(OPEN_FILES);
    let mut report = Report::new(&options, Machine::look(&cores));
    process::pin_here(&cores.load)?;
    let scenarios = options.scenarios();
    if options.busy_poll && cores.load.is_empty() {
        return Err("--busy-poll needs more cores than the subject has threads".into());
    }
    let fleet = Fleet::start(options, cores)?;

    let (own, others): (Vec<Scenario>, Vec<Scenario>) = scenarios.iter().partition(|scenario| OWN.contains(scenario));
    let (anew, shared): (Vec<Scenario>, Vec<Scenario>) = others.iter().partition(|scenario| ANEW.contains(scenario));
    if !shared.is_empty() {
        let subjects = subjects::launch_all(&fleet, &mut report)?;
        for scenario in shared {
            match scenario {
                Scenario::Syscalls => syscalls::run(&fleet, &subjects, &mut report)?,
                _ => run_steady(scenario, &fleet, &subjects, &mut report)?,
            }
        }
    }
    for scenario in ANEW {
        if anew.contains(&scenario) {
            let subjects = subjects::launch_all(&fleet, &mut report)?;
            run_steady(scenario, &fleet, &subjects, &mut report)?;
        }
    }
    if own.contains(&Scenario::Open) {
        idle::run(&fleet, files, &mut report)?;
    }
    for scenario in [Scenario::Webhooks, Scenario::Operators] {
        if own.contains(&scenario) {
            pairs::run(scenario, &fleet, &mut report)?;
        }
    }
    if own.contains(&Scenario::Instructions) {
        instructions::run(&fleet, &mut report)?;
    }
    if own.contains(&Scenario::Soak) {
        soak::run(&fleet, &mut report)?;
    }
    let text = report.write(&fleet.options.out)?;
    plot::write(&report, &fleet.options.out)?;
    // The table is the result: it goes to stdout, all else to stderr.
    writeln!(io::stdout(), "{text}")?;
    say(&format!(
        "written: {0}/load.md, {0}/load.json and plots",
        fleet.options.out.display()
    ));
    if !fleet.options.subjects.is_empty() && !report.left_out.is_empty() {
        return Err("not all that was named could be put under load".into());
    }
    if report.errors() > 0 {
        Err("there were wrong answers or wrong debits; the figures above count them".into())
    } else {
        Ok(())
    }
}

fn run_steady(scenario: Scenario, fleet: &Fleet, subjects: &[Subject], report: &mut Report) -> Result<()> {
    steady::run(scenario, parts::of(scenario, &fleet.options), fleet, subjects, report)
}

/// Scenarios whose subjects are started for them alone: where wrong keys came, a gateway looks up no key from their address for a while that has
/// not worked before.
const ANEW: [Scenario; 2] = [Scenario::Denied, Scenario::Strangers];
/// Scenarios with subjects of their own.
const OWN: [Scenario; 5] = [
    Scenario::Open,
    Scenario::Webhooks,
    Scenario::Operators,
    Scenario::Soak,
    Scenario::Instructions,
];
/// Open files wanted: two for each of 25,000 streams, and some.
const OPEN_FILES: u64 = 60_000;
