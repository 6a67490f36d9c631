//! `key create` and `key set` with what sets a key apart, on the file and through the socket of its owner.

use super::*;

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

/// What a new key has left of its limit is explained: by the key that it counts as, and by what all of them have spent.
#[test]
fn the_keys_of_a_rotation_are_shown_together_on_the_file_and_through_its_owner() {
    for to_gateway in [true, false] {
        let place = Place::new();
        place.json("account create acme --tier pro");
        place.json("credits add acme 10 --reference A");
        let (_, old) = place.json("key create --account acme --limit 2.5 --limit-reset monthly");
        let (_, other) = place.json("key create --account acme --limit 1");
        let (old_id, other_id) = (old["id"].as_str().unwrap(), other["id"].as_str().unwrap());
        let store = Embedded::open(&place.ledger(), Clock::System).unwrap();
        let ledger = Ledger::Embedded(Arc::clone(&store));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let digest = ApiKey::parse("tg_", old["key"].as_str().unwrap()).unwrap().digest();
        let found = runtime.block_on(ledger.authenticate(&digest)).unwrap().unwrap();
        let caller = found.checked(Clock::System.now()).unwrap();
        spend_as(&caller, Clock::System.request_id(), "a/b", "0.25", None);
        drop((ledger, caller));
        // Through its socket, or once it is closed.
        let owner = to_gateway.then(|| {
            control::listen(&store).unwrap();
            Arc::clone(&store)
        });
        drop(store);
        let (_, new) = place.json(&format!("key rotate {old_id} --overlap 1h"));
        let new_id = new["id"].as_str().unwrap();

        let (_, list) = place.json("key list acme");
        let of = |id: &str| {
            let keys = list["keys"].as_array().unwrap();
            keys.iter().find(|key| key["id"] == id).unwrap().clone()
        };
        assert_eq!(of(new_id)["counts_as"], old_id);
        assert_eq!(
            (of(old_id).get("counts_as"), of(other_id).get("counts_as")),
            (None, None)
        );
        let text = place.run("key list acme").stdout;
        assert!(
            text.contains(&format!("limit 2.5 monthly, counts as {old_id}\n")),
            "{text}"
        );

        for (id, with) in [(new_id, old_id), (old_id, new_id)] {
            let (text, usage) = place.json(&format!("usage acme --key {id}"));
            assert_eq!(usage["counts_with"], serde_json::json!([with]), "{text}");
            assert!(
                text.contains(r#""limit":{"amount":2.5,"reset":"monthly","spent":0.25,"held":0}"#),
                "{text}"
            );
            let shown = place.run(&format!("usage acme --key {id}")).stdout;
            assert!(shown.contains("\nlimit 2.5 monthly: 0.25 is spent, 0 held"), "{shown}");
            assert!(shown.contains(&format!("\ncounts with {with}: ")), "{shown}");
        }
        let apart = place.run(&format!("usage acme --key {other_id}")).stdout;
        let expected = format!(
            "{other_id} of acme has used nothing in the period today\nlimit 1: 0 is spent, 0 held by running calls\n"
        );
        assert_eq!(apart, expected);
        let (_, all) = place.json("usage acme");
        assert_eq!((all.get("limit"), all.get("counts_with")), (None, None::<&Value>));
        drop(owner);
    }
}
