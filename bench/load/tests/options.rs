//! What was typed, and what it means.

use clap::{CommandFactory, Parser};

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
fn an_address_that_the_bench_cannot_speak_to_is_refused_at_once() {
    let against = |url: &str| Options::try_parse_from(["load", "--key", "k", "--against", url]);
    for url in ["https://gateway.example.com/api/v1", "gateway.example.com", "ftp://x"] {
        let told = against(url).unwrap_err().to_string();
        assert!(told.contains("only http:// is possible"), "{url}: {told}");
    }
    for url in ["http://", "http:///api/v1"] {
        assert!(against(url).unwrap_err().to_string().contains("no host"), "{url}");
    }
    let url = "http://gateway.example.com/api/v1";
    assert_eq!(against(url).unwrap().against.as_deref(), Some(url));
}

#[test]
fn the_help_says_what_is_not_done() {
    let help = Options::command().render_long_help().to_string();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for said in [
        "http:// only",
        "Everything but instructions for a moment",
        "Without strace no system calls are counted",
    ] {
        assert!(help.contains(said), "{said}: {help}");
    }
    let quick = options("--quick").scenarios();
    assert!(!quick.contains(&Scenario::Instructions) && quick.contains(&Scenario::Syscalls));
}

#[test]
fn one_key_is_one_account() {
    assert_eq!(options("--against http://127.0.0.1:1 --key k").accounts(), 1);
}
