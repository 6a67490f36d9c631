//! Suspending and closing accounts, their terms, corrections, lists and statements, on the file and through its owner.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};

use super::*;
use crate::ledger::admin::{AdminError, AdminReply};

fn tidied(text: &str) -> String {
    text.lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n")
        .collect()
}

/// Words with blanks in them are given as they are.
fn run(place: &Place, words: &[&str]) -> Outcome {
    let conf = place.conf();
    let words = ["tollgate"].into_iter().chain(words.iter().copied());
    let conf = ["--conf".into(), conf.into_os_string()];
    execute(words.map(OsString::from).chain(conf))
}

fn business(place: &Place) {
    for name in ["acme", "acme-2", "bob"] {
        let (_, made) = place.json(&format!("account create {name} --tier pro"));
        assert_eq!(
            (&made["status"], &made["low_balance"]),
            (&Value::from("active"), &Value::Null)
        );
    }
    let (_, added) = place.json("credits add acme 10.5 --reference A");
    assert_eq!(
        (&added["kind"], &added["added"]),
        (&Value::from("top_up"), &Value::from(true))
    );
    let noted = [
        "credits",
        "add",
        "acme",
        "2",
        "--reference",
        "B",
        "--kind",
        "bonus",
        "--note",
        "for the wait",
        "--json",
    ];
    let outcome = run(place, &noted);
    let bonus: Value = serde_json::from_str(&outcome.stdout).unwrap_or_else(|_| panic!("{outcome:?}"));
    assert_eq!(
        (&bonus["kind"], &bonus["note"]),
        (&Value::from("bonus"), &Value::from("for the wait"))
    );
    let (text, again) = place.json("credits add acme 2 --reference B --kind bonus");
    assert!(
        again["added"] == false && text.contains("\"note\":\"for the wait\""),
        "{text}"
    );
    assert!(
        place
            .error("credits add acme 2 --reference B")
            .contains("another amount or kind")
    );

    let taken = place.run("credits correct acme -2.50 --reference C");
    assert_eq!(taken.stdout, "took 2.5 USD from acme: the balance is 10 USD\n");
    let short = place.error("credits correct acme -10.000000000001 --reference D");
    assert!(
        short.contains("-10.000000000001 is more than is available: 10, with 0 held"),
        "{short}"
    );
    let (text, _) = place.json("credits correct acme -10.000000000001 --reference D --kind refund --allow-negative");
    assert!(text.contains("\"balance\":-0.000000000001,"), "{text}");
    let (text, _) = place.json("credits correct acme 1.000000000001 --reference E");
    assert!(text.contains("\"balance\":1,"), "{text}");
    for bad in [
        "credits correct acme 0 --reference F",
        "credits correct acme 1 --reference F --kind bonus",
        "credits add acme -1 --reference F",
        "credits add acme 1 --reference F --kind gift",
    ] {
        assert_eq!(place.run(bad).status, 2, "{bad}");
    }

    let (text, list) = place.json("credits list acme --limit 2");
    assert_eq!(
        (
            list["entries"].as_array().unwrap().len(),
            &list["entries"][0]["reference"]
        ),
        (2, &Value::from("E"))
    );
    assert!(text.contains("\"kind\":\"refund\",\"amount\":-10.000000000001,\"reference\":\"D\",\"note\":null,\"balance\":-0.000000000001}"), "{text}");
    let next = list["next"].as_str().unwrap();
    let (_, rest) = place.json(&format!("credits list acme --before {next}"));
    assert_eq!(
        (rest["entries"].as_array().unwrap().len(), &rest["next"]),
        (3, &Value::Null)
    );
    let table = place.run("credits list acme --limit 2").stdout;
    assert!(
        table.contains("refund") && table.ends_with("more: --before D\n"),
        "{table}"
    );
    assert!(place.run("credits list bob").stdout.starts_with("no credit: "));
    assert!(place.error("credits list nobody").contains("nobody"));

    statements(place);
    terms(place);
}

fn statements(place: &Place) {
    let (text, statement) = place.json("account statement acme");
    assert_eq!(
        (
            statement["entries"].as_array().unwrap().len(),
            statement["debits"].as_array().unwrap().len()
        ),
        (5, 0)
    );
    assert!(
        text.contains("\"opening_balance\":0,") && text.ends_with("\"closing_balance\":1}\n"),
        "{text}"
    );
    let (_, before) = place.json("account statement acme --from 2026-01-01 --to 2026-01-31");
    assert_eq!(
        (
            before["closing_balance"].to_string().as_str(),
            before["entries"].as_array().unwrap().len()
        ),
        ("0", 0)
    );
    let csv = place.run("account statement acme --csv").stdout;
    let mut reader = csv::ReaderBuilder::new().flexible(false).from_reader(csv.as_bytes());
    let rows: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().unwrap();
    assert_eq!(rows.len(), 7);
    let amounts = rows
        .iter()
        .filter(|row| &row[0] == "entry")
        .map(|row| row[3].parse::<Credits>().unwrap().pico());
    assert_eq!(amounts.sum::<i64>(), 1_000_000_000_000);
    assert_eq!((&rows[0][4], &rows[6][4]), ("0", "1"));
    let both = place.run("account statement acme --csv --json");
    assert!(
        both.status == 2 && both.stderr.contains("either CSV or JSON"),
        "{both:?}"
    );
    let text = tidied(&place.run("account statement acme").stdout);
    assert!(
        text.contains("opening balance 0 USD\nclosing balance 1 USD\n"),
        "{text}"
    );
    let january: serde_json::Value =
        serde_json::from_str(&place.run("account statement acme --to 2026-01-31 --json").stdout).unwrap();
    assert_eq!(
        (&january["from"], &january["to"]),
        (&"2026-01-01".into(), &"2026-01-31".into())
    );
    let turned = place.run("account statement acme --from 2026-02-01 --to 2026-01-31");
    assert!(
        turned.status == 2 && turned.stderr.contains("--from 2026-02-01 is after --to 2026-01-31"),
        "{turned:?}"
    );
    assert!(
        place
            .error("account statement acme --from 2020-01-01 --to 2026-01-31")
            .contains("at most 367 days")
    );
    assert_eq!(place.run("account statement acme --from yesterday").status, 2);
    for command in ["add acme 1", "correct acme -1"] {
        let unnamed = place.run(&format!("credits {command} --reference="));
        assert!(
            unnamed.status == 2 && unnamed.stderr.contains("must not be empty"),
            "{unnamed:?}"
        );
    }
}

fn terms(place: &Place) {
    let (_, set) = place.json("account set acme --tier lite --low-balance 0.5 --meta crm=4711 --meta plan=a=b");
    assert_eq!(
        (&set["tier"], set["low_balance"].to_string().as_str()),
        (&Value::from("lite"), "0.5")
    );
    assert_eq!(
        (&set["metadata"]["crm"], &set["metadata"]["plan"]),
        (&Value::from("4711"), &Value::from("a=b"))
    );
    let (_, set) = place.json("account set acme --low-balance none --meta crm=");
    assert_eq!(
        (&set["low_balance"], set["metadata"].as_object().unwrap().len()),
        (&Value::Null, 1)
    );
    let shown = tidied(&place.run("account show acme").stdout);
    assert!(
        shown.contains("status active\n") && shown.contains("plan = a=b\n"),
        "{shown}"
    );
    assert_eq!(place.run("account set acme --meta crm").status, 2);
    assert_eq!(place.run("account set acme").status, 2, "nothing to change");

    let (_, page) = place.json("account list --search ACME --limit 1");
    assert_eq!(
        (&page["accounts"][0]["name"], &page["next"]),
        (&Value::from("acme"), &Value::from("acme"))
    );
    let (_, page) = place.json("account list --search acme --after acme");
    assert_eq!(
        (&page["accounts"][0]["name"], page.get("next")),
        (&Value::from("acme-2"), Some(&Value::Null))
    );
    assert!(!place.run("account list").stdout.contains("STATUS"));
    assert_eq!(place.run("account list --search zoe").stdout, "no such accounts\n");

    place.run("key create --account acme");
    let key_list = || {
        let (_, shown) = place.json("key list acme");
        let text = place.run("key list acme").stdout;
        let below = text.lines().last().unwrap().to_owned();
        (shown["account_status"].as_str().unwrap().to_owned(), below)
    };
    let (status, below) = key_list();
    assert!(status == "active" && below.contains("active"), "{status} {below}");
    let (_, suspended) = place.json("account suspend acme");
    assert_eq!(suspended["status"], "suspended");
    assert!(place.run("account list").stdout.contains("suspended"));
    let refused = "acme is suspended: calls with its keys are refused (account_suspended)";
    assert_eq!(key_list(), ("suspended".to_owned(), refused.to_owned()));
    assert_eq!(place.json("account resume acme").1["status"], "active");
    assert_eq!(place.json("account close acme").1["status"], "closed");
    let refused = "acme is closed: calls with its keys are refused (account_closed)";
    assert_eq!(key_list(), ("closed".to_owned(), refused.to_owned()));
    assert!(place.error("account resume acme").contains("cannot be opened again"));
    assert!(place.error("key create --account acme").contains("closed"));
    assert!(place.error("credits add acme 1 --reference Z").contains("closed"));
    assert_eq!(
        place.json("credits correct acme -1 --reference Z --kind refund").1["added"],
        true
    );
    assert_eq!(place.json("usage acme --period all").1["total_requests"], 0);
    assert!(place.error("account suspend nobody").contains("nobody"));
    assert_eq!(place.json("ledger audit").1["balanced"], true);
}

#[test]
fn an_account_is_run_as_a_business_on_the_file() {
    business(&Place::new());
}

#[test]
fn an_account_is_run_as_a_business_through_the_gateway_that_owns_the_file() {
    let place = Place::new();
    let store = Embedded::open(&place.ledger(), Clock::System).unwrap();
    control::listen(&store).unwrap();
    business(&place);
}

#[test]
fn terms_that_are_refused_leave_tier_and_quota_as_they_are() {
    let place = Place::new();
    place.json("account create acme --tier pro");
    let set = |note: &str| format!("account set acme --tier enterprise --monthly-quota 7 --meta note={note}");
    // One that nobody can have, and one that the ledger refuses.
    let outcome = place.run(&set(&"x".repeat(513)));
    assert!(
        outcome.status == 2 && outcome.stderr.contains("values of at most 512 bytes"),
        "{}",
        outcome.stderr
    );
    let error = place.error(&set("x\u{1}"));
    assert!(error.contains("control characters"), "{error}");
    let (_, shown) = place.json("account show acme");
    assert_eq!(
        (&shown["tier"], &shown["own_quota"]),
        (&Value::from("pro"), &Value::from(false))
    );
}

#[test]
fn a_change_is_one_act_whatever_it_names() {
    let place = Place::new();
    place.json("account create acme --tier pro");
    let (_, set) = place.json("account set acme --tier lite --monthly-quota 7 --low-balance 0.5 --meta crm=4711");
    assert_eq!(
        (&set["tier"], &set["metadata"]["crm"]),
        (&Value::from("lite"), &Value::from("4711"))
    );
    let (_, log) = place.json("operator log --account acme");
    let actions = log["acts"].as_array().unwrap().iter().map(|act| &act["action"]);
    assert_eq!(actions.collect::<Vec<_>>(), ["account.set", "account.create"], "{log}");
}

/// Runs a command that changes acme on an owner of an earlier version, which knows no terms beside tier and quota, and answers what changes
/// terms alone by `fails`, if it is to fail.
fn on_an_earlier_owner(place: &Place, words: &str, fails: Option<&str>) -> Outcome {
    let store = Embedded::open(&place.ledger(), Clock::System).unwrap();
    let listener = UnixListener::bind(place.ledger().with_extension("control")).unwrap();
    let fails = fails.map(str::to_owned);
    let owner = std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            if line.is_empty() {
                continue; // A probe.
            }
            if line == NO_MORE {
                return;
            }
            let mut command: Value = serde_json::from_str(&line).unwrap();
            let given = command.get_mut("command").and_then(Value::as_object_mut);
            let is_last = given.is_some_and(|given| {
                given.remove("terms");
                given.get("account_op").is_some_and(|op| op == "terms")
            });
            let answer: Result<AdminReply, AdminError> = match fails.clone().filter(|_| is_last) {
                Some(why) => Err(AdminError::Store(why)),
                None => store.run_blocking(serde_json::from_value(command).unwrap()),
            };
            let answer = serde_json::to_string(&answer).unwrap();
            stream.write_all(format!("{answer}\n").as_bytes()).unwrap();
        }
    });
    let outcome = place.run(words);
    let control = UnixStream::connect(place.ledger().with_extension("control"));
    control.unwrap().write_all(NO_MORE.as_bytes()).unwrap();
    owner.join().unwrap();
    outcome
}

/// Ends the owner.
const NO_MORE: &str = "no more\n";
const ALL_OF_IT: &str = "account set acme --tier enterprise --low-balance 0.5 --meta crm=4711";

#[test]
fn a_gateway_of_an_earlier_version_is_asked_for_the_terms_as_well() {
    let place = Place::new();
    place.json("account create acme --tier pro");
    let outcome = on_an_earlier_owner(&place, ALL_OF_IT, None);
    assert_eq!((outcome.status, outcome.stderr.as_str()), (0, ""));
    let (_, shown) = place.json("account show acme");
    assert_eq!(
        (&shown["tier"], shown["low_balance"].to_string().as_str()),
        (&Value::from("enterprise"), "0.5")
    );
    assert_eq!(shown["metadata"]["crm"], "4711");
}

#[test]
fn a_change_that_an_earlier_gateway_does_half_says_what_is_changed_already() {
    let place = Place::new();
    place.json("account create acme --tier pro");
    let outcome = on_an_earlier_owner(&place, ALL_OF_IT, Some("the disk is full"));
    let error = outcome.stderr;
    assert!(
        outcome.status == 1
            && error.contains("the disk is full (changed already: --tier; perhaps not: --low-balance, --meta)"),
        "{error}"
    );
    let (_, shown) = place.json("account show acme");
    assert_eq!(
        (&shown["tier"], &shown["low_balance"]),
        (&Value::from("enterprise"), &Value::Null)
    );
}

/// It gets none any more.
#[test]
fn a_closed_account_without_keys_is_told_of_no_command_that_makes_one() {
    let place = Place::new();
    place.json("account create acme --tier pro");
    assert!(
        place
            .run("account show acme")
            .stdout
            .ends_with("\nno keys: tollgate key create --account acme\n")
    );
    place.json("account close acme");
    assert!(place.run("account show acme").stdout.ends_with("\n\nno keys\n"));
    assert_eq!(place.run("key list acme").stdout, "no keys, and acme is closed\n");
}
