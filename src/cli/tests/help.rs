//! What a newcomer reads first: the help of each command, and what wrong usage is told.

use clap::CommandFactory;

use super::super::Cli;
use super::*;

/// A command and all below it, each as the words that are typed.
fn commands(of: &clap::Command, words: &str) -> Vec<String> {
    let below = of.get_subcommands().flat_map(|command| {
        let words = format!("{words} {}", command.get_name());
        commands(command, words.trim_start())
    });
    std::iter::once(words.to_owned()).chain(below).collect()
}

#[test]
fn the_help_of_each_command_has_an_example_that_is_read_and_fits_its_lines() {
    let all = commands(&Cli::command(), "");
    assert!(all.len() > 40, "{all:?}");
    for words in all {
        let help = tollgate(&format!("{words} --help")).stdout;
        assert!(help.lines().all(|line| line.chars().count() <= 110), "{words}: {help}");
        let (_, examples) = help
            .split_once("Example")
            .unwrap_or_else(|| panic!("{words}: no example: {help}"));
        let example = examples
            .lines()
            .skip(1)
            .map(str::trim_start)
            .take_while(|line| !line.is_empty());
        // One has an older name.
        let name = words.replace("ledger receipts", "generations");
        let own = example.filter(|line| line.contains(&format!("tollgate {name}")));
        assert!(own.count() > 0, "{words}: its example is another command's: {help}");
        assert_eq!(tollgate(&format!("help {words}")).stdout, help, "{words}");
    }
    let top = tollgate("--help").stdout;
    assert!(
        top.contains("conf/README.md") && top.contains("tollgate help COMMAND"),
        "{top}"
    );
}

#[test]
fn each_example_of_the_help_can_be_typed() {
    for words in commands(&Cli::command(), "") {
        let help = tollgate(&format!("{words} --help")).stdout;
        let lines = help.lines().filter_map(|line| line.strip_prefix("  tollgate "));
        for line in lines.filter(|line| !line.contains("help COMMAND")) {
            // What a shell makes of it, and what explains it.
            let typed = line.split("  ").next().unwrap_or_default();
            let typed = typed.split(['|', '>', '&']).next().unwrap_or_default();
            let typed = typed
                .replace("\"$LEAKED_KEY\"", "key_0123456789abcdef")
                .replace('\'', "");
            let typed = match typed.split_once("--note ") {
                Some((before, _)) => format!("{before} --note x"),
                None => typed,
            };
            let arguments = std::iter::once("tollgate").chain(typed.split_whitespace());
            let parsed = <Cli as clap::Parser>::try_parse_from(arguments);
            assert!(parsed.is_ok(), "{words}: {line}: {}", parsed.unwrap_err());
        }
    }
}

/// By another clock than the ledger's they are other days.
#[test]
fn help_says_by_whose_clock_today_is() {
    for words in ["usage", "account statement"] {
        let help = tollgate(&format!("{words} --help")).stdout;
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            help.contains("this machine's") && help.contains("the ledger's"),
            "{words}: {help}"
        );
    }
}

#[test]
fn wrong_usage_is_told_in_one_line_that_says_what_would_be_right() {
    for (words, says) in [
        ("serv", "similar subcommand exists: 'serve'"),
        ("help serv", "similar subcommand exists: 'serve'"),
        (
            "demo --listen 8080",
            "\"8080\" is not an address such as 127.0.0.1:8080",
        ),
        (
            "demo --listen localhost:8080",
            "is not an address such as 127.0.0.1:8080",
        ),
        (
            "key create --account a --expiry 5d",
            "similar argument exists: '--expires'",
        ),
        (
            "key create --account a --expires 5",
            "is not a time such as 30d, 12h, 90m or 45s",
        ),
        ("usage a --from 1.11.2026", "is not a day such as 2026-11-20"),
        ("usage a --period week", "is not one of today, 7d, 30d, all"),
        (
            "account create a --tier gold",
            "is not a tier (free, lite, pro, enterprise)",
        ),
        (
            "credits add a 1,50 --reference R",
            "is not a decimal number such as \"10.50\"",
        ),
        (
            "operator create a --role root",
            "a role is admin, billing, support or read",
        ),
    ] {
        let outcome = tollgate(words);
        assert_eq!((outcome.status, outcome.stdout.as_str()), (2, ""), "{words}");
        let told: Vec<&str> = outcome.stderr.lines().filter(|line| line.contains(says)).collect();
        assert_eq!(told.len(), 1, "{words}: {}", outcome.stderr);
    }
}
