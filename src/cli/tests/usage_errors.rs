//! What cannot be meant, and what others have written that a terminal or a shell would obey.

use super::*;

/// Each was 1, the status of a command that failed.
#[test]
fn what_cannot_be_meant_is_status_2_whatever_the_ledger_has() {
    let place = Place::new();
    for (words, says) in [
        (
            "credits correct acme 1 --reference R --kind top_up",
            "`tollgate credits add` adds the others",
        ),
        (
            "credits add acme 20 --reference R --kind refund",
            "amount of a refund is below 0, such as -20",
        ),
        (
            "credits correct acme 20 --reference R --kind refund",
            "amount of a refund is below 0, such as -20",
        ),
        ("key revoke nothing", "neither a whole key nor the id of one"),
        ("key set nothing --label x", "neither a whole key nor the id of one"),
        ("key rotate nothing", "neither a whole key nor the id of one"),
        ("generations acme --before x", "is no place that an answer ended with"),
        (
            "ledger receipts acme --before x",
            "is no place that an answer ended with",
        ),
        (
            "serve --operator https://gateway.example.com:9091",
            "works on the gateway's own machine alone",
        ),
        (
            "account list --operator ftp://x",
            "--operator: \"ftp://x\" is not an address",
        ),
        (
            "account list --operator http://203.0.113.1:9091",
            "plain HTTP to another machine",
        ),
    ] {
        let outcome = place.run(words);
        assert!(
            outcome.status == 2 && outcome.stdout.is_empty() && outcome.stderr.contains(says),
            "{words}: {outcome:?}"
        );
    }
    assert!(!place.ledger().exists());
}

/// Each was 1, most of them once the ledger had been asked.
#[test]
fn settings_that_nothing_can_have_are_status_2_whatever_the_ledger_has() {
    let place = Place::new();
    let label = format!("--label {}", "x".repeat(101));
    let models = "--model a/b ".repeat(101);
    let domains = "--domain app.example.com ".repeat(101);
    let (name, value) = ("n".repeat(65), "x".repeat(513));
    for (words, says) in [
        (
            "key create --account acme --limit-reset daily".to_owned(),
            "no limit to reset",
        ),
        (format!("key create --account acme {label}"), "a label has 1 to 100"),
        (format!("key create --account acme {models}"), "at most 100 models"),
        (format!("key create --account acme {domains}"), "at most 100 domains"),
        (format!("key set key_0123456789abcdef {label}"), "a label has 1 to 100"),
        (format!("key set key_0123456789abcdef {models}"), "at most 100 models"),
        (
            format!("account set acme --meta {name}=x"),
            "metadata has names of 1 to 64",
        ),
        (
            format!("account set acme --tier pro --meta n={value}"),
            "values of at most 512 bytes",
        ),
    ] {
        let outcome = place.run(&words);
        assert!(
            outcome.status == 2 && outcome.stdout.is_empty() && outcome.stderr.contains(says),
            "{words}: {outcome:?}"
        );
    }
    assert!(!place.ledger().exists());
    // What the ledger may have is its to say.
    place.json("account create acme --tier pro");
    let (_, made) = place.json("key create --account acme");
    let id = made["id"].as_str().unwrap();
    assert!(
        place
            .error(&format!("key set {id} --limit-reset daily"))
            .contains("no limit to reset")
    );
    let control = place.error("account set acme --meta n=a\u{1}b");
    assert!(control.contains("without control characters"), "{control}");
}

/// They were ignored, and what was meant for a gateway elsewhere was done on the ledger of this machine.
#[test]
fn what_goes_with_the_address_of_a_gateway_elsewhere_is_refused_without_it() {
    let place = Place::new();
    for words in [
        "account create acme --tier pro --insecure",
        "account create acme --tier pro --ca ca.pem",
        "--ca ca.pem account create acme --tier pro",
        "--insecure account --ca ca.pem create acme --tier pro",
        "check --insecure",
    ] {
        let outcome = place.run(words);
        assert!(
            outcome.status == 2 && outcome.stderr.contains("--ca and --insecure go with --operator"),
            "{words}: {outcome:?}"
        );
    }
    assert!(!place.ledger().exists(), "an account was made here");
    // The two may stand apart. Nothing listens there, or nobody has a token.
    for words in [
        "--operator http://127.0.0.1:1 account list --insecure",
        "--insecure account list --operator http://127.0.0.1:1",
    ] {
        assert_eq!(place.run(words).status, 1, "{words}");
    }
}

/// A shell ran what stands in double quotes.
#[test]
fn the_next_page_of_credits_is_asked_for_by_one_word_of_a_shell() {
    let place = Place::new();
    place.json("account create acme --tier pro");
    for (reference, word) in [
        ("INVOICE-7", None),
        ("$(id)", Some("'$(id)'")),
        ("it's", Some(r"'it'\''s'")),
        ("`id`", Some("'`id`'")),
        ("INVOICE-8", Some("INVOICE-8")),
    ] {
        place.json(&format!("credits add acme 1 --reference {reference}"));
        let list = place.run("credits list acme --limit 1").stdout;
        let more = list.split_once("\nmore: --before ").map(|(_, more)| more.trim_end());
        assert_eq!(more, word, "{list}");
    }
}

/// A character that turns the order of what follows went to the terminal as it is.
#[test]
fn metadata_steers_no_terminal() {
    let place = Place::new();
    place.json("account create acme --tier pro");
    place.json("account set acme --meta a\u{202e}b=c\u{2066}d");
    let shown = place.run("account show acme").stdout;
    assert!(shown.contains("\na\\u{202e}b = c\\u{2066}d\n"), "{shown}");
}
