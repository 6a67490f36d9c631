//! What is wrong or missing, and what is said about it.

use super::*;

#[test]
fn check_says_what_is_wrong_and_what_is_off() {
    let place = Place::with_free_ports();
    let (_, good) = place.json("check");
    assert_eq!(good["ok"], true);
    let warnings = good["warnings"].to_string();
    assert!(
        warnings.contains("TOLLGATE_TEST_NEVER_SET") && warnings.contains("purpose embedding"),
        "{warnings}"
    );
    assert!(place.run("check").stdout.contains("can be started"));

    std::fs::write(place.folder.path().join("catalogue.yaml"), catalogue("off", "\"0.1\"")).unwrap();
    let (_, stock) = place.json("catalogue check");
    assert_eq!(
        (&stock["models"], &stock["on_sale"]),
        (&Value::from(3), &Value::from(1))
    );
    assert_eq!(stock["switched_off"][0]["needs"][0], "TOLLGATE_TEST_NEVER_SET");
    let text = place.run("catalogue check").stdout;
    assert!(
        text.contains("warning: the purpose chat is served by a/spare: its default a/b is switched off"),
        "{text}"
    );
    assert!(
        text.lines()
            .all(|line| line.starts_with("warning") || line.contains("yaml") || line.len() <= 80),
        "{text}"
    );

    std::fs::write(place.folder.path().join("catalogue.yaml"), catalogue("on", "0.1")).unwrap();
    assert!(place.error("catalogue check").contains("quotes"));
    let outcome = place.run("check --json");
    let findings: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!((outcome.status, &findings["ok"]), (1, &Value::from(false)));
    assert!(outcome.stderr.starts_with("{\"error\":") && findings["errors"][0].as_str().unwrap().contains("quotes"));

    std::fs::write(place.conf(), "lissen: x\n").unwrap();
    assert!(place.run("check").stderr.contains("did you mean listen?"));
    std::fs::write(place.conf(), "store: \"redis://:secret@127.0.0.1:1/0\"\n").unwrap();
    let error = place.error("account list");
    assert!(error.contains("127.0.0.1:1") && !error.contains("secret"), "{error}");
    std::fs::remove_file(place.conf()).unwrap();
    assert!(place.error("account list").contains("--conf FILE"));
}

/// What is allowed and is more often a slip: a price of a million tokens, a currency in words, purposes that nobody serves.
#[test]
fn check_warns_of_what_is_probably_meant_otherwise() {
    let place = Place::with_free_ports();
    let conf = std::fs::read_to_string(place.conf()).unwrap() + "currency: dollars\n";
    std::fs::write(place.conf(), conf).unwrap();
    let catalogue = "\
models:
  - id: a/b
    name: B
    provider: P
    context_length: 9
    max_completion_tokens: 5
    modality: text->text
    pricing:
      prompt: \"0.01\"
      completion: \"0.15\"
    tier: lite
    purposes: [chat, code]
    targets: [ { provider: on, model: m } ]
";
    std::fs::write(place.folder.path().join("catalogue.yaml"), catalogue).unwrap();
    let (_, findings) = place.json("check");
    let warnings = findings["warnings"].as_array().unwrap();
    let warnings: Vec<&str> = warnings.iter().map(|warning| warning.as_str().unwrap()).collect();
    let told = |words: &str| warnings.iter().filter(|warning| warning.contains(words)).count();
    assert_eq!(told("tollgate.yaml:8: currency: "), 1, "{warnings:?}");
    assert_eq!(
        told("catalogue.yaml:10: a/b: pricing.completion is more than 0.01"),
        1,
        "{warnings:?}"
    );
    assert_eq!(told("pricing.prompt"), 0, "{warnings:?}");
    let unserved = "no model lists these purposes, and a request for one gets 404: \
                    vision, fast, router, planner, executor, embedding, free, slide, slot_extract";
    assert_eq!((told(unserved), told("purpose")), (1, 1), "{warnings:?}");
}

/// What a start refuses, `check` refuses too, all of it at once.
#[test]
fn check_refuses_what_a_start_would_refuse() {
    let place = Place::new();
    let good = std::fs::read_to_string(place.conf()).unwrap();
    let provider = "\n  bad:\n    base_url: \"http://127.0.0.1:1/v1\"\n    api_key_env: TOLLGATE_TEST_NEVER_SET\n";
    let with = |lines: &str| good.replacen("providers:", &format!("providers:{provider}{lines}"), 1);
    for (conf, words) in [
        (
            with("    allow_fields: [stoer]\n"),
            "providers.bad: allow_fields: `stoer`",
        ),
        (
            with("    ca_file: /nowhere/ca.pem\n"),
            "providers.bad: ca_file: /nowhere/ca.pem",
        ),
        (
            with("    headers: { Content-Length: \"5\" }\n"),
            "providers.bad: headers: \"Content-Length\" cannot be set",
        ),
        (
            format!("{good}\ntls: {{ cert: /nowhere/cert.pem, key: /nowhere/key.pem }}\n"),
            "tls.cert: /nowhere/cert.pem",
        ),
        (
            format!("{good}\ntrusted_proxies: [\"10.0.0.1/8\"]\n"),
            "trusted_proxies: \"10.0.0.1/8\"",
        ),
        (
            format!("{good}\nauth_failures_per_minute: 0\n"),
            "auth_failures_per_minute",
        ),
    ] {
        std::fs::write(place.conf(), &conf).unwrap();
        let outcome = place.run("check");
        assert!(
            outcome.status == 1 && outcome.stderr.contains(words),
            "{words}: {outcome:?}"
        );
    }
    let all = with("    allow_fields: [stoer]\n") + "\ntls: { cert: /nowhere/cert.pem, key: /nowhere/key.pem }\n";
    std::fs::write(place.conf(), all).unwrap();
    let stderr = place.run("check").stderr;
    assert!(stderr.contains("stoer") && stderr.contains("tls.cert"), "{stderr}");
}

/// Keys that are unknown or missing, values of the wrong kind and values that make no sense: all of them at once, each with its line.
#[test]
fn check_tells_every_mistake_of_both_files_with_its_line() {
    let place = Place::new();
    let conf = "\
lissen: 127.0.0.1:8080
threads: many
base_path: api
providers:
  local: { base_url: \"http://127.0.0.1:1/v1\", base_ur: x }
  other:
    base_url: 7
    on_disconnect: canel
  third:
    http2: perhaps
tiers:
  lite: { rpm: -1, tpm: x, rmp: 2 }
timeouts: 5
tls: { cert: a }
catalogue_refresh: { provider: local }
";
    std::fs::write(place.conf(), conf).unwrap();
    let told = |place: &Place| {
        let stderr = place.run("check").stderr;
        let lines = stderr
            .lines()
            .map(|line| line.rsplit_once(".yaml:").unwrap_or(("", line)).1.to_owned());
        lines.collect::<Vec<String>>()
    };
    let expected = [
        "1: unknown key lissen (did you mean listen?)",
        "2: threads: invalid type: string \"many\", expected a whole number",
        "3: base_path: \"api\" must begin with / and be a plain path",
        "5: providers.local: unknown key base_ur (did you mean base_url?)",
        "7: providers.other: base_url: \"7\" is not an address such as https://api.example.com/v1",
        "8: providers.other.on_disconnect: unknown variant `canel`, expected `cancel` or `drain`",
        "9: providers.third: missing field `base_url`",
        "10: providers.third.http2: invalid type: string \"perhaps\", expected a boolean",
        "12: tiers.lite.rpm: invalid type: integer `-1`, expected a whole number",
        "12: tiers.lite.tpm: invalid type: string \"x\", expected a whole number",
        "12: tiers.lite: unknown key rmp (did you mean rpm?)",
        "13: timeouts: invalid type: integer `5`, expected keys with values",
        "14: tls: missing field `key`",
        "15: catalogue_refresh: missing field `every_minutes`",
    ];
    assert_eq!(told(&place), expected);

    let place = Place::new();
    let catalogue = "\
models:
  - id: a/b
    nam: A
    provider: P
    context_length: many
    max_completion_tokens: 100
    modality: text->text
    pricing: { prompt: 0.1, completion: \"x\" }
    tier: gold
    purposes: [chat, talk]
    targets: [ { provider: on, modle: m } ]
  - { id: a/c, name: C, provider: P, context_length: 0, max_completion_tokens: 10, modality: text->text,
      pricing: { prompt: \"0\", completion: \"0\" }, tier: free, targets: [ { provider: on, model: m } ] }
  - id: a/d
    name: [D]
purposes: { chat: a/b, vison: a/c, code: [x], vision: a/b, fast: a/b, router: a/b, planner: a/b, executor: a/b, embedding: a/b, free: a/b, slide: a/b }
";
    std::fs::write(place.folder.path().join("catalogue.yaml"), catalogue).unwrap();
    let expected = [
        "2: models[0]: missing field `name`",
        "3: models[0]: unknown key nam (did you mean name?)",
        "5: models[0].context_length: invalid type: string \"many\", expected a whole number",
        "8: models[0].pricing.prompt: invalid type: floating point `0.1`, expected a price per token in quotes, such as \"0.00000015\"",
        "8: models[0].pricing.completion: \"x\" is not a decimal number such as \"10.50\"",
        "9: models[0].tier: unknown variant `gold`, expected one of `free`, `lite`, `pro`, `enterprise`",
        "10: models[0].purposes[1]: unknown variant `talk`, expected one of `chat`, `vision`, `code`, `fast`, `router`, `planner`, `executor`, `embedding`, `free`, `slide`, `slot_extract`",
        "11: models[0].targets[0]: unknown key modle (did you mean model?)",
        "11: models[0].targets[0]: missing field `model`",
        "12: a/c: context_length must be from 1 to 1,000,000,000",
        "14: models[2]: missing field `provider`",
        "14: models[2]: missing field `context_length`",
        "14: models[2]: missing field `modality`",
        "14: models[2]: missing field `pricing`",
        "14: models[2]: missing field `tier`",
        "14: models[2]: missing field `targets`",
        "15: models[2].name: invalid type: sequence, expected a string",
        "16: purposes.code: invalid type: sequence, expected a string",
        "16: purposes.vison: no such purpose; there are chat, vision, code, fast, router, planner, executor, embedding, free, slide, slot_extract",
    ];
    assert_eq!(told(&place), expected);
}

#[test]
fn wrong_usage_is_status_2_and_help_is_not() {
    for wrong in [
        "",
        "serv",
        "account create",
        "account create a/b --tier pro",
        "account create a --tier gold",
        "account set a",
        "account create a --tier pro --monthly-quota -1",
        "credits add a -5 --reference R",
        "credits add a 0 --reference R",
        "credits add a 1e3 --reference R",
        "credits add a 1",
        "credits add a 0.0000000000001 --reference R",
        "key create --account a --expires 5",
        "key create --account a --expires 0d",
        "key create --account a --rpm 0",
        "key create --account a --domain x/y",
        "key rotate",
        "key rotate a --overlap 5",
        "operator create a",
        "operator create a --role root",
        "operator log --limit 0",
        "usage a --period 1d",
        "maintenance",
        "maintenance maybe",
        "demo --listen x",
    ] {
        let outcome = tollgate(wrong);
        assert!(
            outcome.status == 2 && outcome.stdout.is_empty() && !outcome.stderr.is_empty(),
            "{wrong:?}: {outcome:?}"
        );
    }
    for help in [
        "--help",
        "--version",
        "serve --help",
        "demo --help",
        "check --help",
        "account --help",
        "account create --help",
        "account set --help",
        "account list --help",
        "account suspend --help",
        "account close --help",
        "account statement --help",
        "credits --help",
        "credits add --help",
        "credits correct --help",
        "credits list --help",
        "key create --help",
        "key set --help",
        "key rotate --help",
        "operator --help",
        "operator create --help",
        "operator log --help",
        "usage --help",
        "ledger --help",
        "catalogue check --help",
        "maintenance --help",
    ] {
        let outcome = tollgate(help);
        assert!(outcome.status == 0 && outcome.stderr.is_empty(), "{help}: {outcome:?}");
        assert!(
            outcome.stdout.lines().all(|line| line.chars().count() <= 96),
            "{help}: {}",
            outcome.stdout
        );
    }
}

#[test]
fn a_key_in_the_wrong_place_is_not_repeated() {
    let place = Place::new();
    let key = ApiKey::from_random("tg_", [0xab; 32]);
    let text = key.reveal();
    let cut = text.get(..40).unwrap();
    for secret in [text, cut] {
        for words in [
            "key revoke X",
            "key revoke X X",
            "key list X",
            "usage X",
            "key create --account X",
            "X",
            "key X",
            "--X",
        ] {
            let outcome = place.run(&words.replace('X', secret));
            assert_ne!(outcome.status, 0, "{words}");
            assert!(!outcome.stderr.contains("abababab"), "{words}: {}", outcome.stderr);
        }
    }
    assert_eq!(
        without_keys("no key_0123456789abcdef: é tg_ab"),
        "no key_0123456789abcdef: é tg_ab"
    );
}

#[test]
fn the_configuration_may_be_named_before_or_after_the_command() {
    let place = Place::with_ledger();
    let conf = place.conf().display().to_string();
    for words in [
        "--conf C --json account list",
        "account --json list --conf C",
        "account list --json --conf C",
    ] {
        let outcome = tollgate(&words.replace('C', &conf));
        assert_eq!(
            outcome.stdout, "{\"currency\":\"USD\",\"accounts\":[],\"next\":null}\n",
            "{words}: {}",
            outcome.stderr
        );
    }
}

/// A program reads errors in the form that it asked for, and no key that was typed in the wrong place.
#[test]
fn errors_of_json_commands_are_json() {
    let place = Place::with_ledger();
    let key = format!("tg_{}", "0a".repeat(36));
    for (words, status, part) in [
        ("account show nobody", 1, "nobody"),
        ("account set", 2, "required"),
        ("top --once", 1, "no gateway answers"),
        (&format!("usage {key}"), 2, "<key>"),
    ] {
        let outcome = place.run(&format!("{words} --json"));
        assert_eq!((outcome.status, outcome.stdout.as_str()), (status, ""), "{words}");
        let lines: Vec<Value> = outcome
            .stderr
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let message = lines[0]["error"]["message"].as_str().unwrap();
        assert_eq!(lines.len(), 1, "{words}: {}", outcome.stderr);
        assert!(message.contains(part) && !message.contains(&key), "{words}: {message}");
        assert!(place.run(words).stderr.starts_with("error: "), "{words}");
    }
}

#[test]
fn the_man_page_names_no_page_that_is_not_there() {
    let page = Place::new().run("man").stdout;
    assert!(page.contains("\\fBtollgate account create\\fR"), "{page}");
    let others: Vec<&str> = page.lines().filter(|line| line.contains("(1)")).collect();
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn the_list_of_accounts_has_each_ones_own_quota() {
    let place = Place::new();
    place.run("account create acme --tier pro --monthly-quota 50");
    place.run("account create other --tier pro");
    let (_, list) = place.json("account list");
    let text = place.run("account list").stdout;
    assert_eq!(list["accounts"][0]["monthly_quota"].to_string(), "50", "{text}");
    assert_ne!(list["accounts"][1]["monthly_quota"].to_string(), "50", "{text}");
    assert!(
        text.lines()
            .any(|line| line.starts_with("acme") && line.trim_end().ends_with(" 50")),
        "{text}"
    );
}
