//! The load bench: what a request costs through the gateway, beside what it costs through a bare Pingora pass-through.
//!
//! One program in several roles, each its own process, so that CPU can be told apart: this one, which generates the load
//! (`drive`, `client`, `pacer`) and reports; the simulated [`upstream`]; the [`baseline`]. The [`gateway`] is the real
//! binary; nginx and HAProxy ([`peers`]) take part where they are installed. [`fleet`] starts all of them.
//!
//! [`steady`] has the scenarios of a steady load, [`idle`] open streams, [`soak`] the long run, [`syscalls`] and [`instructions`] a count;
//! [`figures`] says what is kept of a round and concluded from several, [`report`] and [`plot`] write it down.
//!
//! Everything stays on loopback and ends by itself. What it cannot tell: the cost of TLS and of a real network, and
//! latency below the noise of the machine; CPU time is the figure that a busy machine disturbs least.
#![expect(
    clippy::disallowed_methods,
    reason = "it measures time, and its processes are its own"
)]

mod allocator;
mod baseline;
mod cli;
mod client;
mod drive;
mod figures;
mod fleet;
mod gateway;
mod http2;
mod idle;
mod instructions;
mod machine;
mod measured;
mod pacer;
mod peers;
mod plot;
mod process;
mod report;
mod request;
mod soak;
mod steady;
mod subjects;
mod syscalls;
mod upstream;
mod waiting;
mod wire;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use cli::{Options, Role, Scenario, Variant};
use fleet::{Fleet, Subject};
use machine::{Cores, Machine, Nice};
use report::Report;

#[global_allocator]
static ALLOCATOR: allocator::Chosen = allocator::Chosen;

/// Errors here are told to the user and not told apart.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    let options = Options::read();
    let result = match (options.role, options.listen, options.upstream) {
        (None, ..) => bench(options),
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

fn bench(options: Options) -> Result<()> {
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

    let (own, shared): (Vec<Scenario>, Vec<Scenario>) = scenarios
        .iter()
        .partition(|scenario| matches!(scenario, Scenario::Open | Scenario::Soak | Scenario::Instructions));
    if !shared.is_empty() {
        let subjects = launch_all(&fleet, &mut report)?;
        for scenario in shared {
            match scenario {
                Scenario::Syscalls => syscalls::run(&fleet, &subjects, &mut report)?,
                _ => steady::run(scenario, &fleet, &subjects, &mut report)?,
            }
        }
    }
    if own.contains(&Scenario::Open) {
        idle::run(&fleet, files, &mut report)?;
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
        Err("there were wrong answers; the figures above count them".into())
    } else {
        Ok(())
    }
}

/// Starts all variants that can be; says which cannot.
fn launch_all(fleet: &Fleet, report: &mut Report) -> Result<Vec<Subject>> {
    let mut subjects = Vec::new();
    for variant in fleet.options.variants() {
        subjects.extend(launch(fleet, variant, report));
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

/// Starts a variant. None, and a line in the report, when it cannot be; then it is not tried again.
fn launch(fleet: &Fleet, variant: Variant, report: &mut Report) -> Option<Subject> {
    let begins = format!("{} left out: ", variant.name());
    if report.left_out.iter().any(|line| line.starts_with(&begins)) {
        return None;
    }
    let ready =
        subjects::launch(fleet, variant).and_then(|subject| steady::break_in(fleet, &subject).map(|()| subject));
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

/// A line of progress. A closed stderr is no reason to stop measuring.
fn say(line: &str) {
    writeln!(io::stderr(), "{line}").ok();
}

/// Open files wanted: two for each of 25,000 streams, and some.
const OPEN_FILES: u64 = 60_000;
