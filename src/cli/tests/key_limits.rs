//! `key create` and `key set` with what sets a key apart, on the file and through the socket of its owner.

use std::sync::Arc;

use super::Place;
use crate::clock::Clock;
use crate::ledger::control;
use crate::ledger::embedded::Embedded;

#[test]
fn a_key_is_set_apart_and_back_on_the_file_and_through_its_owner() {
    let place = Place::new();
    place.json("account create acme --tier pro");
    let words =
        "key create --account acme --label ci --limit 2.50 --limit-reset weekly --model a/* --address 10.0.0.0/8";
    let (_, made) = place.json(words);
    let id = made["id"].as_str().unwrap();
    let shown = |rules: &str| {
        let list = place.run("key list acme").stdout;
        let last = list.lines().last().unwrap().trim().to_owned();
        assert_eq!(last, rules, "{list}");
    };
    shown(r#"label "ci", limit 2.5 weekly, model a/*, from 10.0.0.0/8"#);
    let (text, _) = place.json(&format!(
        "key set {id} --limit 3 --end-user-limit 0.000000000001 --model a/b --model a/spare"
    ));
    assert!(
        text.contains("\"end_user_limit\":0.000000000001,\"end_user_limit_reset\":\"none\""),
        "{text}"
    );
    shown(r#"label "ci", limit 3 weekly, end user limit 0.000000000001, model a/b, model a/spare, from 10.0.0.0/8"#);

    let store = Embedded::open(&place.ledger(), Clock::System).unwrap();
    control::listen(&store).unwrap();
    let outcome = place.run(&format!(
        "key set {id} --limit none --end-user-limit none --model none --address ::1"
    ));
    assert_eq!((outcome.status, outcome.stderr.as_str()), (0, ""));
    shown(r#"label "ci", from ::1"#);
    let unchanged = place.run(&format!("key set {id}"));
    assert!(
        unchanged.status == 2 && unchanged.stderr.contains("nothing to change"),
        "{unchanged:?}"
    );
    assert!(
        place
            .error(&format!("key set {id} --limit-reset daily"))
            .contains("no limit to reset")
    );
    assert!(
        place
            .error("key set key_0123456789abcdef --limit 1")
            .contains("no such key")
    );
    for bad in [
        "--limit -1",
        "--limit x",
        "--limit-reset yearly",
        "--model a*b",
        "--address 10.0.0.1/8",
    ] {
        let outcome = place.run(&format!("key set {id} {bad}"));
        assert_eq!(outcome.status, 2, "{bad}: {outcome:?}");
    }
    drop(Arc::clone(&store));
}

/// It may be on its way into the catalogue, or a slip.
#[test]
fn a_model_that_the_catalogue_does_not_have_is_warned_of() {
    let place = Place::new();
    place.json("account create acme --tier pro");
    let (_, made) = place.json("key create --account acme --model a/b --model a/s*");
    let id = made["id"].as_str().unwrap();
    for words in [
        "key create --account acme --model nosuch/model --model a/b".to_owned(),
        format!("key set {id} --model nosuch/model"),
    ] {
        let outcome = place.run(&words);
        assert_eq!(outcome.status, 0, "{outcome:?}");
        let warning = "catalogue.yaml is meant by nosuch/model\n";
        assert!(
            outcome.stderr.starts_with("warning: no model of ") && outcome.stderr.ends_with(warning),
            "{outcome:?}"
        );
        assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:?}");
        let json = place.run(&format!("{words} --json")).stderr;
        assert!(json.starts_with("{\"warning\":{\"message\":\"no model of "), "{json}");
    }
    // Without a catalogue that can be read there is nothing to compare.
    std::fs::write(place.folder.path().join("catalogue.yaml"), "models: 1\n").unwrap();
    place.json("key create --account acme --model nosuch/model");
}
