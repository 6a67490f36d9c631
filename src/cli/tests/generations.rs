//! `tollgate generations` and usage of chosen days, on the file and through its owner's socket.

use std::collections::BTreeMap;

use super::*;
use crate::pure::time::Day;

/// A place whose account acme has three calls of today, two of a first key and one of a second; and the gateway, where there is one.
fn calls(to_gateway: bool) -> (Place, Option<Arc<Embedded>>, [String; 2]) {
    let place = Place::new();
    place.json("account create acme --tier pro");
    place.json("credits add acme 10 --reference A");
    let keys = [0, 1].map(|_| place.json("key create --account acme").1);
    let store = Embedded::open(&place.ledger(), Clock::System).unwrap();
    if to_gateway {
        control::listen(&store).unwrap();
    }
    let ledger = Ledger::Embedded(Arc::clone(&store));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for (number, key) in [(1, 0), (2, 0), (3, 1)] {
        let text = keys[key]["key"].as_str().unwrap();
        let digest = ApiKey::parse("tg_", text).unwrap().digest();
        let found = runtime.block_on(ledger.authenticate(&digest)).unwrap().unwrap();
        spend(&found.checked(Clock::System.now()).unwrap(), number, "a/b", "0.25");
    }
    drop(ledger);
    let ids = keys.map(|key| key["id"].as_str().unwrap().to_owned());
    (place, to_gateway.then_some(store), ids)
}

#[test]
fn generations_are_shown_page_by_page() {
    for to_gateway in [true, false] {
        let (place, _store, _) = calls(to_gateway);
        let first = place.json("generations acme --limit 2").1;
        let ids = |shown: &Value| {
            let receipts = shown["receipts"].as_array().unwrap();
            receipts
                .iter()
                .map(|receipt| receipt["id"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        let next = first["next"].as_str().unwrap();
        let second = place.json(&format!("generations acme --limit 2 --before {next}")).1;
        let mut all = ids(&first);
        all.extend(ids(&second));
        let expected = [3, 2, 1].map(|number| RequestId::from_bytes([number; 16]).to_string());
        assert_eq!((all, second.get("next")), (expected.to_vec(), Some(&Value::Null)));
        let text = place.run("generations acme --limit 2").stdout;
        let (shown, before) = text.split_once("older ones: --before ").unwrap();
        let third = place
            .json(&format!("generations acme --limit 2 --before {}", before.trim_end()))
            .1;
        assert_eq!(third["receipts"], second["receipts"], "{text}");
        // By its older name, the same.
        assert!(place.run("ledger receipts acme --limit 2").stdout.starts_with(shown));
        assert!(place.error("generations nobody").contains("no account is named nobody"));
    }
}

#[test]
fn usage_is_of_chosen_days_by_model_key_or_day() {
    for to_gateway in [true, false] {
        let (place, _store, keys) = calls(to_gateway);
        let today = Clock::System.now().day();
        let day = |ago: i64| Day(today.0 - ago).to_string();
        let chosen = format!("usage acme --from {} --to {}", day(1), day(0));
        let (_, by_key) = place.json(&format!("{chosen} --by key"));
        assert_eq!(
            (&by_key["period"], &by_key["from"], &by_key["to"]),
            (&Value::Null, &day(1).into(), &day(0).into())
        );
        let sums: BTreeMap<&str, u64> = by_key["by_key"]
            .as_array()
            .unwrap()
            .iter()
            .map(|line| (line["key"].as_str().unwrap(), line["requests"].as_u64().unwrap()))
            .collect();
        assert_eq!(sums, BTreeMap::from([(keys[0].as_str(), 2), (keys[1].as_str(), 1)]));
        assert_eq!(by_key["total_cost"], 0.75);
        let table = place.run(&format!("{chosen} --by day")).stdout;
        assert!(
            table.contains(&format!("{} to {}: 1 day", day(1), day(0))) && table.contains("\nDAY "),
            "{table}"
        );
        let of_one = place.json(&format!("{chosen} --by key --key {}", keys[1])).1;
        assert_eq!(
            (&of_one["total_requests"], of_one["by_key"].as_array().unwrap().len()),
            (&Value::from(1), 1)
        );
        let none = place.run(&format!("usage acme --to {}", day(1))).stdout;
        assert_eq!(none, format!("acme has used nothing from 1970-01-01 to {}\n", day(1)));
        // A member that was asked for is there, also where it has nothing in it, and another is not.
        for (by, is, is_not) in [("key", "by_key", "by_end_user"), ("end_user", "by_end_user", "by_key")] {
            let (_, none) = place.json(&format!("usage acme --to {} --by {by}", day(1)));
            assert_eq!(
                (none.get(is), none.get(is_not)),
                (Some(&Value::Array(Vec::new())), None)
            );
        }
        let turned = place.run(&format!("usage acme --from {}", day(-1)));
        assert!(turned.status == 2 && turned.stderr.contains("is after"), "{turned:?}");
        assert_eq!(place.run(&format!("{chosen} --period 7d")).status, 2);
        assert_eq!(place.run("usage acme --by user").status, 2);
    }
}

/// The totals were those of the keys' rows, and an account whose calls were all of before seemed to have used nothing.
#[test]
fn calls_of_before_usage_was_counted_by_key_are_in_the_totals() {
    let (place, _, keys) = calls(false);
    let forget = |which: &str| {
        let ledger = rusqlite::Connection::open(place.ledger()).unwrap();
        ledger.execute_batch(&format!("DELETE FROM key_usage {which}")).unwrap();
    };
    // Of the last days: the test may run over midnight.
    let asked = "usage acme --period 7d --by key";
    let in_none = |calls: &str| {
        format!(
            "usage was not counted by key yet for {calls}, or they were billed meanwhile: they are in no key's sums\n"
        )
    };
    for (which, of_keys, calls) in [
        (format!("WHERE key = '{}'", keys[1]), 1, "1 call"),
        (String::new(), 0, "3 calls"),
    ] {
        forget(&which);
        let (_, usage) = place.json(asked);
        let found = (
            &usage["total_requests"],
            &usage["by_model"][0]["requests"],
            usage["by_key"].as_array().unwrap().len(),
        );
        assert_eq!(found, (&Value::from(3), &Value::from(3), of_keys));
        let text = place.run(asked).stdout;
        assert!(text.ends_with(&in_none(calls)), "{text}");
    }
}

#[test]
fn usage_is_told_by_end_user() {
    for to_gateway in [true, false] {
        let place = Place::new();
        place.json("account create acme --tier pro");
        place.json("credits add acme 10 --reference A");
        let (_, key) = place.json("key create --account acme");
        let digest = ApiKey::parse("tg_", key["key"].as_str().unwrap()).unwrap().digest();
        let store = Embedded::open(&place.ledger(), Clock::System).unwrap();
        if to_gateway {
            control::listen(&store).unwrap();
        }
        let ledger = Ledger::Embedded(Arc::clone(&store));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let found = runtime.block_on(ledger.authenticate(&digest)).unwrap().unwrap();
        let caller = found.checked(Clock::System.now()).unwrap();
        for (number, end_user) in [(1, Some("anna")), (2, None), (3, Some("anna"))] {
            let details = CallDetails {
                end_user: end_user.map(Box::from),
                ..CallDetails::default()
            };
            let id = RequestId::from_bytes([number; 16]);
            spend_as(&caller, id, "a/b", "0.25", Some(Box::new(details)));
        }
        drop((ledger, caller));
        let store = to_gateway.then_some(store);
        // Of the last days: the test may run over midnight.
        let (_, usage) = place.json("usage acme --period 7d --by end_user");
        let lines = usage["by_end_user"].as_array().unwrap();
        let figures = lines
            .iter()
            .map(|line| (&line["end_user"], &line["requests"], &line["cost"]));
        let figures: Vec<_> = figures.collect();
        assert_eq!(
            figures,
            [
                (&Value::from("anna"), &Value::from(2), &Value::from(0.5)),
                (&Value::Null, &Value::from(1), &Value::from(0.25))
            ]
        );
        assert_eq!(usage["total_cost"], 0.75);
        let table = place.run("usage acme --period 7d --by end-user").stdout;
        assert!(table.contains("\nEND USER ") && table.contains("\nanna "), "{table}");
        assert!(!table.contains("no receipt"), "{table}");
        let id = RequestId::from_bytes([3; 16]);
        let facts = place.run(&format!("generations acme --id {id}")).stdout;
        let is_named = |line: &str| line.starts_with("end user ") && line.ends_with(" anna");
        assert!(facts.lines().any(is_named), "{facts}");
        let nobody = place.error("usage nobody --by end_user");
        assert!(nobody.contains("no account is named nobody"), "{nobody}");
        drop(store);
    }
}
