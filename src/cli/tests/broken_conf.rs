//! Commands beside a configuration that has a mistake: what only needs the ledger goes on.

use super::*;

/// A typing error in a provider kept an operator from stopping a stolen key.
#[test]
fn a_mistake_elsewhere_takes_no_command_about_the_ledger_away() {
    let place = Place::new();
    let good = std::fs::read_to_string(place.conf()).unwrap();
    let _made = place.json("account create acme --tier pro");
    for mistake in [
        "webhooks: [ { url: here } ]\n",
        "drain_seconds: soon\n",
        "timeouts: { conect_ms: 5 }\n",
    ] {
        std::fs::write(place.conf(), format!("{good}{mistake}")).unwrap();
        for words in [
            "account show acme",
            "key create --account acme",
            "usage acme",
            "ledger audit",
        ] {
            let outcome = place.run(words);
            assert_eq!(outcome.status, 0, "{words}: {}", outcome.stderr);
            assert!(!outcome.stdout.is_empty(), "{words}");
            let told = outcome
                .stderr
                .strip_prefix("warning: ")
                .unwrap_or_else(|| panic!("{words}: {outcome:?}"));
            assert!(
                told.contains("tollgate.yaml:6: ") && told.lines().count() == 1,
                "{words}: {told}"
            );
        }
        let outcome = place.run("account show acme --json");
        let told: Value = serde_json::from_str(&outcome.stderr).unwrap();
        assert!(told["warning"]["message"].is_string(), "{told}");
        // What runs by the whole file does not.
        for words in ["serve", "check", "catalogue check", "webhook list"] {
            assert!(place.run(words).stderr.starts_with("error: "), "{words}");
        }
    }
    std::fs::write(place.conf(), good).unwrap();
    assert_eq!(place.run("account show acme").stderr, "");
}

/// Runs `tollgate` with a configuration that comes through a pipe.
fn piped(text: &str, words: &str) -> Outcome {
    let (reader, mut writer) = std::io::pipe().unwrap();
    std::io::Write::write_all(&mut writer, text.as_bytes()).unwrap();
    drop(writer);
    let number = std::os::fd::AsRawFd::as_raw_fd(&reader);
    tollgate(&format!("{words} --conf /proc/self/fd/{number}"))
}

/// It told the first of them, for the pipe had nothing left.
#[test]
fn a_check_tells_each_mistake_of_a_configuration_from_a_pipe() {
    let good = std::fs::read_to_string(Place::new().conf()).unwrap();
    let told = piped(&format!("{good}markup: \"two\"\ndrain_seconds: soon\n"), "check").stderr;
    for key in ["markup", "drain_seconds"] {
        assert!(told.contains(key), "{key}: {told}");
    }
}

/// What writes into the pipe had failed, and the command worked on the ledger of the defaults, in the folder that it was run in.
#[test]
fn a_pipe_with_nothing_in_it_is_no_configuration() {
    for text in ["", "\n"] {
        for words in ["account list", "check", "catalogue check"] {
            let refused = piped(text, words);
            assert_ne!(refused.status, 0, "{words}");
            let told = refused.stderr;
            assert!(told.contains("it is a pipe with nothing in it"), "{words}: {told}");
        }
    }
}

/// The pipe was read a second time, and the command worked on the ledger of the defaults, in the folder that it was run in.
#[test]
fn a_mistake_in_a_configuration_from_a_pipe_leads_to_no_other_ledger() {
    let place = Place::new();
    let good = std::fs::read_to_string(place.conf()).unwrap();
    let refused = piped(&format!("{good}store: \"mysql://x\"\n"), "account list");
    assert_eq!((refused.status, refused.stdout.as_str()), (1, ""), "{}", refused.stderr);
    let _made = place.json("account create acme --tier pro");
    let wrong = format!("{good}markup: \"two\"\n");
    let shown = piped(&wrong, "account show acme");
    assert_eq!(shown.status, 0, "{}", shown.stderr);
    assert!(shown.stdout.contains("acme"), "{}", shown.stdout);
    assert!(
        shown.stderr.starts_with("warning: ") && shown.stderr.contains("markup"),
        "{}",
        shown.stderr
    );
    assert_eq!(piped(&wrong, "account create beta --tier pro").status, 0);
    assert_eq!(place.run("account show beta").status, 0);
}

/// It stands for the defaults where it is the whole file, and not where the file was read before and had a mistake.
#[test]
fn a_text_that_says_nothing_names_no_ledger() {
    let sound = |text: &str| mistakes::sound_for_ledger(Path::new("t.yaml"), text, &|_| None);
    for text in ["", "\n", "# nothing\n", "{}\n"] {
        assert!(sound(text).is_none(), "{text:?}");
    }
    let config = sound("data_dir: here\nmarkup: two\n").unwrap();
    assert_eq!(config.data_dir, Path::new("here"));
}

/// They would work on another ledger, or make keys that no gateway takes.
#[test]
fn a_mistake_in_what_says_where_the_ledger_is_refuses_every_command() {
    let place = Place::new();
    let good = std::fs::read_to_string(place.conf()).unwrap();
    for mistake in [
        "sotre: \"redis://127.0.0.1:1/0\"\n",
        "store: \"mysql://x\"\n",
        "admin_listen: here\n",
        "key_prefix: \"\"\n",
        "tiers: { gold: { rpm: 1 } }\n",
        "currency: [EUR]\n",
        "timeouts: [\n",
    ] {
        std::fs::write(place.conf(), format!("{good}{mistake}")).unwrap();
        for words in ["account list", "top"] {
            let told = place.error(words);
            assert!(
                told.starts_with("error: ") && told.contains("tollgate.yaml"),
                "{mistake}: {told}"
            );
        }
    }
    // This one reads none. Nobody listens there.
    let told = place.error("top --json --admin 127.0.0.1:1");
    assert!(
        told.contains("no gateway answers at admin_listen (127.0.0.1:1)"),
        "{told}"
    );
}

/// It was an error for each model of the catalogue.
#[test]
fn a_configuration_without_providers_is_one_mistake() {
    let place = Place::new();
    let good = std::fs::read_to_string(place.conf()).unwrap();
    let (rest, _) = good.split_once("providers:").unwrap();
    std::fs::write(place.conf(), rest).unwrap();
    for words in ["check", "catalogue check"] {
        let told = place.run(words).stderr;
        let told: Vec<&str> = told.lines().filter(|line| line.contains("provider")).collect();
        assert_eq!(told.len(), 1, "{words}: {told:?}");
        assert!(
            told[0].contains("tollgate.yaml: providers: there is none"),
            "{words}: {told:?}"
        );
    }
}
