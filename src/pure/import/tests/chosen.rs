//! The defaults of purposes that an import chose: they follow the list, and those that an operator wrote do not.

use super::*;

/// A list of these models, each with two prices.
fn list(ids: &[&str]) -> Imported {
    let model = |id: &&str| {
        serde_json::json!({ "id": id, "name": "A: B", "context_length": 99, "architecture": { "modality": "text->text" },
            "pricing": { "prompt": "0.1", "completion": "0.2" } })
    };
    let models: Vec<serde_json::Value> = ids.iter().map(model).collect();
    imported(&serde_json::json!({ "data": models }).to_string())
}

fn default_of(text: &str, purpose: Purpose) -> String {
    catalogue(text).default_for(purpose).unwrap().id.to_string()
}

#[test]
fn a_default_that_is_gone_falls_to_the_first_model_and_that_is_told() {
    let first = list(&["p/m0", "p/m1", "p/m2"]).into_catalogue("", &rules()).unwrap();
    assert_eq!(default_of(&first, Purpose::Chat), "p/m0");
    // One that is still there stays, wherever it stands in the list.
    let mut moved = list(&["p/m2", "p/m0", "p/m1"]);
    let second = moved.into_catalogue(&first, &rules()).unwrap();
    assert_eq!(default_of(&second, Purpose::Chat), "p/m0");
    assert_eq!(moved.notes, [""; 0]);
    let mut without = list(&["p/m2", "p/m1"]);
    let third = without.into_catalogue(&second, &rules()).unwrap();
    assert_eq!(default_of(&third, Purpose::Chat), "p/m2");
    let told = "purposes.chat: its default p/m0 is no longer sold for it, and p/m2 takes its place";
    assert!(without.notes.iter().any(|note| note == told), "{:?}", without.notes);
    let again = list(&["p/m2", "p/m1"]).into_catalogue(&third, &rules()).unwrap();
    assert_eq!(again, third);
}

#[test]
fn a_default_of_the_rules_that_is_gone_is_told_and_holds_up_nothing() {
    let yaml = include_str!("../../../../conf/import.yaml");
    let named = yaml.replace("defaults: {}", "defaults: { chat: p/m1 }");
    assert_ne!(named, yaml);
    let rules = Rules::parse(&named).unwrap();
    let first = list(&["p/m0", "p/m1"]).into_catalogue("", &rules).unwrap();
    assert_eq!(default_of(&first, Purpose::Chat), "p/m1");
    let mut without = list(&["p/m0"]);
    let second = without.into_catalogue(&first, &rules).unwrap();
    assert_eq!(default_of(&second, Purpose::Chat), "p/m0");
    assert_eq!(
        without.notes,
        ["purposes.chat: its default p/m1 is no longer sold for it, and p/m0 takes its place"]
    );
    let back = list(&["p/m0", "p/m1"]).into_catalogue(&second, &rules).unwrap();
    assert_eq!(default_of(&back, Purpose::Chat), "p/m1");
}

#[test]
fn what_an_operator_wrote_is_not_chosen_again() {
    let first = list(&["p/m0", "p/m1"]).into_catalogue("", &rules()).unwrap();
    // Beside the marks, in the place of the line between them.
    let own = first.replace("  chat: \"p/m0\"\n", "") + "  chat: p/m1\n";
    let next = list(&["p/m0", "p/m1"]).into_catalogue(&own, &rules()).unwrap();
    assert_eq!(next, own);
    assert_eq!(default_of(&next, Purpose::Chat), "p/m1");
    let gone = list(&["p/m0"]).into_catalogue(&own, &rules()).unwrap();
    let error = Catalogue::parse(&gone, Markup::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "purposes.chat: its default p/m1 is not among the models"
    );
    // Without marks all are an operator's.
    let unmarked: String = first
        .lines()
        .filter(|line| !line.contains("hosen from"))
        .map(|line| format!("{line}\n"))
        .collect();
    let kept = list(&["p/m1"]).into_catalogue(&unmarked, &rules()).unwrap();
    assert!(kept.contains("  chat: \"p/m0\"\n"), "{kept}");
}

#[test]
fn marks_of_defaults_that_are_no_pair_are_refused() {
    let first = list(&["p/m0"]).into_catalogue("", &rules()).unwrap();
    for mark in ["--- Chosen from", "--- End of what was chosen"] {
        let cut: String = first
            .lines()
            .filter(|line| !line.contains(mark))
            .map(|line| format!("{line}\n"))
            .collect();
        let error = list(&["p/m0"]).into_catalogue(&cut, &rules()).unwrap_err();
        assert!(error.problem.contains("as a pair"), "{error}");
    }
}

/// One that a list had left out is compared with nothing when it comes back: at a thousandth of its price it became the default at once.
#[test]
fn a_new_model_is_no_default_while_another_can_be_it_when_nobody_looks() {
    let unseen = |ids: &[&str], old: &str, rules: &Rules| {
        let mut list = list(ids);
        list.distrust_new(&catalogue(old));
        (list.into_catalogue(old, rules).unwrap(), list.notes)
    };
    let first = list(&["p/m0", "p/m1"]).into_catalogue("", &rules()).unwrap();
    let (second, notes) = unseen(&["p/new", "p/m1"], &first, &rules());
    assert_eq!(default_of(&second, Purpose::Chat), "p/m1");
    let told = "purposes.chat: its default p/m0 is no longer sold for it, and p/m1 takes its place";
    assert!(notes.iter().any(|note| note == told), "{notes:?}");
    let (alone, _) = unseen(&["p/new"], &first, &rules());
    assert_eq!(default_of(&alone, Purpose::Chat), "p/new", "no other serves it");

    let yaml = include_str!("../../../../conf/import.yaml");
    let named = Rules::parse(&yaml.replace("defaults: {}", "defaults: { chat: p/m1 }")).unwrap();
    let without = list(&["p/m0"]).into_catalogue("", &named).unwrap();
    let (back, notes) = unseen(&["p/m0", "p/m1"], &without, &named);
    assert_eq!(default_of(&back, Purpose::Chat), "p/m0");
    let told = "purposes.chat: its default p/m1 is new and waits for the next import, and p/m0 takes its place";
    assert_eq!(notes, [told]);
    let (next, notes) = unseen(&["p/m0", "p/m1"], &back, &named);
    assert_eq!(
        (default_of(&next, Purpose::Chat).as_str(), notes.len()),
        ("p/m1", 0),
        "it is known by then"
    );
}

#[test]
fn a_new_model_that_costs_nothing_is_left_out_when_nobody_looks() {
    let old = imported(&openrouter_list(20, 0)).into_catalogue("", &rules()).unwrap();
    let old = catalogue(&old);
    let free = [openrouter_id(5), openrouter_id(27)];
    let mut new = imported(&openrouter_list(40, 0));
    let before = new.models.len();
    new.distrust_new(&old);
    assert_eq!(
        new.models.len(),
        before - 1,
        "the one that is known stays, as do those of vectors"
    );
    assert!(new.models.iter().any(|model| model.id == free[0]));
    let left_out = new.skipped.iter().find(|skipped| skipped.model == free[1]).unwrap();
    assert_eq!(
        left_out.reason,
        "it is new and costs nothing: import it by hand if that is right"
    );
}
