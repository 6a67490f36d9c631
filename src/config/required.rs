//! Keys that have no value where they need one: YAML's null is read as a text, and an empty path is a folder that nobody named.

use serde_yaml_ng::Value;

/// Refuses a text that is empty or YAML's null; `form` says what it must be.
pub(super) fn check(key: &str, text: &str, form: &str) -> Result<(), String> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Err(format!("{key}: it has no value: it must be {form}")),
        _ => Ok(()),
    }
}

/// The first key that may be left out, and stands there without a value: an empty `store:` would be another ledger, an empty `tls:` plain HTTP.
pub(super) fn unstated(text: &str) -> Option<String> {
    let root: Value = serde_yaml_ng::from_str(text).ok()?;
    let is_null = |of: &Value, key: &&&str| of.get(key).is_some_and(Value::is_null);
    let problem = |key: &str| format!("{key}: it has no value: leave the key out, or give it one");
    if let Some(key) = STATED.iter().find(|key| is_null(&root, key)) {
        return Some(problem(key));
    }
    let mut of_parts = STATED_OF_PARTS.iter().filter_map(|(part, keys)| {
        let of = root.get(part)?;
        let key = keys.iter().find(|key| is_null(of, key))?;
        Some(format!("{part}: {}", problem(key)))
    });
    if let Some(problem) = of_parts.next() {
        return Some(problem);
    }
    // Without a value a tier's limit would be the built-in one, and a webhook's events all that there are.
    let tiers = root.get("tiers").and_then(Value::as_mapping).into_iter().flatten();
    let of_tiers = tiers.filter_map(|(name, tier)| {
        let name = name.as_str()?;
        if tier.is_null() {
            return Some(format!("tiers: {}", problem(name)));
        }
        let key = STATED_OF_TIERS.iter().find(|key| is_null(tier, key))?;
        Some(format!("tiers.{name}: {}", problem(key)))
    });
    let webhooks = root.get("webhooks").and_then(Value::as_sequence).into_iter().flatten();
    let of_webhooks = webhooks.filter(|webhook| is_null(webhook, &&"events"));
    let of_webhooks = of_webhooks.map(|_| format!("webhooks: {}", problem("events")));
    let providers = root.get("providers").and_then(Value::as_mapping).into_iter().flatten();
    let of_providers = providers.filter_map(|(name, provider)| {
        let key = STATED_OF_PROVIDERS.iter().find(|key| is_null(provider, key))?;
        Some(format!("providers.{}: {}", name.as_str()?, problem(key)))
    });
    of_tiers.chain(of_webhooks).chain(of_providers).next()
}

const STATED: [&str; 8] = [
    "store",
    "store_env",
    "tls",
    "operator_listen",
    "operator_tls",
    "stripe",
    "catalogue_refresh",
    "traces",
];
const STATED_OF_PARTS: [(&str, &[&str]); 3] = [
    ("receipts", &["files", "keep_days", "bytes_max"]),
    ("catalogue_refresh", &["rules"]),
    ("timeouts", &["whole_first_byte_ms"]),
];
const STATED_OF_TIERS: [&str; 4] = ["rpm", "tpm", "concurrency", "monthly_quota"];
const STATED_OF_PROVIDERS: [&str; 5] = [
    "api_key_env",
    "ca_file",
    "completion_from",
    "maximum_field",
    "stream_usage",
];

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::{AccessLog, Config, mistakes};

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(Path::new("t.yaml"), text, &|_| None).map_err(|error| error.to_string())
    }

    /// `data_dir:` made a new ledger in the folder that the gateway was started in, and each paid call was a 503.
    #[test]
    fn a_key_without_a_value_is_a_mistake_with_its_name() {
        for value in ["", "null", "~", "\"\""] {
            for (text, key) in [
                (format!("data_dir: {value}"), "data_dir"),
                (format!("catalogue: {value}"), "catalogue"),
                (format!("currency: {value}"), "currency"),
                (format!("key_prefix: {value}"), "key_prefix"),
                (format!("tls:\n  key: k\n  cert: {value}"), "tls.cert"),
                (format!("tls:\n  cert: c\n  key: {value}"), "tls.key"),
                (
                    format!("operator_listen: 127.0.0.1:1\noperator_tls:\n  cert: c\n  key: {value}"),
                    "operator_tls.key",
                ),
            ] {
                let error = parse(&text).expect_err(&text);
                let line = text.lines().count();
                let says = format!("t.yaml:{line}: {key}: it has no value: it must be ");
                assert!(error.starts_with(&says), "{text}: {error}");
                let all = mistakes::of_config(Path::new("t.yaml"), &text, &|_| None);
                assert_eq!(all.len(), 1, "{text}: {all:?}");
            }
        }
        let provider = "providers:\n  p:\n    base_url: http://p\n    ca_file: \"\"\n";
        let error = parse(provider).unwrap_err();
        assert!(error.contains("providers.p: ca_file: it has no value"), "{error}");
        let refresh = "providers: { p: { base_url: \"http://p\" } }\ncatalogue_refresh: { provider: p, every_minutes: 1, rules: \"\" }\n";
        let error = parse(refresh).unwrap_err();
        assert!(
            error.starts_with("t.yaml:2: catalogue_refresh.rules: it has no value"),
            "{error}"
        );
    }

    /// Of a template whose variable is empty: a new, embedded ledger, plain HTTP, a provider that is asked without a credential.
    #[test]
    fn a_key_that_may_be_left_out_has_a_value_where_it_stands() {
        for value in ["", "null", "~"] {
            for (text, key) in [
                (format!("threads: 2\nstore: {value}"), "store"),
                (format!("threads: 2\nstore_env: {value}"), "store_env"),
                (format!("threads: 2\ntls: {value}"), "tls"),
                (format!("threads: 2\noperator_listen: {value}"), "operator_listen"),
                (format!("threads: 2\noperator_tls: {value}"), "operator_tls"),
                (format!("threads: 2\nstripe: {value}"), "stripe"),
                (
                    format!("providers:\n  p:\n    base_url: http://p\n    api_key_env: {value}"),
                    "api_key_env",
                ),
                (
                    format!("providers:\n  p:\n    base_url: http://p\n    ca_file: {value}"),
                    "ca_file",
                ),
                (format!("tiers:\n  pro:\n    monthly_quota: {value}"), "monthly_quota"),
                (format!("tiers:\n  free: {{ rpm: 1 }}\n  pro:\n    tpm: {value}"), "tpm"),
                (
                    format!("webhooks: [{{ url: \"https://h\", secret_env: S, events: {value} }}]"),
                    "events",
                ),
                (
                    format!("providers:\n  p:\n    base_url: http://p\n    completion_from: {value}"),
                    "completion_from",
                ),
                (
                    format!("providers:\n  p:\n    base_url: http://p\n    maximum_field: {value}"),
                    "maximum_field",
                ),
                (
                    format!("providers:\n  p:\n    base_url: http://p\n    stream_usage: {value}"),
                    "stream_usage",
                ),
                (
                    format!(
                        "providers: {{ p: {{ base_url: \"http://p\" }} }}\ncatalogue_refresh:\n  provider: p\n  every_minutes: 1\n  rules: {value}"
                    ),
                    "rules",
                ),
                (format!("receipts:\n  keep_days: {value}"), "keep_days"),
                (format!("threads: 2\ntraces: {value}"), "traces"),
                (format!("threads: 2\ncatalogue_refresh: {value}"), "catalogue_refresh"),
            ] {
                let error = parse(&text).expect_err(&text);
                let line = text.lines().count();
                assert!(
                    error.starts_with(&format!("t.yaml:{line}: "))
                        && error.contains(key)
                        && error.contains("it has no value"),
                    "{text}: {error}"
                );
            }
        }
    }

    /// Some editors write one: "more than one document is not supported".
    #[test]
    fn a_mark_of_the_encoding_in_front_is_no_mistake() {
        let text = "\u{feff}threads: 3\ncurrency: EUR\nlissen: x\n";
        let error = parse(text).unwrap_err();
        assert!(error.starts_with("t.yaml:3: unknown key lissen"), "{error}");
        let all = mistakes::of_config(Path::new("t.yaml"), text, &|_| None);
        assert_eq!(all.len(), 1, "{all:?}");
        let config =
            parse("\u{feff}threads: 3\ncurrency: EUR\nproviders: { p: { base_url: \"http://p\" } }\n").unwrap();
        assert_eq!(config.threads, 3);
        let catalogue = "\u{feff}models:\n  - { id: a/m, name: M, provider: A, context_length: 9, max_completion_tokens: 9, modality: text->text, \
                         pricing: { prompt: \"0\", completion: \"0\" }, tier: free, targets: [ { provider: p, model: m } ] }\npurposes: {}\n";
        assert_eq!(config.catalogue_of(catalogue).unwrap().models().len(), 1);
    }

    #[test]
    fn a_word_for_no_access_log_makes_no_file_of_that_name() {
        for word in [
            "false", "False", "no", "null", "~", "none", "Off", "STDOUT", "stderr", "true",
        ] {
            let error = parse(&format!("access_log: {word}")).expect_err(word);
            let says = "t.yaml:1: access_log: it must be stdout, off, or a file's path; ";
            assert!(
                error.starts_with(says) && error.ends_with(&format!("write ./{word}")),
                "{error}"
            );
        }
        let log = |text: &str| parse(text).unwrap().access_log;
        assert_eq!(log("access_log: off"), AccessLog::Off);
        assert_eq!(log("access_log: ./false"), AccessLog::File("./false".into()));
    }

    #[test]
    fn the_folder_of_an_access_log_is_the_gateways_own_within_data_dir() {
        for (log, folder) in [
            ("/var/lib/t/access.log", Some("/var/lib/t")),
            ("/var/lib/t/logs/a/access.log", Some("/var/lib/t/logs/a")),
            ("/var/lib/t/../access.log", None),
            ("/var/lib/t", None),
            ("/var/lib/other/access.log", None),
            ("/var/log/access.log", None),
            ("access.log", None),
            ("stdout", None),
        ] {
            let config = parse(&format!("data_dir: /var/lib/t\naccess_log: {log}\n")).unwrap();
            assert_eq!(config.own_log_folder(), folder.map(Path::new), "{log}");
        }
        for (data_dir, log, folder) in [
            ("data", "./data/logs/access.log", Some("./data/logs")),
            ("./data", "data/access.log", Some("data")),
            ("./data", "data/../access.log", None),
        ] {
            let config = parse(&format!("data_dir: {data_dir}\naccess_log: {log}\n")).unwrap();
            assert_eq!(config.own_log_folder(), folder.map(Path::new), "{log}");
        }
    }
}
