//! What is known of a target's credential.

use std::path::Path;

use serde_json::{Value, json};

use super::*;
use crate::config::Config;
use crate::gateway::snapshot::Snapshot;
use crate::gateway::upstream::providers::Upstreams;
use crate::pure::time::Timestamp;

/// The state of files with two models that are one at their provider, whose headers are these, in force.
fn load(folder: &Path, upstreams: &Upstreams, key: &str, headers: Value) -> Snapshot {
    let snapshot = read(folder, upstreams, key, headers);
    snapshot.comes_into_force();
    snapshot
}

/// The same, not in force.
fn read(folder: &Path, upstreams: &Upstreams, key: &str, headers: Value) -> Snapshot {
    let model = |id: &str| {
        json!({
            "id": id, "name": id, "provider": "A", "context_length": 100_000, "max_completion_tokens": 1_000,
            "modality": "text->text", "pricing": { "prompt": "0", "completion": "0" }, "tier": "free", "purposes": ["chat"],
            "targets": [{ "provider": "main", "model": "theirs" }],
        })
    };
    let catalogue = json!({ "models": [model("a/one"), model("a/two")], "purposes": { "chat": "a/one" } });
    let file = folder.join("catalogue.yaml");
    std::fs::write(&file, catalogue.to_string()).unwrap();
    let conf = json!({
        "markup": "1", "catalogue": file.to_str(), "data_dir": folder.to_str(),
        "providers": { "main": { "base_url": "http://127.0.0.1:1/v1", "api_key_env": "KEY", "headers": headers } },
    });
    let config = Config::parse(Path::new("t.yaml"), &conf.to_string(), &|_| Some(key.to_owned())).unwrap();
    Snapshot::load(config, upstreams).unwrap()
}

fn target(snapshot: &Snapshot, model: &str) -> Candidate {
    let clock = Clock::manual(Timestamp(1_000_000));
    snapshot.next_target(model, &[], || None, &clock).unwrap().0
}

/// Each model of the catalogue had one of its own, which a reload set back.
#[test]
fn a_refused_credential_is_known_of_the_target_until_an_answer_or_another_credential() {
    let (folder, upstreams) = (tempfile::tempdir().unwrap(), Upstreams::default());
    let load = |key: &str, headers: Value| load(folder.path(), &upstreams, key, headers);
    let first = load("one", json!({}));
    assert!(target(&first, "a/one").note_credential_refused(true), "it is new");
    assert!(!target(&first, "a/two").note_credential_refused(true), "it is known");
    let again = load("one", json!({}));
    for model in ["a/one", "a/two"] {
        assert!(target(&again, model).refuses_credential(), "{model}");
        assert!(again.all_refuse_credential(model), "{model}");
    }
    for (key, headers) in [("two", json!({})), ("one", json!({ "x-api-key": "two" }))] {
        let other = load(key, headers);
        assert!(
            !target(&other, "a/one").refuses_credential(),
            "nothing was said of this one"
        );
        assert!(
            !target(&other, "a/one").note_credential_refused(false),
            "nor is it news"
        );
    }
    let back = load("one", json!({}));
    assert!(target(&back, "a/one").refuses_credential());
    assert!(target(&back, "a/two").note_credential_refused(false));
    assert!(!target(&back, "a/one").refuses_credential());
}

/// One that was refused with the credential from before had it forgotten that the new one is refused, too: no alarm told of that.
#[test]
fn an_answer_to_a_call_from_before_a_reload_says_nothing_of_the_credential_since() {
    let (folder, upstreams) = (tempfile::tempdir().unwrap(), Upstreams::default());
    let load = |key: &str| target(&load(folder.path(), &upstreams, key, json!({})), "a/one");
    let (before, now) = (load("one"), load("two"));
    assert!(now.note_credential_refused(true));
    for refused in [true, false] {
        assert!(!before.note_credential_refused(refused), "{refused}");
        assert!(now.refuses_credential(), "{refused}");
    }
    assert!(!before.refuses_credential());
    assert!(now.note_credential_refused(false));
}

/// A reload waits for names before it is in force: meanwhile answers to all calls were dropped, and for good where it never was.
#[test]
fn a_configuration_that_is_not_in_force_changes_nothing_of_what_is_noted() {
    let (folder, upstreams) = (tempfile::tempdir().unwrap(), Upstreams::default());
    let now = load(folder.path(), &upstreams, "one", json!({}));
    let next = read(folder.path(), &upstreams, "two", json!({}));
    assert!(!target(&next, "a/one").note_credential_refused(true));
    assert!(target(&now, "a/one").note_credential_refused(true));
    next.comes_into_force();
    assert!(!target(&now, "a/one").note_credential_refused(false));
    assert!(target(&next, "a/two").note_credential_refused(true));
}
