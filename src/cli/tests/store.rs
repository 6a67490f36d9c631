//! What is said of the address of the ledger: where it may stand, and that nobody is shown its password.

use std::os::unix::fs::PermissionsExt;

use super::*;

/// With this line at the end of its configuration.
fn with(line: &str) -> Place {
    let place = Place::new();
    let conf = std::fs::read_to_string(place.conf()).unwrap() + line + "\n";
    std::fs::write(place.conf(), conf).unwrap();
    place
}

/// What `check` finds, whether or not it passes.
fn findings(place: &Place) -> Value {
    let outcome = place.run("check --json");
    assert!(!format!("{outcome:?}").contains("hunter2"), "{outcome:?}");
    serde_json::from_str(&outcome.stdout).unwrap()
}

#[test]
fn check_warns_of_a_password_in_a_file_that_everybody_may_read() {
    let place = with("store: \"redis://:hunter2@127.0.0.1:1/0\"");
    for (mode, is_warned) in [(0o644, true), (0o600, false)] {
        std::fs::set_permissions(place.conf(), std::fs::Permissions::from_mode(mode)).unwrap();
        let warnings = findings(&place)["warnings"].to_string();
        let says = "tollgate.yaml:6: store: its password can be read by everybody on this machine";
        assert_eq!(warnings.contains(says), is_warned, "{warnings}");
    }
}

#[test]
fn check_says_that_a_new_ledger_will_be_made() {
    let place = Place::new();
    let says = format!("a new ledger will be made at {}", place.ledger().display());
    let is_said = || findings(&place)["passed"].to_string().contains(&says);
    assert!(is_said());
    place.json("account create acme --tier pro");
    assert!(!is_said());
}

#[test]
fn an_address_that_is_not_set_is_an_error_of_what_asks_the_ledger_and_of_nothing_else() {
    let place = with("store_env: TOLLGATE_TEST_NEVER_SET");
    let found = findings(&place);
    let errors = found["errors"].as_array().unwrap().iter().filter_map(Value::as_str);
    let errors: Vec<&str> = errors.filter(|error| error.contains("store")).collect();
    let says = "tollgate.yaml:6: store_env: the environment variable TOLLGATE_TEST_NEVER_SET is not set, or empty";
    assert!(errors.len() == 1 && errors[0].ends_with(says), "{errors:?}");
    let passed = found["passed"].to_string();
    assert!(!passed.contains("ledger: ") && !passed.contains("store"), "{passed}");
    let error = place.error("account list");
    assert!(
        error.contains("the environment variable TOLLGATE_TEST_NEVER_SET, which store_env names, is not set"),
        "{error}"
    );
    assert_eq!(place.run("catalogue check").status, 0);
}

/// A typing error in `store`, or a folder that was moved: an audit of nothing balances.
#[test]
fn a_ledger_that_is_not_there_is_begun_by_the_first_account_or_operator_alone() {
    for begins in ["account create acme --tier pro", "operator create anna --role admin"] {
        let place = Place::new();
        let says = format!("there is no ledger at {}: ", place.ledger().display());
        for words in [
            "account list",
            "account show acme",
            "account set acme --tier pro",
            "account suspend acme",
            "account statement acme",
            "credits add acme 1 --reference A",
            "credits correct acme -1 --reference A",
            "credits list acme",
            "key create --account acme",
            "key list acme",
            "operator list",
            "operator log",
            "usage acme",
            "generations acme",
            "ledger audit",
            "ledger repair",
            "ledger recover",
            "ledger receipts acme",
            "maintenance on",
            "webhook list",
        ] {
            let told = place.error(words);
            assert!(told.starts_with(&format!("error: {says}")), "{words}: {told}");
            let json = place.run(&format!("{words} --json"));
            let told: Value = serde_json::from_str(&json.stderr).unwrap();
            let message = told["error"]["message"].as_str().unwrap();
            assert!(json.status == 1 && message.starts_with(&says), "{words}: {told}");
            assert!(!place.folder.path().join("data").exists(), "{words} has made something");
        }
        let begun = place.run(begins);
        let told = format!(
            "warning: there was no ledger at {}: a new one begins there\n",
            place.ledger().display()
        );
        assert_eq!((begun.status, begun.stderr), (0, told));
        assert_eq!(place.json("ledger audit").1["balanced"], true);
        // Nothing is told of one that is there.
        place.json("account create other --tier pro");
        place.json("operator create bob --role read");
    }
}
