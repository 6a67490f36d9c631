//! The configuration: what is read, and how a mistake is told.

use std::time::Duration;

use super::*;
use crate::pure::ids::Tier;
use crate::pure::usage::CompletionFrom;

mod files;
mod provider;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(Path::new("t.yaml"), text, &|name| {
        (name == "SET").then(|| "secret".to_owned())
    })
}

#[test]
fn an_empty_file_means_the_defaults() {
    let config = parse("").unwrap();
    assert_eq!(config.base_path, "/api/v1");
    assert_eq!(config.store, Store::Sqlite("data/ledger.db".into()));
    assert_eq!(config.tier(Tier::Pro).monthly_quota.to_string(), "1000");
    assert_eq!(config.body_bytes_max, 33_554_432);
    assert_eq!(config.whole_answer_bytes_max, 8 << 20);
    assert_eq!(config.gathered_bytes_max, 256 << 20);
    assert_eq!(config.timeouts.whole_gather, Duration::from_secs(10));
    assert_eq!(config.timeouts.whole_first_byte, Duration::from_secs(120));
    assert_eq!(config.timeouts.first_event, Some(Duration::from_secs(1)));
    let expected = BodyMemoryLimits {
        total: 1 << 30,
        per_key: 64 << 20,
        per_address: 256 << 20,
    };
    assert_eq!(config.body_memory, expected);
}

#[test]
fn whole_answers_begin_within_the_time_of_streams_unless_they_have_their_own() {
    let times = |text: &str| {
        let timeouts = parse(text).unwrap().timeouts;
        (timeouts.first_byte.as_millis(), timeouts.whole_first_byte.as_millis())
    };
    assert_eq!(times("timeouts: { first_byte_ms: 30000 }"), (30_000, 30_000));
    assert_eq!(times("timeouts: { whole_first_byte_ms: 600000 }"), (120_000, 600_000));
}

#[test]
fn the_longest_body_fits_in_the_memory_of_its_key() {
    let config = parse("body_bytes_max: 100000000").unwrap();
    let expected = BodyMemoryLimits {
        total: 1 << 30,
        per_key: 200_000_000,
        per_address: 400_000_000,
    };
    assert_eq!(config.body_memory, expected);
    let config = parse("body_bytes_max: 1000000\nbody_memory_bytes_per_key_max: 1000000").unwrap();
    assert_eq!(config.body_memory.per_key, 1_000_000);
}

#[test]
fn where_a_provider_names_its_completion_is_said_or_known_by_its_address() {
    let from = |base_url: &str, said: &str| {
        let config = parse(&format!("providers: {{ p: {{ base_url: '{base_url}'{said} }} }}")).unwrap();
        config.providers["p"].completion_from
    };
    let google = "https://generativelanguage.googleapis.com/v1beta/openai";
    assert_eq!(from(google, ""), CompletionFrom::Total);
    assert_eq!(from(google, ", completion_from: report"), CompletionFrom::Report);
    assert_eq!(from("https://openrouter.ai/api/v1", ""), CompletionFrom::Report);
    assert_eq!(
        from("https://api.example.com", ", completion_from: total"),
        CompletionFrom::Total
    );
    let wrong = parse("providers: { p: { base_url: 'https://a.example', completion_from: sum } }");
    assert!(wrong.unwrap_err().to_string().contains("report"));
}

#[test]
fn each_mistake_names_its_key() {
    let cases = [
        ("lissen: 127.0.0.1:1", "did you mean listen?"),
        ("timeouts: { conect_ms: 5 }", "did you mean connect_ms?"),
        ("listen: here", "listen"),
        ("store: \"mysql://x\"", "store"),
        ("markup: 1.15", "in quotes"),
        (
            "markup: \"0.9\"",
            "markup: a markup of 0.9 cannot be: it must be at least 1",
        ),
        (
            "listen: \"0.0.0.0:9090\"",
            "listen: listen (0.0.0.0:9090) and admin_listen (127.0.0.1:9090) are one port",
        ),
        (
            "operator_listen: \"127.0.0.1:9090\"",
            "operator_listen: admin_listen (127.0.0.1:9090) and operator_listen (127.0.0.1:9090) are one port",
        ),
        ("operator_listen: here", "operator_listen: \"here\" is not an address"),
        (
            "operator_tls: { cert: a, key: b }",
            "operator_tls: there is no operator_listen",
        ),
        (
            "operator_hosts: [a.example]",
            "operator_hosts: there is no operator_listen",
        ),
        (
            "stripe: { secret_env: SET_STRIPE }",
            "stripe: there is no operator_listen",
        ),
        (
            "stripe: { secret_env: SET_STRIPE }\noperator_listen: 127.0.0.1:1\ncurrency: credits",
            "stripe: currency: \"credits\" is not a currency's code",
        ),
        (
            "stripe: { secret_env: whsec_9f8a7b6c5d4e3f2a1b0c }\noperator_listen: 127.0.0.1:1",
            "not the secret itself",
        ),
        (
            "stripe: { secret: x }\noperator_listen: 127.0.0.1:1",
            "unknown key secret",
        ),
        ("threads: 0", "threads"),
        ("suspended_streams: stop", "stop"),
        ("tiers: { free: { rpm: 0 } }", "tiers.free"),
        ("tiers: { gold: { rpm: 1 } }", "unknown key gold"),
        ("providers: { p: { base_url: \"ftp://x\" } }", "providers.p: base_url"),
        ("providers: { p: { } }", "base_url"),
        (
            "providers: { p: { base_url: \"http://x\", on_disconnect: wait } }",
            "wait",
        ),
        ("whole_answer_bytes_max: 1023", "bytes_max: 1023 is not from 1024"),
        ("whole_answer_bytes_max: 1073741825", "whole_answer_bytes_max"),
        (
            "gathered_bytes_max: 8388607",
            "gathered_bytes_max: 8388607 is not from whole_answer_bytes_max, 8388608,",
        ),
        ("gathered_bytes_max: 68719476737", "gathered_bytes_max"),
        ("timeouts: { whole_gather_ms: 0 }", "timeouts.whole_gather_ms"),
        ("timeouts: { whole_first_byte_ms: 0 }", "timeouts.whole_first_byte_ms"),
        (
            "timeouts: { whole_first_byte_ms: }",
            "timeouts: whole_first_byte_ms: it has no value",
        ),
        ("timeouts: { first_event_ms: 86400001 }", "timeouts.first_event_ms"),
        ("drain_seconds: 86401", "drain_seconds: 86401 is not from 0 to 86400"),
        ("unready_seconds: 3601", "unready_seconds: 3601 is not from 0 to 3600"),
        ("audit_seconds: 86401", "audit_seconds: 86401 is not from 0 to 86400"),
        ("base_path: api", "base_path"),
        ("body_memory_bytes_max: 33554431", "body_memory_bytes_max"),
        ("body_memory_bytes_per_key_max: 1024", "body_memory_bytes_per_key_max"),
        (
            "body_memory_bytes_per_address_max: 17592186044417",
            "body_memory_bytes_per_address_max",
        ),
        ("key_prefix: \"\"", "key_prefix"),
        ("wallet: { top_up_url: \"ftp://pay.example\" }", "wallet.top_up_url"),
        (
            "wallet: { top_up: \"https://pay.example\" }",
            "did you mean top_up_url?",
        ),
        ("traces: { endpoint: here }", "traces.endpoint"),
        ("traces: { }", "endpoint"),
        (
            "traces: { endpoint: \"http://c\", sample_rate: 1 }",
            "did you mean sample_ratio?",
        ),
        (
            "traces: { endpoint: \"http://c\", sample_ratio: 1.5 }",
            "traces.sample_ratio",
        ),
        (
            "traces: { endpoint: \"http://c\", service_name: \"\" }",
            "traces.service_name",
        ),
        (
            "traces: { endpoint: \"http://c\", headers_env: { Host: SET } }",
            "traces.headers_env",
        ),
    ];
    for (text, says) in cases {
        let error = parse(text).expect_err(text).to_string();
        assert!(
            error.starts_with("t.yaml:1: ") && error.contains(says),
            "{text}: {error}"
        );
    }
}

#[test]
fn a_provider_without_its_credential_is_off() {
    let yaml = "providers:\n  a: { base_url: \"https://a.example/v1/\", api_key_env: SET }\n  b: { base_url: \"http://[::1]:81\", api_key_env: UNSET }\n  c: { base_url: \"http://c\" }";
    let config = parse(yaml).unwrap();
    assert!(config.providers["a"].is_on() && !config.providers["b"].is_on() && config.providers["c"].is_on());
    assert!(!format!("{config:?}").contains("secret"));
    let url = &config.providers["a"].base_url;
    assert_eq!(
        (url.authority.as_str(), url.port, url.path.as_str()),
        ("a.example", 443, "/v1")
    );
    let url = &config.providers["b"].base_url;
    assert_eq!(
        (url.authority.as_str(), url.host.as_str(), url.port),
        ("[::1]:81", "::1", 81)
    );
}

#[test]
fn traces_are_off_until_there_is_a_collector_and_what_its_headers_need() {
    let of = |text: &str| parse(text).unwrap().traces;
    assert_eq!(of(""), Traces::Off);
    let headers = |variable: &str| {
        format!("traces: {{ endpoint: \"https://c.example/otlp/\", headers_env: {{ x-key: {variable} }} }}")
    };
    assert_eq!(of(&headers("UNSET")), Traces::Missing("UNSET".to_owned()));
    let Traces::To(collector) = of(&headers("SET")) else {
        panic!("they are off");
    };
    assert_eq!(
        collector.headers,
        [("x-key".parse().unwrap(), "secret".parse().unwrap())]
    );
    assert!(!format!("{collector:?}").contains("secret"));
    assert_eq!(collector.service_name, "tollgate");
    assert_eq!(collector.sample, Sample::of_ratio(1.0).unwrap());
    for (endpoint, path) in [
        ("http://c:4318", "/v1/traces"),
        ("http://c:4318/v1/traces", "/v1/traces"),
        ("https://c/otlp/", "/otlp/v1/traces"),
    ] {
        let text = format!("traces: {{ endpoint: \"{endpoint}\", sample_ratio: 0 }}");
        let Traces::To(collector) = of(&text) else {
            panic!("they are off");
        };
        assert_eq!(collector.endpoint.path, path);
    }
}

#[test]
fn a_key_that_stands_twice_is_a_mistake_with_its_line() {
    for (text, says) in [
        (
            "threads: 2\nlisten: \"127.0.0.1:1\"\nthreads: 3\n",
            "3: the key threads",
        ),
        (
            "providers:\n  a: { base_url: \"http://x\" }\n  b: { base_url: \"http://x\" }\n  a: { base_url: \"http://y\" }\n",
            "4: providers: the key a",
        ),
        (
            "providers:\n  a:\n    base_url: \"http://x\"\n    headers:\n      x: a\n      y: a\n      x: b\n",
            "7: providers.a.headers: the key x",
        ),
        ("timeouts: { idle_ms: 4, idle_ms: 5 }\n", "1: timeouts: the key idle_ms"),
    ] {
        let error = parse(text).expect_err(text).to_string();
        assert_eq!(error, format!("t.yaml:{says} stands there twice"));
    }
    let config = parse("providers: { p: { base_url: \"http://x\" } }").unwrap();
    let model = "models:\n  - id: a/m\n    name: M\n    provider: A\n    context_length: 9\n    max_completion_tokens: 9\n    modality: text->text\n    \
                 pricing: { prompt: \"0\", completion: \"0\" }\n    tier: free\n    targets: [ { provider: p, model: m } ]\n";
    for (more, says) in [
        ("    tier: pro\n", "11: models[0]: the key tier"),
        (
            "purposes:\n  code: a/m\n  chat: a/m\n  code: a/x\n",
            "14: purposes: the key code",
        ),
    ] {
        let error = config
            .catalogue_of(&format!("{model}{more}"))
            .expect_err(more)
            .to_string();
        assert!(
            error.ends_with(&format!("catalogue.yaml:{says} stands there twice")),
            "{error}"
        );
    }
}

#[test]
fn a_listener_of_operators_is_there_when_it_is_wanted() {
    assert_eq!(
        parse("").unwrap().operator,
        None,
        "a gateway that is upgraded opens no new port"
    );
    let wanted = parse("operator_listen: 127.0.0.1:1\noperator_hosts: [ops.example.com]").unwrap();
    let operator = wanted.operator.unwrap();
    assert_eq!(operator.address, "127.0.0.1:1".parse().unwrap());
    assert_eq!(
        (operator.tls, operator.hosts),
        (None, vec!["ops.example.com".to_owned()])
    );
    let error = parse("operator_listen: 127.0.0.1:1\noperator_hosts: [\"a:1\"]").unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("t.yaml:2: operator_hosts: \"a:1\" is not a name"),
        "{error}"
    );
}

#[test]
fn two_listeners_have_two_ports() {
    for (listen, admin, meet) in [
        ("127.0.0.1:1", "127.0.0.1:1", true),
        ("127.0.0.1:0", "127.0.0.1:0", false),
        ("127.0.0.1:1", "127.0.0.2:1", false),
        ("0.0.0.0:1", "127.0.0.1:1", true),
        ("[::]:1", "127.0.0.1:1", true),
        ("[::1]:1", "0.0.0.0:1", false),
    ] {
        let error = parse(&format!("listen: \"{listen}\"\nadmin_listen: \"{admin}\"\n")).err();
        let line = error.as_ref().and_then(|error| error.line);
        assert_eq!((error.is_some(), line), (meet, meet.then_some(2)), "{listen} {admin}");
    }
}

#[test]
fn a_secret_in_the_wrong_place_is_not_shown() {
    let provider = |key: &str| format!("providers:\n  a:\n    base_url: \"http://x\"\n    {key}\n");
    let traces = |key: &str| format!("traces:\n  endpoint: \"http://c\"\n  headers_env:\n    {key}\n");
    for (text, place) in [
        (
            provider("api_key_env: sk-abc123"),
            "t.yaml:4: providers.a: api_key_env: it must be the name of an environment variable",
        ),
        (
            "\n\n\nstore: \"redi://:abc123@127.0.0.1\"".to_owned(),
            "t.yaml:4: store: redi is not sqlite://PATH",
        ),
        (
            "providers:\n  a:\n\n    base_url: \"http://user:abc123@x\"\n".to_owned(),
            "t.yaml:4: providers.a: base_url: it must be an address",
        ),
        (
            traces("x-key: Bearer sk-abc123"),
            "t.yaml:4: traces.headers_env.x-key: it must be the name of an environment variable",
        ),
    ] {
        let error = parse(&text).expect_err(&text).to_string();
        assert!(error.starts_with(place) && !error.contains("abc123"), "{error}");
        let all = mistakes::of_config(Path::new("t.yaml"), &text, &|_| None);
        assert!(all.iter().all(|error| !error.to_string().contains("abc123")), "{all:?}");
        assert_eq!(all.first().and_then(|error| error.line), Some(4));
    }
}
