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
    gateway, idle, instructions,
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
    let (anew, shared): (Vec<Scenario>, Vec<Scenario>) = others
        .iter()
        .partition(|scenario| ANEW.iter().any(|(anew, _)| anew == *scenario));
    if !shared.is_empty() {
        let subjects = subjects::launch_all(&fleet, None, &mut report)?;
        for scenario in shared {
            asked(scenario, &fleet, &mut report, |report| match scenario {
                Scenario::Syscalls => syscalls::run(&fleet, &subjects, report),
                _ => run_steady(scenario, &fleet, &subjects, report),
            })?;
        }
    }
    for (scenario, wrong_keys_max) in ANEW {
        if anew.contains(&scenario) {
            let subjects = subjects::launch_all(&fleet, wrong_keys_max, &mut report)?;
            asked(scenario, &fleet, &mut report, |report| {
                run_steady(scenario, &fleet, &subjects, report)
            })?;
        }
    }
    for scenario in OWN {
        if own.contains(&scenario) {
            asked(scenario, &fleet, &mut report, |report| match scenario {
                Scenario::Open => idle::run(&fleet, files, report),
                Scenario::Instructions => instructions::run(&fleet, report),
                Scenario::Soak => soak::run(&fleet, report),
                _ => pairs::run(scenario, &fleet, report),
            })?;
        }
    }
    let text = report.write(&fleet.options.out)?;
    plot::write(&report, &fleet.options.out)?;
    // The table is the result: it goes to stdout, all else to stderr.
    writeln!(io::stdout(), "{text}")?;
    say(&format!(
        "written: {0}/load.md, {0}/load.json and plots",
        fleet.options.out.display()
    ));
    let faults = report.faults(!fleet.options.subjects.is_empty());
    if faults.is_empty() {
        Ok(())
    } else {
        Err(faults.join("; ").into())
    }
}

/// Runs a scenario. It is a failure when one that was named measures nothing, such as one for gateways without any.
fn asked(
    scenario: Scenario,
    fleet: &Fleet,
    report: &mut Report,
    run: impl FnOnce(&mut Report) -> Result<()>,
) -> Result<()> {
    let before = report.rows();
    run(report)?;
    if report.rows() == before && fleet.options.scenarios.contains(&scenario) {
        report.fail(format!("{} measured nothing", scenario.name()));
    }
    Ok(())
}

fn run_steady(scenario: Scenario, fleet: &Fleet, subjects: &[Subject], report: &mut Report) -> Result<()> {
    steady::run(scenario, parts::of(scenario, &fleet.options), fleet, subjects, report)
}

/// Scenarios whose subjects are started for them alone, and how many wrong keys an address may present to them in a minute. Where too many
/// came, a gateway looks up no key from their address for a while that has not worked before.
const ANEW: [(Scenario, Option<u32>); 2] = [
    (Scenario::Denied, Some(gateway::ALL_FORGIVEN)),
    (Scenario::Strangers, None),
];
/// Scenarios with subjects of their own, in the order in which they run.
const OWN: [Scenario; 5] = [
    Scenario::Open,
    Scenario::Webhooks,
    Scenario::Operators,
    Scenario::Instructions,
    Scenario::Soak,
];
/// Open files wanted: two for each of 25,000 streams, and some.
const OPEN_FILES: u64 = 60_000;
