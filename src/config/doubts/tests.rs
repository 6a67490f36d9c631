//! What is doubted of a configuration and its catalogue, and what is not.

use std::fs::{Permissions, set_permissions, write};

use super::*;

/// What is said of a configuration whose file has this mode.
fn doubts(text: &str, mode: u32) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tollgate.yaml");
    write(&path, text).unwrap();
    set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    let environment = |name: &str| (name == "SET").then(|| "redis://:hunter2@127.0.0.1".to_owned());
    let config = Config::parse(&path, text, &environment).unwrap();
    let place = folder.path().display().to_string();
    let told = of_config(&config).into_iter();
    told.map(|doubt| doubt.to_string().replace(&place, "")).collect()
}

#[test]
fn a_password_of_redis_in_a_file_that_everybody_may_read_is_a_doubt() {
    let with = "threads: 2\nstore: \"redis://:hunter2@127.0.0.1\"\n";
    for (mode, shown) in [(0o644, "644"), (0o604, "604")] {
        let [told] = doubts(with, mode).try_into().unwrap();
        assert!(told.starts_with("/tollgate.yaml:2: store: its password "), "{told}");
        assert!(
            told.contains(&format!("the mode {shown}: ")) && !told.contains("hunter2"),
            "{told}"
        );
    }
    assert_eq!(doubts(with, 0o640), [""; 0], "others may not read it");
    for without in [
        "store: \"redis://127.0.0.1\"",
        "store_env: SET",
        "store: \"sqlite://a:b@c\"",
    ] {
        assert_eq!(doubts(without, 0o644), [""; 0], "{without}");
    }
    let both = format!("{with}currency: euro\n");
    assert_eq!(doubts(&both, 0o644).len(), 2, "each doubt is told");
}

#[test]
fn proxies_anywhere_are_a_doubt() {
    for all in ["0.0.0.0/0", "::/0"] {
        let text = format!("threads: 2\ntrusted_proxies: [10.0.0.0/8, \"{all}\"]\n");
        let [told] = doubts(&text, 0o644).try_into().unwrap();
        let says = format!("/tollgate.yaml:2: trusted_proxies: by {all} X-Forwarded-For is believed from everybody");
        assert!(told.starts_with(&says), "{told}");
    }
    assert_eq!(doubts("trusted_proxies: [10.0.0.0/8, \"fd00::/8\"]", 0o644), [""; 0]);
}

#[test]
fn a_list_of_one_provider_for_the_models_of_another_is_a_doubt() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("import.yaml");
    write(&rules, "provider: p\ntiers: [ { tier: free } ]\n").unwrap();
    let text = |provider: &str| {
        let providers = "providers: { p: { base_url: 'http://p/v1' }, q: { base_url: 'http://q/v1' } }";
        let refresh = format!("provider: {provider}, every_minutes: 60, rules: '{}'", rules.display());
        format!("{providers}\ncatalogue_refresh: {{ {refresh} }}\n")
    };
    assert_eq!(doubts(&text("p"), 0o644), [""; 0]);
    let [told] = doubts(&text("q"), 0o644).try_into().unwrap();
    assert!(
        told.starts_with("/tollgate.yaml:2: catalogue_refresh: the list is that of q, and by "),
        "{told}"
    );
    assert!(told.ends_with("are those of p, sold at that list's prices"), "{told}");
}

#[test]
fn a_markup_of_2_or_more_is_probably_a_percentage() {
    let [told] = doubts("threads: 2\nmarkup: \"15\"\n", 0o644).try_into().unwrap();
    assert_eq!(
        told,
        "/tollgate.yaml:2: markup: customers pay 15 times the provider's price; 15 % is \"1.15\""
    );
    assert!(
        doubts("markup: \"2.50\"", 0o644)
            .concat()
            .contains("2.5 % is \"1.025\"")
    );
    for good in ["1", "1.15", "1.999999"] {
        assert_eq!(doubts(&format!("markup: \"{good}\""), 0o644), [""; 0], "{good}");
    }
}

#[test]
fn figures_of_a_model_that_do_not_fit_together_are_told_with_their_line() {
    let folder = tempfile::tempdir().unwrap();
    let (path, catalogue) = (
        folder.path().join("tollgate.yaml"),
        folder.path().join("catalogue.yaml"),
    );
    let conf = format!(
        "catalogue: {}\nproviders: {{ p: {{ base_url: 'http://127.0.0.1:1/v1' }} }}\n",
        catalogue.display()
    );
    let config = Config::parse(&path, &conf, &|_| None).unwrap();
    let told = |max: &str, completion: &str, modality: &str| {
        let text = format!(
            "models:\n  - id: a/b\n    name: B\n    provider: P\n    context_length: 9\n    max_completion_tokens: {max}\n    \
             modality: {modality}\n    pricing:\n      prompt: \"0.000001\"\n      completion: \"{completion}\"\n    \
             tier: lite\n    purposes: []\n    targets: [ {{ provider: p, model: m }} ]\n"
        );
        write(&catalogue, &text).unwrap();
        let told = of_catalogue(&config, &config.catalogue_of(&text).unwrap());
        let folder = format!("{}/catalogue.yaml:", folder.path().display());
        let told = told.iter().map(|doubt| doubt.to_string().replace(&folder, ""));
        told.collect::<Vec<_>>()
    };
    assert_eq!(told("9", "0.000001", "text->text"), [""; 0]);
    assert_eq!(told("0", "0", "text->embedding"), [""; 0]);
    let [max] = told("10", "0.000001", "text->text").try_into().unwrap();
    assert!(
        max.starts_with("6: a/b: max_completion_tokens is 10, and context_length 9"),
        "{max}"
    );
    let [free] = told("9", "0", "text->text").try_into().unwrap();
    assert!(free.starts_with("10: a/b: pricing.completion is 0"), "{free}");
}

/// They are sold below what the provider asks: it asks more for these than for others, in long prompts and tiers too.
#[test]
fn kinds_that_a_dearer_row_leaves_out_are_told_where_they_fall_below_their_side() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tollgate.yaml");
    let catalogue = folder.path().join("catalogue.yaml");
    let conf = format!(
        "markup: \"1\"\ncatalogue: {}\nproviders: {{ p: {{ base_url: 'http://127.0.0.1:1/v1' }} }}\n",
        catalogue.display()
    );
    let config = Config::parse(&path, &conf, &|_| None).unwrap();
    let told = |kinds: &str, long: &str, tier: &str| {
        let text = format!(
            "models:\n  - id: a/b\n    name: B\n    provider: P\n    context_length: 900\n    max_completion_tokens: 5\n    \
             modality: text->text\n    pricing:\n      prompt: \"0.000003\"\n      completion: \"0.000015\"\n{kinds}      \
             overrides:\n        - min_prompt_tokens: 200\n          prompt: \"0.000006\"\n{long}      \
             tiers:\n        priority:\n          completion: \"0.00003\"\n{tier}    \
             tier: lite\n    purposes: [chat]\n    targets: [ {{ provider: p, model: m }} ]\n"
        );
        write(&catalogue, &text).unwrap();
        let told = of_catalogue(&config, &config.catalogue_of(&text).unwrap());
        let folder = format!("{}/catalogue.yaml:", folder.path().display());
        let told = told.iter().map(|doubt| doubt.to_string().replace(&folder, ""));
        told.collect::<Vec<_>>()
    };
    assert_eq!(told("", "", ""), [""; 0]);
    let read = "      input_cache_read: \"0.0000003\"\n";
    assert_eq!(told(read, "", ""), [""; 0], "it is below its side anywhere");
    let write = "      input_cache_write: \"0.00000375\"\n";
    assert_eq!(
        told(write, "", ""),
        [
            "14: a/b: pricing.overrides.input_cache_write is the 0.00000375 of other calls, for it is left out, and prompt 0.000006: say what it \
          costs there"
        ]
    );
    assert_eq!(told(write, "          input_cache_write: \"0.0000075\"\n", ""), [""; 0]);
    let reasoning = "      internal_reasoning: \"0.000015\"\n";
    let [tier] = told(reasoning, "", "").try_into().unwrap();
    assert!(
        tier.starts_with("17: a/b: pricing.tiers.priority.internal_reasoning is the 0.000015 of other calls"),
        "{tier}"
    );
    let dearer = "          internal_reasoning: \"0.00003\"\n";
    assert_eq!(told(reasoning, "", dearer), [""; 0]);
}

/// Of whatever row it is, each where it stands; what a row leaves out is told once.
#[test]
fn a_price_of_a_million_is_told_in_every_row_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tollgate.yaml");
    let catalogue = folder.path().join("catalogue.yaml");
    let conf = format!(
        "catalogue: {}\nproviders: {{ p: {{ base_url: 'http://127.0.0.1:1/v1' }} }}\n",
        catalogue.display()
    );
    let config = Config::parse(&path, &conf, &|_| None).unwrap();
    let good = "\
models:
  - id: a/b
    name: B
    provider: P
    context_length: 501
    max_completion_tokens: 5
    modality: text->text
    pricing:
      prompt: \"0.000001\"
      completion: \"0.000002\"
      overrides:
        - min_prompt_tokens: 200
          prompt: \"0.000003\"
      tiers:
        flex: { prompt: \"0.000004\", overrides: [ { min_prompt_tokens: 300, prompt: \"0.000005\" } ] }
        priority:
          prompt: \"0.000006\"
          overrides:
            - min_prompt_tokens: 400
              prompt: \"0.000007\"
            - min_prompt_tokens: 500
              prompt: \"0.000008\"
              audio: \"0.000009\"
    tier: lite
    purposes: [chat]
    targets: [ { provider: p, model: m } ]
";
    let check = |slip: &str, expected: &[&str]| {
        let text = match slip {
            "" => good.to_owned(),
            price => good.replacen(price, "0.15", 1),
        };
        write(&catalogue, &text).unwrap();
        let told = of_catalogue(&config, &config.catalogue_of(&text).unwrap());
        let folder = format!("{}/catalogue.yaml:", folder.path().display());
        let told = told.iter().map(|doubt| {
            let told = doubt.to_string().replace(&folder, "");
            let (place, _) = told.split_once(" is more than 0.01 for one token").unwrap();
            place.to_owned()
        });
        assert_eq!(told.collect::<Vec<_>>(), expected, "{slip}");
    };
    check("", &[]);
    // A row that no prompt comes to.
    let short = good.replace("context_length: 501", "context_length: 300");
    write(&catalogue, &short).unwrap();
    let told = of_catalogue(&config, &config.catalogue_of(&short).unwrap());
    let told: Vec<String> = told.iter().map(ToString::to_string).collect();
    for (told, place) in told.iter().zip([
        ":15: a/b: pricing.tiers.flex.overrides.min_prompt_tokens is 300, and context_length 300",
        ":19: a/b: pricing.tiers.priority.overrides.min_prompt_tokens is 400, and context_length 300",
        ":21: a/b: pricing.tiers.priority.overrides.min_prompt_tokens is 500, and context_length 300",
    ]) {
        assert!(told.contains(place), "{told}");
    }
    assert_eq!(told.len(), 3, "{told:?}");
    check("0.000001", &["9: a/b: pricing.prompt"]);
    check("0.000002", &["10: a/b: pricing.completion"]);
    check("0.000003", &["13: a/b: pricing.overrides.prompt"]);
    check("0.000004", &["15: a/b: pricing.tiers.flex.prompt"]);
    check("0.000005", &["15: a/b: pricing.tiers.flex.overrides.prompt"]);
    check("0.000006", &["17: a/b: pricing.tiers.priority.prompt"]);
    check("0.000007", &["20: a/b: pricing.tiers.priority.overrides.prompt"]);
    check("0.000008", &["22: a/b: pricing.tiers.priority.overrides.prompt"]);
    check("0.000009", &["23: a/b: pricing.tiers.priority.overrides.audio"]);
}

#[test]
fn a_currency_is_a_code_or_a_name_of_its_own() {
    for good in ["USD", "EUR", "CHF", "credits", "Points"] {
        assert_eq!(of_currency(good), None, "{good}");
    }
    for (doubtful, says) in [
        ("dollars", "USD?"),
        ("Euro", "EUR?"),
        ("usd", "USD?"),
        ("", "neither"),
        ("$", "neither"),
        ("US dollars", "neither"),
        ("abcdefghijklmnopq", "neither"),
    ] {
        let told = of_currency(doubtful).expect(doubtful);
        assert!(told.contains(says), "{doubtful}: {told}");
    }
}
