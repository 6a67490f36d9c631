//! Pairs of gateways that differ in one thing: what it costs those who call.

use std::{net::TcpListener, thread, time::Duration};

use crate::{
    cli::{Scenario, Variant},
    common::{Result, say},
    figures::WITH,
    fleet::{Fleet, Subject},
    gateway::Setup,
    lists,
    parts::{self, Part},
    report::Report,
    steady, subjects,
};

/// Runs a scenario on a pair of gateways for each store, one after the other.
pub(crate) fn run(scenario: Scenario, fleet: &Fleet, report: &mut Report) -> Result<()> {
    let gateways = fleet.options.variants().into_iter();
    for variant in gateways.filter(|variant| matches!(variant, Variant::Embedded | Variant::Redis)) {
        // It takes connections, as the kernel does for it, and never answers.
        let receiver = TcpListener::bind("127.0.0.1:0")?;
        let usual = Setup::usual(fleet, variant);
        let other = match scenario {
            Scenario::Operators => {
                let accounts = fleet.options.many_accounts().max(usual.callers);
                Setup {
                    name: format!("{}{WITH}{accounts} accounts", usual.name),
                    accounts,
                    ..Setup::usual(fleet, variant)
                }
            }
            _ => Setup {
                name: format!("{}{WITH}a webhook that never answers", usual.name),
                webhook: Some(receiver.local_addr()?),
                ..Setup::usual(fleet, variant)
            },
        };
        say(&format!("making the accounts of {} and {}", usual.name, other.name));
        let launch = |setup: &Setup, report: &mut Report| subjects::launch_as(fleet, variant, setup, report);
        let Some(usual) = launch(&usual, report) else { continue };
        let Some(other) = launch(&other, report) else { continue };
        let pair = [usual, other];
        if scenario == Scenario::Operators {
            lists::run(&pair, fleet.options.quick, report)?;
        }
        steady::run(scenario, parts_of(scenario, variant, fleet), fleet, &pair, report)?;
        settle(&pair, report);
    }
    Ok(())
}

/// The parts of a scenario, by the store that they are run on.
fn parts_of(scenario: Scenario, variant: Variant, fleet: &Fleet) -> Vec<Part> {
    let mut parts = parts::of(scenario, &fleet.options);
    for part in &mut parts {
        part.name = format!("{}, {}", part.name, variant.name());
    }
    parts
}

/// The books of both, once nothing is held any more.
fn settle(pair: &[Subject], report: &mut Report) {
    thread::sleep(SETTLE);
    for subject in pair {
        let Some(audit) = &subject.audit else { continue };
        match audit() {
            Ok(_) => say(&format!("{}: a clean audit", subject.name)),
            Err(error) => report.fail(format!("the audit of {}: {error}", subject.name)),
        }
    }
}

/// Longer than debits wait.
const SETTLE: Duration = Duration::from_secs(2);
