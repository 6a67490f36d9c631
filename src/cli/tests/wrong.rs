//! What is wrong or missing, and what is said about it.

use super::*;

#[test]
fn check_says_what_is_wrong_and_what_is_off() {
    let place = Place::new();
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
    assert!(outcome.stderr.starts_with("error: ") && findings["errors"][0].as_str().unwrap().contains("quotes"));

    std::fs::write(place.conf(), "lissen: x\n").unwrap();
    assert!(place.run("check").stderr.contains("did you mean listen?"));
    std::fs::write(place.conf(), "store: \"redis://:secret@127.0.0.1:1/0\"\n").unwrap();
    let error = place.error("account list");
    assert!(error.contains("127.0.0.1:1") && !error.contains("secret"), "{error}");
    std::fs::remove_file(place.conf()).unwrap();
    assert!(place.error("account list").contains("--conf FILE"));
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
            "providers.bad: ca_file /nowhere/ca.pem",
        ),
        (
            with("    headers: { Content-Length: \"5\" }\n"),
            "providers.bad: headers: \"Content-Length\" cannot be set",
        ),
        (
            format!("{good}\ntls: {{ cert: /nowhere/cert.pem, key: /nowhere/key.pem }}\n"),
            "tls.cert /nowhere/cert.pem",
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
        "credits add --help",
        "key create --help",
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
    let place = Place::new();
    let conf = place.conf().display().to_string();
    for words in [
        "--conf C --json account list",
        "account --json list --conf C",
        "account list --json --conf C",
    ] {
        let outcome = tollgate(&words.replace('C', &conf));
        assert_eq!(
            outcome.stdout, "{\"currency\":\"USD\",\"accounts\":[]}\n",
            "{words}: {}",
            outcome.stderr
        );
    }
}
