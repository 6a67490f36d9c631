//! What was typed, and what it means.

use clap::Parser;

use crate::cli::{Options, Scenario};

fn options(arguments: &str) -> Options {
    Options::try_parse_from(std::iter::once("load").chain(arguments.split_whitespace())).unwrap()
}

#[test]
fn thirty_pairs_and_a_thousand_accounts_are_usual() {
    let usual = options("");
    assert_eq!(
        (usual.rounds(), usual.accounts(), usual.soak_length().as_secs()),
        (30, 1000, 600)
    );
    assert!(!usual.scenarios().iter().any(|s| matches!(
        s,
        Scenario::Soak | Scenario::Operators | Scenario::Instructions | Scenario::All
    )));
    let quick = options("--quick");
    assert_eq!((quick.rounds(), quick.accounts()), (1, 20));
    assert!(quick.scenarios().contains(&Scenario::Soak));
}

#[test]
fn all_is_every_scenario() {
    let all = options("all").scenarios();
    for name in ["whole", "stream-each", "stream-forms", "instructions", "soak", "open"] {
        assert!(all.iter().any(|scenario| scenario.name() == name), "{name}");
    }
    assert!(!all.contains(&Scenario::All));
    assert_eq!(options("soak whole").scenarios(), [Scenario::Soak, Scenario::Whole]);
}

#[test]
fn what_cannot_be_measured_is_refused() {
    for bad in [
        "--seconds 0.01",
        "--rounds 0",
        "--threads 0",
        "--accounts 0",
        "--accounts 10001",
        "--soak-seconds 0",
        "--soak-seconds 3601",
        "--connections 10001",
    ] {
        assert!(options(bad).check().is_err(), "{bad}");
    }
    assert!(
        options("--soak-seconds 3600 --accounts 1 --seconds 0.05")
            .check()
            .is_ok()
    );
}

#[test]
fn one_key_is_one_account() {
    assert_eq!(options("--against http://127.0.0.1:1 --key k").accounts(), 1);
}
